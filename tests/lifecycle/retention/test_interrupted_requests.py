"""A sweep, an undo and a purge on storage without renames, interrupted at each of its requests: the storage is away,
before the request or after it was done, or the program is killed. The same command again ends right: everything is in
one place, no marker stays, and the record agrees with the storage.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.instances.leasing import TTL
from feed_assets.lifecycle.retention.purging import find_purgeable, purge_sweeps
from feed_assets.lifecycle.retention.undoing import RestoreSelection
from feed_assets.state.records import FeedEventKind, FeedInstanceStatus
from feed_assets.state.sweep_records import ItemOutcome, Sweep, SweepState
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.paths import PUBLISHING_NAME
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_store
from tests.drills import sampled, sized
from tests.lifecycle.harness import START, at
from tests.lifecycle.retention.harness import RetentionHarness, hourly, kept_feed, paths_of
from tests.object_servers import ObjectServer
from tests.storage.watched import WatchedClient

EXPIRED = hourly(START, 2)
YOUNG = hourly(at("02"), 3)
NAMES = ("part-0.csv", "s/part-1.csv", "_SUCCESS")
MEMORY_STEP, SERVER_STEP, KILL_STEP = sized((4, 29, 41), (1, 1, 1))
"""Every n-th request is interrupted, the first of them at the middle of the step."""
pytestmark = [pytest.mark.sample, pytest.mark.timeout(sized(900, 7200))]
_numbers = count()


class Interruption:
    """Does something at one request, counted from 1."""

    def __init__(self, number: int, work: Callable[[], object]) -> None:
        self._left = number
        self._work = work
        self._lock = threading.Lock()

    @property
    def has_struck(self) -> bool:
        return self._left <= 0

    def __call__(self, _name: str) -> None:
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
        self._work()


@dataclass(slots=True)
class Bench:
    """A feed on an object storage, some of whose instances have expired."""

    harness: RetentionHarness
    client: WatchedClient

    @classmethod
    def of(cls, folder: Path, client: WatchedClient) -> "Bench":
        harness = RetentionHarness.of(folder, kept_feed(flag="_SUCCESS"))
        harness.lifecycle.stores = StorePool(
            lambda url, _: ObjectStore(client, root_url=url, scratch=folder / "scratch")
        )
        return cls(harness=harness, client=client)

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


COMMANDS: Mapping[str, tuple[Callable[[Bench, Sweep], None], Callable[[Bench, Sweep], None]]] = {
    "run": (Bench.run, require_swept),
    "undo": (Bench.undo, require_undone),
    "purge": (Bench.purge, require_purged),
}


def prepare(bench: Bench, command: str) -> Sweep:
    bench.land()
    sweep = bench.harness.planned()
    if command != "run":
        bench.run(sweep)
    return bench.harness.sweep(sweep.sweep_id)


def repeat(bench: Bench, command: str, sweep: Sweep) -> None:
    """Give the command again, when the claims of a worker that could not give them back have run out."""
    work, require = COMMANDS[command]
    bench.harness.lag += 2 * TTL
    work(bench, sweep)
    require(bench, sweep)


@pytest.fixture(params=["memory", *(pytest.param(name, marks=pytest.mark.server) for name in ("s3", "azure"))])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clients(request: pytest.FixtureRequest, kind: str) -> Callable[[], WatchedClient]:
    """Makes a client of an empty storage."""
    if kind == "memory":
        return WatchedClient
    server = request.getfixturevalue(f"{kind}_server")

    def make() -> WatchedClient:
        store = open_store(f"{server.url}/interrupted-{next(_numbers)}", server.options)
        assert isinstance(store, ObjectStore)
        return WatchedClient(store.client)

    return make


def every(step: int) -> Iterator[int]:
    yield from count(1 + step // 2, step)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_storage_that_is_away_at_any_request_ends_nothing_as_a_lie(
    tmp_path: Path, kind: str, clients: Callable[[], WatchedClient], command: str, when: str
) -> None:
    step = MEMORY_STEP if kind == "memory" else SERVER_STEP
    for bench, sweep in interrupted(tmp_path, clients, command, when, step):
        repeat(bench, command, sweep)


def interrupted(
    tmp_path: Path, clients: Callable[[], WatchedClient], command: str, when: str, step: int = MEMORY_STEP
) -> Iterator[tuple[Bench, Sweep]]:
    """A new bench for each request at which a command on a sweep was interrupted, and at last one where none was."""

    def away() -> None:
        raise ConnectionError("the storage is away")

    for number in every(step):
        folder = tmp_path / str(number)
        folder.mkdir()
        bench = Bench.of(folder, clients())
        sweep = prepare(bench, command)
        interruption = Interruption(number, away)
        setattr(bench.client, when, interruption)
        with suppress(FeedAssetsError):
            COMMANDS[command][0](bench, sweep)
        bench.client.before = bench.client.after = lambda _: None
        bench.harness.lag += 2 * TTL
        yield bench, bench.harness.sweep(sweep.sweep_id)
        if not interruption.has_struck:
            assert number > 10
            return


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_held_after_an_interrupted_run_is_whole_in_the_place_that_the_record_says(
    tmp_path: Path, when: str
) -> None:
    for bench, sweep in interrupted(tmp_path, WatchedClient, "run", when):
        bench.harness.hold("audit")
        bench.run(sweep)
        assert bench.harness.sweep(sweep.sweep_id).state is SweepState.DONE
        standing, trashed = bench.content()
        rows = bench.harness.rows()
        for time in EXPIRED:
            (path,) = paths_of([time])
            whole = {f"{path}/{name}" for name in NAMES}
            is_gone = rows[time].status is FeedInstanceStatus.EVICTED
            assert {name for name in standing if name.startswith(path)} == (set() if is_gone else whole)
            assert {name for name in trashed if name.startswith(path)} == (whole if is_gone else set())
            assert (bench.harness.results(sweep)[path].outcome is ItemOutcome.EVICTED) is is_gone


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_run_can_be_undone_at_once(tmp_path: Path, when: str) -> None:
    for bench, sweep in interrupted(tmp_path, WatchedClient, "run", when):
        if sweep.state is not SweepState.PLANNED:
            bench.undo(sweep)
            require_undone(bench, sweep)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_undo_of_other_instances_leaves_nothing_half_restored(tmp_path: Path, when: str) -> None:
    other = RestoreSelection(times=frozenset(EXPIRED[1:]))
    for bench, sweep in interrupted(tmp_path, WatchedClient, "undo", when):
        bench.harness.undo(sweep, other)
        assert not [name for name in bench.client.names() if name.endswith(PUBLISHING_NAME)]
        bench.undo(sweep)
        require_undone(bench, sweep)


def work_until_killed(
    folder: Path, url: str, options: Mapping[str, object], command: str, sweep_id: str, number: int
) -> None:
    """Give a command in a process that dies at its n-th request, without an end to anything."""
    store = open_store(url, options)
    assert isinstance(store, ObjectStore)
    client = WatchedClient(store.client)
    bench = Bench.of(folder, client)
    bench.harness.now = at("04")
    sweep = bench.harness.sweep(sweep_id)
    client.before = Interruption(number, lambda: os._exit(9))
    COMMANDS[command][0](bench, sweep)


@pytest.mark.server
@pytest.mark.parametrize("command", sampled(COMMANDS, "run"))
def test_a_program_that_is_killed_at_any_request_ends_nothing_as_a_lie(
    tmp_path: Path, s3_server: ObjectServer, command: str
) -> None:
    for number in every(KILL_STEP):
        folder = tmp_path / str(number)
        folder.mkdir()
        url = f"{s3_server.url}/killed-{next(_numbers)}"
        store = open_store(url, s3_server.options)
        assert isinstance(store, ObjectStore)
        bench = Bench.of(folder, WatchedClient(store.client))
        sweep = prepare(bench, command)
        arguments = (folder, url, s3_server.options, command, sweep.sweep_id, number)
        child = multiprocessing.get_context("spawn").Process(target=work_until_killed, args=arguments)
        child.start()
        child.join()
        assert child.exitcode in (0, 9)
        repeat(bench, command, sweep)
        if child.exitcode == 0:
            assert number > 10
            return
