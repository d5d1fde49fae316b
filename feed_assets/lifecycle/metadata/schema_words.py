"""Read the fields of a record schema in Avro's JSON, nested ones too, as the words by which they are found."""

import json
from collections.abc import Iterator
from typing import Any

from feed_assets.entities.columns import names_of_type


def read_schema(text: str) -> tuple[str, ...]:
    """Return each field of a schema alone and with each name of its type, and the names of records; else nothing.

    >>> read_schema('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "null"]}]}')
    ('r', 'r:record', 'a', 'a:int', 'a:integer')
    >>> read_schema("plain text")
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
