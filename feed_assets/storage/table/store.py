"""Implement the store of a table's partitions: a metastore has their locations, file stores have their content.

A path is a partition, `ds=2013-11-03/region=eu`. New content is written next to the old content. One call to the
metastore then points the partition to it, so a reader sees the old content or the new content, never a mix.
"""

import fcntl
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from feed_assets.storage.clearing import clearing_guard
from feed_assets.storage.copy_port import Copying
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    StagingLostError,
    StorageError,
    TableRefusedError,
)
from feed_assets.storage.paths import parse_flag, parse_path, parse_token, path_name
from feed_assets.storage.port import Choose, FolderNames, InstanceStore, StorePath, Traces, Trash
from feed_assets.storage.records import (
    Availability,
    Clearing,
    Extra,
    Guard,
    Look,
    Manifest,
    Measure,
    Scan,
    ScannedFile,
    StagingPlace,
    missing,
    nothing_to_scan,
    obstructed,
)
from feed_assets.storage.scratch import make_private, user_folder
from feed_assets.storage.table.metastore import Metastore, Partition, Table
from feed_assets.storage.table.partition_names import Keys, PartitionSpec, parse_partition, parse_values, spellings
from feed_assets.storage.table.partitions import (
    VERSIONS_FOLDER,
    OpenStore,
    TablePartitions,
    is_own_folder,
    version_path,
)
from feed_assets.storage.table.trash import TableTrash, purge_superseded, remove_superseded

_TRIES = 5
_VIEWS = frozenset({"VIRTUAL_VIEW", "MATERIALIZED_VIEW"})

Answer = TypeVar("Answer")


