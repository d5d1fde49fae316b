"""What stores of tables share, in Hive and in Iceberg: paths name partitions, and content is staged below the location
of the table, in the folder of the version that it becomes.
"""

import fcntl
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from feed_assets.storage.copy_port import Documents, Staging
from feed_assets.storage.errors import StorageError, TableRefusedError
from feed_assets.storage.listing import Listing
from feed_assets.storage.paths import parse_path, parse_token, path_name
from feed_assets.storage.port import Choose, FolderNames, InstanceStore
from feed_assets.storage.records import Guard, StagingPlace
from feed_assets.storage.scratch import make_private, user_folder
from feed_assets.storage.table.partition_names import Keys, PartitionSpec, parse_partition, parse_values, spellings
from feed_assets.storage.table.staging import CopyTarget, TableStaging
from feed_assets.timing.templates import WHOLE_TABLE


class Keyed(Protocol):
    """A described table."""

    @property
    def database(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> Keys: ...


WHOLE = PartitionSpec(values=(), name=WHOLE_TABLE)
"""A table without partition keys, as its one partition."""
TableT = TypeVar("TableT", bound=Keyed)


class Partitions(ABC, Generic[TableT]):
    """Queries on the partitions of one table, for its store and its trash. `store` is the URL of the table."""

    store: str

    @abstractmethod
    def table(self) -> TableT:
        """Return the current table. Raises `TableRefusedError` if it does not exist, or cannot have instances."""

    def parse_with(self, table: TableT, path: str) -> PartitionSpec:
        """Return the partition of a path.

        Raises:
            PathRefusedError, TableRefusedError: the path names no partition, or the whole of a partitioned table.
        """
        if parse_path(self.store, path) == WHOLE_TABLE and not table.keys:
            return WHOLE
        if path == WHOLE_TABLE:
            form = f"catalog:{table.database}:{table.name}#{';'.join(f'{key}=…' for key, _ in table.keys)}"
            reason = f"it has partitions, and the feed names none; {form} is one"
            raise TableRefusedError(
                store=self.store, path=path, reason=reason, next_step=f"Write table: {form} at the feed."
            )
        return parse_partition(self.store, path, table.keys)

    def parse_one(self, path: str) -> tuple[TableT, PartitionSpec]:
        """Return the table and the partition of a path. Raises as `table` and `parse_with`."""
        parse_path(self.store, path)
        table = self.table()
        return table, self.parse_with(table, path)

    @abstractmethod
    def root(self, table: TableT) -> InstanceStore:
        """Return the store at the table's location, where new content is staged and published."""

    def find_table(self) -> TableT | None:
        """Return the current table; None if it does not exist yet, as one that copies make. Raises as `table`."""
        return self.table()

    def home(self) -> InstanceStore:
        """Return the store that has the documents of the table."""
        return self.root(self.table())

    @abstractmethod
    def names(self, table: TableT, fixed: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the values of all partitions with the `fixed` values, by lower-case key."""


class PartitionStore(InstanceStore, Generic[TableT]):
    """The partitions of one table; see the stores of Hive's and Iceberg's tables."""

    spark_scheme = None
    versions_folder: ClassVar[str]
    """The folder below the table's location that has a folder of each published version."""
    _partitions: Partitions[TableT]

    def __init__(self, partitions: Partitions[TableT]) -> None:
        self.root_url = partitions.store
        self._partitions = partitions

    def check_root(self) -> None:
        self._partitions.home().check_root()

    def stage(self, path: str, token: str, *, is_again: bool = False) -> StagingPlace:
        parse_token(self.root_url, token)
        table, spec = self._partitions.parse_one(path)
        self._require_writable(table, path)
        staging = self._partitions.root(table).stage(self._version_path(spec, token), token, is_again=is_again)
        return replace(staging, path=parse_path(self.root_url, path))

    def staging_url(self, path: str, token: str) -> str:
        root, version = self._version(path, token)
        return root.staging_url(version, token)

    def staged_files(self, path: str, token: str) -> Mapping[str, int]:
        root, version = self._version(path, token)
        return root.staged_files(version, token)

    def keep_staged(self, path: str, token: str, names: Mapping[str, str]) -> None:
        root, version = self._version(path, token)
        root.keep_staged(version, token, names)

    def discard(self, staging: StagingPlace) -> None:
        """Remove a staging. Prepared content without a partition stays until `sweep_staging`: a call to the catalog
        that got no answer may have succeeded.
        """
        root, version = self._version(staging.path, staging.token)
        root.discard(replace(staging, path=version))

    def sweep_staging(self, older_than: datetime) -> int:
        table = self._partitions.find_table()
        if table is None:
            return 0
        root = self._partitions.root(table)
        return root.sweep_staging(older_than) + self._sweep_versions(table, root, older_than)

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        """Find partitions: one level per key of the table that `base` does not name, in any order of the keys.

        A number below ten appears unchanged and with two digits.
        """
        table = self._partitions.find_table()
        if table is None:
            return
        fixed = parse_values(self.root_url, base, table.keys) if base.strip("/") else {}
        open_keys = tuple(key.lower() for key, _ in table.keys if key.lower() not in fixed)
        if not table.keys:
            yield FolderNames("", [name for name in choose("", [WHOLE_TABLE]) if name == WHOLE_TABLE])
            return
        if depth != len(open_keys):
            return
        prefix = f"{parse_path(self.root_url, base)}/" if fixed else ""
        for found in walk_partitions(self._partitions.names(table, fixed), table.keys, open_keys, choose):
            yield found._replace(folder=prefix + found.folder)

    def url(self, path: str) -> str:
        return self.root_url if parse_path(self.root_url, path) == WHOLE_TABLE else super().url(path)

    def documents(self, folder: str, suffix: str, about: str = "") -> Documents:
        return self._partitions.home().documents(folder, suffix, about)

    def staging(self, path: str, token: str) -> Staging:
        locate = partial(self._locate_copy, path, parse_token(self.root_url, token))
        return TableStaging(path, token, locate, self._show_copy)

    def flush(self, stagings: Sequence[Staging]) -> None:
        copies = [each for each in stagings if isinstance(each, TableStaging)]
        for root in {each.root for each in copies}:
            root.flush([each.files for each in copies if each.root is root])

    def receive_from(self, source: InstanceStore) -> None:
        if type(source) is not type(self):
            raise TableRefusedError(
                store=self.root_url,
                path="",
                reason=f"its source {source.root_url} is no table of its kind",
                next_step="Use Iceberg tables on both clusters, tables of Hive on both, or locations on both.",
            )
        self._receive_table(source)

    @abstractmethod
    def _locate_copy(self, path: str, token: str) -> CopyTarget[TableT]:
        """Find the partition of a copy as it is now, and its next directory."""

    @abstractmethod
    def _show_copy(
        self, target: CopyTarget[TableT], publish: Callable[[], None], guard: Guard, description: str
    ) -> None:
        """Publish a copy, then let readers see it, after a guard; `description` tells them how to read it."""

    @abstractmethod
    def _receive_table(self, source: Self) -> None:
        """Make the table of the copies if it is not there. Raises `TableRefusedError` if it cannot have them."""

    @abstractmethod
    def _sweep_versions(self, table: TableT, root: InstanceStore, older_than: datetime) -> int:
        """Remove what was published long ago and never shown, or is shown no more; return the number of versions."""

    @abstractmethod
    def _require_writable(self, table: TableT, path: str) -> None:
        """Raise `TableRefusedError` unless instances can be published into this table."""

    def _parse_all(self, table: TableT, paths: Sequence[str]) -> tuple[dict[str, PartitionSpec], dict[str, Listing]]:
        """Return the partitions of paths, and the listings of those that name none."""
        specs: dict[str, PartitionSpec] = {}
        refused: dict[str, Listing] = {}
        for path in paths:
            try:
                specs[path] = self._partitions.parse_with(table, path)
            except StorageError as exc:
                refused[path] = Listing(exists=False, obstacle=exc)
        return specs, refused

    def _version(self, path: str, token: str) -> tuple[InstanceStore, str]:
        """Return where the content of a staging is published: a store, and a path in it."""
        table, spec = self._partitions.parse_one(path)
        return self._partitions.root(table), self._version_path(spec, token)

    def _version_path(self, spec: PartitionSpec, token: str) -> str:
        return f"{self.versions_folder}/{spec.name}/{token}"


@contextmanager
def partition_lock(store: str, name: str) -> Iterator[None]:
    """Hold the lock of a partition, by table URL and partition name; all partitions share 256 locks per user.

    It serializes publications on a machine, because catalogs have no locks.
    """
    base = user_folder()
    try:
        make_private(base, store, name)
        folder = base / "table-locks"
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / path_name(f"{store}/{name}")[:2], os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StorageError(
            store=store,
            path=name,
            reason=f"its lock cannot be opened in {base}: {exc.strerror}",
            next_step="Check the place for temporary files of this user.",
        ) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


Values = Mapping[str, str]


def walk_partitions(
    partitions: Sequence[Values], keys: Keys, open_keys: Sequence[str], choose: Choose, below: str = ""
) -> Iterator[FolderNames]:
    """Yield the chosen names of partitions, by folders: one level for each of the `open_keys`, in any order of them.
    Partitions that no path can name are skipped.
    """
    shown: dict[str, tuple[str, list[Values]]] = {}
    for key in open_keys:
        named: dict[str, list[Values]] = defaultdict(list)
        for values in partitions:
            if "/" not in values[key]:
                for spelled in spellings({key: values[key]}, keys):
                    named[f"{key}={spelled[key]}"].append(values)
        shown |= {name: (key, found) for name, found in named.items()}
    if not shown:
        return
    prefix = f"{below}/" if below else ""
    chosen = [name for name in choose(below, list(shown)) if name in shown]
    if len(open_keys) == 1:
        yield FolderNames(prefix, chosen)
        return
    for name in chosen:
        key, found = shown[name]
        left = [each for each in open_keys if each != key]
        yield from walk_partitions(found, keys, left, choose, prefix + name)
