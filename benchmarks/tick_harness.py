"""Ticks of the arrival sensor over a location with a long history: the real `run_tick`, state and storage on disk."""

import sqlite3
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from dagster import DagsterInstance, SensorResult

from benchmarks.history import fill_history, next_time
from benchmarks.workload import CLUSTER, HOUR, START, Pair, land, write_entities
from feed_assets.clock import FrozenClock
from feed_assets.context.operation import OperationContext
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, record_notice
from feed_assets.log.events import EventLog
from feed_assets.orchestration.graph.layout import AssetLayout, lay_out
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.sensors.tick_cursors import ReportedEvent, TickCursor
from feed_assets.orchestration.sensors.ticks import run_tick
from feed_assets.plan.location import load_location
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import load_settings
from feed_assets.sql.column_types import to_micros

STATE = "state.db"
HALF_HOUR = timedelta(minutes=30)


@dataclass(slots=True)
class TickedLocation:
    """A location with a clock that only the benchmark moves, and the cursor of its sensor."""

    folder: Path
    runtime: Runtime
    layout: AssetLayout
    instance: DagsterInstance
    cursor: str | None = None

    def set_clock(self, at: datetime) -> None:
        """Set the clock."""
        self.runtime.clock = FrozenClock(at)

    def tick(self) -> tuple[float, SensorResult]:
        """Run one tick; return its seconds and its result for Dagster."""
        begun = time.perf_counter()
        result = run_tick(self.runtime, self.layout, CLUSTER, self.instance, self.cursor)
        seconds = time.perf_counter() - begun
        assert result.cursor is not None
        self.cursor = result.cursor
        return seconds, result

    def give_notice(self, feed: str, nominal_time: datetime | None = None) -> None:
        """Record a notice, as producers do with `feed-assets feed notify`; its instance needs no poll."""
        context = OperationContext(
            timeline=ReleaseTimeline(self.runtime.plan),
            database=self.runtime.database(self.instance),
            stores=self.runtime.stores,
            as_of=self.runtime.clock.now(),
            clock=self.runtime.clock,
            real_clock=self.runtime.real_clock,
        )
        notice = Notice(feed=feed, nominal_time=nominal_time, is_trusted=True)
        assert record_notice(context.by("benchmark"), notice).outcome is NoticeOutcome.RECORDED

    def pass_over_reports(self) -> None:
        """Let the sensor go on behind the whole log, as if Dagster had been told all of it."""
        with self.runtime.database(self.instance).read() as connection:
            last = EventLog(connection).last_seq()
        self.cursor = TickCursor(reported=(ReportedEvent(seq=last),), location=self.runtime.location.digest).render()


@contextmanager
def open_location(
    folder: Path, at: datetime, fill: Callable[[Plan, Path], None] | None = None, state: str | None = None
) -> Iterator[TickedLocation]:
    """Open the location whose entities are in a folder, at a time, and tell Dagster nothing of what `fill` has put into
    its state, by default a file in the folder.
    """
    url = state or f"sqlite:///{folder / STATE}"
    settings = load_settings({"entities": str(folder / "entities"), "state": url}, environ={}, start=folder)
    location = load_location(settings)
    assert not location.errors, location.errors[0].render()
    if fill is not None:
        fill(location.plan, folder / STATE)
    runtime = Runtime(settings=settings, location=location, clock=FrozenClock(at))
    layout = lay_out(location.plan)
    (folder / "home").mkdir(exist_ok=True)
    with warnings.catch_warnings(action="ignore"), DagsterInstance.local_temp(str(folder / "home")) as instance:
        ticked = TickedLocation(folder=folder, runtime=runtime, layout=layout, instance=instance)
        if fill is not None:
            ticked.pass_over_reports()
        yield ticked


@dataclass(slots=True)
class TickHarness:
    """A location of pairs. `nominal_time` is the newest hour that is due."""

    pairs: Sequence[Pair]
    location: TickedLocation
    nominal_time: datetime

    def advance(self, hours: int) -> list[datetime]:
        """Move the clock to half an hour after the next instance, or after several; return the newly due ones."""
        due = [self.nominal_time + n * HOUR for n in range(1, hours + 1)]
        self.nominal_time = due[-1]
        self.location.set_clock(self.nominal_time + HALF_HOUR)
        return due

    def land(self, instances: Iterable[tuple[Pair, datetime]]) -> None:
        """Let instances arrive in storage."""
        for pair, nominal_time in instances:
            land(self.location.folder / "data", pair, nominal_time)

    def tick(self) -> tuple[float, SensorResult]:
        """Run one tick; return its seconds and its result for Dagster."""
        return self.location.tick()

    def count_waiting(self) -> int:
        """Count the waiting instances."""
        return self._count("fa_process_instances WHERE status = 'WAITING'")

    def count_due_polls(self) -> int:
        """Count the instances that the next tick looks for."""
        now = to_micros(self.location.runtime.clock.now())
        return self._count(f"fa_arrival_polls WHERE next_poll_at <= {now}")

    def _count(self, rows: str) -> int:
        with sqlite3.connect(self.location.folder / STATE) as connection:
            (count,) = connection.execute(f"SELECT count(*) FROM {rows}").fetchone()
        return int(count)

    def settle(self, still_waiting: Sequence[Pair] = ()) -> None:
        """Mark everything open as done, as if it had arrived and run, so that the next scenario starts without open
        work. The instances of some pairs may stay waiting.
        """
        processes = ", ".join(f"'{pair.process}'" for pair in still_waiting)
        sources = ", ".join(f"'{pair.source}'" for pair in still_waiting)
        with sqlite3.connect(self.location.folder / STATE) as connection:
            connection.execute(
                "UPDATE fa_process_instances SET status = 'SUCCEEDED' WHERE status IN ('READY', 'WAITING') "
                f"AND process NOT IN ({processes})"
            )
            connection.execute(
                "UPDATE fa_feed_instances SET status = 'AVAILABLE' FROM fa_arrival_polls AS poll "
                "WHERE poll.feed = fa_feed_instances.feed AND poll.cluster = fa_feed_instances.cluster "
                f"AND poll.nominal_time = fa_feed_instances.nominal_time AND poll.feed NOT IN ({sources})"
            )
            connection.execute(f"DELETE FROM fa_arrival_polls WHERE feed NOT IN ({sources})")
        self.location.pass_over_reports()


@contextmanager
def tick_harness(folder: Path, pairs: Sequence[Pair], hours: int) -> Iterator[TickHarness]:
    """Make a location of pairs whose first `hours` instances are done, at half past the last of those hours."""
    folder.mkdir(parents=True)
    (folder / "data").mkdir()
    write_entities(folder / "entities", list(pairs), folder / "data")
    done = next_time(hours) - HOUR
    with open_location(folder, START - HOUR) as location:
        location.tick()  # records the releases that the history belongs to
        location.runtime.database(location.instance).close()
        fill_history(folder / STATE, pairs, hours)
        location.set_clock(done + HALF_HOUR)
        location.pass_over_reports()
        yield TickHarness(pairs=pairs, location=location, nominal_time=done)