class TableStore(InstanceStore):
    """The partitions of one table, `root_url` = `thrift://host:9083/database/table`.

    An instance exists if its partition exists. Without an availability flag it is then AVAILABLE, even if it is empty.
    A flag must be in the partition's directory. `modified_at` also covers changes of the partition in the metastore. A
    path has all keys of the table, in any order, with unescaped values.

    Content is staged and published below the table's location. After the partition points elsewhere, its former
    directory is removed if it is below the table's location and belongs to this partition only. A publisher on another
    machine can still interfere between the guard and the answer of the metastore, because the metastore has no
    conditional calls.

    Views, transactional tables and bucketed tables can be read but not written.
    """

    spark_scheme = None

    def __init__(self, metastore: Metastore, database: str, table: str, root_url: str, opener: OpenStore) -> None:
        self.root_url = root_url
        self._partitions = TablePartitions(metastore, database, table, root_url, opener)

    def check_root(self) -> None:
        self._partitions.root(self._partitions.table()).check_root()

    def look(self, paths: Sequence[str], flag: str | None) -> list[Look]:
        flag = parse_flag(self.root_url, flag)
        table = self._partitions.table()
        looks = {path: missing(path) for path in paths}
        specs = {}
        for path in paths:
            try:
                specs[path] = self._partitions.parse_with(table, path)
            except StorageError as exc:
                looks[path] = obstructed(path, exc.reason)
        found = self._partitions.find(table, specs.values())
        there = {path: found[spec.name] for path, spec in specs.items() if spec.name in found}
        for store, places in self._partitions.by_store(table, there).items():
            for path, look in zip(places, store.look(list(places.values()), flag), strict=True):
                looks[path] = _look(path, look, there[path], flag)
        return [looks[path] for path in paths]

    def manifest(self, path: str, flag: str | None = None) -> Manifest:
        return self._read(path, lambda place: place.store.manifest(place.path, flag))

    def scan(self, path: str, flag: str | None, earlier: Scan | None, now: datetime) -> Scan:
        def scan(place: StorePath) -> Scan:
            found = place.store.scan(place.path, flag, earlier, now)
            if flag and found.availability is Availability.MISSING:
                return nothing_to_scan(Availability.PARTIAL)
            if flag or found.availability in (Availability.AVAILABLE, Availability.PARTIAL):
                return found
            is_there = found.availability is not Availability.MISSING
            entries = place.store.manifest(place.path).entries if is_there else ()
            files = tuple(ScannedFile(path=each.path, size=0, version="", checksum=each.checksum) for each in entries)
            return Scan(availability=Availability.AVAILABLE, files=files, read=len(files))

        try:
            return self._read(path, scan)
        except InstanceNotFoundError:
            return nothing_to_scan(Availability.MISSING)

    def published_manifest(self, path: str) -> Manifest | None:
        try:
            return self._read(path, lambda place: place.store.published_manifest(place.path))
        except InstanceNotFoundError:
            return None

    def fetch(self, path: str, to: Path, flag: str | None = None) -> Manifest:
        return self._read(path, lambda place: place.store.fetch(place.path, to, flag))

    def stage(self, path: str, token: str) -> StagingPlace:
        parse_token(self.root_url, token)
        table, spec = self._partitions.parse_one(path)
        self._require_writable(table, path)
        staging = self._partitions.root(table).stage(version_path(spec, token), token)
        return replace(staging, path=parse_path(self.root_url, path))

    def staging_url(self, path: str, token: str) -> str:
        table, spec = self._partitions.parse_one(path)
        return self._partitions.root(table).staging_url(version_path(spec, token), token)

    def staged_files(self, path: str, token: str) -> Mapping[str, int]:
        table, spec = self._partitions.parse_one(path)
        return self._partitions.root(table).staged_files(version_path(spec, token), token)

    def keep_staged(self, path: str, token: str, names: Mapping[str, str]) -> None:
        table, spec = self._partitions.parse_one(path)
        self._partitions.root(table).keep_staged(version_path(spec, token), token, names)

    def publish(
        self, staging: StagingPlace, *, flag: str | None, guard: Guard, extra: Extra, clearing: Clearing | None = None
    ) -> Manifest:
        table, spec = self._partitions.parse_one(staging.path)
        self._require_writable(table, staging.path)
        version = version_path(spec, staging.token)
        try:
            manifest = self._partitions.root(table).publish(
                replace(staging, path=version), flag=flag, guard=guard, extra=extra
            )
        except StagingLostError as exc:
            prepared = self._find_prepared(table, spec, version)
            if prepared is None:
                raise StagingLostError(store=self.root_url, path=staging.path, token=staging.token) from exc
            manifest = prepared
        with _partition_lock(self.root_url, spec.name):
            clear = clearing_guard(self, staging.path, staging.token, flag, guard, clearing)
            self._call(clear, table, spec, version)
            former = self._point(table, spec, version, guard)
            if former is not None:
                self._remove_former(table, former, version)
        return manifest

    def discard(self, staging: StagingPlace) -> None:
        """Remove a staging. Prepared content without a partition stays until `sweep_staging`: a call to the metastore
        that got no answer may have succeeded.
        """
        table, spec = self._partitions.parse_one(staging.path)
        self._partitions.root(table).discard(replace(staging, path=version_path(spec, staging.token)))

    def recover(self, path: str) -> bool:
        table, spec = self._partitions.parse_one(path)
        partition = self._partitions.find(table, [spec]).get(spec.name)
        if partition is None:
            return False
        place = self._partitions.place(table, partition)
        return place.store.recover(place.path)

    def sweep_staging(self, older_than: datetime) -> int:
        table = self._partitions.table()
        root = self._partitions.root(table)
        swept = root.sweep_staging(older_than)
        purge_superseded(root)
        for version in self._orphans(table):
            (look,) = root.look([version], None)
            if look.modified_at is not None and look.modified_at < older_than:
                remove_superseded(root, version)
                swept += 1
        return swept

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        """Find partitions: one level per key of the table that `base` does not name, in any order of the keys.

        A number below ten appears unchanged and with two digits.
        """
        table = self._partitions.table()
        fixed = parse_values(self.root_url, base, table.keys) if base.strip("/") else {}
        open_keys = tuple(key.lower() for key, _ in table.keys if key.lower() not in fixed)
        tree = PartitionTree(keys=table.keys, open_keys=open_keys, depth=depth, choose=choose)
        prefix = f"{parse_path(self.root_url, base)}/" if fixed else ""
        for found in tree.walk(self._partitions.names(table, fixed)):
            yield found._replace(folder=prefix + found.folder)

    def measure(self, paths: Sequence[str]) -> list[Measure]:
        table = self._partitions.table()
        nothing = {
            path: Measure(path=path, exists=False, bytes=0, files=0, obstacle=None, fingerprint="") for path in paths
        }
        measures, specs = dict(nothing), {}
        for path in paths:
            try:
                specs[path] = parse_partition(self.root_url, path, table.keys)
            except StorageError as exc:
                measures[path] = replace(nothing[path], obstacle=exc.reason)
        found = self._partitions.find(table, specs.values())
        there = {path: found[spec.name] for path, spec in specs.items() if spec.name in found}
        for store, places in self._partitions.by_store(table, there).items():
            for path, measure in zip(places, store.measure(list(places.values())), strict=True):
                fingerprint = f"{there[path].location}|{measure.fingerprint}"
                measures[path] = replace(measure, path=path, exists=True, fingerprint=fingerprint)
        return [measures[path] for path in paths]

    def all_files(self, path: str) -> tuple[str, ...]:
        return self._read(path, lambda place: place.store.all_files(place.path))

    def place(self, path: str) -> StorePath:
        return self._partitions.place_of(path)

    def trash(self) -> Trash:
        return TableTrash(self, self._partitions)

    def traces(self) -> Traces:
        return self._partitions.root(self._partitions.table()).traces()

    def copying(self) -> Copying:
        raise StorageError(
            store=self.root_url,
            path="",
            reason="it is a table, but only instances at locations are copied",
            next_step="Give the feed locations on both clusters.",
        )

    def _read(self, path: str, work: Callable[[StorePath], Answer]) -> Answer:
        """Call `work` with a partition's directory; repeat if the partition points to another directory meanwhile."""
        place = self._partitions.place_of(path)
        for _ in range(_TRIES):
            try:
                return work(place)
            except (InstanceNotFoundError, InstanceChangingError) as exc:
                moved = self._partitions.place_of(path)
                if moved == place:
                    if isinstance(exc, InstanceNotFoundError):
                        raise InstanceNotFoundError(store=self.root_url, path=path) from exc
                    raise InstanceChangingError(store=self.root_url, path=path, reason=exc.reason) from exc
                place = moved
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def _require_writable(self, table: Table, path: str) -> None:
        if table.kind in _VIEWS:
            reason = "it is a view"
        elif table.parameters.get("transactional", "").lower() == "true":
            reason = "Hive keeps transactions of it, and does not see files that others add"
        elif table.buckets:
            reason = f"its rows are in {table.buckets} buckets, which only its own engine fills as readers expect"
        else:
            return
        raise TableRefusedError(
            store=self.root_url,
            path=path,
            reason=f"it cannot be written: {reason}",
            next_step="Write to a plain partitioned table, and insert from there.",
        )

    def _point(self, table: Table, spec: PartitionSpec, version: str, guard: Guard) -> Partition | None:
        """Point the partition to a published version; return the former partition, None if there was none."""
        location = f"{table.location}/{version}"
        for _ in range(_TRIES):
            former = self._partitions.find(table, [spec]).get(spec.name)
            self._call(guard, table, spec, version)
            if former is None:
                is_done = self._partitions.metastore.add_partition(table, spec.values, location)
            else:
                is_done = self._partitions.metastore.alter_partition(table, former, location)
            if is_done:
                return former
        raise InstanceChangingError(store=self.root_url, path=spec.name, reason="others keep publishing it")

    def _call(self, guard: Guard, table: Table, spec: PartitionSpec, version: str) -> None:
        """Call a guard; if it raises, remove the published version unless the partition points to it already."""
        try:
            guard()
        except BaseException:
            if not self._partitions.points_to(table, self._partitions.find(table, [spec]).get(spec.name), version):
                remove_superseded(self._partitions.root(table), version)
            raise

    def _find_prepared(self, table: Table, spec: PartitionSpec, version: str) -> Manifest | None:
        """Return the manifest of a publication that was interrupted before the partition pointed to its content."""
        current = self._partitions.find(table, [spec]).get(spec.name)
        if self._partitions.points_to(table, current, version):
            return None
        return self._partitions.root(table).published_manifest(version)

    def _remove_former(self, table: Table, former: Partition, version: str) -> None:
        root, place = self._partitions.root(table), self._partitions.place(table, former)
        own = is_own_folder({table.render(former.values)}, place.path)
        if place.store is root and place.path != version and own:
            remove_superseded(root, place.path)
            if not place.path.startswith(VERSIONS_FOLDER):
                root.trash().remove_empty_parents("", [place.path])

    def _orphans(self, table: Table) -> Iterator[str]:
        """Yield the published versions that no partition points to.

        Only partitions with several versions, and versions of missing partitions, are looked up in the metastore.
        """
        root, metastore = self._partitions.root(table), self._partitions.metastore
        versions = list(root.walk(VERSIONS_FOLDER, len(table.keys) + 1, lambda _, names: names))
        count = Counter(version.rpartition("/")[0] for version in versions)
        folders = {f"{VERSIONS_FOLDER}/{name}" for name in metastore.partition_names(table, {})}
        doubtful = {folder for folder in count if folder not in folders or count[folder] > 1}
        names = sorted(folder.removeprefix(f"{VERSIONS_FOLDER}/") for folder in doubtful)
        shown = {self._partitions.place(table, each).path for each in metastore.find_partitions(table, names)}
        for version in versions:
            if version.rpartition("/")[0] in doubtful and version not in shown:
                yield version


