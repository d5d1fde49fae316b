"""The words by which an entity is found. The semantics are those of CDAP's search.

A text is found as a whole and by its words, in small letters, with the field that has it: the name of the property,
`tags`, `schema`, `entity-name`, or the kind of the entity. The field `properties` has the names of properties.
A record schema in Avro's JSON is found by its fields, nested ones too.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any
from unicodedata import normalize

from feed_assets.catalog.search.records import PROPERTIES_FIELD
from feed_assets.catalog.store import Token
from feed_assets.entities.content.columns import names_of_type
from feed_assets.entities.metadata import Metadata, MetadataKind, Scope

NAME_FIELD = "entity-name"
TAGS_FIELD = "tags"
SCHEMA = "schema"

_NAME, _TAG, _TEXT, _LISTED = 4, 2, 1, 0
_SEPARATORS = re.compile(r"[\s,\-_:]+")
PUNCTUATION = ".,:;!?()[]\"'“”„‘’«»…"
_OF_SENTENCES = re.compile(rf"(?:['’]s\b|[\s\-_{re.escape(PUNCTUATION.removeprefix('.'))}])+")  # the patient's (v2.1)
_LONGEST = 200
"""The characters of a token. A longer text is found by its beginning with a star, and whole by its digest."""


def index_entity(path: str, kind: str, name: str, metadata: Metadata) -> set[Token]:
    """Return the tokens of an entity. Its name has the scope of the program if that describes it, else of people."""
    scope = Scope.SYSTEM if any(key.scope is Scope.SYSTEM for key in metadata) else Scope.USER
    found = [Token(fold(path), NAME_FIELD, scope, _NAME)]
    found += [token for field in (NAME_FIELD, kind) for token in _iter_text(name, field, scope, _NAME)]
    for key, each in metadata.items():
        if key.kind is MetadataKind.TAG:
            found += _iter_text(key.name, TAGS_FIELD, key.scope, _TAG)
            continue
        field = fold(key.name)
        found.append(Token(field, PROPERTIES_FIELD, key.scope, _LISTED))
        for text in (field == SCHEMA and _read_schema(each.value)) or [each.value]:
            found += _iter_text(text, field, key.scope, _TEXT)
    heaviest = {token[:3]: token for token in sorted(found, key=attrgetter("weight"))}
    return set(heaviest.values())


def fold(text: str) -> str:
    """Return a text as it stands in the index.

    >>> fold("Dep_Delay"), fold("GRÖSSE") == fold("Größe"), len(fold("a" * 4096))
    ('dep_delay', True, 241)
    """
    text = small(text.strip())
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} {hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()}"


def small(text: str) -> str:
    """Return a text in small letters, the same for each way to write a letter."""
    return text.lower() if text.isascii() else normalize("NFKC", normalize("NFKC", text).casefold())


def parse_number(text: str) -> float | None:
    """Return the number that a text is, or the seconds since 1970 if it is a date or time; None if it is neither.

    >>> parse_number("12"), parse_number("1970-01-02"), parse_number("many")
    (12.0, 86400.0, None)
    """
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.upper())
        except ValueError:
            return None
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return number if math.isfinite(number) else None


def _iter_text(text: str, field: str, scope: Scope, weight: int) -> Iterator[Token]:
    """Yield a whole text, and its words, which do not weigh more than text: those of CDAP, those between blanks as they
    are written, and those of sentences, without punctuation.
    """
    whole = fold(text)
    yield Token(whole, field, scope, weight, parse_number(text))
    words = {*_SEPARATORS.split(text), *(word.strip(PUNCTUATION + "-_") for word in text.split())}
    words |= {word.strip(PUNCTUATION) for word in _OF_SENTENCES.split(text)}
    yield from (Token(word, field, scope, _TEXT) for word in set(map(fold, words)) - {whole, ""})


def _read_schema(text: str) -> tuple[str, ...]:
    """Return each field of a schema alone and with each name of its type, and the names of records; else nothing.

    >>> _read_schema('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "null"]}]}')
    ('r', 'r:record', 'a', 'a:int', 'a:integer')
    >>> _read_schema("plain text")
    ()
    """
    try:
        found = json.loads(text)
        return tuple(dict.fromkeys(_of_type(found))) if _kind_of(found) == "record" else ()
    except (ValueError, RecursionError):
        return ()


def _kind_of(found: Any) -> str:
    """Return the name of a type, "" if it has none; that of a union with null is the other one."""
    parts = _parts(found)
    if len(parts) != 1:
        return "union"
    (part,) = parts
    return _kind_of(part.get("type")) if isinstance(part, dict) else str(part or "")


def _parts(found: Any) -> list[Any]:
    return [part for part in found if part != "null"] if isinstance(found, list) else [found]


def _of_type(found: Any) -> Iterator[str]:
    """Yield what stands inside a type: records by their names, and their fields."""
    for part in _parts(found):
        if not isinstance(part, dict):
            continue
        fields = part.get("fields")
        if isinstance(fields, list):
            yield from _named(part.get("name"), "record")
            for each in fields:
                if isinstance(each, dict):
                    yield from _named(each.get("name"), _kind_of(each.get("type")))
                    yield from _of_type(each.get("type"))
        for inner in ("type", "items", "values", "keys"):
            yield from _of_type(part.get(inner))


def _named(name: Any, kind: str) -> Iterator[str]:
    if isinstance(name, str) and name:
        yield name
        yield from (f"{name}:{each}" for each in sorted(names_of_type(kind)))
