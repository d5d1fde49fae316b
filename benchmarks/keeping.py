"""(o) What the state keeps of two years of 100 hourly processes with one input and one output, on PostgreSQL: the size
of each table after the clean-up, and idle ticks and `why` beside those after the first day.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median

from dagster import DagsterInstance
from sqlalchemy import text

from benchmarks.lived_state import KEPT, LivedSize, fill_lived_state
from benchmarks.probes import say
from benchmarks.report import Figure, Part, Scale, slower
from benchmarks.searching_probe import open_state
from benchmarks.tick_harness import TickedLocation
from benchmarks.workload import CLUSTER, HOUR, START
from feed_assets.clock import FrozenClock, TimeBudget
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.explain.explanations import explain
from feed_assets.log.events import EventLog
from feed_assets.orchestration.graph.layout import lay_out
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.sensors.tick_cursors import ReportedEvent, TickCursor
from feed_assets.plan.location import load_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.retention.cleanup import KeepingTimes, apply_state_cleanup
from feed_assets.retention.rules.clock_witness import note_clock
from feed_assets.setting_sections import CleanupSettings
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database

GIGABYTES = 3
AT_MOST = 1.2
MEGABYTE = 1_000_000
_SIZES = "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND starts_with(relname, 'fa_')"
_TIMES = ("idle tick", "why of the newest instance", "why of the oldest instance")


def measure_keeping(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure the first day, then two years."""
    pairs, days = scale.choose(100, 10, 1), scale.choose(730, 730, KEPT.days + 3)
    repeats = scale.choose(31, 11, 1)
    first = LivedSize(pairs=pairs, periods=1)
    with _lived(folder / "first", first) as database:
        young = _seconds(database, folder / "first", first, repeats)
    size = LivedSize(pairs=pairs, periods=days)
    with _lived(folder / "all", size) as database:
        yield _total(database, "before the clean-up")
        _clean(database, size.end)
        _run(database, "VACUUM (FULL, ANALYZE)")
        for name, each in sorted(_sizes(database).items(), key=lambda each: -each[1]):
            if each > MEGABYTE:
                yield Figure(part=Part.KEEPING, name=f"size of {name}", ours=each / MEGABYTE, unit=" MB")
        yield _total(database, "after the clean-up", at_most=GIGABYTES * 1_000)
        old = _seconds(database, folder / "all", size, repeats)
    for name, ours, theirs in zip(_TIMES, old, young, strict=True):
        yield slower(Part.KEEPING, f"{name} after {days} days", ours, "after the first day", theirs, at_most=AT_MOST)


@contextmanager
def _lived(folder: Path, size: LivedSize) -> Iterator[Database]:
    say(f"keeping: {size.periods} days of {size.pairs} hourly processes")
    with open_state(folder / "state", "postgresql") as database:
        _run(database, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        fill_lived_state(database, folder, size)
        _run(database, "VACUUM ANALYZE")
        yield database


def _clean(database: Database, at: datetime) -> None:
    begun, times = time.perf_counter(), KeepingTimes.of(CleanupSettings())
    with database.begin() as connection:
        note_clock(connection, CLUSTER, at)
        told = {CLUSTER: EventLog(connection).last_seq()}
    done = apply_state_cleanup(database, told, times, at, TimeBudget.ample())
    removed = ", ".join(f"{each.count:,} {each.leftover}" for each in done)
    say(f"keeping: cleaned up in {time.perf_counter() - begun:.1f} s: {removed}")


def _seconds(database: Database, folder: Path, size: LivedSize, repeats: int) -> list[float]:
    """Return the median seconds of an idle tick, and of `why` for the newest and the oldest instance."""
    at, url = size.end - HOUR / 2, database._engine.url.render_as_string(hide_password=False)
    settings = load_settings({"entities": str(folder / "entities"), "state": url}, environ={}, start=folder)
    location = load_location(settings)
    runtime = Runtime(settings=settings, location=location, clock=FrozenClock(at))
    with database.read() as connection:
        last = ReportedEvent(seq=EventLog(connection).last_seq())
    cursor = TickCursor(reported=(last,), location=location.digest).render()
    (folder / "home").mkdir()
    with warnings.catch_warnings(action="ignore"), DagsterInstance.local_temp(str(folder / "home")) as instance:
        layout = lay_out(location.plan)
        ticked = TickedLocation(folder=folder, runtime=runtime, layout=layout, instance=instance, cursor=cursor)
        for _ in range(3):
            ticked.tick()
        ticks = [ticked.tick()[0] for _ in range(repeats)]
        runtime.database(instance).close()
    context = OperationContext(
        timeline=ReleaseTimeline(location.plan),
        database=database,
        stores=runtime.stores,
        clock=runtime.clock,
        real_clock=runtime.clock,
        as_of=at,
    )
    whys = ([_why(context, time) for _ in range(repeats)] for time in (size.end - HOUR, START))
    return [median(ticks), *map(median, whys)]


def _why(context: OperationContext, nominal_time: datetime) -> float:
    begun = time.perf_counter()
    (explanation,) = explain(context, resolve_subject(context, "process-0000", nominal_time)).items
    assert explanation.status == "SUCCEEDED"
    return time.perf_counter() - begun


def _total(database: Database, when: str, at_most: float | None = None) -> Figure:
    total = sum(_sizes(database).values()) / MEGABYTE
    figure = Figure(part=Part.KEEPING, name=f"size of all tables {when}", ours=total, unit=" MB")
    return figure if at_most is None else replace(figure, target=f"at most {at_most:,g} MB", is_met=total <= at_most)


def _sizes(database: Database) -> dict[str, int]:
    with database.read() as connection:
        return {row.relname: row[1] for row in connection.execute(text(_SIZES))}


def _run(database: Database, *statements: str) -> None:
    with database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.execute(text(statement))
