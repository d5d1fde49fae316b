"""A table of one partition key for the behaviour suite: any path is the value of the key."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from feed_assets.storage.copy_port import Documents, Reading, Staging
from feed_assets.storage.errors import PathRefusedError
from feed_assets.storage.listing import Listing, View
from feed_assets.storage.paths import parse_path
from feed_assets.storage.port import Choose, FolderNames, InstanceStore, Kept, StorePath, Trash
from feed_assets.storage.records import Availability, Manifest, Moved, Purged, StagingPlace
from feed_assets.storage.registry import open_store
from feed_assets.storage.table.metastore import Table
from feed_assets.storage.table.partition_names import parse_partition_name
from feed_assets.storage.table.partitions import TablePartitions
from feed_assets.storage.table.store import TableStore
from tests.storage.harnesses import Files, StoreHarness
from tests.tables import Catalog

_SLASH = "|"
_KEYS = [("path", "string")]
_numbers = itertools.count()


def is_path(path: str) -> bool:
    """Whether the stores accept a path."""
    try:
        parse_path("", path)
    except PathRefusedError:
        return False
    return True


class PathTable(InstanceStore):
    """Every path of the suite as a partition `path=weather|2013|11`, and back."""

    spark_scheme = None

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.root_url = store.root_url

    def named(self, path: str) -> str:
        return f"path={parse_path(self.root_url, path).replace('/', _SLASH)}"

    def check_root(self) -> None:
        self.store.check_root()

    def listings(
        self, paths: Sequence[str], view: View, names: Sequence[str] = (), *, manifest: int = 0
    ) -> Iterator[Listing]:
        named = [self.named(path) if is_path(path) else path for path in paths]
        return self.store.listings(named, view, names, manifest=manifest)

    def reading(self, path: str) -> AbstractContextManager[Reading]:
        return self.store.reading(self.named(path))

    def stage(self, path: str, token: str, *, is_again: bool = False) -> StagingPlace:
        return replace(self.store.stage(self.named(path), token, is_again=is_again), path=path)

    def staging_url(self, path: str, token: str) -> str:
        return self.store.staging_url(self.named(path), token)

    def staged_files(self, path: str, token: str) -> Mapping[str, int]:
        return self.store.staged_files(self.named(path), token)

    def keep_staged(self, path: str, token: str, names: Mapping[str, str]) -> None:
        self.store.keep_staged(self.named(path), token, names)

    def publish(self, staging: StagingPlace, **how: Any) -> Manifest:
        return self.store.publish(replace(staging, path=self.named(staging.path)), **how)

    def discard(self, staging: StagingPlace) -> None:
        self.store.discard(replace(staging, path=self.named(staging.path)))

    def recover(self, path: str) -> bool:
        return self.store.recover(self.named(path))

    def sweep_staging(self, older_than: datetime) -> int:
        return self.store.sweep_staging(older_than)

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        return self.store.walk_folders(base, depth, choose)

    def place(self, path: str) -> StorePath:
        """Below the partition, wherever the path of the suite ends."""
        parts = path.split("/")
        paths = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
        there = [look.path for look in self.look(paths, None) if look.availability is not Availability.MISSING]
        found = self.store.place(self.named(there[0] if there else path))
        return replace(found, path=found.path + path[len(there[0]) :] if there else found.path)

    def trash(self) -> Trash:
        return PathTrash(self, self.store.trash())

    def documents(self, folder: str, suffix: str, about: str = "") -> Documents:
        return self.store.documents(folder, suffix, about)

    def staging(self, path: str, token: str) -> Staging:
        return self.store.staging(path, token)

    def url(self, path: str) -> str:
        self.store.url(self.named(path))
        return f"{self.root_url}/{parse_path(self.root_url, path)}"

    def local_path(self, path: str) -> Path | None:
        return self.store.local_path(self.named(path))


class PathTrash(Trash):
    """The trash of a `PathTable`."""

    def __init__(self, store: PathTable, trash: Trash) -> None:
        self.store = store
        self._table = store
        self._trash = trash

    def describe(self, sweep: str, document: Mapping[str, object]) -> None:
        self._trash.describe(sweep, document)

    def find_description(self, sweep: str) -> Mapping[str, object] | None:
        return self._trash.find_description(sweep)

    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:
        return self._told(paths, lambda named: self._trash.put(sweep, named, flag=flag))

    def keep(self, sweep: str, path: str, *, flag: str | None = None) -> Moved:
        return self._told([path], lambda named: [self._trash.keep(sweep, named[0], flag=flag)])[0]

    def reading(self, sweep: str, path: str) -> AbstractContextManager[Kept]:
        return self._trash.reading(sweep, self._named(path))

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        return self._told(paths, lambda named: self._trash.restore(sweep, named))

    def purge(self, sweep: str) -> Purged:
        return self._trash.purge(sweep)

    def remove_empty_parents(self, base: str, paths: Sequence[str]) -> list[str]:
        return self._trash.remove_empty_parents(base, [self._named(path) for path in paths])

    def sweeps(self) -> list[str]:
        return self._trash.sweeps()

    def contents(self, sweep: str) -> Iterator[str]:
        for path in self._trash.contents(sweep):
            yield path.removeprefix("path=").replace(_SLASH, "/")

    def holds(self, sweep: str, path: str) -> bool:
        return self._trash.holds(sweep, self._named(path))

    def receive(self, path: str, copy: Callable[[StorePath], Moved]) -> Moved:
        return self._told([path], lambda named: [self._trash.receive(named[0], copy)])[0]

    def _named(self, path: str) -> str:
        try:
            return self._table.named(path)
        except PathRefusedError:
            return path

    def _told(self, paths: Sequence[str], work: Callable[[list[str]], list[Moved]]) -> list[Moved]:
        moved = work([self._named(path) for path in paths])
        return [replace(each, path=path) for each, path in zip(moved, paths, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStoreHarness(StoreHarness):
    """A table, and the outside as Hive and Spark are: a partition that is not there yet is added where Hive has it."""

    catalog: Catalog
    table: Table

    def land(self, path: str, files: Files) -> None:
        self.folder(path, is_made=True)
        for name, data in files.items():
            self.put(f"{path}/{name}", data)

    def folder(self, path: str, *, is_made: bool = False) -> Path:
        """Where the partition of a path lies."""
        value = path.replace("/", _SLASH)
        partition = self.catalog.partition(self.table, value)
        if partition is None and is_made:
            self.catalog.add_partition(self.table, [value], f"{self.table.location}/{self.table.render([value])}")
            partition = self.catalog.partition(self.table, value)
        assert partition is not None
        return Path(partition.location.removeprefix("file:"))


def open_local(url: str) -> InstanceStore:
    return open_store(url, {})


def table_harness(catalog: Catalog, folder: Path) -> TableStoreHarness:
    """A harness on a new table whose files are in a folder."""
    name = f"bed_{next(_numbers)}"
    table = catalog.make_table("default", name, folder, _KEYS)
    store = PathTable(
        TableStore(TablePartitions(catalog, "default", name, f"thrift://127.0.0.1/default/{name}", open_local))
    )
    harness: TableStoreHarness

    def split(path: str) -> Path:
        parts = path.split("/")
        values = {parse_partition_name(each)["path"] for each in catalog.partition_names(table, {})}
        for count in range(len(parts), 0, -1):
            if _SLASH.join(parts[:count]) in values:
                return harness.folder("/".join(parts[:count])) / "/".join(parts[count:])
        raise AssertionError(f"no partition holds {path}")

    def put(path: str, data: bytes) -> None:
        file = split(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def names() -> set[str]:
        found = set()
        for each in catalog.partition_names(table, {}):
            path = parse_partition_name(each)["path"].replace(_SLASH, "/")
            root = harness.folder(path)
            found |= {f"{path}/{item.relative_to(root).as_posix()}" for item in root.rglob("*") if item.is_file()}
        return found

    harness = TableStoreHarness(
        store=store,
        put=put,
        remove=lambda path: split(path).unlink(),
        names=names,
        spelled=lambda path: re.escape(path).replace("/", f"[/{_SLASH}]"),
        catalog=catalog,
        table=table,
    )
    return harness
