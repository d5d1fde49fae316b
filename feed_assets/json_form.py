"""The JSON form of results, shared by the command line and programs; and the only parser of JSON that they hand in.

A result is a frozen dataclass. Its keys are its fields, except those that are `Hidden`, its properties that are
`shown`, and what it `shows` of a record that it holds. Nominal times are written to the minute, other times in full.
Unknown values are null.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from functools import cache, reduce
from operator import attrgetter
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import Field, GetCoreSchemaHandler, PlainSerializer, TypeAdapter, computed_field
from pydantic_core import CoreSchema, core_schema

from feed_assets.issues import EntityKey
from feed_assets.masking import mask_values
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from builtins import property as shown
else:

    def shown(method):
        """Make a method a property that is a key of the JSON form."""
        return computed_field(property(method))


__all__ = [
    "VERSION",
    "Hidden",
    "NominalTime",
    "ShownError",
    "ShownKey",
    "parse_json",
    "render_document",
    "render_words",
    "shown",
    "shows",
]

VERSION = 2

_Value = TypeVar("_Value")


class _AnyValue:
    """Accepts any type for a field, whether pydantic knows it or not."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()


Hidden = Annotated[_Value, Field(exclude=True), _AnyValue()]
ShownKey = Annotated[
    EntityKey,
    PlainSerializer(lambda key: dict(zip(("kind", "name"), key, strict=True)), return_type=dict[str, str]),
]
NominalTime = Annotated[datetime, PlainSerializer(render_datetime, return_type=str, when_used="json")]
ShownError = Annotated[_Value, _AnyValue(), PlainSerializer(str, return_type=str)]


def shows(field: str, names: str) -> Callable[[type[_Value]], type[_Value]]:
    """Make attributes of a record in a field attributes and keys of the value that holds it, some by another name, such
    as `at=line` and `at=source.line`. They are None without a record.

    >>> from dataclasses import dataclass
    >>> from feed_assets.issues import Source
    >>> @shows("source", "file, at=line")
    ... @dataclass
    ... class Place:
    ...     source: Hidden[Source]
    >>> render_document(Place(Source(file="a.yaml", line=3)))
    {'version': 2, 'file': 'a.yaml', 'at': 3}
    """

    def show(cls: type[_Value]) -> type[_Value]:
        kind = get_type_hints(cls)[field]
        is_optional = get_origin(kind) is UnionType
        (record,) = (each for each in get_args(kind) if each is not NoneType) if is_optional else (kind,)
        for name in names.split(", "):
            key, _, path = name.partition("=")
            found = reduce(_type_of, (path or key).split("."), record)
            setattr(cls, key, _forward(field, path or key, found | None if is_optional else found))
        return cls

    return show


def _type_of(kind: Any, name: str) -> Any:
    types = get_type_hints(kind, include_extras=True)
    return types[name] if name in types else get_type_hints(getattr(kind, name).fget, include_extras=True)["return"]


def _forward(field: str, path: str, kind: Any) -> Any:
    get = attrgetter(path)

    def read(value: object) -> Any:
        record = getattr(value, field)
        return None if record is None else get(record)

    return computed_field(return_type=kind)(property(read))


def render_document(result: object = None, /, **members: object) -> dict[str, Any]:
    """Return a JSON document without secrets: the version of the form, the keys of a result, and members by name.

    >>> from datetime import UTC
    >>> from feed_assets.issues import Source
    >>> render_document(Source(file="a.yaml", line=3), names=["clicks"])
    {'version': 2, 'file': 'a.yaml', 'line': 3, 'column': None, 'names': ['clicks']}
    """
    keys = {} if result is None else _render(result)
    rendered = {"version": VERSION, **keys, **{name: _render(value) for name, value in members.items()}}
    masked: dict[str, Any] = mask_values(rendered)
    return masked


def parse_json(text: str | bytes) -> Any:
    """Parse JSON that a person or a program hands in.

    Raises:
        ValueError: it is not JSON in UTF-8, it is nested too deep, or an object has a key twice.

    >>> parse_json('{"rows": 1, "rows": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'rows' stands twice in one object
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode(), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError as exc:
        raise ValueError("it is not UTF-8") from exc
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _without_repeats(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} stands twice in one object")
        found[name] = value
    return found


def _render(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _adapter(type(value)).dump_python(value, mode="json")
    return [_render(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def render_words(value: object, *, is_within: bool = False) -> str:
    """Return a value of JSON for people, who miss nothing that is empty.

    >>> render_words({"version": 2, "previous": {}, "said": {"properties": {"owner": "ann"}, "tags": ["a", "b"]}})
    'version: 2; said: (properties: (owner: ann); tags: a, b)'
    """
    if isinstance(value, Mapping):
        told = ((name, render_words(each, is_within=True)) for name, each in value.items())
        text = "; ".join(f"{name}: {each}" for name, each in told if each)
        return f"({text})" if text and is_within else text
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, (render_words(each, is_within=True) for each in value)))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
