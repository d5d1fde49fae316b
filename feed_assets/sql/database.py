"""Open the state database, make its tables, manage transactions, and lock parts of the state for writing.

SQLite and PostgreSQL behave alike: a write transaction waits for others instead of failing, and a read transaction sees
the database at one moment. On SQLite a write transaction has all locks; on PostgreSQL each is a lock. SQLite's
connections reject writes in one begun for reading by themselves: after each pragma (`PRAGMA query_only`), it would
prepare every statement again, which would take most of the time of a tick.
"""

import fcntl
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event, inspect, make_url, select, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.schema import CreateSchema

from feed_assets.settings import DEFAULT_NAMESPACE, NAMESPACE, ScheduleMode, Settings
from feed_assets.sql.errors import StateError, StateSchemaError, StateUnreachableError
from feed_assets.sql.questions import stoppable
from feed_assets.sql.tables import SCHEMA_REVISION, VERSION_TABLE, load_tables, version
from feed_assets.sql.totals import forget_totals, write_totals

TELLS_LINEAGE, IS_EXPLICIT = "tells lineage", "is explicit"  # the keys in the `info` of a connection
LOCK_FAMILY = 0x66656564  # "feed"; advisory locks of this project have it as their first half
LOCK_KEY = ":family, hashtext(coalesce(current_schema(), '')) # :number"  # each namespace has locks of its own
STORE_LOCK = 4

_TABLES_LOCK = 1
_LOG_LOCK = 2
_DEFINITIONS_LOCK = 3
_QUEUES_LOCK = 5


def lock_log(connection: Connection) -> None:
    """Lock the event log and feed instances for writing until the transaction ends.

    On PostgreSQL this makes the order of sequence numbers the order of commits, and keeps two transactions that write
    the same instances from a deadlock. Locking again costs a round trip. On SQLite a write transaction has this lock
    already.
    """
    _lock(connection, _LOG_LOCK)


def tells_lineage(connection: Connection) -> bool:
    """Return whether messages about lineage are written in this transaction."""
    return bool(connection.info.get(TELLS_LINEAGE))


def lock_for_lineage(connection: Connection) -> None:
    """Lock the log if messages about lineage are written; for a transaction that else writes nothing there."""
    if tells_lineage(connection):
        lock_log(connection)


def lock_definitions(connection: Connection) -> None:
    """Lock definitions, their journal and the audit for writing until the transaction ends."""
    _lock(connection, _DEFINITIONS_LOCK)


def lock_queues(connection: Connection) -> None:
    """Lock the queues of triggers for writing until the transaction ends."""
    _lock(connection, _QUEUES_LOCK)


def _lock(connection: Connection, number: int) -> None:
    if connection.dialect.name == "postgresql":
        statement = text(f"SELECT pg_advisory_xact_lock({LOCK_KEY})")
        connection.execute(statement, {"family": LOCK_FAMILY, "number": number})


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


LOCK_WAIT_SECONDS = 30
MEMORY_WAIT_SECONDS = 5
_KEPT_CONNECTIONS = 16
SQLITE_CACHE_KIB = 65_536

WRITE_AT = "Write %40 for each '@' of a user or a password."

_UNLIMITED: dict[str, Any] = {"pool_size": _KEPT_CONNECTIONS, "max_overflow": -1}
"""Whoever has a connection or a lock never waits for another connection: threads are limited instead."""
_FORBIDDEN = frozenset({"25006", "42501"})  # read only, insufficient privilege
_PRIMARY_CODE = 0xFF  # SQLite adds details in the higher bits
_WAL_ATTEMPTS = 300
_WAL_PAUSE_SECONDS = 0.1


