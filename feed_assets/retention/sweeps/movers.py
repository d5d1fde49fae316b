"""Move and measure paths: few paths in this process, many on Spark's executors.

Planning receives only a `Measurer`, which cannot move anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from feed_assets.clock import SystemClock
from feed_assets.engines.spark.sessions import map_on_executors
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import StorePath
from feed_assets.storage.records import Measure, Moved
from feed_assets.transfer.archiving import archive_instance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORTH_SPARK = 5_000
"""From this number of paths on, Spark's executors move a sweep or measure a feed."""

MEASURED_BY_DRIVER = 10_000
"""The maximum number of a feed's paths that this process measures if no decision depends on their sizes."""
MEASURED_ON_EXECUTORS = 1_000_000

CHUNKS_AT_ONCE = 8
PATHS_A_TASK = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """Paths of one store to remove in one sweep: to its trash, or to an archive, at the paths `to_paths`.

    Can be sent to another machine.
    """

    address: StoreAddress
    sweep: str
    paths: tuple[str, ...]
    flag: str | None = None
    archive: StoreAddress | None = None
    to_paths: tuple[str, ...] = ()


class Mover:
    """Removes paths, in this process or on the executors of a Spark session, which open the stores by their addresses.

    `width` is the number of tasks that it can run at once.
    """

    def __init__(self, stores: StorePool, paths: int = 0, session: "Callable[[], SparkSession] | None" = None) -> None:
        self._stores = stores
        self._executors = _open_executors(paths, session)
        self.width = 1 if self._executors is None else CHUNKS_AT_ONCE

    def put(self, tasks: Sequence[MoveTask]) -> list[list[Moved]]:
        """Run the tasks; return the results of `Trash.put` or `archive_instance` for each, in the order of its paths.

        Raises:
            FeedAssetsError: a filesystem failed as a whole; repeating the same tasks continues.
        """
        if self._executors is not None:
            return map_on_executors(self._executors, _move_there, tasks)
        return [move(self._stores, task) for task in tasks]


class Measurer:
    """Measures paths, in this process or on the executors of a Spark session.

    `at_most` is the maximum number of paths that it measures if no decision depends on their sizes.
    """

    def __init__(self, stores: StorePool, session: "Callable[[], SparkSession] | None" = None) -> None:
        self._stores = stores
        self._session = session
        self.at_most = MEASURED_BY_DRIVER if session is None else MEASURED_ON_EXECUTORS

    def measure(self, address: StoreAddress, paths: Sequence[str]) -> list[Measure]:
        """Measure paths of a store, in the given order. Raises as `InstanceStore.measure` does."""
        executors = _open_executors(len(paths), self._session)
        if executors is None:
            return self._stores.get(address).measure(paths) if paths else []
        tasks = [(address, tuple(paths[start : start + PATHS_A_TASK])) for start in range(0, len(paths), PATHS_A_TASK)]
        return list(chain.from_iterable(map_on_executors(executors, _measure_there, tasks)))


def _open_executors(paths: int, session: "Callable[[], SparkSession] | None") -> "SparkSession | None":
    """Open a session if there are many paths; None if it cannot run this package's functions on executors, as that of
    Spark Connect.
    """
    opened = session() if session is not None and paths >= WORTH_SPARK else None
    return opened if type(opened).__module__.startswith("pyspark.sql.session") else None


def move(stores: StorePool, task: MoveTask) -> list[Moved]:
    """Run one task in this process."""
    store = stores.get(task.address)
    if task.archive is None:
        return store.trash().put(task.sweep, task.paths, flag=task.flag)
    archive, clock = stores.get(task.archive), SystemClock()
    return [
        archive_instance(
            StorePath(store=store, path=path), StorePath(store=archive, path=to_path), task.sweep, clock, flag=task.flag
        )
        for path, to_path in zip(task.paths, task.to_paths, strict=True)
    ]


def _move_there(task: MoveTask) -> list[Moved]:
    return move(StorePool(), task)


def _measure_there(task: tuple[StoreAddress, tuple[str, ...]]) -> list[Measure]:
    address, paths = task
    return StorePool().get(address).measure(paths)
