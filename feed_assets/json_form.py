"""The JSON form of results, shared by the command line and programs.

A result is a frozen dataclass. Its keys are its fields, except those that are `Hidden`, and its properties that are
`shown`. Nominal times are written to the minute, other times in full. Unknown values are null.
"""

from dataclasses import is_dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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


__all__ = ["VERSION", "Hidden", "NominalTime", "ShownError", "ShownKey", "render_document", "shown"]

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


def _render(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _adapter(type(value)).dump_python(value, mode="json")
    return [_render(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
