"""Moving and measuring on Spark's executors does what this process would have done."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from feed_assets.log.removals.records import ItemOutcome, SweepState
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.retention.sweeps import movers
from feed_assets.retention.sweeps.movers import WORTH_SPARK, Measurer, Mover, MoveTask
from feed_assets.retention.sweeps.sweeping import run_sweep
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Moved, Outcome
from tests.instances.harness import START, at
from tests.retention.harness import RetentionHarness, Tree, hourly, kept_feed, tree_of
from tests.spark_session import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = pytest.mark.spark

COUNT = 300
TASKS = 6


def make(root: Path) -> list[str]:
    """Many small instances, one of each kind that is not moved as it is: gone, a link, empty, with a link inside."""
    paths = [f"clicks/{number // 24:03d}/{number % 24:02d}" for number in range(COUNT)]
    for number, path in enumerate(paths):
        (root / path).mkdir(parents=True)
        (root / path / "part").write_bytes(b"x" * (number % 7))
        (root / path / "_SUCCESS").touch()
    (root / paths[3] / "part").unlink()
    (root / paths[3] / "_SUCCESS").unlink()
    (root / paths[4] / "link").symlink_to("/nowhere")
    (root / paths[5]).rename(root / "elsewhere")
    (root / paths[5]).symlink_to(root / "elsewhere")
    (root / paths[6]).rename(root / "away")
    return paths


def tasks(address: StoreAddress, paths: Sequence[str], archive: StoreAddress | None = None) -> list[MoveTask]:
    size = -(-len(paths) // TASKS)
    return [
        MoveTask(
            address=address,
            sweep="sweep-1",
            paths=tuple(paths[start : start + size]),
            flag="_SUCCESS",
            archive=archive,
            to_paths=tuple(f"old/{path}" for path in paths[start : start + size]) if archive else (),
        )
        for start in range(0, len(paths), size)
    ]


def put(folder: Path, mover: Mover, *, archive: bool = False, limit: int = COUNT) -> tuple[list[list[Moved]], Tree]:
    """What a mover answers, and what the folder is like then."""
    paths = make(folder / "data")[:limit]
    to = StoreAddress(url=f"file://{folder}/archive") if archive else None
    if to is not None:
        (folder / "archive").mkdir()
    moved = mover.put(tasks(StoreAddress(url=f"file://{folder}/data"), paths, to))
    return moved, tree_of(folder, hidden=True)


@pytest.mark.parametrize("archive", [False, True])
def test_many_instances_go_as_by_the_driver(tmp_path: Path, spark: "SparkSession", archive: bool) -> None:
    limit = 40 if archive else COUNT
    here = put(tmp_path / "here", Mover(StorePool()), archive=archive, limit=limit)
    there = put(tmp_path / "there", Mover(StorePool(), WORTH_SPARK, lambda: spark), archive=archive, limit=limit)
    assert there[0] == here[0]
    assert there[1].keys() == here[1].keys()
    outcomes = [moved.outcome for answers in there[0] for moved in answers]
    assert outcomes[:3] + outcomes[7:] == [Outcome.MOVED] * (limit - 4)
    assert outcomes[5:7] == [Outcome.REFUSED, Outcome.VANISHED]


def test_many_instances_are_measured_as_by_the_driver(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(movers, "WORTH_SPARK", 100)
    monkeypatch.setattr(movers, "PATHS_A_TASK", 40)
    paths = make(tmp_path)
    address, stores = StoreAddress(url=f"file://{tmp_path}"), StorePool()
    opened: list[SparkSession] = []

    def session() -> "SparkSession":
        opened.append(spark)
        return spark

    measurer = Measurer(stores, session)
    assert measurer.measure(address, paths[:99]) == Measurer(stores).measure(address, paths[:99])
    assert opened == []
    assert measurer.measure(address, paths) == Measurer(stores).measure(address, paths)
    assert opened == [spark]


def test_a_whole_sweep_on_executors_is_recorded_and_undone(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feed_assets.log.removals.chunks.CHUNK_ITEMS", 20)
    harness = RetentionHarness.of(tmp_path, kept_feed(limit="hours(6)", sweep_limits={"share": 1.0}))
    harness.land("clicks", *hourly(START, 96))
    harness.arrive(at("05"))
    tree = harness.tree()
    sweep = harness.planned()

    done = run_sweep(harness.context(), sweep.sweep_id, mover=Mover(StorePool(), WORTH_SPARK, lambda: spark))

    assert (done.state, harness.outcomes(sweep)) == (SweepState.DONE, {ItemOutcome.EVICTED: sweep.paths})
    assert harness.undo(sweep).restored == sweep.paths == 90
    assert harness.tree() == tree


def test_few_paths_need_no_session(spark: "SparkSession") -> None:
    def session() -> "SparkSession":
        raise AssertionError

    stores = StorePool()
    assert Mover(stores, WORTH_SPARK - 1, session).width == Mover(stores, WORTH_SPARK).width == 1
    assert Mover(stores, WORTH_SPARK, lambda: spark).width == movers.CHUNKS_AT_ONCE
    assert Measurer(stores).at_most < Measurer(stores, session).at_most
