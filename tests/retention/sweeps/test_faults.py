"""A sweep, an undo and a purge that fail at every single operation, of the database and of the filesystem: the next run
converges, nothing is lost, and an undo brings all back byte for byte.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import delete

from feed_assets.errors import FeedAssetsError
from feed_assets.instances.leasing import TTL
from feed_assets.log.events import EventLog
from feed_assets.log.messages.outbox import Outbox, outbox
from feed_assets.log.messages.payloads import EvictionOperation
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.tables import feed_events
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.undoing import UndoResult
from tests.drills import sized
from tests.instances.harness import START, at
from tests.retention.faults import Fault, faulty_database, faulty_stores
from tests.retention.harness import RetentionHarness, hourly, kept_feed, paths_of

EXPIRED = hourly(START, 2)
YOUNG = hourly(at("02"), 3)
LOG = 50
"""How much of the log stays between two faults."""
pytestmark = [pytest.mark.long, pytest.mark.sample, pytest.mark.timeout(sized(900, 7200))]
SPARSE = sized(11, 1)
"""Of the variations of a fault every n-th is tried."""
STEP = sized(9, 1)
"""With SQLite and with the filesystem, every n-th fault is tried."""
SPARSER = SPARSE if SPARSE == 1 else 2 * SPARSE
"""With PostgreSQL, and of the faults that last, every n-th is tried; those that last lie between the others."""
MEMORY = Path("/dev/shm")


class Bench:
    """A harness whose database and filesystem can be let fail; what is done to it is undone between two faults."""

    def __init__(self, root: Path, state: str, kind: str) -> None:
        locations = {
            "data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}",
            "stats": "/stats/${YEAR}-${MONTH}-${DAY}-${HOUR}",
        }
        self.harness = RetentionHarness.of(root, kept_feed(locations=locations), state=state)
        for time in (*EXPIRED, *YOUNG):
            self.harness.land("clicks", time)
            stats = self.harness.root / f"stats/{time:%Y-%m-%d-%H}"
            stats.mkdir(parents=True)
            (stats / "counts").write_text("1")
        (self.harness.root / "clicks/2013-11-01/00/deep/er").mkdir(parents=True)
        (self.harness.root / "clicks/2013-11-01/00/link").symlink_to("/nowhere")
        self.harness.arrive(at("04"))
        self.fault = Fault()
        self.kind = kind
        self.harness.lifecycle.stores = faulty_stores(self.fault)
        self.rows = self.harness.rows()
        self.tree = self.harness.tree()
        self.paths = paths_of(EXPIRED) | {f"stats/{time:%Y-%m-%d-%H}" for time in EXPIRED}

    @contextmanager
    def failing(self, at: int, *, forever: bool) -> Iterator[None]:
        if self.kind == "storage":
            with self.fault.armed(at, forever=forever):
                yield
        else:
            with faulty_database(self.fault), self.fault.armed(at, forever=forever):
                yield

    def planned(self) -> Sweep:
        sweep = self.harness.planned()
        assert sweep.paths == len(self.paths)
        return sweep

    def run_again(self, sweep: Sweep) -> Sweep:
        """Go on with a sweep when the claims of a worker that could not give them back have run out."""
        self.harness.lag += 2 * TTL
        return self.harness.run(sweep)

    def undo_again(self, sweep: Sweep) -> UndoResult:
        self.harness.lag += 2 * TTL
        return self.harness.undo(sweep)

    def trashed(self, sweep: Sweep) -> set[str]:
        return set(self.harness.lifecycle.store().trash().contents(sweep.sweep_id))

    def standing(self) -> set[str]:
        return {path for path in self.paths if os.path.lexists(self.harness.root / path)}

    def require_nothing_lost(self, sweep: Sweep) -> None:
        trashed, standing = self.trashed(sweep), self.standing()
        assert trashed | standing >= self.paths
        assert not trashed & standing

    def require_recorded(self, sweep: Sweep) -> None:
        """What is in the trash, no more and no less, has its event and its message."""
        events = [event.payload for event in self.harness.events(FeedEventKind.EVICTED)]
        told = [payload["path"] for payload in events if payload["sweep"] == sweep.sweep_id]
        assert sorted(map(str, told)) == sorted(self.trashed(sweep))
        messages = [each for each in self.harness.messages() if each.operation is EvictionOperation.DELETE]
        told = [each.path for each in messages if each.sweep == sweep.sweep_id]
        assert sorted(map(str, told)) == sorted(self.trashed(sweep))
        evicted = {time for time, row in self.harness.rows().items() if row.status is FeedInstanceStatus.EVICTED}
        assert paths_of(evicted) == {path for path in self.trashed(sweep) if path.startswith("clicks")}

    def require_as_before(self) -> None:
        assert self.harness.tree() == self.tree
        facts = [
            (row.status, row.manifest_digest, row.bytes, row.files, row.available_at)
            for row in self.harness.rows().values()
        ]
        before = [
            (row.status, row.manifest_digest, row.bytes, row.files, row.available_at) for row in self.rows.values()
        ]
        assert facts == before

    def forget(self) -> None:
        """Shorten the log and the outbox, so that the last fault costs no more than the first."""
        with self.harness.lifecycle.database.begin() as connection:
            connection.execute(delete(feed_events).where(feed_events.c.seq < EventLog(connection).last_seq() - LOG))
            connection.execute(delete(outbox).where(outbox.c.seq < Outbox(connection).last_seq() - LOG))

    def purge(self, sweep: Sweep) -> None:
        context = self.harness.context(at("12"))
        purge_sweeps(
            context,
            "primary",
            [
                each
                for each in find_purgeable(context, "primary", at("12"), at_once=True)
                if each.sweep_id == sweep.sweep_id
            ],
        )


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where the system has a file system there: thousands of commits wait for a disk otherwise."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="feed-assets-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(params=["database", "storage"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, state_url: str) -> Bench:
    bench = Bench(tmp_path, state_url, request.param)
    if bench.kind == "storage" and bench.harness.lifecycle.database.dialect != "sqlite":
        pytest.skip("the filesystem fails alike whatever the database is")
    return bench


def every_fault(
    bench: Bench, prepare: Callable[[], Sweep], work: Callable[[Sweep], object], step: int = STEP
) -> Iterator[Sweep]:
    """The sweep after work on it has failed at its n-th operation, for all n there are; once, and from then on."""
    is_variation = bench.harness.lifecycle.database.dialect != "sqlite"
    for forever in (False, True):
        every = SPARSER if forever or is_variation else step
        for number in count(1 + forever * every // 2, every):
            sweep = prepare()
            with bench.failing(number, forever=forever), suppress(FeedAssetsError):
                work(sweep)
            yield sweep
            if not bench.fault.struck:
                assert number > 5
                break
            bench.forget()


def test_a_run_that_fails_anywhere_is_gone_on_with(bench: Bench) -> None:
    for sweep in every_fault(bench, bench.planned, bench.harness.run):
        bench.require_nothing_lost(sweep)
        if bench.harness.sweep(sweep.sweep_id).state in (SweepState.PLANNED, SweepState.RUNNING):
            assert bench.run_again(sweep).state is SweepState.DONE
        assert bench.standing() == set()
        bench.require_recorded(sweep)
        assert bench.undo_again(sweep).sweep.state is SweepState.UNDONE
        bench.require_as_before()


def test_what_a_run_that_failed_has_moved_is_recorded_though_it_would_be_kept_now(bench: Bench) -> None:
    for sweep in every_fault(bench, bench.planned, bench.harness.run, SPARSE):
        bench.harness.hold("audit")
        if bench.harness.sweep(sweep.sweep_id).state in (SweepState.PLANNED, SweepState.RUNNING):
            assert bench.run_again(sweep).state is SweepState.DONE
        bench.require_nothing_lost(sweep)
        bench.require_recorded(sweep)
        with bench.harness.lifecycle.database.begin() as connection:
            Holds(connection).release("audit", bench.harness.now, "bob")
        assert bench.undo_again(sweep).sweep.state is SweepState.UNDONE
        bench.require_as_before()


def test_a_run_that_failed_anywhere_can_be_undone_at_once(bench: Bench) -> None:
    for sweep in every_fault(bench, bench.planned, bench.harness.run, SPARSE):
        if bench.harness.sweep(sweep.sweep_id).state is SweepState.PLANNED:
            with bench.harness.lifecycle.database.begin() as connection:
                Sweeps(connection).transition(sweep.sweep_id, {SweepState.PLANNED}, state=SweepState.CANCELLED)
        else:
            assert bench.undo_again(sweep).sweep.state is SweepState.UNDONE
        bench.require_as_before()


def test_an_undo_that_fails_anywhere_is_gone_on_with(bench: Bench) -> None:
    def swept() -> Sweep:
        return bench.harness.run(bench.planned())

    for sweep in every_fault(bench, swept, bench.harness.undo):
        bench.require_nothing_lost(sweep)
        done = bench.undo_again(sweep)
        assert done.left == ()
        assert done.sweep.state is SweepState.UNDONE
        bench.require_as_before()
        restored = [
            event.payload["path"]
            for event in bench.harness.events(FeedEventKind.RESTORED)
            if event.payload["sweep"] == sweep.sweep_id
        ]
        assert sorted(map(str, restored)) == sorted(bench.paths)


def test_a_purge_that_fails_anywhere_is_gone_on_with(bench: Bench) -> None:
    def swept() -> Sweep:
        for time in EXPIRED:
            (bench.harness.root / f"stats/{time:%Y-%m-%d-%H}").mkdir(parents=True, exist_ok=True)
            (bench.harness.root / f"clicks/{time:%Y-%m-%d/%H}").mkdir(parents=True, exist_ok=True)
        return bench.harness.run(bench.planned())

    for sweep in every_fault(bench, swept, bench.purge):
        bench.purge(sweep)
        assert bench.harness.sweep(sweep.sweep_id).state is SweepState.PURGED
        assert sweep.sweep_id not in bench.harness.lifecycle.store().trash().sweeps()
    assert not any(bench.standing())


def test_a_plan_that_fails_anywhere_is_stored_whole_or_not_at_all(bench: Bench) -> None:
    def nothing() -> Sweep:
        return bench.planned()

    for _ in every_fault(bench, nothing, lambda _: bench.harness.plan()):
        with bench.harness.lifecycle.database.read() as connection:
            stored = Sweeps(connection).with_state("primary", {SweepState.PLANNED})
        assert len(stored) == 1
        assert sum(chunk.count for chunk in bench.harness.chunks(stored[0])) == len(bench.paths)
        bench.require_as_before()
