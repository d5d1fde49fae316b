"""Write values as rows of a table and read them back.

Fields and columns have the same names; the column types convert the values.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    select,
)

from feed_assets.sql.keyed import KEY_ROWS, render_rows, select_keyed
from feed_assets.sql.upserts import build_insert_if_absent, build_upsert

T = TypeVar("T")


class RowMapper(Generic[T]):
    """Maps a dataclass or named tuple to the rows of a table.

    The caller handles fields without a column, and columns without a field. `select` selects `columns`, which `load`
    reads.
    """

    def __init__(self, table: Table, cls: Callable[..., T]) -> None:
        names = getattr(cls, "_fields", None) or [each.name for each in fields(cls)]  # type: ignore[arg-type]
        self._table = table
        self._cls = cls
        self._names = tuple(name for name in names if name in table.c)
        self._get: Callable[[T], tuple[Any, ...]] = attrgetter(*self._names)
        self.columns: tuple[Column[Any], ...] = tuple(table.c[name] for name in self._names)
        self.select: Select[Any] = select(*self.columns)

    def values(self, value: T) -> dict[str, Any]:
        """Return the row of a value, by column."""
        return dict(zip(self._names, self._get(value), strict=True))

    def load(self, row: Sequence[Any], **others: Any) -> T:
        """Return the value in a row of `columns`; `others` are the fields without a column."""
        return self._cls(**dict(zip(self._names, row, strict=True)), **others)

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
) -> Sequence[Any]:
    """Return columns of the rows that have one of the keys in the named columns, in one statement."""
    if not keys:
        return ()
    statement = select_keyed(connection.dialect.name, table, names, columns)
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
