"""Lock parts of the state for writing. On SQLite a write transaction has them all; on PostgreSQL each is a lock."""

from sqlalchemy import Connection, text

TELLS_LINEAGE = "tells lineage"  # the key in the `info` of a connection
LOCK_FAMILY = 0x66656564  # "feed"; advisory locks of this project have it as their first half
LOCK_KEY = ":family, hashtext(coalesce(current_schema(), '')) # :number"  # each namespace has locks of its own
STORE_LOCK = 4

_TABLES_LOCK = 1
_LOG_LOCK = 2
_DEFINITIONS_LOCK = 3
_QUEUES_LOCK = 5


def lock_tables(connection: Connection) -> None:
    """Lock the making of the tables until the transaction ends; on PostgreSQL only."""
    _lock(connection, _TABLES_LOCK)


def lock_log(connection: Connection) -> None:
    """Lock the event log and feed instances for writing until the transaction ends.

    On PostgreSQL this makes the order of sequence numbers the order of commits, and keeps two transactions that write
    the same instances from a deadlock. Locking again costs a round trip. On SQLite a write transaction has this lock
    already.
    """
    if connection.dialect.name == "postgresql":
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
    if connection.dialect.name == "postgresql":
        _lock(connection, _DEFINITIONS_LOCK)


def lock_queues(connection: Connection) -> None:
    """Lock the queues of triggers for writing until the transaction ends."""
    if connection.dialect.name == "postgresql":
        _lock(connection, _QUEUES_LOCK)


def _lock(connection: Connection, number: int) -> None:
    connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_KEY})"), {"family": LOCK_FAMILY, "number": number})
