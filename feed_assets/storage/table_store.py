"""Instances that are partitions of one table: a metastore says where each lies, a store of files holds its content.

A path is a partition, `ds=2013-11-03/region=eu`. New content is written beside the old and becomes the partition's by
one call to the metastore, so a reader sees the old content or the new one and never a part.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from feed_assets.storage.copy_port import Copying
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    StagingLostError,
    StorageError,
    TableRefusedError,
)
from feed_assets.storage.metastore import Metastore, Partition, Table
from feed_assets.storage.partition_names import PartitionSpec, parse_partition, parse_values
from feed_assets.storage.paths import parse_flag, parse_path, parse_token
from feed_assets.storage.port import Choose, FolderNames, InstanceStore, Trash
from feed_assets.storage.records import (
    Availability,
    Guard,
    Look,
    Manifest,
    Measure,
    Scan,
    ScannedFile,
    Staging,
    missing,
    nothing_to_scan,
)
from feed_assets.storage.table_locks import partition_lock
from feed_assets.storage.table_partitions import TablePartitions
from feed_assets.storage.table_places import VERSIONS_FOLDER, OpenStore, Place, is_own_folder, version_path
from feed_assets.storage.table_trash import TableTrash, purge_superseded, remove_superseded
from feed_assets.storage.table_walk import PartitionTree

_TRIES = 5
_VIEWS = frozenset({"VIRTUAL_VIEW", "MATERIALIZED_VIEW"})

Answer = TypeVar("Answer")


class TableStore(InstanceStore):
    """The partitions of one table, `root_url` = `thrift://host:9083/database/table`.

    An instance exists when its partition does: without an availability flag it is AVAILABLE then, whatever it holds. A
    flag is looked for in the partition's directory. `modified_at` is also the time when the partition was altered. A
    path has all keys of the table, in any order, and values as they are, not escaped.

    Content is staged and published below the table's location. A former directory is removed after the partition lies
    elsewhere, if it is below the table's location and the partition's alone. Between the guard's last word and the
    metastore's answer a publisher of another machine may still come: the metastore has nothing to compare with.

    Views, tables with transactions and tables in buckets are read, and refused for writing.
    """

    spark_scheme = None

    def __init__(self, metastore: Metastore, database: str, table: str, root_url: str, opener: OpenStore) -> None:
        self.root_url = root_url
        self._partitions = TablePartitions(metastore, database, table, root_url, opener)

    def check_root(self) -> None:
        self._partitions.root(self._partitions.table()).check_root()

    def look(self, paths: Sequence[str], flag: str | None) -> list[Look]:
        flag = parse_flag(self.root_url, flag)
        table, specs = self._partitions.parse(paths)
        found = self._partitions.find(table, specs.values())
        there = {path: found[spec.name] for path, spec in specs.items() if spec.name in found}
        looks = {path: missing(path) for path in specs}
        for store, places in self._partitions.by_store(table, there).items():
            for path, look in zip(places, store.look(list(places.values()), flag), strict=True):
                looks[path] = _look(path, look, there[path], flag)
        return [looks[path] for path in paths]

    def manifest(self, path: str, flag: str | None = None) -> Manifest:
        return self._read(path, lambda place: place.store.manifest(place.path, flag))

    def scan(self, path: str, flag: str | None, earlier: Scan | None, now: datetime) -> Scan:
        def scan(place: Place) -> Scan:
            found = place.store.scan(place.path, flag, earlier, now)
            if flag and found.availability is Availability.MISSING:
                return nothing_to_scan(Availability.PARTIAL)
            if flag or found.availability in (Availability.AVAILABLE, Availability.PARTIAL):
                return found
            is_there = found.availability is not Availability.MISSING
            entries = place.store.manifest(place.path).entries if is_there else ()
            files = tuple(ScannedFile(path=each.path, size=0, sign="", checksum=each.checksum) for each in entries)
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

    def files(self, path: str, flag: str | None = None) -> tuple[str, ...]:
        return self._read(path, lambda place: place.store.files(place.path, flag))

    def open(self, path: str, file: str) -> BinaryIO:
        parse_path(self.root_url, file)
        try:
            return self._read(path, lambda place: place.store.open(place.path, file))
        except InstanceNotFoundError as exc:
            raise InstanceNotFoundError(store=self.root_url, path=f"{path}/{file}") from exc

    def fetch(self, path: str, to: Path, flag: str | None = None) -> Manifest:
        return self._read(path, lambda place: place.store.fetch(place.path, to, flag))

    def stage(self, path: str, token: str) -> Staging:
        parse_token(self.root_url, token)
        table, spec = self._partitions.parse_one(path)
        self._require_writable(table, path)
        staging = self._partitions.root(table).stage(version_path(spec, token), token)
        return replace(staging, path=parse_path(self.root_url, path))

    def publish(self, staging: Staging, *, flag: str | None, guard: Guard, extra: Mapping[str, str]) -> Manifest:
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
        with partition_lock(self.root_url, spec.name):
            former = self._point(table, spec, version, guard)
            if former is not None:
                self._remove_former(table, former, version)
        return manifest

    def discard(self, staging: Staging) -> None:
        """Remove a staging. Prepared content that no partition shows waits for `sweep_staging`, because a call to the
        metastore that was not answered may have reached it.
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
        """Find partitions: a level for each key of the table that `base` does not name, in any order of the keys. A
        number below ten is shown as it is and with two digits.
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
        nothing = {path: Measure(path=path, exists=False, bytes=0, files=0, obstacle=None, sign="") for path in paths}
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
                sign = f"{there[path].location}|{measure.sign}"
                measures[path] = replace(measure, path=path, exists=True, sign=sign)
        return [measures[path] for path in paths]

    def all_files(self, path: str) -> tuple[str, ...]:
        return self._read(path, lambda place: place.store.all_files(place.path))

    def trash(self) -> Trash:
        return TableTrash(self, self._partitions)

    def copying(self) -> Copying:
        raise StorageError(
            store=self.root_url,
            path="",
            reason="it is a table, and only instances at locations are copied",
            next_step="Give the feed locations on both clusters.",
        )

    def url(self, path: str) -> str:
        return f"{self.root_url}/{parse_path(self.root_url, path)}"

    def local_path(self, path: str) -> Path | None:
        parse_path(self.root_url, path)
        return None

    def _read(self, path: str, work: Callable[[Place], Answer]) -> Answer:
        """Work on a partition's directory; again if the partition has moved to another one meanwhile."""
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
        """Let the partition lie at a version; what it was before, None if there was none."""
        location = f"{table.location}/{version}"
        for _ in range(_TRIES):
            former = self._partitions.find(table, [spec]).get(spec.name)
            try:
                guard()
            except BaseException:
                if not self._partitions.shows(table, former, version):
                    remove_superseded(self._partitions.root(table), version)
                raise
            if former is None:
                is_done = self._partitions.metastore.add_partition(table, spec.values, location)
            else:
                is_done = self._partitions.metastore.alter_partition(table, former, location)
            if is_done:
                return former
        raise InstanceChangingError(store=self.root_url, path=spec.name, reason="others keep publishing it")

    def _find_prepared(self, table: Table, spec: PartitionSpec, version: str) -> Manifest | None:
        """What a publication has prepared that broke off before the partition lay there."""
        current = self._partitions.find(table, [spec]).get(spec.name)
        if self._partitions.shows(table, current, version):
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
        """Published versions that no partition shows, where there are several, or no partition at all."""
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
    availability = look.availability
    if flag is None and availability is not Availability.PARTIAL:
        availability = Availability.AVAILABLE
    elif availability is Availability.MISSING:
        availability = Availability.PARTIAL
    times = [time for time in (look.modified_at, partition.changed_at) if time is not None]
    return replace(look, path=path, availability=availability, modified_at=max(times, default=None))
