"""List the names of properties, and the values that one of them has."""

from collections.abc import Sequence
from dataclasses import dataclass

from feed_assets.entities.metadata import Scope
from feed_assets.state.database import Database
from feed_assets.state.search_index import SearchIndex

MOST_KEYS = 1000
MOST_VALUES = 20
MOST_EXAMPLES = 10


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValues:
    """The values of a property, those of most entities first; `total` counts the values."""

    name: str
    entities: int
    values: tuple[PropertyValue, ...]
    total: int


def list_keys(database: Database, beginning: str, scope: Scope | None = None) -> Sequence[PropertyName]:
    """Return the names of properties that begin so, in order, with the number of entities that have each.

    They are those that `properties:` and their beginning find; hidden entities are not counted.
    """
    with database.read() as connection:
        found = SearchIndex(connection).count_keys(beginning.strip().lower(), scope, MOST_KEYS)
    return [PropertyName(name=name, entities=count) for name, count in found]


def show_key(database: Database, name: str, scope: Scope | None = None, limit: int = MOST_VALUES) -> PropertyValues:
    """Return the values of a property, at most so many; none if nothing has it."""
    with database.read() as connection:
        index = SearchIndex(connection)
        found = index.values_of(name.strip().lower(), scope, limit, MOST_EXAMPLES)
        entities, total = index.count_values(name.strip().lower(), scope)
    values = tuple(PropertyValue(value=value, count=count, entities=tuple(paths)) for value, count, paths in found)
    return PropertyValues(name=name.strip().lower(), entities=entities, values=values, total=total)
