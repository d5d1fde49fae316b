"""Who does the work in storage: few paths are moved and measured by this process, many on the executors of Spark.

Planning gets a `Measurer` only, which cannot move anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from feed_assets.engines.sessions import map_on_executors
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.addresses import StoreAddress
from feed_assets.storage.records import Measure, Moved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORTH_SPARK = 5_000
"""From how many paths on a sweep is moved on Spark's executors, and a feed measured there."""

MEASURED_BY_DRIVER = 10_000
"""How many paths of a feed this process measures where their sizes decide nothing."""

CHUNKS_AT_ONCE = 8
PATHS_A_TASK = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """Paths of one store that one sweep takes away: to its trash, or to an archive where each has a path in `to_paths`.

    Everything in it can be sent to another machine.
    """

    address: StoreAddress
    sweep: str
    paths: tuple[str, ...]
    flag: str | None = None
    archive: StoreAddress | None = None
    to_paths: tuple[str, ...] = ()


class Mover(ABC):
    """Takes paths away."""

    width: int = 1
    """How many tasks it is worth to give it at once."""

    @abstractmethod
    def put(self, tasks: Sequence[MoveTask]) -> list[list[Moved]]:
        """Do the tasks; for each the answers of `Trash.put` or `Trash.archive`, in the order of its paths.

        Raises:
            StorageError: a filesystem refused as a whole; a repeat of the same tasks goes on.
        """


class Measurer(ABC):
    """Measures paths."""

    at_most: int
    """How many paths it measures where nothing depends on it."""

    @abstractmethod
    def measure(self, address: StoreAddress, paths: Sequence[str]) -> list[Measure]:
        """Measure paths of a store, in the order given. Raises as `InstanceStore.measure`."""


class DriverMover(Mover):
    """Takes paths away by this process itself."""

    def __init__(self, stores: StorePool) -> None:
        self._stores = stores

    def put(self, tasks: Sequence[MoveTask]) -> list[list[Moved]]:
        return [move(self._stores, task) for task in tasks]


class DriverMeasurer(Measurer):
    """Measures by this process itself."""

    at_most = MEASURED_BY_DRIVER

    def __init__(self, stores: StorePool) -> None:
        self._stores = stores

    def measure(self, address: StoreAddress, paths: Sequence[str]) -> list[Measure]:
        return self._stores.get(address).measure(paths) if paths else []


class SparkMover(Mover):
    """Takes paths away on the executors of a Spark session, which open the stores by their addresses."""

    width = CHUNKS_AT_ONCE

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def put(self, tasks: Sequence[MoveTask]) -> list[list[Moved]]:
        return map_on_executors(self._session, _move_there, tasks)


class SparkMeasurer(Measurer):
    """Measures on the executors of a Spark session, and few paths by this process."""

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
    """Who moves a sweep of so many paths: Spark, if there are many and it has executors that run Python of ours.

    `session` opens a session where it is wanted; a session of Spark Connect has no such executors.
    """
    if session is None or paths < WORTH_SPARK:
        return DriverMover(stores)
    opened = session()
    return SparkMover(opened) if has_executors(opened) else DriverMover(stores)


def choose_measurer(stores: StorePool, session: "Callable[[], SparkSession] | None" = None) -> Measurer:
    """Who measures: Spark where there is one, for feeds with many paths."""
    return DriverMeasurer(stores) if session is None else SparkMeasurer(stores, session)


def has_executors(session: "SparkSession") -> bool:
    """Whether a session can run functions of ours on its executors; one of Spark Connect cannot."""
    return type(session).__module__.startswith("pyspark.sql.session")


def move(stores: StorePool, task: MoveTask) -> list[Moved]:
    """Do one task by this process."""
    trash = stores.get(task.address).trash()
    if task.archive is None:
        return trash.put(task.sweep, task.paths, flag=task.flag)
    archive = stores.get(task.archive)
    pairs = zip(task.paths, task.to_paths, strict=True)
    return [trash.archive(path, archive, to_path, task.sweep, flag=task.flag) for path, to_path in pairs]


def _move_there(task: MoveTask) -> list[Moved]:
    return move(StorePool(), task)


def _measure_there(task: tuple[StoreAddress, tuple[str, ...]]) -> list[Measure]:
    address, paths = task
    return StorePool().get(address).measure(paths)
