"""A sweep, an undo and a purge on storage without renames, interrupted at each of its requests: the storage is away,
before the request or after it was done, or the program is killed. The same command again ends right: everything is in
one place, no marker stays, and the record agrees with the storage.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.log.removals.records import ItemOutcome, Sweep, SweepState
from feed_assets.retention.sweeps import sweeping
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.undoing import RestoreSelection
from feed_assets.storage.paths import PUBLISHING_NAME
from tests.drills import sampled, sized
from tests.instances.harness import START, at
from tests.instances.interruptions import LEASES_END, WHEN, DrilledStorage, interrupted, killed, memory_storage
from tests.object_servers import ObjectServer
from tests.retention.harness import RetentionHarness, hourly, kept_feed, paths_of
from tests.storage.watched import WatchedClient

EXPIRED = hourly(START, 2)
YOUNG = hourly(at("02"), 3)
NAMES = ("part-0.csv", "s/part-1.csv", "_SUCCESS")
pytestmark = [pytest.mark.sample, pytest.mark.timeout(sized(900, 7200))]


@dataclass(slots=True)
class Bench:
    """A feed on an object storage, some of whose instances have expired."""

    harness: RetentionHarness
    client: WatchedClient

    @classmethod
    def of(cls, folder: Path, storage: DrilledStorage) -> "Bench":
        harness = RetentionHarness.of(folder, kept_feed(flag="_SUCCESS"))
        harness.lifecycle.stores = storage.pool(folder / "scratch")
        return cls(harness=harness, client=storage.client())

    def land(self) -> None:
        for path in sorted(paths_of([*EXPIRED, *YOUNG])):
            for name in NAMES:
                self.client.put(f"{path}/{name}", path.encode())
        self.harness.arrive(at("04"))

    def run(self, sweep: Sweep) -> None:
        if self.harness.sweep(sweep.sweep_id).state is not SweepState.DONE:
            self.harness.run(sweep)

    def undo(self, sweep: Sweep) -> None:
        assert self.harness.undo(sweep).left == ()

    def purge(self, sweep: Sweep) -> None:
        context = self.harness.context(at("12"))
        purge_sweeps(
            context, "primary", find_purgeable(context, "primary", at("12"), at_once=True, only=[sweep.sweep_id])
        )

    def content(self) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
        """What stands, and what is in the trash, by path; markers too."""
        found = {name: self.client.inner.get(name) for name in self.client.names()}
        trashed = {name.partition("/tree/")[2]: data for name, data in found.items() if "/tree/" in name}
        return {name: data for name, data in found.items() if not name.startswith(".feed-assets/")}, trashed

    def require(self, *, standing: bool, trashed: bool) -> None:
        """The expired instances are whole where they are to be, and nowhere else; their rows say so."""
        expired = {f"{path}/{name}": path.encode() for path in paths_of(EXPIRED) for name in NAMES}
        young = {f"{path}/{name}": path.encode() for path in paths_of(YOUNG) for name in NAMES}
        assert self.content() == (young | (expired if standing else {}), expired if trashed else {})
        assert not [name for name in self.client.names() if name.endswith(PUBLISHING_NAME)]
        status = FeedInstanceStatus.AVAILABLE if standing else FeedInstanceStatus.EVICTED
        rows = self.harness.rows()
        assert {rows[time].status for time in EXPIRED} == {status}
        assert {rows[time].status for time in YOUNG} == {FeedInstanceStatus.AVAILABLE}


def require_swept(bench: Bench, sweep: Sweep) -> None:
    assert bench.harness.sweep(sweep.sweep_id).state is SweepState.DONE
    assert bench.harness.outcomes(sweep) == {ItemOutcome.EVICTED: len(EXPIRED)}
    bench.require(standing=False, trashed=True)
    evicted = [event.payload["path"] for event in bench.harness.events(FeedEventKind.EVICTED)]
    assert sorted(map(str, evicted)) == sorted(paths_of(EXPIRED))


def require_undone(bench: Bench, sweep: Sweep) -> None:
    assert bench.harness.sweep(sweep.sweep_id).state is SweepState.UNDONE
    bench.require(standing=True, trashed=False)


def require_purged(bench: Bench, sweep: Sweep) -> None:
    assert bench.harness.sweep(sweep.sweep_id).state is SweepState.PURGED
    bench.require(standing=False, trashed=False)
    assert bench.harness.lifecycle.store().trash().sweeps() == []


def require_whole(bench: Bench, sweep: Sweep) -> None:
    """Each expired instance is whole in the place that the record says."""
    standing, trashed = bench.content()
    rows = bench.harness.rows()
    for time in EXPIRED:
        (path,) = paths_of([time])
        whole = {f"{path}/{name}" for name in NAMES}
        is_gone = rows[time].status is FeedInstanceStatus.EVICTED
        assert {name for name in standing if name.startswith(path)} == (set() if is_gone else whole)
        assert {name for name in trashed if name.startswith(path)} == (whole if is_gone else set())
        assert (bench.harness.results(sweep)[path].outcome is ItemOutcome.EVICTED) is is_gone


COMMANDS: Mapping[str, tuple[Callable[[Bench, Sweep], None], Callable[[Bench, Sweep], None]]] = {
    "run": (Bench.run, require_swept),
    "undo": (Bench.undo, require_undone),
    "purge": (Bench.purge, require_purged),
}


Given = tuple[Bench, Sweep]
"""A bench, and the sweep that a command was given for."""


def prepare(command: str, folder: Path, storage: DrilledStorage) -> Given:
    bench = Bench.of(folder, storage)
    bench.land()
    sweep = bench.harness.planned()
    if command != "run":
        bench.run(sweep)
    return bench, bench.harness.sweep(sweep.sweep_id)


def give(command: str, given: Given) -> None:
    COMMANDS[command][0](*given)


def repeat(command: str, given: Given) -> None:
    """Give the command again, when the claims of a worker that could not give them back have run out."""
    bench, sweep = given
    bench.harness.lag += LEASES_END
    give(command, (bench, bench.harness.sweep(sweep.sweep_id)))
    COMMANDS[command][1](bench, sweep)


@pytest.mark.parametrize("when", sampled(WHEN, "before"))
@pytest.mark.parametrize("command", COMMANDS)
def test_a_storage_that_is_away_at_any_request_ends_nothing_as_a_lie(
    tmp_path: Path, make_storage: Callable[[], DrilledStorage], command: str, when: str
) -> None:
    for given in interrupted(tmp_path, make_storage, when, partial(prepare, command), partial(give, command)):
        repeat(command, given)


@pytest.mark.parametrize("when", sampled(WHEN, "after"))
def test_what_is_held_after_an_interrupted_run_is_whole_in_the_place_that_the_record_says(
    tmp_path: Path, when: str
) -> None:
    for bench, sweep in interrupted(tmp_path, memory_storage, when, partial(prepare, "run"), partial(give, "run")):
        bench.harness.lag += LEASES_END
        bench.harness.hold("audit")
        bench.run(sweep)
        assert bench.harness.sweep(sweep.sweep_id).state is SweepState.DONE
        require_whole(bench, sweep)


@pytest.mark.parametrize("when", sampled(WHEN, "since"))
def test_what_a_run_restores_for_a_reader_is_whole_wherever_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def run_with_reader(given: Given) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sweeping, "find_at_work_now", lambda *_: {EXPIRED[0]: "an instance reads it"})
            give("run", given)

    for bench, sweep in interrupted(tmp_path, memory_storage, when, partial(prepare, "run"), run_with_reader):
        bench.harness.lag += LEASES_END
        bench.run(sweep)
        require_whole(bench, sweep)
        bench.purge(sweep)
        assert not [name for name in bench.client.names() if "/trash/" in name or name.endswith(PUBLISHING_NAME)]


@pytest.mark.parametrize("when", sampled(WHEN, "after"))
def test_an_interrupted_run_can_be_undone_at_once(tmp_path: Path, when: str) -> None:
    for bench, sweep in interrupted(tmp_path, memory_storage, when, partial(prepare, "run"), partial(give, "run")):
        bench.harness.lag += LEASES_END
        if bench.harness.sweep(sweep.sweep_id).state is not SweepState.PLANNED:
            bench.undo(sweep)
            require_undone(bench, sweep)


@pytest.mark.parametrize("when", sampled(WHEN, "after"))
def test_an_undo_of_other_instances_leaves_nothing_half_restored(tmp_path: Path, when: str) -> None:
    other = RestoreSelection(times=frozenset(EXPIRED[1:]))
    for bench, sweep in interrupted(tmp_path, memory_storage, when, partial(prepare, "undo"), partial(give, "undo")):
        bench.harness.lag += LEASES_END
        bench.harness.undo(sweep, other)
        assert not [name for name in bench.client.names() if name.endswith(PUBLISHING_NAME)]
        bench.undo(sweep)
        require_undone(bench, sweep)


def give_elsewhere(command: str, sweep_id: str, folder: Path, storage: DrilledStorage) -> None:
    bench = Bench.of(folder, storage)
    bench.harness.now = at("04")
    give(command, (bench, bench.harness.sweep(sweep_id)))


@pytest.mark.server
@pytest.mark.parametrize("command", sampled(COMMANDS, "run"))
def test_a_program_that_is_killed_at_any_request_ends_nothing_as_a_lie(
    tmp_path: Path, s3_server: ObjectServer, command: str
) -> None:
    def elsewhere(given: Given) -> Callable[[Path, DrilledStorage], object]:
        return partial(give_elsewhere, command, given[1].sweep_id)

    for given in killed(tmp_path, s3_server, partial(prepare, command), elsewhere):
        repeat(command, given)
