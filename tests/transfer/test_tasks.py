"""The work of copies in tasks: parted by bytes, each byte once, in any process, on Spark's executors."""

import pickle

import pytest
from pyspark.sql import SparkSession

from feed_assets.plan.copy_records import CopyOptions
from feed_assets.storage.errors import StagingLostError, StorageError
from feed_assets.storage.records import Availability
from feed_assets.transfer.copying import copy_many
from feed_assets.transfer.errors import CopyDamagedError
from feed_assets.transfer.executors import run_on_executors
from feed_assets.transfer.plans import plan_copy
from feed_assets.transfer.requests import CopyStatus, Progress
from feed_assets.transfer.running import TaskResult, run_task
from feed_assets.transfer.tasks import CopyTask, OpenCopy, open_copy, part_tasks
from tests.transfer.sides import LATER, SMALL, Pair, copy_instance, pattern

MiB = 1 << 20
MIXED = {"large.bin": pattern(40 * MiB), **{f"part-{number:03}": pattern(64 << 10, number) for number in range(96)}}


def opened(pair: Pair, **options: int) -> OpenCopy:
    plan = plan_copy(pair.stores, pair.source.side(), pair.target.side(), CopyOptions(**options), LATER)  # type: ignore[arg-type]
    return open_copy(pair.stores, plan)


def test_work_is_parted_by_bytes_into_sets_of_files(pair: Pair) -> None:
    pair.source.land({f"part-{number:03}": pattern(number << 14, number) for number in range(96)})
    tasks = part_tasks([opened(pair)], 4)
    costs = [task.bytes + (64 << 10) * task.files for task in tasks]  # a file costs something, too
    assert len(tasks) == 4
    assert max(costs) <= 1.25 * min(costs)


def test_a_large_file_has_a_task_of_its_own(pair: Pair) -> None:
    pair.source.land(MIXED)
    tasks = part_tasks([opened(pair)], 4)
    assert [task.files for task in tasks if task.has_large_files] == [1]
    assert sum(task.files for task in tasks) == 97


def test_every_file_is_in_one_task_only(any_pair: Pair) -> None:
    any_pair.source.land({"a.bin": pattern(13 * MiB + 1), "b.bin": pattern(9 * MiB), "c.bin": b"", "d.bin": b"d"})
    tasks = part_tasks([opened(any_pair)], 3)
    names = [file.path for task in tasks for copy in task.copies for file in copy.files]
    assert sorted(names) == ["a.bin", "b.bin", "c.bin", "d.bin"]


def test_a_small_copy_is_not_scattered(pair: Pair) -> None:
    for hour in range(20):
        pair.source.land({f"part-{number}": b"x" * 1000 for number in range(10)}, path=f"clicks/{hour:02}")
    copies = []
    for hour in range(20):
        sides = pair.source.side(f"clicks/{hour:02}"), pair.target.side(f"clicks/{hour:02}")
        copies.append(open_copy(pair.stores, plan_copy(pair.stores, *sides, CopyOptions(), LATER)))
    tasks = part_tasks(copies, 4)
    assert [len(task.copies) for task in tasks] == [5, 5, 5, 5]
    assert all(len(copy.files) == 10 for task in tasks for copy in task.copies)


def test_no_work_is_no_task(pair: Pair) -> None:
    pair.source.land({})
    assert part_tasks([], 4) == []
    assert part_tasks([opened(pair)], 4) == []


def test_many_small_instances_are_copied_in_few_tasks_together(pair: Pair) -> None:
    paths = [f"clicks/{hour:03}" for hour in range(150)]
    for path in paths:
        pair.source.land({"part-0": path.encode(), "part-1": b"x"}, path=path)
    counts = []

    def run(tasks: object) -> list[TaskResult]:
        assert isinstance(tasks, list)
        counts.append(len(tasks))
        return [run_task(task, pair.stores) for task in tasks]

    requests = [pair.request(path) for path in paths]
    outcomes = copy_many(pair.stores, requests, CopyOptions(max_tasks=3), LATER, run_tasks=run)
    assert {outcome.status for outcome in outcomes if not isinstance(outcome, Exception)} == {CopyStatus.COPIED}
    assert len(outcomes) == 150
    assert counts == [3, 3]
    for path in paths[::10]:
        pair.require_equal(path)


