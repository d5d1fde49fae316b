"""Feeds that expire: trees as they stand, sweeps planned, run and undone at given times."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from feed_assets.clock import FrozenClock
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.feed import Feed
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import EvictionPayload
from feed_assets.log.records import FeedEvent, FeedEventKind, FeedInstance
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import Hold, ItemOutcome, ItemResult, Sweep, SweepChunk, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.receivers import Topic
from feed_assets.retention.rules.clock_witness import note_clock
from feed_assets.retention.sweeps.planning import PlannedSweeps, SweepRequest, plan_sweeps
from feed_assets.retention.sweeps.sweep_context import SweepContext
from feed_assets.retention.sweeps.sweeping import run_sweep
from feed_assets.retention.sweeps.undoing import EVERYTHING, RestoreSelection, UndoResult, undo_sweep
from tests.instances.harness import START, LifecycleHarness

Tree = Mapping[str, tuple[str, int, bytes]]

_holders = count(1)


def kept_feed(
    name: str = "clicks",
    frequency: str = "hours(1)",
    *,
    limit: str | None = "days(2)",
    locations: Mapping[str, str] | None = None,
    start: datetime = START,
    end: datetime | None = None,
    clusters: Sequence[str] = ("primary",),
    flag: str | None = None,
    timezone: str = "UTC",
    **retention: Any,
) -> Feed:
    """A feed of CSV files with a folder for each hour of a day's folder, and retention."""
    policy = {**({"limit": limit} if limit else {}), **retention}
    validity = {"start": start, **({"end": end} if end else {})}
    return Feed(
        name=name,
        frequency=frequency,
        format="csv",
        timezone=timezone,
        availability_flag=flag,
        locations=dict(locations or {"data": f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"}),
        clusters={cluster: {"validity": validity, "retention": policy} for cluster in clusters},
    )


def tree_of(root: Path, *, hidden: bool = False) -> Tree:
    """Everything below a folder: by path, what it is, its rights, and what it holds or leads to."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for folder, folders, files in os.walk(root):
        if not hidden:
            folders[:] = [name for name in folders if name != ".feed-assets"]
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            place = path.relative_to(root).as_posix()
            if stat.S_ISLNK(status.st_mode):
                found[place] = ("link", 0, os.fsencode(os.readlink(path)))  # noqa: PTH115
            elif stat.S_ISDIR(status.st_mode):
                found[place] = ("folder", stat.S_IMODE(status.st_mode), b"")
            else:
                found[place] = ("file", stat.S_IMODE(status.st_mode), path.read_bytes())
    return found


@dataclass(slots=True, kw_only=True)
class RetentionHarness:
    """Feeds and what retention does with them; made by `RetentionHarness.of`."""

    lifecycle: LifecycleHarness
    now: datetime = START
    lag: timedelta = timedelta(0)
    """By how much the clock of leases is ahead."""

    @classmethod
    def of(cls, root: Path, *entities: AnyEntity, state: str | None = None, **more: Any) -> "RetentionHarness":
        return cls(lifecycle=LifecycleHarness.of(root, *(entities or (kept_feed(),)), state=state, **more))

    @property
    def root(self) -> Path:
        """Where the instances of the cluster lie."""
        return self.lifecycle.root / "primary"

    def context(self, at: datetime | None = None, **more: Any) -> SweepContext:
        """What one run of one worker works with."""
        now = at or self.now
        given: dict[str, Any] = {
            "clock": FrozenClock(now),
            "real_clock": FrozenClock(now + self.lag),
            "holder": f"worker {next(_holders)}",
        }
        return SweepContext(
            database=self.lifecycle.database,
            stores=self.lifecycle.stores,
            timeline=self.lifecycle.timeline,
            **(given | more),
        )

    def land(self, name: str, *times: datetime, **more: Any) -> None:
        """Let instances arrive, and be recorded."""
        self.lifecycle.land(name, *times, **more)

    def arrive(self, at: datetime) -> None:
        """Go on to a time, and record what has arrived."""
        self.now = at
        self.lifecycle.tick(at)

    def wait(self, until: datetime) -> None:
        """Go on to a time that retention has no reason to doubt."""
        self.now = until
        with self.lifecycle.database.begin() as connection:
            note_clock(connection, "primary", until)

    def plan(self, *feeds: str, as_of: datetime | None = None, cluster: str = "primary", **more: Any) -> PlannedSweeps:
        """Plan sweeps of feeds, of all if none is named."""
        lifecycle = self.lifecycle
        records = [
            record
            for (name, on), record in sorted(lifecycle.plan.feeds.items())
            if on == cluster and name in (feeds or [name])
        ]
        options = {key: more.pop(key) for key in ("dry_run",) if key in more}
        request = SweepRequest(**{"author": "ann", "as_of": as_of or self.now, "now": self.now, **more})
        return plan_sweeps(self.context(), cluster, records, request, **options)

    def planned(self, *feeds: str, **more: Any) -> Sweep:
        """Plan what comes to one sweep."""
        (sweep,) = self.plan(*feeds, **more).sweeps
        return sweep

    def approve(self, sweep: Sweep) -> Sweep:
        """Let a sweep that asks go on, as a person does."""
        with self.lifecycle.database.begin() as connection:
            Sweeps(connection).transition(sweep.sweep_id, {SweepState.ASKING}, state=SweepState.PLANNED)
        return self.sweep(sweep.sweep_id)

    def run(self, sweep: Sweep, **more: Any) -> Sweep:
        return run_sweep(self.context(**more), sweep.sweep_id)

    def sweep_now(self, *feeds: str) -> Sweep:
        """Plan and run, whatever it would ask."""
        sweep = self.planned(*feeds)
        return self.run(self.approve(sweep) if sweep.state is SweepState.ASKING else sweep)

    def undo(self, sweep: Sweep, wanted: RestoreSelection = EVERYTHING, **more: Any) -> UndoResult:
        return undo_sweep(self.context(**more), sweep.sweep_id, wanted)

    def sweep(self, sweep_id: str) -> Sweep:
        with self.lifecycle.database.read() as connection:
            found = Sweeps(connection).find(sweep_id)
        assert found is not None
        return found

    def chunks(self, sweep: Sweep) -> list[SweepChunk]:
        with self.lifecycle.database.read() as connection:
            return list(SweepChunks(connection, sweep.sweep_id).iter_all())

    def results(self, sweep: Sweep) -> dict[str, ItemResult]:
        """What became of each path."""
        return {item.path: result for chunk in self.chunks(sweep) for item, result in chunk.results.items()}

    def outcomes(self, sweep: Sweep) -> dict[ItemOutcome, int]:
        """How many paths had each outcome."""
        found = [result.outcome for result in self.results(sweep).values()]
        return {outcome: found.count(outcome) for outcome in dict.fromkeys(found)}

    def events(self, kind: FeedEventKind) -> list[FeedEvent]:
        return [event for event in self.lifecycle.events() if event.kind is kind]

    def rows(self, name: str = "clicks") -> dict[datetime, FeedInstance]:
        return self.lifecycle.feed_instances(name)

    def messages(self) -> list[EvictionPayload]:
        """What the messages about evicted and restored paths say."""
        with self.lifecycle.database.read() as connection:
            payloads = [each.payload for each in Outbox(connection).read(0, 1_000_000, Topic.EVICTION)]
        return [each for each in payloads if isinstance(each, EvictionPayload)]

    def hold(self, name: str, feed: str | None = "clicks", **more: Any) -> None:
        with self.lifecycle.database.begin() as connection:
            given: dict[str, Any] = {"reason": "an audit", "author": "bob", "created_at": self.now}
            Holds(connection).add([Hold(name=name, feed=feed, **(given | more))])

    def tree(self, *, hidden: bool = False) -> Tree:
        return tree_of(self.root, hidden=hidden)


def hourly(first: datetime, number: int) -> list[datetime]:
    return [first + timedelta(hours=n) for n in range(number)]


def paths_of(times: Iterable[datetime], name: str = "clicks") -> set[str]:
    return {f"{name}/{time:%Y-%m-%d/%H}" for time in times}
