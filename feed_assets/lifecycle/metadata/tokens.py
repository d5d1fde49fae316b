"""The words by which an entity is found. The semantics are those of CDAP's search.

A text is found as a whole and by its words, in small letters, with the field that has it: the name of the property,
`tags`, `schema`, `entity-name`, or the kind of the entity. The field `properties` has the names of properties.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from feed_assets.entities.metadata import Metadata, MetadataKind, Scope
from feed_assets.state.metadata_store import Token
from feed_assets.state.search_index import PROPERTIES_FIELD

NAME_FIELD = "entity-name"
TAGS_FIELD = "tags"
SCHEMA = "schema"

_NAME, _TAG, _TEXT, _LISTED = 4, 2, 1, 0
_SEPARATORS = re.compile(r"[\s,\-_:]+")
_LONGEST = 200
"""The characters of a token. A longer text is found by its beginning with a star, and whole by its digest."""


def index_entity(path: str, kind: str, name: str, metadata: Metadata, *, is_declared: bool) -> set[Token]:
    """Return the tokens of an entity. The name of one that is declared is found in the scope SYSTEM."""
    scope = Scope.SYSTEM if is_declared else Scope.USER
    found = {Token(fold(name), kind, scope, _NAME), *_iter_text(name, NAME_FIELD, scope, _NAME)}
    found |= {Token(fold(path), NAME_FIELD, scope, _NAME)}
    for key, each in metadata.items():
        if key.kind is MetadataKind.TAG:
            found.update(_iter_text(key.name, TAGS_FIELD, key.scope, _TAG))
            continue
        found.add(Token(fold(key.name), PROPERTIES_FIELD, key.scope, _LISTED))
        fields = list(_iter_fields(each.value)) if key.name.lower() == SCHEMA else []
        for text in fields or [each.value]:
            found.update(_iter_text(text, fold(key.name), key.scope, _TEXT))
    heaviest: dict[tuple[str, str, Scope], Token] = {}
    for token in found:
        same = heaviest.get(token[:3])
        if same is None or token.weight > same.weight:
            heaviest[token[:3]] = token
    return set(heaviest.values())


def fold(text: str) -> str:
    """Return a text as it stands in the index.

    >>> fold("Dep_Delay"), len(fold("a" * 4096))
    ('dep_delay', 241)
    """
    text = text.strip().lower()
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} {hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()}"


def parse_number(text: str) -> float | None:
    """Return the number that a text is, or the seconds since 1970 if it is a date or time; None if it is neither.

    >>> parse_number("12"), parse_number("1970-01-02"), parse_number("many")
    (12.0, 86400.0, None)
    """
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text if "T" in text else f"{text}T00:00:00")
        except ValueError:
            return None
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return number if math.isfinite(number) else None


def _iter_text(text: str, field: str, scope: Scope, weight: int) -> Iterator[Token]:
    """Yield a whole text, and its words, which do not weigh more than text."""
    whole = fold(text)
    yield Token(whole, field, scope, weight, parse_number(text))
    words = {fold(word) for word in _SEPARATORS.split(text.lower()) if word}
    yield from (Token(word, field, scope, _TEXT) for word in words - {whole})


def _iter_fields(schema: str) -> Iterator[str]:
    """Yield the fields of a record schema in Avro's JSON, each alone and with its type; none of another text."""
    try:
        found = json.loads(schema)
    except ValueError:
        return
    if isinstance(found, Mapping) and found.get("type") == "record":
        yield from _iter_record(found)


def _iter_record(record: Mapping[str, Any]) -> Iterator[str]:
    for each in record.get("fields") or ():
        if isinstance(each, Mapping) and isinstance(each.get("name"), str):
            yield from _iter_field(each["name"], each.get("type"))


def _iter_field(name: str, kind: Any) -> Iterator[str]:
    yield name
    if isinstance(kind, list):
        parts = [each for each in kind if each != "null"]
        if len(parts) == 1:
            yield from list(_iter_field(name, parts[0]))[1:]
            return
        yield f"{name}:union"
        for part in parts:
            yield from _iter_nested(part)
        return
    if isinstance(kind, Mapping):
        yield f"{name}:{kind.get('type')}"
        yield from _iter_nested(kind)
        return
    yield f"{name}:{kind}"


def _iter_nested(kind: Any) -> Iterator[str]:
    if not isinstance(kind, Mapping):
        return
    yield from _iter_record(kind)
    for part in ("items", "values", "keys"):
        yield from _iter_nested(kind.get(part))
