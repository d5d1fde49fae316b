"""Move the rows of a staging table into their target in one transaction: what each database needs for that.

Rows are updated by one statement and the new ones inserted by another, which gives the same as `INSERT … ON CONFLICT`
of PostgreSQL. `ON DUPLICATE KEY UPDATE` of MariaDB would also change rows that have another unique key in common.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from feed_assets.engines.databases.connections import DatabaseConnection
from feed_assets.engines.databases.dialects import Value
from feed_assets.engines.errors import ServiceError

LOCK_SECONDS = 60
"""How long a statement waits for what others have locked, and how long a transaction may be idle."""
_YEAR = 365 * 24 * 60 * 60  # the most that MariaDB takes
EXAMPLES = 5


class Move(ABC):
    """Statements of one connection about a staging table and its target, and the columns that both have; `key` are some
    of those. Nothing is committed here but the staging table itself.
    """

    unlogged = ""
    """What makes a table that need not outlive a crash of the server."""
    same: str
    """Whether values `{t}` and `{s}` are equal, or both null."""
    change: str
    """How rows of the target `{t}` that match those of `{s}` are `{set}`."""
    changed = ""
    """What stands before the columns that are set."""

    def __init__(
        self, connection: DatabaseConnection, target: str, staging: str, columns: Sequence[str], key: Sequence[str]
    ) -> None:
        self._connection = connection
        self._table = target
        self._target, self._staging = connection.quote(target), connection.quote(staging)
        self._names = [connection.dialect.quoted(each) for each in columns]
        self.key = [connection.dialect.quoted(each) for each in key]
        self._matches = " AND ".join(f"t.{each} = s.{each}" for each in self.key)
        self._same = " AND ".join(self.same.format(t=f"t.{each}", s=f"s.{each}") for each in self._names)

    @abstractmethod
    def begin(self) -> None:
        """Let nothing of this session wait longer than that, but for Spark, which may write for hours."""

    @abstractmethod
    def lock(self) -> None:
        """Keep other exports from the target until the transaction ends, and on PostgreSQL whoever else writes it.

        Raises:
            ServiceError: somebody has it for too long; it is named if the database tells.
        """

    def find_obstacle(self) -> str | None:
        """Return why the target cannot change at one moment, as a clause; None if it can."""
        return None

    def create(self) -> None:
        """Make the staging table with the types of the target, where any column may be null."""
        columns = ", ".join(f"t.{each}" for each in self._names)
        rows = f"SELECT {columns} FROM (SELECT 1 AS one) o LEFT JOIN {self._target} t ON 1 = 0 WHERE 1 = 0"
        self._connection.execute(f"CREATE {self.unlogged}TABLE {self._staging} AS {rows}")
        self._connection.commit()

    def count(self) -> int:
        """Return the staged rows."""
        return self._number(f"SELECT count(*) FROM {self._staging}")

    def find_nulls(self) -> tuple[int, list[tuple[Value, ...]]]:
        """Return how many staged rows have no key, and examples."""
        lacks = " OR ".join(f"{each} IS NULL" for each in self.key)
        return self._find(f"SELECT {', '.join(self.key)} FROM {self._staging} WHERE {lacks}")

    def find_doubles(self) -> tuple[int, list[tuple[Value, ...]]]:
        """Return how many keys several staged rows have, and examples with the number of rows."""
        key = ", ".join(self.key)
        return self._find(f"SELECT {key}, count(*) FROM {self._staging} GROUP BY {key} HAVING count(*) > 1")

    def find_others(self) -> tuple[int, list[tuple[Value, ...]]]:
        """Return how many rows of the target have the key of a staged one with other values, and examples."""
        keys = ", ".join(f"s.{each}" for each in self.key)
        rows = f"{self._staging} s JOIN {self._target} t ON {self._matches}"
        return self._find(f"SELECT {keys} FROM {rows} WHERE NOT ({self._same})")

    def find_strangers(self, column: str, value: Value) -> tuple[int, list[tuple[Value, ...]]]:
        """Return how many staged rows have another value in a column, and examples."""
        name = self._connection.dialect.quoted(column)
        return self._find(f"SELECT {name} FROM {self._staging} WHERE {name} IS NULL OR {name} <> ?", value)

    def update(self) -> int:
        """Change the rows of the target that have the key of a staged one; return how many have it. A key that is all
        there is, is set to itself.
        """
        rest = [each for each in self._names if each not in self.key]
        values = ", ".join(f"{self.changed}{each} = s.{each}" for each in rest or self.key)
        return self._connection.execute(
            self.change.format(t=self._target, s=self._staging, matches=self._matches, set=values)
        )

    def insert(self, lacking: Literal["key", "row"] | None) -> int:
        """Insert the staged rows, or those whose key or whose row the target lacks; return how many."""
        names, columns = ", ".join(self._names), ", ".join(f"s.{each}" for each in self._names)
        matches = {"key": self._matches, "row": f"{self._matches} AND {self._same}"}
        lacks = f" WHERE NOT EXISTS (SELECT 1 FROM {self._target} t WHERE {matches[lacking]})" if lacking else ""
        return self._connection.execute(
            f"INSERT INTO {self._target} ({names}) SELECT {columns} FROM {self._staging} s{lacks}"
        )

    def delete(self, column: str, value: Value) -> int:
        """Delete the rows of the target that have a value in a column; return how many."""
        name = self._connection.dialect.quoted(column)
        return self._connection.execute(f"DELETE FROM {self._target} WHERE {name} = ?", value)

    def _number(self, sql: str, *values: Value) -> int:
        ((found,),) = self._connection.query(sql, *values)
        return int(str(found))

    def _find(self, sql: str, *values: Value) -> tuple[int, list[tuple[Value, ...]]]:
        found = self._number(f"SELECT count(*) FROM ({sql}) found", *values)
        return found, self._connection.query(f"{sql} LIMIT {EXAMPLES}", *values) if found else []

    def _held(self, by: str) -> ServiceError:
        return ServiceError(
            service=f"the table {self._table} of {self._connection.address.url}",
            reason=f"it was locked for {LOCK_SECONDS} seconds{by}",
            next_step="Let that end, and run the instance again.",
        )


class _PostgresMove(Move):
    """A lock of the table keeps writers waiting, not readers; it ends if this program no longer answers."""

    unlogged = "UNLOGGED "
    same = "CAST({t} AS text) IS NOT DISTINCT FROM CAST({s} AS text)"  # not every type can be compared
    change = "UPDATE {t} AS t SET {set} FROM {s} AS s WHERE {matches}"

    def begin(self) -> None:
        settings = {"lock_timeout": LOCK_SECONDS, "idle_in_transaction_session_timeout": LOCK_SECONDS}
        for setting, seconds in {**settings, "idle_session_timeout": 0}.items():  # the last since PostgreSQL 14
            sql = "SELECT set_config(name, ?, false) FROM pg_settings WHERE name = ?"
            self._connection.query(sql, f"{seconds}s", setting)
        self._connection.commit()

    def lock(self) -> None:
        try:
            self._connection.execute(f"LOCK TABLE {self._target} IN SHARE ROW EXCLUSIVE MODE")
        except ServiceError as exc:
            self._connection.rollback()
            if "lock timeout" not in exc.reason:
                raise
            raise self._held(self._holder()) from exc

    def _holder(self) -> str:
        sql = (
            "SELECT a.pid, a.usename, a.application_name, a.state FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE l.relation = to_regclass(?) AND l.granted AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')"
        )
        found: Sequence[Any] = ()
        with suppress(ServiceError):
            found = self._connection.query(sql, self._target)
        told = (f"process {pid} of {user} ({', '.join(filter(None, facts))})" for pid, user, *facts in found)
        return f" by {' and '.join(told)}" if found else ""


class _MariaMove(Move):
    """A named lock keeps other exports waiting. `LOCK TABLES` would keep readers waiting, too, and end the transaction;
    other writers meet the rows that a statement has locked.
    """

    same = "BINARY {t} <=> BINARY {s}"  # else letters of both cases are the same
    change, changed = "UPDATE {t} t JOIN {s} s ON {matches} SET {set}", "t."

    def begin(self) -> None:
        for setting in ("lock_wait_timeout", "innodb_lock_wait_timeout"):
            self._connection.execute(f"SET SESSION {setting} = {LOCK_SECONDS}")
        self._connection.execute(f"SET SESSION wait_timeout = {_YEAR}")
        modes = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO"  # else each repeat inserts a 0 under a new number
        self._connection.execute(f"SET SESSION sql_mode = CONCAT(@@sql_mode, ',{modes}')")

    def find_obstacle(self) -> str | None:
        schema, _, name = self._table.rpartition(".")
        sql = (
            "SELECT t.engine FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine "
            "WHERE t.table_schema = ? AND t.table_name = ? AND e.transactions <> 'YES'"
        )
        found = self._connection.query(sql, schema or self._connection.schema(), name)
        return f"its engine {found[0][0]!s} has no transactions" if found else None

    def lock(self) -> None:
        self._connection.execute(f"SET SESSION wait_timeout = {LOCK_SECONDS}")
        if self._number("SELECT COALESCE(GET_LOCK(?, ?), 0)", self._lock_name, LOCK_SECONDS) != 1:
            sql = "SELECT id, user, host FROM information_schema.processlist WHERE id = IS_USED_LOCK(?)"
            found: Sequence[Sequence[Any]] = self._connection.query(sql, self._lock_name)
            told = (f" by connection {number} of {user} from {host}" for number, user, host in found)
            raise self._held("".join(told))

    @property
    def _lock_name(self) -> str:
        schema, _, name = self._table.rpartition(".")
        place = f"{schema or self._connection.schema()}.{name}".lower()
        return f"feed-assets:{hashlib.sha256(place.encode()).hexdigest()[:40]}"


MOVES: Mapping[str, type[Move]] = {"postgres": _PostgresMove, "mysql": _MariaMove}
"""How rows are moved over a connection to a database of a writable type."""


def drop_staging(connection: DatabaseConnection, table: str) -> None:
    """Drop a staging table if it exists, after whatever is not committed is undone. Who may not make it, may not drop
    it either.
    """
    connection.rollback()
    schema, _, name = table.rpartition(".")
    if connection.tables(schema, name):
        connection.execute(f"DROP TABLE IF EXISTS {connection.quote(table)}")
    connection.commit()
