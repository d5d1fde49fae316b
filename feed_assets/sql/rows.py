"""Write values as rows of a table and read them back, by their keys or many at once.

Fields and columns have the same names; the column types convert the values. One JSON parameter has thousands of keys or
rows, and a statement reads or joins them. So it has the same text for one key as for thousands, and SQLAlchemy compiles
it once. Measured with 60,000 new rows of four indexes: it takes half as long as many parameters on SQLite, a third on
PostgreSQL.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Select,
    Subquery,
    Table,
    TextClause,
    and_,
    bindparam,
    cast,
    column,
    delete,
    func,
    insert,
    select,
    true,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

from feed_assets.masking import encodable
from feed_assets.pages import COUNTED, up_to
from feed_assets.sql.column_types import Text, UtcDateTime, to_micros

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql


def build_insert(dialect: str, table: Table) -> "sqlite.Insert | postgresql.Insert":
    """Return an insert that supports a conflict clause."""
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # measured: 18 ms, and a command with SQLite needs none of it

    return postgresql.insert(table)


@cache
def build_upsert(dialect: str, table: Table) -> Insert:
    """Return a statement that inserts a row, or replaces the other columns of the row with its primary key."""
    new = build_insert(dialect, table)
    keys = [column.key for column in table.primary_key]
    changes = {column.key: new.excluded[column.key] for column in table.columns if column.key not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=changes)


@cache
def build_insert_if_absent(dialect: str, table: Table) -> Insert:
    """Return a statement that inserts a row unless one with its primary key exists."""
    keys = [column.key for column in table.primary_key]
    return build_insert(dialect, table).on_conflict_do_nothing(index_elements=keys)


_MAY_BE_REFUSED = re.compile(r"\\u(?:0000|d)")  # \u0000, or a half of a pair: \udcff
_render = json.JSONEncoder(separators=(",", ":"), default=to_micros).encode

KEY_ROWS = "key_rows"
POSITION = "position"

_TIME_COLUMNS = frozenset({"nominal_time", "first", "last", "first_at", "last_at", "next_at", "by_at", "wake_at"})
_NUMBER_COLUMNS = frozenset(
    {"token", "pending", "first_seq", "marker_seq", "taken_seq", "event", "seq", "id", "episode"}
)


def render_rows(rows: Iterable[Sequence[object]]) -> str:
    """Render the value of the parameter `KEY_ROWS`; its texts are kept as those of columns are (see `Text`)."""
    listed = list(rows)
    text = _render(listed)
    if _MAY_BE_REFUSED.search(text):
        text = _render([[encodable(each) if isinstance(each, str) else each for each in row] for row in listed])
    return text


@cache  # measured: building the subquery takes longer than executing it
def key_rows(dialect: str, names: tuple[str, ...]) -> Subquery:
    """Return the rows in the parameter `KEY_ROWS` as a table: `position` (from 0) and a text, time or number for each
    name.
    """
    position, values = _read_rows(dialect, [_type_of(name) for name in names])
    labels = [value.label(name) for value, name in zip(values, names, strict=True)]
    return select(position.label(POSITION), *labels).subquery("wanted")


def _read_rows(dialect: str, types: Sequence[TypeEngine[Any]]) -> tuple[ColumnElement[int], list[ColumnElement[Any]]]:
    """Return the position of a row in the parameter `KEY_ROWS`, and its values."""
    parameter: BindParameter[str] = bindparam(KEY_ROWS, type_=Text)
    if dialect == "sqlite":
        entry = func.json_each(parameter).table_valued("key", "value", name="entry")
        return entry.c.key, [func.json_extract(entry.c.value, f"$[{i}]", type_=each) for i, each in enumerate(types)]
    from sqlalchemy.dialects.postgresql import JSONB  # as in `build_insert`

    entries = func.jsonb_array_elements(cast(parameter, JSONB))
    entry = entries.table_valued(column("value", JSONB), with_ordinality="place", name="entry").render_derived()
    return entry.c.place - 1, [cast(entry.c.value[i].astext, each) for i, each in enumerate(types)]


def count_rows(connection: Connection, statement: Select[Any], end: int, given: Mapping[str, Any] | None = None) -> int:
    """Return how many rows a statement selects, as far as they are counted for a page with an `end` (see `up_to`)."""
    some = statement.limit(max(COUNTED, end) + 1).subquery()
    return up_to(connection.scalar(select(func.count()).select_from(some), given) or 0, end)


@cache
def select_keyed(
    dialect: str, table: Table, names: tuple[str, ...], columns: tuple[ColumnElement[Any], ...]
) -> Select[Any]:
    """Select columns of the rows whose keys are in the parameter `KEY_ROWS`; `names` are the columns of the key."""
    keys = key_rows(dialect, names)
    is_match = and_(*(table.c[name] == keys.c[name] for name in names))
    return select(*columns).join_from(keys, table, is_match)


def _type_of(name: str) -> TypeEngine[Any]:
    if name in _NUMBER_COLUMNS:
        return BigInteger()
    return UtcDateTime() if name in _TIME_COLUMNS else Text()


def insert_rows(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    *,
    replaces: bool = False,
) -> None:
    """Insert rows with values of the named columns: numbers, times and texts. With `replaces`,
    rows with the same primary key are overwritten.
    """
    if rows:
        statement = _build_insert(connection.dialect.name, table, names, replaces)
        connection.execute(statement, {KEY_ROWS: render_rows(rows)})


@cache
def _build_insert(dialect: str, table: Table, names: tuple[str, ...], replaces: bool) -> Insert:
    _, values = _read_rows(dialect, [table.c[name].type for name in names])
    new = build_insert(dialect, table)
    statement = new.from_select(list(names), select(*values).where(true()), include_defaults=False)
    if not replaces:
        return statement
    keys = [each.name for each in table.primary_key]
    changes = {name: new.excluded[name] for name in names if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changes)


T = TypeVar("T")


class RowMapper(Generic[T]):
    """Maps a dataclass or named tuple to the rows of a table.

    The caller handles fields without a column, and columns without a field. `select` selects `columns`, which `load`
    reads. Fields that are `derived` are read by an expression, and not written.
    """

    def __init__(self, table: Table, cls: Callable[..., T], **derived: ColumnElement[Any]) -> None:
        names = getattr(cls, "_fields", None) or [each.name for each in fields(cls)]  # type: ignore[arg-type]
        self._table = table
        self._cls = cls
        self._names = tuple(name for name in names if name in table.c)
        self._get: Callable[[T], tuple[Any, ...]] = attrgetter(*self._names)
        self._read = (*self._names, *derived)
        self.columns: tuple[ColumnElement[Any], ...] = (*(table.c[name] for name in self._names), *derived.values())
        self.select: Select[Any] = select(*self.columns)

    def values(self, value: T) -> dict[str, Any]:
        """Return the row of a value, by column."""
        return dict(zip(self._names, self._get(value), strict=True))

    def load(self, row: Sequence[Any], **others: Any) -> T:
        """Return the value in a row of `columns`; `others` are the fields without a column."""
        return self._cls(**dict(zip(self._read, row, strict=True)), **others)

    def find(
        self, connection: Connection, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> list[T]:
        """Return the values that a statement over `columns` selects."""
        return [self.load(row) for row in connection.execute(statement, parameters)]

    def find_one(self, connection: Connection, statement: Select[Any]) -> T | None:
        """Return the value that a statement over `columns` selects; None if there is none."""
        row = connection.execute(statement).one_or_none()
        return None if row is None else self.load(row)

    def of_keys(self, connection: Connection, names: tuple[str, ...], keys: Collection[Sequence[object]]) -> list[T]:
        """Return the values that have one of the keys in the named columns, in one statement."""
        return list(map(self.load, select_keys(connection, self._table, names, self.columns, keys)))

    def insert(self, connection: Connection, values: Iterable[T]) -> None:
        """Insert the rows of values, in the given order; no row has their keys yet."""
        self._write(connection, insert(self._table), values)

    def put(self, connection: Connection, values: Iterable[T]) -> None:
        """Insert the rows of values, in the given order, or replace those that have their keys."""
        self._write(connection, build_upsert(connection.dialect.name, self._table), values)

    def put_absent(self, connection: Connection, values: Iterable[T]) -> None:
        """Insert the rows of values, in the given order, whose keys no row has."""
        self._write(connection, build_insert_if_absent(connection.dialect.name, self._table), values)

    def add_new(self, connection: Connection, names: tuple[str, ...], values: Iterable[T]) -> list[T]:
        """Insert the rows of values whose keys, in the named columns, no row has; return those that were new, by key.

        Of two values with one key the last counts.
        """
        given = dict(sorted((attrgetter(*names)(value), value) for value in values))
        columns = tuple(self._table.c[name] for name in names)
        known = {tuple(row) for row in select_keys(connection, self._table, names, columns, given)}
        new = [value for key, value in given.items() if key not in known]
        if not new:
            return []
        statement, rows = build_insert_if_absent(connection.dialect.name, self._table), list(map(self.values, new))
        if connection.dialect.name == "sqlite":  # where nobody else has added one meanwhile
            connection.execute(statement, rows)
            return new
        return [given[tuple(row)] for row in connection.execute(statement.returning(*columns), rows)]

    def _write(self, connection: Connection, statement: Insert, values: Iterable[T]) -> None:
        rows = [self.values(value) for value in values]
        if rows:
            connection.execute(statement, rows)


class TableStore:
    """Tables as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = connection.dialect.name


def select_keys(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    columns: tuple[ColumnElement[Any], ...],
    keys: Collection[Sequence[object]],
    *conditions: ColumnElement[bool] | TextClause,
) -> Sequence[Any]:
    """Return columns of the rows that have one of the keys in the named columns, and meet some conditions, in one
    statement.
    """
    if not keys:
        return ()
    statement = select_keyed(connection.dialect.name, table, names, columns).where(*conditions)
    return connection.execute(statement, {KEY_ROWS: render_rows(keys)}).all()


def has_key(table: Table, names: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition that a row has the key in the parameters from `key_parameters`."""
    return and_(*(table.c[name] == bindparam(f"of_{name}") for name in names))


def key_parameters(names: Iterable[str], key: Iterable[Any]) -> dict[str, Any]:
    """Return the parameters for `has_key`."""
    return {f"of_{name}": value for name, value in zip(names, key, strict=True)}


def delete_keys(connection: Connection, table: Table, names: Sequence[str], keys: Iterable[tuple[Any, ...]]) -> None:
    """Delete the rows that have one of the keys."""
    parameters = [key_parameters(names, key) for key in sorted(keys)]
    if parameters:
        connection.execute(delete(table).where(has_key(table, names)), parameters)
