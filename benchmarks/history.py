"""A state database that looks as if a location had run for long: every instance arrived, ran and was recorded.

The rows are made by SQL inside SQLite, millions a minute; the tables and indexes are those of the migration.
"""

import os
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.workload import CLUSTER, HOUR, START, Pair
from feed_assets.state.column_types import to_micros
from feed_assets.state.database import open_database

_DIGEST = "look:0123456789abcdef0123456789abcdef"
_FEEDS = """
INSERT INTO fa_feed_instances (feed, cluster, nominal_time, status, updated_at, manifest_digest, bytes, files,
                               available_at, event_seq, fence)
SELECT feed.name, :cluster, hour.at, 'AVAILABLE', hour.at, :digest, 64, 1, hour.at, NULL, 0
FROM feed CROSS JOIN hour
"""
_EVENTS = """
INSERT INTO fa_feed_events (seq, feed, cluster, nominal_time, kind, origin, recorded_at, manifest_digest, bytes, files)
SELECT (hour.rank * (SELECT count(*) FROM feed)) + feed.rank + 1, feed.name, :cluster, hour.at, feed.kind, feed.origin,
       hour.at, :digest, 64, 1
FROM hour CROSS JOIN feed
"""
_PROCESSES = """
INSERT INTO fa_process_instances (process, cluster, nominal_time, status, updated_at, attempt, run_id, request_key,
                                  requested_at, materialized_at, ready_at, started_at, ended_at)
SELECT process.name, :cluster, hour.at, 'SUCCEEDED', hour.at, 1, 'run', 'request', hour.at, hour.at, hour.at, hour.at,
       hour.at
FROM process CROSS JOIN hour
"""
_FRONTIERS = """
INSERT INTO fa_frontiers (kind, entity, cluster, next_index, next_time)
SELECT 'feed', name, :cluster, :hours, :next FROM feed WHERE kind = 'ARRIVED'
UNION ALL SELECT 'process', name, :cluster, :hours, :next FROM process
"""
_CURSOR = "INSERT INTO fa_cursors (name, value) VALUES ('readiness/' || :cluster, :last)"


def fill_history(file: Path, pairs: Sequence[Pair], hours: int) -> int:
    """Make a migrated state database in which the first `hours` instances of everything are done.

    Returns:
        The number of events in its log.
    """
    database = open_database(f"sqlite:///{file}")
    database.migrate()
    database.close()
    with sqlite3.connect(file) as connection:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -400000", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        indexes = _drop_indexes(connection)
        _make_sources(connection, pairs, hours)
        values = {
            "cluster": CLUSTER,
            "digest": _DIGEST,
            "hours": hours,
            "next": to_micros(next_time(hours)),
            "last": str(2 * len(pairs) * hours),
        }
        for statement in (_FEEDS, _EVENTS, _PROCESSES, _FRONTIERS, _CURSOR):
            connection.execute(statement, values)
        for index in indexes:
            connection.execute(index)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    os.sync()  # else the millions of rows are still on their way to the disk while ticks are measured
    return 2 * len(pairs) * hours


def next_time(hours: int) -> datetime:
    """The first nominal time after the history."""
    return START + hours * HOUR


def _drop_indexes(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    for name, _ in rows:
        connection.execute(f"DROP INDEX {name}")
    return [sql for _, sql in rows]


def _make_sources(connection: sqlite3.Connection, pairs: Sequence[Pair], hours: int) -> None:
    """What the statements above multiply, each table in the order in which its rows are to be written."""
    connection.execute("CREATE TEMP TABLE hour (rank INTEGER PRIMARY KEY, at INTEGER)")
    connection.executemany("INSERT INTO hour VALUES (?, ?)", ((n, to_micros(START + n * HOUR)) for n in range(hours)))
    connection.execute("CREATE TEMP TABLE process (rank INTEGER PRIMARY KEY, name TEXT)")
    connection.executemany("INSERT INTO process VALUES (?, ?)", enumerate(pair.process for pair in pairs))
    feeds = [(pair.result, "PRODUCED", "run:run") for pair in pairs]
    feeds += [(pair.source, "ARRIVED", "arrival") for pair in pairs]
    connection.execute("CREATE TEMP TABLE feed (rank INTEGER PRIMARY KEY, name TEXT, kind TEXT, origin TEXT)")
    connection.executemany("INSERT INTO feed VALUES (?, ?, ?, ?)", ((n, *feed) for n, feed in enumerate(feeds)))
