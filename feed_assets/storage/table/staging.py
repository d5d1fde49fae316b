"""How a copy of one partition is assembled, in Hive and in Iceberg; the store at the table's location stages files."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from feed_assets.storage.copy_port import Acl, Prepared, StagedFile, Staging, Traits
from feed_assets.storage.port import InstanceStore, StorePath
from feed_assets.storage.records import Guard, StagingPlace
from feed_assets.storage.table.partition_names import PartitionSpec

_THREADS = 8
TableT = TypeVar("TableT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget(Generic[TableT]):
    """Where a copy is assembled: the partition of a path, the `version` below its table's location that it will show,
    `root`, the store there, and what the partition has at `present`.
    """

    path: str
    table: TableT
    spec: PartitionSpec
    version: str
    present: StorePath | None
    root: InstanceStore


Locate = Callable[[], CopyTarget[TableT]]
"""Finds the partition as it is now, and its next directory."""
Show = Callable[[CopyTarget[TableT], Callable[[], None], Guard, str], None]
"""Publishes a version, calls a guard, then lets readers of the partition see it, with a description of its files."""


class TableStaging(Staging, Generic[TableT]):
    """A staging of one partition: that of a new directory below the table's location, which one call to the catalog
    then shows. Each content that is replaced leads to another directory, so that an interrupted copy finds its staging,
    and nobody's files are written to.
    """

    copies_adopted = True

    def __init__(self, path: str, token: str, locate: Locate[TableT], show: Show[TableT]) -> None:
        self.path = path
        self.token = token
        self._find = locate
        self._show = show
        self._found: tuple[CopyTarget[TableT], Staging] | None = None
        self._description = ""

    @property
    def root(self) -> InstanceStore:
        """The store at the table's location."""
        return self._target.root

    @property
    def files(self) -> Staging:
        """The staging of the new directory, in the store at the table's location."""
        assert self._found is not None
        return self._found[1]

    def create(self, *, is_again: bool = False) -> StagingPlace:
        return self._locate().create(is_again=is_again)

    def open(self) -> int:
        return self._locate().open()

    def seal(self, generation: int | None = None) -> None:
        self._locate().seal(generation)

    def join(self, generation: int) -> None:
        self._locate().join(generation)

    def close(self) -> None:
        if self._found is not None:
            self.files.close()

    def put(self, file: str, size: int, chunks: Iterable[bytes | memoryview], block_size: int | None = None) -> None:
        self.files.put(file, size, chunks, block_size)

    def record(self, files: Sequence[StagedFile]) -> None:
        self.files.record(files)

    def recorded(self) -> list[StagedFile]:
        return self.files.recorded()

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        return self.files.chunks(file)

    def drop(self, files: Collection[str]) -> None:
        self.files.drop(files)

    def adopt(self, files: Collection[str]) -> None:
        if not files:
            return
        present = self._target.present or StorePath(store=self.root, path=self._target.version)
        sizes = present.store.standing(present.path).files
        with present.store.reading(present.path) as reading, ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda file: self.files.put(file, sizes.get(file, -1), reading.chunks(file)), files))

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        self.files.dress(file, modified, mode)

    def grant(self, file: str, traits: Traits, acl: Acl | None) -> None:
        self.files.grant(file, traits, acl)

    def prepare(self, prepared: Prepared) -> None:
        self._description = prepared.description
        self.files.prepare(prepared)

    def publish(self, guard: Guard) -> None:
        self._show(self._target, self._publish_files, guard, self._description)

    def _publish_files(self) -> None:
        self.files.publish(_allow)
        self.root.flush([self.files])

    def remove(self) -> None:
        (self.files if self._found is not None else self._locate()).remove()

    @property
    def _target(self) -> CopyTarget[TableT]:
        assert self._found is not None
        return self._found[0]

    def _locate(self) -> Staging:
        self.close()
        target = self._find()
        files = target.root.staging(target.version, self.token)
        self._found = target, files
        return files


def _allow() -> None:
    """Allow the publication of what nobody sees yet."""
