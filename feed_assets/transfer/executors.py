"""Run copy tasks on the executors of a Spark session, which open the stores from their addresses."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from feed_assets.engines.spark.sessions import map_on_executors
from feed_assets.storage.pool import StorePool
from feed_assets.transfer.copying import RunTasks
from feed_assets.transfer.running import TaskResult, run_task
from feed_assets.transfer.tasks import CopyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORTH_BYTES = 64 << 20
WORTH_FILES = 2_000
"""Work below both limits is copied by this process."""


def run_on_executors(session: "SparkSession") -> RunTasks:
    """Return a function that runs tasks on the executors (see `map_on_executors`)."""
    return partial(map_on_executors, session, _run_there)


def run_where_worth(session: "Callable[[], SparkSession]", *, is_remote: bool) -> RunTasks:
    """Return a function that runs tasks on the executors if there is enough work.

    Starting a Spark session takes seconds; a small copy takes less.

    Args:
        session: opens the session.
        is_remote: whether the session uses Spark Connect, whose executors cannot run the Python code of feed-assets.
    """

    def run(tasks: Sequence[CopyTask]) -> Iterable[TaskResult] | None:
        files, size = sum(task.files for task in tasks), sum(task.bytes for task in tasks)
        if is_remote or (files < WORTH_FILES and size < WORTH_BYTES):
            return None
        return run_on_executors(session())(tasks)

    return run


@cache
def _stores() -> StorePool:
    """Return the store pool of an executor's Python process, which all its tasks share."""
    return StorePool()


def _run_there(task: CopyTask) -> TaskResult:
    return run_task(task, _stores())
