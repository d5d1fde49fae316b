"""What queries for entities can name; the command line needs it without the state."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.operation import Param
from feed_assets.parameters import SCHEDULABLE, End, Offset, Results, Start

PAGE = 10

NameSequence = Annotated[str, Param("Names with these letters in this order, in any case.", option="nameseq")]
TagKeys = Annotated[tuple[str, ...], Param("Each occurs in the tags, in any case.", option="tagkeys", commas=True)]


class ListField(StrEnum):
    """The fields shown of an entity besides its kind and name."""

    STATUS = "STATUS"
    TAGS = "TAGS"
    PIPELINES = "PIPELINES"
    CLUSTERS = "CLUSTERS"
    INPUTS = "INPUTS"
    OUTPUTS = "OUTPUTS"


class FilterField(StrEnum):
    """The fields by which entities are filtered."""

    TYPE = "TYPE"
    NAME = "NAME"
    STATUS = "STATUS"
    PIPELINES = "PIPELINES"
    CLUSTER = "CLUSTER"


class Form(StrEnum):
    """The form in which a definition is shown: as written, or rendered anew."""

    WRITTEN = "written"
    YAML = "yaml"
    XML = "xml"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class ListQuery:
    """The conditions, order and page of a list. All conditions must hold; of several filters by one field, one is
    enough.
    """

    name_sequence: NameSequence = ""
    tag_keys: TagKeys = ()
    tags: Annotated[tuple[str, ...], Param("Each name=value is a tag.", commas=True)] = ()
    filter_by: Annotated[
        tuple[str, ...], Param(f"FIELD:value with FIELD one of {', '.join(FilterField)}.", commas=True)
    ] = ()
    order_by: Annotated[Literal["name"], Param("The sort key.")] = "name"
    sort_order: Annotated[Literal["asc", "desc"], Param("The order of names.")] = "asc"
    offset: Annotated[int, Param("How many to skip.")] = 0
    num_results: Annotated[int, Param("How many to show.", least=1)] = PAGE

    def __post_init__(self) -> None:
        if wrong := [text for text in self.tags if "=" not in text]:
            raise WrongUsageError(f"--tags: {wrong[0]!r} is not name=value.")

    @cached_property
    def filters(self) -> Mapping[FilterField, tuple[str, ...]]:
        """The wanted values of each field.

        Raises:
            WrongUsageError: there is no such field.
        """
        by: dict[FilterField, tuple[str, ...]] = {}
        for text in self.filter_by:
            name, found, value = text.partition(":")
            field = name.upper()
            if not found or field not in list(FilterField):
                names = ", ".join(FilterField)
                raise WrongUsageError(f"--filter-by: {text!r} is not FIELD:value with FIELD one of {names}.")
            by[FilterField(field)] = (*by.get(FilterField(field), ()), value)
        return by

    @property
    def page(self) -> slice:
        """Which of all entities are wanted."""
        start = max(0, self.offset)
        return slice(start, start + self.num_results)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """The conditions of a search for instances. All must hold; of several values of one condition, one is enough.

    `name_sequence` and `tag_keys` work as in entity lists. `start` None is ten instances of each entity before the
    `end`; `end` None is now.
    """

    kinds: Annotated[
        tuple[Kind, ...], Param("Only feeds, or only processes.", option="kind", of=SCHEDULABLE, commas=True)
    ] = ()
    name_sequence: NameSequence = ""
    tag_keys: TagKeys = ()
    statuses: Annotated[tuple[str, ...], Param("Only with one of these states.", option="status", commas=True)] = ()
    order_by: Annotated[Literal["status"] | None, Param("By state; by default the newest first.")] = None
    start: Start = None
    end: End = None
    offset: Offset = 0
    results: Results = PAGE
