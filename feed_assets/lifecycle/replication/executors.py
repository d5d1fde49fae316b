"""Tasks of copies on the executors of a Spark session, which open the storages by their addresses."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from feed_assets.engines.sessions import map_on_executors
from feed_assets.lifecycle.replication.copying import RunTasks
from feed_assets.lifecycle.replication.running import TaskResult, run_task
from feed_assets.lifecycle.replication.tasks import CopyTask
from feed_assets.lifecycle.replication.threads import copy_threads
from feed_assets.lifecycle.stores import StorePool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WORTH_BYTES = 64 << 20
WORTH_FILES = 2_000
"""What is less than both is copied by the process itself."""


def run_on_executors(session: "SparkSession") -> RunTasks:
    """What runs tasks on the executors (see `map_on_executors`)."""
    return partial(map_on_executors, session, _run_there)


def run_where_worth(
    stores: StorePool, session: "Callable[[], SparkSession]", *, is_remote: bool, threads: int
) -> RunTasks:
    """What runs tasks on the executors where they have enough to do, and else here, with threads: a session of Spark
    takes seconds to start, and a small copy less.

    Args:
        stores: for what is done here.
        session: opens the session.
        is_remote: whether it is one of Spark Connect, whose executors cannot run Python of ours.
        threads: how many tasks are run here at once.
    """

    def run(tasks: Sequence[CopyTask]) -> list[TaskResult]:
        files = sum(len(copy.files) + len(copy.stretches) for task in tasks for copy in task.copies)
        is_worth_it = sum(task.bytes for task in tasks) >= WORTH_BYTES or files >= WORTH_FILES
        if is_worth_it and not is_remote:
            return list(run_on_executors(session())(tasks))
        copies = (copy for task in tasks for copy in task.copies)
        sides = {side.store: side for copy in copies for side in (copy.source, copy.target)}.values()
        with copy_threads(threads, stores, sides, is_alone=True) as here:
            return here.run(lambda task: run_task(task, stores), tasks)

    return run


@cache
def _stores() -> StorePool:
    """The stores of an executor's Python process, which does many tasks."""
    return StorePool()


def _run_there(task: CopyTask) -> TaskResult:
    return run_task(task, _stores())
