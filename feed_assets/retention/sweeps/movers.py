"""Move and measure paths: few paths in this process, many on Spark's executors.

Planning receives only a `Measurer`, which cannot move anything.
"""

from abc import ABC, abstractmethod
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


class Mover(ABC):
    """Removes paths."""

    width: int = 1
    """The number of tasks that it can run at once."""

    @abstractmethod
    def put(self, tasks: Sequence[MoveTask]) -> list[list[Moved]]:
        """Run the tasks; return the results of `Trash.put` or `archive_instance` for each, in the order of its paths.

        Raises:
            FeedAssetsError: a filesystem failed as a whole; repeating the same tasks continues.
        """


class Measurer(ABC):
    """Measures paths."""

    at_most: int
    """The maximum number of paths that it measures if no decision depends on their sizes."""

    @abstractmethod
    def measure(self, address: StoreAddress, paths: Sequence[str]) -> list[Measure]:
        """Measure paths of a store, in the given order. Raises as `InstanceStore.measure` does."""


class DriverMover(Mover):
    """Removes paths in this process."""

    def __init__(self, stores: StorePool) -> None:
        self._stores = stores

    def put(self, tasks: Sequence[MoveTask]) -> list[list[Moved]]:
        return [move(self._stores, task) for task in tasks]


class DriverMeasurer(Measurer):
    """Measures paths in this process."""

    at_most = MEASURED_BY_DRIVER

    def __init__(self, stores: StorePool) -> None:
        self._stores = stores

    def measure(self, address: StoreAddress, paths: Sequence[str]) -> list[Measure]:
        return self._stores.get(address).measure(paths) if paths else []


class SparkMover(Mover):
    """Removes paths on the executors of a Spark session, which open the stores by their addresses."""

    width = CHUNKS_AT_ONCE

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def put(self, tasks: Sequence[MoveTask]) -> list[list[Moved]]:
        return map_on_executors(self._session, _move_there, tasks)


class SparkMeasurer(Measurer):
    """Measures paths on the executors of a Spark session; few paths in this process."""

    at_most = 1_000_000

    def __init__(self, stores: StorePool, session: "Callable[[], SparkSession]") -> None:
        self._driver = DriverMeasurer(stores)
        self._session = session

    def measure(self, address: StoreAddress, paths: Sequence[str]) -> list[Measure]:
        session = self._session() if len(paths) >= WORTH_SPARK else None
        if session is None or not has_executors(session):
            return self._driver.measure(address, paths)
        tasks = [(address, tuple(paths[start : start + PATHS_A_TASK])) for start in range(0, len(paths), PATHS_A_TASK)]
        return list(chain.from_iterable(map_on_executors(session, _measure_there, tasks)))


def choose_mover(paths: int, stores: StorePool, session: "Callable[[], SparkSession] | None" = None) -> Mover:
    """Return the mover for a number of paths: Spark if there are many, and if it has executors that run this package.

    `session` opens a session if needed. The executors of a Spark Connect session cannot run this package.
    """
    if session is None or paths < WORTH_SPARK:
        return DriverMover(stores)
    opened = session()
    return SparkMover(opened) if has_executors(opened) else DriverMover(stores)


def choose_measurer(stores: StorePool, session: "Callable[[], SparkSession] | None" = None) -> Measurer:
    """Return the measurer: Spark if there is a session, for feeds with many paths."""
    return DriverMeasurer(stores) if session is None else SparkMeasurer(stores, session)


def has_executors(session: "SparkSession") -> bool:
    """Return whether a session can run this package's functions on its executors; Spark Connect cannot."""
    return type(session).__module__.startswith("pyspark.sql.session")


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
