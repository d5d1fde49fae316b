"""Implement the store of a table's partitions: a metastore has their locations, file stores have their content.

A path is a partition, `ds=2013-11-03/region=eu`, or `WHOLE_TABLE`, a table without partition keys. New content is
written next to the old content. One call to the metastore then points the partition to it, so a reader sees the old
content or the new content, never a mix.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Self, TypeVar

from feed_assets.storage.clearing import clearing_guard, find_foreign, refuse_foreign
from feed_assets.storage.copy_port import Reading, Survey
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    StagingLostError,
    TableRefusedError,
)
from feed_assets.storage.listing import NOTHING, Listing, View, nanoseconds
from feed_assets.storage.paths import CONTROL_FOLDER, path_name
from feed_assets.storage.port import InstanceStore, StorePath, Trash
from feed_assets.storage.records import (
    Availability,
    Clearing,
    Extra,
    Guard,
    Manifest,
    StagingPlace,
)
from feed_assets.storage.table.copies import receive_table, why_not_written
from feed_assets.storage.table.metastore import Partition, Table, whole_table
from feed_assets.storage.table.partition_names import PartitionSpec
from feed_assets.storage.table.partition_store import PartitionStore, partition_lock
from feed_assets.storage.table.partitions import (
    VERSIONS_FOLDER,
    TablePartitions,
    base_location,
    is_own_folder,
)
from feed_assets.storage.table.staging import CopyTarget
from feed_assets.storage.table.trash import TableTrash, purge_superseded, remove_superseded
from feed_assets.timing.templates import WHOLE_TABLE

_TRIES = 5
_OWN_FOLDERS = frozenset({VERSIONS_FOLDER, CONTROL_FOLDER})

Answer = TypeVar("Answer")


class TableStore(PartitionStore[Table]):
    """The partitions of one table, `root_url` = `thrift://host:9083/database/table`.

    An instance exists if its partition exists. Without an availability flag it is then AVAILABLE, even if it is empty.
    A flag must be in the partition's directory. `modified_at` also covers changes of the partition in the metastore. A
    path has all keys of the table, in any order, with unescaped values. A whole table exists if the table does; it is
    EMPTY without files.

    Content is staged and published below the table's location. After the partition points elsewhere, its former
    directory is removed if it is below the table's location and belongs to this partition only. A publisher on another
    machine can still interfere between the guard and the answer of the metastore, because the metastore has no
    conditional calls. What others wrote into a whole table stays where it is when the table points elsewhere.

    Views, transactional tables and bucketed tables can be read but not written.
    """

    versions_folder = VERSIONS_FOLDER
    _partitions: TablePartitions

    def listings(
        self, paths: Sequence[str], view: View, names: Sequence[str] = (), *, manifest: int = 0
    ) -> Iterator[Listing]:
        table = self._partitions.table_to_look_at()
        if table is None:
            yield from (NOTHING for _ in paths)
            return
        specs, refused = self._parse_all(table, paths)
        found = self._partitions.find(table, specs.values())
        there = [(found.get(specs[path].name) if path in specs else None) for path in paths]
        places = [None if partition is None else self._partitions.place(table, partition) for partition in there]
        by_store: dict[InstanceStore, list[str]] = defaultdict(list)
        for each in places:
            if each is not None:
                by_store[each.store].append(each.path)
        listed = {store: store.listings(inner, view, names, manifest=manifest) for store, inner in by_store.items()}
        for path, partition, place in zip(paths, there, places, strict=True):
            if partition is None or place is None:
                yield refused.get(path, NOTHING)
            else:
                yield _declared(next(listed[place.store]), partition)

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        place = self._partitions.place_of(path)
        with place.store.reading(place.path) as reading:
            yield reading

    def publish(
        self, staging: StagingPlace, *, flag: str | None, guard: Guard, extra: Extra, clearing: Clearing | None = None
    ) -> Manifest:
        table, spec = self._partitions.parse_one(staging.path)
        self._require_writable(table, staging.path)
        version = self._version_path(spec, staging.token)
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
            clear = self._clearing_guard(table, staging, flag, guard, clearing)
            self._call(clear, table, spec, version)
            self._point(table, spec, version, guard)
        return manifest

    def recover(self, path: str) -> bool:
        try:
            place = self._partitions.place_of(path)
        except InstanceNotFoundError:
            return False
        return place.store.recover(place.path)

    def _sweep_versions(self, table: Table, root: InstanceStore, older_than: datetime) -> int:
        swept = 0
        purge_superseded(root)
        for version in self._orphans(table):
            (look,) = root.look([version], None)
            if look.modified_at is not None and look.modified_at < older_than:
                remove_superseded(root, version)
                swept += 1
        return swept

    def place(self, path: str) -> StorePath:
        return self._partitions.place_of(path)

    def trash(self) -> Trash:
        return TableTrash(self, self._partitions)

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        found = super().survey(path, flag, now, everything=everything)
        if found.availability is Availability.MISSING:
            return found
        table, spec = self._partitions.parse_one(path)
        partition = self._partitions.find(table, [spec]).get(spec.name)
        return found if partition is None else replace(found, description=partition.describe())

    def _receive_table(self, source: Self) -> None:
        receive_table(source._partitions, self._partitions)

    def _locate_copy(self, path: str, token: str) -> CopyTarget[Table]:
        partitions = self._partitions
        table, spec = partitions.parse_one(path)
        partition = partitions.find(table, [spec]).get(spec.name)
        version = self._version_path(spec, f"{token}-{path_name(partition.location if partition else 'none')[:12]}")
        present = None if partition is None else partitions.place(table, partition)
        return CopyTarget(
            path=path, table=table, spec=spec, version=version, present=present, root=partitions.root(table)
        )

    def _show_copy(
        self, target: CopyTarget[Table], publish: Callable[[], None], guard: Guard, description: str
    ) -> None:
        publish()
        table, spec, version = target.table, target.spec, target.version
        with partition_lock(self.root_url, spec.name):
            self._call(guard, table, spec, version)
            self._point(table, spec, version, _allow, description)

    def _clearing_guard(
        self, table: Table, staging: StagingPlace, flag: str | None, guard: Guard, clearing: Clearing | None
    ) -> Guard:
        """Return a guard that clears the place of a partition. In that of a whole table, only what others have added to
        our last version goes to the trash, since that version will.
        """
        rules = clearing or Clearing(sweep=f"published-{staging.token}")
        if table.keys:
            return clearing_guard(self, staging.path, staging.token, flag, guard, rules)
        place = self._partitions.place_of(staging.path)
        if is_own_folder({WHOLE_TABLE}, place.path):
            told = replace(rules, announce=lambda each: rules.announce(replace(each, store=self.root_url)))
            return clearing_guard(place.store, place.path, staging.token, flag, guard, told)

        def refuse() -> None:
            guard()
            refuse_foreign(self, staging.path, find_foreign(self, staging.path), rules)

        return refuse

    def _require_writable(self, table: Table, path: str) -> None:
        if (reason := why_not_written(table)) is not None:
            raise TableRefusedError(
                store=self.root_url,
                path=path,
                reason=f"it cannot be written: {reason}",
                next_step="Write to a plain partitioned table, and insert from there.",
            )

    def _point(self, table: Table, spec: PartitionSpec, version: str, guard: Guard, description: str = "") -> None:
        """Point the partition to a published version, and remove the former one."""
        location = f"{base_location(table)}/{version}"
        for _ in range(_TRIES):
            former = self._partitions.find(table, [spec]).get(spec.name)
            self._call(guard, table, spec, version)
            if former is None:
                is_done = self._partitions.metastore.add_partition(table, spec.values, location, description)
            else:
                is_done = self._partitions.metastore.alter_partition(table, former, location, description)
            if is_done and former is not None:
                self._remove_former(table, former, version)
            if is_done:
                return
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
        own = is_own_folder({table.render(former.values) or WHOLE_TABLE}, place.path)
        if place.store is root and place.path != version and own:
            remove_superseded(root, place.path)
            if not place.path.startswith(VERSIONS_FOLDER):
                root.trash().remove_empty_parents("", [place.path])

    def _orphans(self, table: Table) -> Iterator[str]:
        """Yield the published versions that no partition points to.

        Only partitions with several versions, and versions of missing partitions, are looked up in the metastore.
        """
        root, metastore = self._partitions.root(table), self._partitions.metastore
        versions = list(root.walk(VERSIONS_FOLDER, max(len(table.keys), 1) + 1, lambda _, names: names))
        if not table.keys:
            shown = {self._partitions.place(table, whole_table(table)).path}
            yield from (version for version in versions if version not in shown)
            return
        count = Counter(version.rpartition("/")[0] for version in versions)
        folders = {f"{VERSIONS_FOLDER}/{name}" for name in metastore.partition_names(table, {})}
        doubtful = {folder for folder in count if folder not in folders or count[folder] > 1}
        names = sorted(folder.removeprefix(f"{VERSIONS_FOLDER}/") for folder in doubtful)
        shown = {self._partitions.place(table, each).path for each in metastore.find_partitions(table, names)}
        for version in versions:
            if version.rpartition("/")[0] in doubtful and version not in shown:
                yield version


def _declared(listing: Listing, partition: Partition) -> Listing:
    """Return the listing of a partition's directory as that of the partition, which is there without a directory.

    In the directory of a whole table, what is ours or published elsewhere is left out.
    """
    if not partition.values:
        kept = [each for each in listing.entries if each.path.partition("/")[0] not in _OWN_FOLDERS]
        listing = replace(listing, entries=kept)
    times = [time for time in (listing.modified, partition.changed_at and nanoseconds(partition.changed_at)) if time]
    return replace(
        listing,
        exists=True,
        is_declared=bool(partition.values),
        version=partition.location,
        modified=max(times, default=None),
    )


def _allow() -> None:
    """Allow what a guard has allowed already."""
