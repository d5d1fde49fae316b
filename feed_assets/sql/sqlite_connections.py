"""SQLite connections that reject writes in a transaction begun for reading.

They replace `PRAGMA query_only`: after each pragma, SQLite prepares every statement again, which would take most of the
time of a tick.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any, Self

BEGIN_READING = "BEGIN"
BEGIN_WRITING = "BEGIN IMMEDIATE"

_READS = ("SELECT", "EXPLAIN", "PRAGMA")
_LONGEST = max(map(len, _READS))


class _GuardedCursor(sqlite3.Cursor):
    def __init__(self, connection: "GuardedConnection") -> None:
        super().__init__(connection)
        self._guarded = connection

    def execute(self, statement: str, parameters: Any = (), /) -> Self:
        self._check(statement)
        return super().execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Any], /) -> Self:
        self._check(statement)
        return super().executemany(statement, parameters)

    def _check(self, statement: str) -> None:
        if statement in (BEGIN_READING, BEGIN_WRITING):
            self._guarded.is_reading = statement == BEGIN_READING
        elif self._guarded.is_reading and not statement.lstrip()[:_LONGEST].upper().startswith(_READS):
            raise sqlite3.OperationalError("attempt to write in a read-only transaction")


class GuardedConnection(sqlite3.Connection):
    """A connection whose transactions begin with `BEGIN_READING` or `BEGIN_WRITING`."""

    is_reading = False

    def cursor(self, factory: Any = _GuardedCursor) -> Any:
        return super().cursor(factory)