def _look(path: str, look: Look, partition: Partition, flag: str | None) -> Look:
    if look.obstacle is not None:
        return replace(look, path=path)
    availability = look.availability
    if flag is None and availability is not Availability.PARTIAL:
        availability = Availability.AVAILABLE
    elif availability is Availability.MISSING:
        availability = Availability.PARTIAL
    times = [time for time in (look.modified_at, partition.changed_at) if time is not None]
    return replace(look, path=path, availability=availability, modified_at=max(times, default=None))


@contextmanager
def _partition_lock(store: str, name: str) -> Iterator[None]:
    """Hold the lock of a partition, by table URL and partition name; all partitions share 256 locks per user.

    It serializes publications on a machine, because the metastore has no locks.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTree:
    """The tree of partitions below a base path; `open_keys` are the keys that the base does not name."""

    keys: Keys
    open_keys: tuple[str, ...]
    depth: int
    choose: Choose

    def walk(self, partitions: Sequence[Values]) -> Iterator[FolderNames]:
        """Yield the chosen names in folders relative to the base; skip partitions that no path can name."""
        if self.depth == len(self.open_keys):
            yield from self._walk(partitions, "", self.open_keys)

    def _walk(self, partitions: Sequence[Values], below: str, open_keys: tuple[str, ...]) -> Iterator[FolderNames]:
        shown: dict[str, tuple[str, list[Values]]] = {}
        for key in open_keys:
            named: dict[str, list[Values]] = defaultdict(list)
            for values in partitions:
                if "/" not in values[key]:
                    for spelled in spellings({key: values[key]}, self.keys):
                        named[f"{key}={spelled[key]}"].append(values)
            shown |= {name: (key, found) for name, found in named.items()}
        if not shown:
            return
        prefix = f"{below}/" if below else ""
        chosen = [name for name in self.choose(below, list(shown)) if name in shown]
        if len(open_keys) == 1:
            yield FolderNames(prefix, chosen)
            return
        for name in chosen:
            key, found = shown[name]
            yield from self._walk(found, prefix + name, tuple(each for each in open_keys if each != key))
