"""A state database with a long history: every instance has arrived, run and been recorded. The product's own code
records the first hour. The rows of later hours are copied from it with later times, by SQL inside SQLite, millions a
minute.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy import Column, Table

from benchmarks.workload import CLUSTER, HOUR, START, Pair
from feed_assets.instances.arrival.recording import Signal, record_signals
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.instances.tables import feed_instances, process_instances
from feed_assets.log.records import (
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    NewFeedEvent,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    Watermark,
    WatermarkKind,
)
from feed_assets.log.tables import feed_events
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import Plan
from feed_assets.sql.column_types import UtcDateTime
from feed_assets.sql.database import open_database
from feed_assets.timing.dates import NEVER

_DIGEST = "look:0123456789abcdef0123456789abcdef"
_HOUR_MICROS = HOUR.seconds * 1_000_000


def fill_history(file: Path, pairs: Sequence[Pair], hours: int) -> None:
    """Make a migrated state database in which the first `hours` instances of everything are done."""
    _record_first_hour(f"sqlite:///{file}", pairs, hours)
    _repeat_hour(file, hours, feed_instances, feed_events, process_instances)


def fill_signals(plan: Plan, file: Path, hours: int) -> None:
    """Make a migrated state database in which every signal of a plan has come once in each of the first `hours`."""
    database = open_database(f"sqlite:///{file}")
    database.migrate()
    signals = [Signal(record=record, at=START, origin="benchmark") for record in plan.feeds.values()]
    with database.begin() as connection:
        record_signals(connection, signals, START)
    database.close()
    _repeat_hour(file, hours, feed_instances, feed_events)


def next_time(hours: int) -> datetime:
    """Return the first nominal time after the history."""
    return START + hours * HOUR


def _record_first_hour(url: str, pairs: Sequence[Pair], hours: int) -> None:
    """Record the first instance of everything, with watermarks at the end of the history."""
    database = open_database(url)
    database.migrate()
    with database.begin() as connection:
        FeedInstances(connection).put(_feed_instances(pairs))
        EventLog(connection).append(list(_events(pairs)))
        ProcessInstances(connection).add_waiting(_process_instances(pairs))
        ProcessInstances(connection).transition_many(
            [ProcessKey(pair.process, CLUSTER, START) for pair in pairs],
            {ProcessInstanceStatus.WAITING},
            status=ProcessInstanceStatus.SUCCEEDED,
            attempt=1,
            run_id="run",
            request_key="request",
            requested_at=START,
            ready_at=START,
            started_at=START,
            ended_at=START,
            updated_at=START,
        )
        Watermarks(connection).put(_watermarks(pairs, hours))
        Cursors(connection).put(f"readiness/{CLUSTER}", str(2 * len(pairs) * hours))
        Cursors(connection).put(f"stored/{CLUSTER}", NEVER.isoformat())  # none of these data are on disk
    database.close()


def _feed_instances(pairs: Sequence[Pair]) -> Iterator[FeedInstance]:
    for pair in pairs:
        for feed in (pair.result, pair.source):
            yield FeedInstance(
                feed=feed,
                cluster=CLUSTER,
                nominal_time=START,
                status=FeedInstanceStatus.AVAILABLE,
                updated_at=START,
                manifest_digest=_DIGEST,
                bytes=64,
                files=1,
                available_at=START,
            )


def _events(pairs: Sequence[Pair]) -> Iterator[NewFeedEvent]:
    for pair in pairs:
        for feed, kind, origin in (
            (pair.result, FeedEventKind.PRODUCED, "run:run"),
            (pair.source, FeedEventKind.ARRIVED, "arrival"),
        ):
            yield NewFeedEvent(
                feed=feed,
                cluster=CLUSTER,
                nominal_time=START,
                kind=kind,
                origin=origin,
                recorded_at=START,
                manifest_digest=_DIGEST,
                bytes=64,
                files=1,
            )


def _process_instances(pairs: Sequence[Pair]) -> Iterator[ProcessInstance]:
    for pair in pairs:
        yield ProcessInstance(
            process=pair.process,
            cluster=CLUSTER,
            nominal_time=START,
            status=ProcessInstanceStatus.WAITING,
            updated_at=START,
            materialized_at=START,
        )


def _watermarks(pairs: Sequence[Pair], hours: int) -> Iterator[Watermark]:
    for pair in pairs:
        for kind, entity in ((WatermarkKind.FEED, pair.source), (WatermarkKind.PROCESS, pair.process)):
            yield Watermark(kind=kind, entity=entity, cluster=CLUSTER, next_index=hours, next_time=next_time(hours))


def _repeat_hour(file: Path, hours: int, *tables: Table) -> None:
    """Copy the rows of the first hour into each later one."""
    with sqlite3.connect(file) as connection:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -400000", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        indexes = _drop_indexes(connection)
        connection.execute("CREATE TEMP TABLE hour (rank INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO hour VALUES (?)", ((rank,) for rank in range(1, hours)))
        for table in tables:
            _repeat(connection, table, "hour CROSS JOIN first" if table is feed_events else "first CROSS JOIN hour")
        for index in indexes:
            connection.execute(index)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    os.sync()  # else the rows are still being written to disk while ticks are measured


def _drop_indexes(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    for name, _ in rows:
        connection.execute(f"DROP INDEX {name}")
    return [sql for _, sql in rows]


def _repeat(connection: sqlite3.Connection, table: Table, order: str) -> None:
    """Copy the rows of the first hour into each later one, in the given order."""
    connection.execute(f"CREATE TEMP TABLE first AS SELECT * FROM {table.name}")
    (count,) = connection.execute("SELECT count(*) FROM first").fetchone()
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    values = ", ".join(_later(column, count) for column in table.columns)
    connection.execute(f"INSERT INTO {table.name} ({names}) SELECT {values} FROM {order}")
    connection.execute("DROP TABLE first")


def _later(column: "Column[object]", count: int) -> str:
    """Return the SQL value of a first-hour row, `hour.rank` hours later; there are `count` rows for each hour."""
    name = f'first."{column.name}"'
    if isinstance(column.type, UtcDateTime):
        return f"{name} + hour.rank * {_HOUR_MICROS}"
    return f"{name} + hour.rank * {count}" if column.name in ("seq", "event_seq") else name