def test_tasks_and_their_results_can_be_sent_to_other_processes(any_pair: Pair) -> None:
    any_pair.source.publish({**SMALL, "large.bin": pattern(9 * MiB)})

    def run(tasks: object) -> list[TaskResult]:
        assert isinstance(tasks, list)
        sent: list[CopyTask] = pickle.loads(pickle.dumps(tasks))
        return [pickle.loads(pickle.dumps(run_task(task, any_pair.stores))) for task in sent]

    sides = any_pair.source.side(), any_pair.target.side()
    copied = copy_instance(any_pair.stores, *sides, CopyOptions(), run_tasks=run)
    assert copied.status is CopyStatus.COPIED
    any_pair.require_equal()


def test_errors_can_be_sent_to_other_processes() -> None:
    for error in (
        StorageError(store="file:///a", path="b", reason="full", next_step="Make space."),
        CopyDamagedError(url="file:///a", files=("b",), tries=3),
    ):
        sent = pickle.loads(pickle.dumps(error))
        assert (type(sent), str(sent), sent.__dict__) == (type(error), str(error), error.__dict__)


def test_a_task_that_was_sent_twice_does_the_same_twice(pair: Pair) -> None:
    pair.source.land({**SMALL, "large.bin": pattern(12 * MiB)})

    def run(tasks: object) -> list[TaskResult]:
        assert isinstance(tasks, list)
        for task in tasks:
            run_task(task, pair.stores)
        return [run_task(task, pair.stores) for task in tasks]

    sides = pair.source.side(), pair.target.side()
    copy_instance(pair.stores, *sides, CopyOptions(), run_tasks=run)
    pair.require_equal()


def test_a_task_of_a_copy_that_another_process_took_over_writes_nothing(any_pair: Pair) -> None:
    any_pair.source.publish(SMALL)
    former = part_tasks([opened(any_pair)], 1)
    opened(any_pair)
    (result,) = run_task(former[0], any_pair.stores)
    assert isinstance(result.error, StagingLostError)
    any_pair.copy()
    any_pair.require_equal()


def test_progress_is_told_and_ends_with_everything(any_pair: Pair) -> None:
    any_pair.source.publish({**SMALL, "large.bin": pattern(9 * MiB)})
    told: list[Progress] = []
    sides = any_pair.source.side(), any_pair.target.side()
    copied = copy_instance(any_pair.stores, *sides, CopyOptions(), on_progress=told.append)
    size, files = copied.bytes, copied.files
    assert told[-1] == Progress(bytes=size, files=files, all_bytes=size, all_files=files)
    assert [each.bytes for each in told] == sorted(each.bytes for each in told)


@pytest.mark.spark
def test_executors_copy_large_files_together_and_many_instances_in_one_job(pair: Pair, spark: SparkSession) -> None:
    pair.source.publish(MIXED)
    pair.source.land(SMALL, path="clicks/small")
    requests = [pair.request(), pair.request("clicks/small"), pair.request("clicks/none")]
    options = CopyOptions(max_tasks=4)
    one, two, three = copy_many(pair.stores, requests, options, LATER, run_tasks=run_on_executors(spark))
    assert not isinstance(one, Exception)
    assert not isinstance(two, Exception)
    assert (one.status, two.status) == (CopyStatus.COPIED, CopyStatus.COPIED)
    assert "is MISSING" in str(three)
    pair.require_equal()
    pair.require_equal("clicks/small")


@pytest.mark.spark
def test_what_a_storage_refuses_an_executor_comes_back_as_it_was(pair: Pair, spark: SparkSession) -> None:
    pair.source.land(SMALL)
    sides = pair.source.side(), pair.target.side()
    run = run_on_executors(spark)

    def run_late(tasks: object) -> list[TaskResult]:
        assert isinstance(tasks, list)
        opened(pair)  # another process takes the copy over
        return list(run(tasks))

    with pytest.raises(StagingLostError):
        copy_instance(pair.stores, *sides, CopyOptions(), run_tasks=run_late)
    assert pair.target.availability() is Availability.MISSING
