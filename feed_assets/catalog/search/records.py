"""What searches look for among described entities, and what they find."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

from feed_assets.entities.metadata import Scope
from feed_assets.operation import Param
from feed_assets.pages import tell_shown

PROPERTIES_FIELD = "properties"
"""The field with the names of properties. A word alone is not looked for there."""
PAGE = 20

OnlyScope = Annotated[Scope | None, Param("Only what this scope says.", metavar="user|system")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What is looked for. A `cursor` of an earlier page replaces `offset` and `limit`; it needs an order, as do
    `cursors`, the number of pages behind this one whose cursors are wanted.
    """

    text: Annotated[str, Param("The terms.", argument=True)] = "*"
    kinds: Annotated[
        tuple[str, ...], Param("Only this kind, such as feed or column.", option="target", metavar="KIND")
    ] = ()
    scope: OnlyScope = None
    sort: Annotated[
        str | None, Param("entity-name or creation-time, asc or desc; else the best first.", metavar="ORDER")
    ] = None
    offset: Annotated[int, Param("Leave out so many.")] = 0
    limit: Annotated[int, Param("At most so many, up to 1000.")] = PAGE
    cursor: Annotated[str | None, Param("Go on at a cursor of an earlier page.")] = None
    cursors: Annotated[int, Param("Give the cursors of so many more pages; needs --sort.")] = 0
    hidden: Annotated[bool, Param("Also entities whose names begin with an underscore.")] = False


class Comparison(StrEnum):
    """The comparisons of numbers."""

    EQUAL = "=="
    AT_LEAST = ">="
    AT_MOST = "<="
    ABOVE = ">"
    BELOW = "<"


class SearchOrder(StrEnum):
    """The orders of what is found; without one, what matches best comes first."""

    NAME_ASC = "entity-name asc"
    NAME_DESC = "entity-name desc"
    AGE_ASC = "creation-time asc"
    AGE_DESC = "creation-time desc"

    @property
    def is_by_age(self) -> bool:
        """Whether the order is that of time, else of names."""
        return self in (SearchOrder.AGE_ASC, SearchOrder.AGE_DESC)

    @property
    def is_descending(self) -> bool:
        """Whether the last comes first."""
        return self in (SearchOrder.NAME_DESC, SearchOrder.AGE_DESC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A condition on one token: its `text`, or the beginning of it; in one `field`, or in any but `properties`."""

    text: str
    is_beginning: bool = False
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of a query: any of the `matches`, a field that begins with `field_beginning`, or a `field` whose number
    compares so with `number`.
    """

    matches: tuple[Match, ...] = ()
    field_beginning: str | None = None
    is_required: bool = False
    field: str = ""
    comparison: Comparison | None = None
    number: float = 0.0


class Position(NamedTuple):
    """A place between entities in an order: behind the one with this name or time, and this number."""

    value: str | datetime
    entity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """What is looked for: entities that meet any of the `terms` and all that are required, of some `kinds`; all without
    terms and kinds. A `scope` limits where terms are met, or without terms to what it describes. `after` needs an
    order. `without` are the numbers of entities that are left out.
    """

    terms: tuple[Term, ...]
    kinds: Collection[str] = ()
    scope: Scope | None = None
    shows_hidden: bool = False
    order: SearchOrder | None = None
    after: Position | None = None
    without: tuple[int, ...] = ()


class Hit(NamedTuple):
    """An entity that was found, its position in an order, and how many terms it meets."""

    entity: int
    name: str
    created_at: datetime
    terms: int

    def position(self, order: SearchOrder) -> Position:
        """Return the place behind it."""
        return Position(self.created_at if order.is_by_age else self.name, self.entity)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyName:
    """A name of properties, in small letters, and how many entities have such a property."""

    name: str
    entities: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValue:
    """A value of a property, how many entities have it, and the first ten of these by name."""

    value: str
    count: int
    entities: tuple[str, ...]

    @property
    def which(self) -> tuple[str, ...]:
        """The entities, and a sign if there are more."""
        return (*self.entities, "…") if self.count > len(self.entities) else self.entities


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValues:
    """The values of a property, those of most entities first; `total` counts the values."""

    name: str
    entities: int
    values: tuple[PropertyValue, ...]
    total: int

    @property
    def summary(self) -> str:
        """How many of all values are here, if not all are."""
        if not self.total:
            return f"nothing has a property {self.name!r}"
        return tell_shown(len(self.values), self.total, "values", "--limit shows more")