class Database:
    """A SQLite or PostgreSQL database with the project's tables; created by `open_database`.

    One object serves all threads of a process, and a forked child. If it `tells_lineage`, its transactions write the
    messages about lineage; if it `is_explicit`, entities wait for a command that schedules them. Do not nest
    transactions in one thread: on SQLite the inner one waits in vain for the outer one.
    """

    def __init__(self, engine: Engine, url: URL, namespace: str | None) -> None:
        self.tells_lineage = self.is_explicit = False
        self._engine = engine
        self._url = url
        self._namespace = namespace
        self._process = os.getpid()
        self._file: tuple[int, int] | None = None
        self._is_current = False
        self._store_lock = threading.Lock()

    @property
    def name(self) -> str:
        """The URL without its password, for messages."""
        return self._engine.url.render_as_string(hide_password=True)

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        """The database system."""
        return "sqlite" if self._engine.dialect.name == "sqlite" else "postgresql"

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a write transaction: committed at the end of the block, rolled back on an exception.

        On SQLite it holds the single write lock from its start, so what it has read cannot change before it writes. On
        PostgreSQL this holds only for locked rows: write the log and feed instances before other tables (see
        `lock_log`), and decide by compare-and-set.

        Raises:
            StateError: the database refused, was locked for more than half a minute, or has another schema.
        """
        with self._translated():
            self._require_current()
            with self._connected() as connection, connection.begin():
                self._begin(connection, BEGIN_WRITING)
                forget_totals(connection)
                yield connection
                if connection.in_transaction():  # else it was rolled back
                    write_totals(connection)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection that sees the database at one moment and rejects writes.

        Raises:
            StateError: the database refused, or has another schema.
        """
        with self._translated():
            self._require_current()
            connection = self._connected()
            if self.dialect == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection, stoppable(connection):
                self._begin(connection, BEGIN_READING)
                yield connection

    def migrate(self) -> None:
        """Make the tables if there are none; refuse those of another release.

        Several processes may call it at once: one makes them and the others wait. A process that lives long calls it
        again and again: another release may use the database meanwhile, or a backup may have been restored.

        Raises:
            StateSchemaError: it has the tables of another release; nothing was changed.
            StateError: the database cannot be used.
        """
        with self._translated():
            self._is_current = False
            file_name = _file_name(self._engine.url)
            if file_name is not None:
                with suppress(OSError):  # told by who connects
                    Path(file_name).touch()
            revision = self._revision()
            if revision is not None:
                self._require(revision)
                return
            if self.dialect == "sqlite":
                self._use_write_ahead_log()
            with self._connected() as connection, connection.begin():
                self._begin(connection, BEGIN_WRITING)
                _lock(connection, _TABLES_LOCK)
                if self.dialect == "postgresql" and self._namespace is not None:
                    connection.execute(CreateSchema(_schema_of(self._namespace), if_not_exists=True))
                found = _find_revision(connection)
                if found is None:
                    load_tables().create_all(connection, checkfirst=False)
                    connection.execute(version.insert().values(version_num=SCHEMA_REVISION))
            self._require(found or SCHEMA_REVISION)

    def check(self) -> None:
        """Connect as `migrate` does, and make nothing: neither a file nor tables.

        Raises:
            StateSchemaError: it has the tables of another release.
            StateError: the database cannot be used.
        """
        with self._translated():
            folder = Path(_file_name(self._engine.url) or "").parent
            is_future = not self.exists() and os.access(folder, os.W_OK | os.X_OK)
            if not is_future and (revision := self._revision()) is not None:
                self._require(revision)

    def has_tables(self) -> bool:
        """Return whether the database is there, with tables of this or of another release; changes nothing.

        Raises:
            StateError: the database cannot be used.
        """
        with self._translated():
            return self.exists() and self._revision() is not None

    @contextmanager
    def changing_definitions(self) -> Iterator[None]:
        """Hold the lock for changing the definition store, over several transactions; wait for it.

        The lock ends with the process that holds it, however the process ends. It is an advisory lock of a PostgreSQL
        session, or a lock on a file beside the SQLite database.

        Raises:
            StateError: the database refused.
        """
        if self.dialect == "postgresql":
            with self._translated(), self._connected() as connection:
                arguments = {"family": LOCK_FAMILY, "number": STORE_LOCK}
                connection.execute(text("SET lock_timeout = 0"))
                connection.execute(text(f"SELECT pg_advisory_lock({LOCK_KEY})"), arguments)
                connection.commit()
                try:
                    yield
                finally:
                    connection.execute(text(f"SELECT pg_advisory_unlock({LOCK_KEY})"), arguments)
                    connection.execute(text(f"SET lock_timeout = '{LOCK_WAIT_SECONDS}s'"))
                    connection.commit()
            return
        file_name = _file_name(self._engine.url)
        with self._store_lock:
            if file_name is None:
                yield
                return
            with Path(f"{file_name}.definitions.lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield

    @contextmanager
    def beside(self, namespace: str | None) -> "Iterator[Database | None]":
        """Open the tables of another namespace, `default` for those of projects without one, to read them; None if
        there are none.

        Raises:
            StateError: the database cannot be used.
        """
        if namespace in (None, self._namespace or DEFAULT_NAMESPACE):
            yield self
            return
        if namespace != DEFAULT_NAMESPACE and not re.fullmatch(NAMESPACE, str(namespace)):
            yield None
            return
        other = open_database(self._url, None if namespace == DEFAULT_NAMESPACE else namespace)
        try:
            yield other if other.has_tables() else None
        finally:
            other.close()

    def exists(self) -> bool:
        """Return whether the file of SQLite exists; a database elsewhere, or in memory, is only found by asking it."""
        return _file_name(self._engine.url) is None or self._identify_file() is not None

    def close(self) -> None:
        """Close all connections; the object opens new ones if it is used again."""
        self._engine.dispose()

    def _connected(self) -> Connection:
        file = self._identify_file()
        if self._process != os.getpid():
            self._engine.dispose(close=False)
        elif self._file != file:
            self._engine.dispose()  # connections to a file that was removed or replaced would write into nothing
        self._process, self._file = os.getpid(), file
        return self._engine.connect()

    def _identify_file(self) -> tuple[int, int] | None:
        """Return device and inode of the file of SQLite; None if there is none."""
        file_name = _file_name(self._engine.url)
        with suppress(FileNotFoundError):
            found = Path(file_name).stat() if file_name is not None else None
            return found and (found.st_dev, found.st_ino)
        return None

    def _begin(self, connection: Connection, statement: str) -> None:
        """Begin a transaction explicitly: SQLite's driver begins none."""
        connection.info.update({TELLS_LINEAGE: self.tells_lineage, IS_EXPLICIT: self.is_explicit})
        if self.dialect == "sqlite":
            connection.exec_driver_sql(statement)

    def _revision(self) -> str | None:
        with self._connected() as connection:
            return _find_revision(connection)

    def _require_current(self) -> None:
        if self._is_current and self._file == self._identify_file():
            return
        revision = self._revision()
        if revision is None:
            raise StateError(
                database=self.name,
                reason="it has no feed-assets tables",
                next_step="The first command or tick that writes makes them.",
            )
        self._require(revision)

    def _require(self, revision: str) -> None:
        if revision != SCHEMA_REVISION:
            raise StateSchemaError(database=self.name, revision=revision, known=SCHEMA_REVISION)
        self._is_current = True

    def _use_write_ahead_log(self) -> None:
        """Switch SQLite to the write-ahead log. SQLite does not wait for this lock, so concurrent starts retry."""
        for attempt in range(_WAL_ATTEMPTS):
            try:
                with self._connected() as connection:
                    connection.connection.driver_connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[union-attr]
                return
            except Exception as exc:
                if not _is_locked(exc) or attempt == _WAL_ATTEMPTS - 1:
                    raise
                time.sleep(_WAL_PAUSE_SECONDS)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as exc:
            cause = getattr(exc, "orig", None) or exc
            if _is_away(exc):
                raise StateUnreachableError(
                    database=self.name,
                    reason=f"it cannot be used: {_in_one_line(cause)}",
                    next_step="Check that it can be reached and written, and that no other program keeps it locked.",
                ) from exc
            raise StateError(
                database=self.name,
                reason=f"it refused: {_in_one_line(cause)}",
                next_step="Nothing of this transaction was written. If it repeats, this is a bug of feed-assets.",
            ) from exc


def _is_away(error: SQLAlchemyError) -> bool:
    """Return whether the database itself is the obstacle, and not a statement: away, locked, forbidden, or none."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, PoolTimeoutError)  # no connection has become free
    is_no_database = type(error.orig) is sqlite3.DatabaseError  # sqlite3 has no class of its own for this
    is_forbidden = getattr(error.orig, "pgcode", None) in _FORBIDDEN
    is_lost = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
    return is_lost or is_no_database or is_forbidden


def open_state_database(url: str | URL, settings: Settings) -> Database:
    """Open the database at a URL as `open_database` does, with what the settings say."""
    database = open_database(url, settings.namespace)
    database.tells_lineage, database.is_explicit = settings.tells_lineage, settings.schedule is ScheduleMode.EXPLICIT
    return database


def open_database(url: str | URL, namespace: str | None = None) -> Database:
    """Open the database at a SQLAlchemy URL: `sqlite:///file`, `sqlite://` (in memory) or `postgresql://…`.

    A namespace has its own tables: in the schema `feed_assets_<namespace>` of PostgreSQL, or in a file beside the
    SQLite file, with the namespace before its suffix. Connects on first use. A database in memory lives as long as the
    object and has one connection; transactions of several threads follow one another.

    Raises:
        StateUnreachableError: the URL is invalid, or its database is not supported.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as exc:
        raise StateUnreachableError(
            reason="its address is not a database URL",
            next_step="Write it like sqlite:////var/lib/feed-assets.db or postgresql://user@host/database.",
        ) from exc
    match parsed.get_backend_name():
        case "sqlite":
            database = Database(_open_sqlite(_file_of(parsed, namespace)), parsed, namespace)
        case "postgresql" | "postgres" if "@" in f"{parsed.host}/{parsed.database}":  # not told: it is of a password
            raise StateUnreachableError(reason="its address has a second '@'", next_step=WRITE_AT)
        case "postgresql" | "postgres":
            engine = _open_postgresql(parsed.set(drivername="postgresql+psycopg2"), namespace)
            database = Database(engine, parsed, namespace)
        case other:
            raise StateUnreachableError(
                database=parsed.render_as_string(hide_password=True),
                reason=f"databases of the kind {other!r} are not supported",
                next_step="Use sqlite:///… or postgresql://….",
            )
    return database


def _find_revision(connection: Connection) -> str | None:
    return connection.scalar(select(version.c.version_num)) if inspect(connection).has_table(VERSION_TABLE) else None


def _in_one_line(error: object) -> str:
    return " ".join(str(error).split()).rstrip("?.")


def _is_locked(exc: Exception) -> bool:
    code: int = getattr(getattr(exc, "orig", exc), "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & _PRIMARY_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _file_name(url: URL) -> str | None:
    """Return the name of the file of SQLite; None if the database is in memory or elsewhere."""
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return url.database if is_file else None


def _open_sqlite(url: URL) -> Engine:
    if _file_name(url) is None:
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_timeout=MEMORY_WAIT_SECONDS,
            connect_args={"factory": GuardedConnection, "check_same_thread": False},
        )
    else:
        arguments = {"factory": GuardedConnection, "timeout": LOCK_WAIT_SECONDS}
        engine = create_engine(url, **_UNLIMITED, connect_args=arguments)
        event.listen(engine, "do_connect", _connect_to_file)
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _connect_to_file(_dialect: object, _entry: object, place: Sequence[str], options: Any) -> Any:
    """Connect to a file that exists: only who makes the tables makes it, and no question."""
    return sqlite3.connect(f"file:{quote(place[0])}?mode=rw", uri=True, **options)


def _set_up_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA cache_size = -{SQLITE_CACHE_KIB}")
    cursor.close()


def _file_of(url: URL, namespace: str | None) -> URL:
    file_name = _file_name(url)
    if namespace is None or file_name is None:
        return url
    file = Path(file_name)
    return url.set(database=str(file.with_name(f"{file.stem}.{namespace}{file.suffix}")))


def _schema_of(namespace: str) -> str:
    return f"feed_assets_{namespace}"


def _open_postgresql(url: URL, namespace: str | None) -> Engine:
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        **_UNLIMITED,
        executemany_mode="values_plus_batch",
        connect_args={"connect_timeout": 10, "application_name": "feed-assets"},
    )
    event.listen(engine, "connect", partial(_set_up_postgresql, namespace))
    return engine


def _set_up_postgresql(namespace: str | None, connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET lock_timeout = '{LOCK_WAIT_SECONDS}s'")
    if namespace is not None:
        cursor.execute("SELECT set_config('search_path', %s, false)", (_schema_of(namespace),))
    cursor.close()
    connection.commit()
