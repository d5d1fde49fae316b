"""Worker processes: they copy what the process itself would, and nothing becomes visible without its consent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import feed_assets
from feed_assets.lifecycle.errors import CopyWorkerLostError, RemovalLimitError
from feed_assets.lifecycle.replication import copying
from feed_assets.lifecycle.replication.copying import copy_many
from feed_assets.lifecycle.replication.outcomes import Copied, CopyStatus
from feed_assets.lifecycle.replication.plans import CopyPlan
from feed_assets.lifecycle.replication.requests import CopyRequest, Meter, Progress
from feed_assets.lifecycle.replication.workers import CopyWorkers, useful_workers
from feed_assets.plan.copy_options import CopyOptions
from tests.lifecycle.replication.sides import Pair, local_place
from tests.storage.trees import memory_folder

PROJECT = Path(feed_assets.__path__[0]).parent
SIZE = len(b"of 000")
COUNT = 12
"""How many copies are worth workers in these tests; a batch has three of them."""
COPIER = """
import sys, time
from pathlib import Path
from tests.lifecycle.replication.test_workers import COUNT, local_pair, ordered
from feed_assets.lifecycle.replication import copying
from feed_assets.plan.copy_options import CopyOptions

def guard():
    print("asked", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    pair = local_pair(Path(sys.argv[1]))
    copying.WORTH_WORKERS, copying._LEAST_BATCH = COUNT, 3
    copying.copy_many(pair.stores, ordered(pair, guard=guard), CopyOptions(), pair.clock, processes=2)
"""


def local_pair(folder: Path) -> Pair:
    return Pair(local_place(folder / "source"), local_place(folder / "target"))


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(copying, "WORTH_WORKERS", COUNT)
    monkeypatch.setattr(copying, "_LEAST_BATCH", 3)
    with memory_folder() as folder:
        pair = local_pair(folder)
        land(pair)
        yield pair


def paths() -> list[str]:
    return [f"clicks/{number:03}" for number in range(COUNT)]


def land(pair: Pair) -> None:
    for path in paths():
        pair.source.land({"part-0.csv": f"of {path[-3:]}".encode()}, path)


def ordered(pair: Pair, **more: Any) -> list[CopyRequest]:
    return [pair.request(path, **more) for path in paths()]


def copy(pair: Pair, requests: list[CopyRequest], processes: int = 2, **more: Any) -> list[Any]:
    options = CopyOptions(**{name: more.pop(name) for name in ("bandwidth",) if name in more})
    return list(copy_many(pair.stores, requests, options, pair.clock, processes=processes, **more))


def is_there(pair: Pair, path: str) -> bool:
    assert pair.target.root is not None
    return (pair.target.root / path).exists()


def children(process: int | str = "self") -> set[int]:
    """The processes that a process has started and that have not ended."""
    found: set[int] = set()
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        found.update(map(int, file.read_text().split()))
    return {child for child in found if is_running(child)}


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_many_small_copies_are_made_by_workers_and_everybody_is_asked_and_told(pair: Pair) -> None:
    before, threads, guarded, told = children(), set(), [], []
    checked: list[CopyPlan] = []
    helpers: set[int] = set()
    asked = threading.Lock()

    def alone() -> None:
        """Nobody else is asked meanwhile."""
        assert asked.acquire(blocking=False)
        time.sleep(0.05)
        asked.release()

    def check(plan: CopyPlan) -> None:
        checked.append(plan)
        alone()

    def guard() -> None:
        guarded.append(1)
        threads.add(threading.get_ident())
        helpers.update(children() - before)
        alone()

    outcomes = copy(pair, ordered(pair, guard=guard, check=check, extra={"run": "r-1"}), on_progress=told.append)
    assert {outcome.status for outcome in outcomes} == {CopyStatus.COPIED}
    assert (len(helpers), len(threads)) == (1, 2)  # this process has copied, and answered for another one
    assert not children() - before
    assert len(guarded) == len(checked) == len(outcomes) == COUNT
    assert {plan.target.path for plan in checked} == set(paths())
    assert told[-1] == Progress(bytes=COUNT * SIZE, files=COUNT, all_bytes=COUNT * SIZE, all_files=COUNT)
    for path, outcome in zip(paths(), outcomes, strict=True):
        assert pair.target.read(path)["part-0.csv"] == f"of {path[-3:]}".encode()
        assert outcome.publication.extra["run"] == "r-1"
        assert outcome.target_url.endswith(path)
    pair.require_equal(paths()[0])
    again = copy(pair, ordered(pair))
    assert {outcome.status for outcome in again} == {CopyStatus.UNCHANGED}


@pytest.mark.parametrize("more", [{"processes": 1}, {"bandwidth": 1 << 30}])
def test_one_process_and_a_limit_on_all_bytes_need_no_workers(pair: Pair, more: dict[str, Any]) -> None:
    before, found = children(), set()
    outcomes = copy(pair, ordered(pair, guard=lambda: found.update(children() - before)), **more)
    assert {outcome.status for outcome in outcomes} == {CopyStatus.COPIED}
    assert not found


def test_what_stands_as_it_was_published_needs_no_workers_and_is_checked_all_the_same(pair: Pair) -> None:
    for path in paths():
        pair.source.publish({"part-0.csv": path.encode()}, path)
    copy(pair, ordered(pair))
    before, found = children(), set()

    def check(plan: CopyPlan) -> None:
        assert plan.is_unchanged
        found.update(children() - before)
        if plan.source.path == paths()[2]:
            raise RemovalLimitError(target="y", removed=3, standing=4, limit="more than 1", approval="x")

    outcomes = copy(pair, ordered(pair, check=check))
    refused = outcomes.pop(2)
    assert isinstance(refused, RemovalLimitError)
    assert {(outcome.status, outcome.tries) for outcome in outcomes} == {(CopyStatus.UNCHANGED, 1)}
    assert [outcome.target_url for outcome in outcomes] == [
        pair.target.store.url(path) for path in paths() if path != paths()[2]
    ]
    assert not found


def test_few_copies_need_no_workers(pair: Pair) -> None:
    before, found = children(), set()
    requests = ordered(pair, guard=lambda: found.update(children() - before))
    assert {outcome.status for outcome in copy(pair, requests[1:])} == {CopyStatus.COPIED}
    assert not found


def test_what_is_refused_is_not_copied_and_takes_nothing_along(pair: Pair) -> None:
    """Of a check or a guard that refuses, the very error comes back, with its facts."""

    def refuse(*_: object) -> None:
        raise RemovalLimitError(target="y", removed=3, standing=4, limit="more than 1", approval="x")

    requests = ordered(pair)
    requests[3] = pair.request(paths()[3], guard=refuse)
    requests[5] = pair.request(paths()[5], check=refuse)
    outcomes = copy(pair, requests)
    failed = {number: outcome for number, outcome in enumerate(outcomes) if not isinstance(outcome, Copied)}
    assert set(failed) == {3, 5}
    assert {type(outcome) for outcome in failed.values()} == {RemovalLimitError}
    assert {outcome.target for outcome in failed.values()} == {"y"}
    gone = [path for path in paths() if not is_there(pair, path)]
    assert gone == [paths()[3], paths()[5]]


def test_a_guard_that_breaks_forbids_its_own_copy(pair: Pair) -> None:
    before, gone = children(), OSError("the database is gone")

    def guard() -> None:
        raise gone

    requests = ordered(pair)
    requests[7] = pair.request(paths()[7], guard=guard)
    outcomes = copy(pair, requests)
    assert [number for number, outcome in enumerate(outcomes) if outcome is gone] == [7]
    assert not children() - before
    assert [path for path in paths() if not is_there(pair, path)] == [paths()[7]]
    assert [outcome.status for outcome in copy(pair, ordered(pair))].count(CopyStatus.COPIED) == 1


def test_an_interrupt_ends_the_workers_at_once(pair: Pair) -> None:
    before = children()

    def guard() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(pair, ordered(pair, guard=guard))
    assert not children() - before
    assert not any(is_there(pair, path) for path in paths())
    assert {outcome.status for outcome in copy(pair, ordered(pair))} == {CopyStatus.COPIED}


def test_a_worker_that_is_killed_is_told_of_and_the_next_copy_goes_on(pair: Pair) -> None:
    before = children()

    def kill() -> None:
        for child in children() - before:
            os.kill(child, signal.SIGKILL)

    with (
        pytest.raises(CopyWorkerLostError, match="was ended by signal 9"),
        CopyWorkers(1, CopyOptions(), pair.clock, Meter(None), threading.Lock()) as workers,
    ):
        workers.copy(ordered(pair, guard=kill)[:3])
    assert not any(is_there(pair, path) for path in paths())
    with CopyWorkers(1, CopyOptions(), pair.clock, Meter(None), threading.Lock()) as workers:
        assert {outcome.status for outcome in workers.copy(ordered(pair)[:3])} == {CopyStatus.COPIED}  # type: ignore[union-attr]
        assert {outcome.status for outcome in workers.copy(ordered(pair)[3:5])} == {CopyStatus.COPIED}  # type: ignore[union-attr]


def test_workers_of_a_process_that_is_killed_publish_nothing_and_end(pair: Pair) -> None:
    assert pair.target.root is not None
    folder = pair.target.root.parent
    command = [sys.executable, "-c", COPIER, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        workers = children(process.pid)
        process.kill()
    assert len(workers) == 1
    deadline = time.monotonic() + 30
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, workers))
    assert not any(is_there(pair, path) for path in paths())
    assert {outcome.status for outcome in copy(pair, ordered(pair))} == {CopyStatus.COPIED}


def test_no_more_workers_than_processors_and_tasks_are_useful() -> None:
    processors = len(os.sched_getaffinity(0))
    assert [useful_workers(tasks) for tasks in (0, 1, 10_000)] == [1, 1, processors]
