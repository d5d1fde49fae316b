"""Implement the store of a table's partitions: a metastore has their locations, file stores have their content.

A path is a partition, `ds=2013-11-03/region=eu`, or `WHOLE_TABLE`, a table without partition keys. New content is
written next to the old content. One call to the metastore then points the partition to it, so a reader sees the old
content or the new content, never a mix.
"""

import fcntl
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from feed_assets.storage.clearing import clearing_guard, find_foreign, refuse_foreign
from feed_assets.storage.copy_port import Documents, Reading, Staging, Survey
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    StagingLostError,
    StorageError,
    TableRefusedError,
)
from feed_assets.storage.listing import NOTHING, Listing, View, nanoseconds
from feed_assets.storage.paths import CONTROL_FOLDER, parse_path, parse_token, path_name
from feed_assets.storage.port import Choose, FolderNames, InstanceStore, StorePath, Trash
from feed_assets.storage.records import (
    Availability,
    Clearing,
    Extra,
    Guard,
    Manifest,
    StagingPlace,
)
from feed_assets.storage.scratch import make_private, user_folder
from feed_assets.storage.table.copies import TableStaging, receive_table, why_not_written
from feed_assets.storage.table.metastore import Metastore, Partition, Table, whole_table
from feed_assets.storage.table.partition_names import Keys, PartitionSpec, parse_values, spellings
from feed_assets.storage.table.partitions import (
    VERSIONS_FOLDER,
    OpenStore,
    TablePartitions,
    base_location,
    is_own_folder,
    version_path,
)
from feed_assets.storage.table.trash import TableTrash, purge_superseded, remove_superseded
from feed_assets.timing.templates import WHOLE_TABLE

_TRIES = 5
_OWN_FOLDERS = frozenset({VERSIONS_FOLDER, CONTROL_FOLDER})

Answer = TypeVar("Answer")


class TableStore(InstanceStore):
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

    spark_scheme = None

    def __init__(
        self,
        metastore: Metastore,
        database: str,
        table: str,
        root_url: str,
        opener: OpenStore,
        *,
        storage: str = "",
        is_received: bool = False,
    ) -> None:
        self.root_url = root_url
        self._partitions = TablePartitions(
            metastore, database, table, root_url, opener, storage=storage, is_received=is_received
        )

    def check_root(self) -> None:
        self._partitions.home().check_root()

    def listings(
        self, paths: Sequence[str], view: View, names: Sequence[str] = (), *, manifest: int = 0
    ) -> Iterator[Listing]:
        table = self._partitions.table_to_look_at()
        if table is None:
            yield from (NOTHING for _ in paths)
            return
        specs: dict[str, PartitionSpec] = {}
        refused: dict[str, Listing] = {}
        for path in paths:
            try:
                specs[path] = self._partitions.parse_with(table, path)
            except StorageError as exc:
                refused[path] = Listing(exists=False, obstacle=exc)
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

    def stage(self, path: str, token: str, *, is_again: bool = False) -> StagingPlace:
        parse_token(self.root_url, token)
        table, spec = self._partitions.parse_one(path)
        self._require_writable(table, path)
        staging = self._partitions.root(table).stage(version_path(spec, token), token, is_again=is_again)
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
            clear = self._clearing_guard(table, staging, flag, guard, clearing)
            self._call(clear, table, spec, version)
            self._point(table, spec, version, guard)
        return manifest

    def discard(self, staging: StagingPlace) -> None:
        """Remove a staging. Prepared content without a partition stays until `sweep_staging`: a call to the metastore
        that got no answer may have succeeded.
        """
        root, version = self._version(staging.path, staging.token)
        root.discard(replace(staging, path=version))

    def recover(self, path: str) -> bool:
        try:
            place = self._partitions.place_of(path)
        except InstanceNotFoundError:
            return False
        return place.store.recover(place.path)

    def sweep_staging(self, older_than: datetime) -> int:
        table = self._partitions.find_table()
        if table is None:
            return 0
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
        table = self._partitions.find_table()
        if table is None:
            return
        fixed = parse_values(self.root_url, base, table.keys) if base.strip("/") else {}
        open_keys = tuple(key.lower() for key, _ in table.keys if key.lower() not in fixed)
        if not table.keys:
            yield FolderNames("", [name for name in choose("", [WHOLE_TABLE]) if name == WHOLE_TABLE])
            return
        tree = PartitionTree(keys=table.keys, open_keys=open_keys, depth=depth, choose=choose)
        prefix = f"{parse_path(self.root_url, base)}/" if fixed else ""
        for found in tree.walk(self._partitions.names(table, fixed)):
            yield found._replace(folder=prefix + found.folder)

    def place(self, path: str) -> StorePath:
        return self._partitions.place_of(path)

    def url(self, path: str) -> str:
        return self.root_url if parse_path(self.root_url, path) == WHOLE_TABLE else super().url(path)

    def trash(self) -> Trash:
        return TableTrash(self, self._partitions)

    def documents(self, folder: str, suffix: str, about: str = "") -> Documents:
        return self._partitions.home().documents(folder, suffix, about)

    def staging(self, path: str, token: str) -> Staging:
        return TableStaging(path, parse_token(self.root_url, token), self._partitions, self._show_copy)

    def flush(self, stagings: Sequence[Staging]) -> None:
        copies = [each for each in stagings if isinstance(each, TableStaging)]
        for root in {each.root for each in copies}:
            root.flush([each.files for each in copies if each.root is root])

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        found = super().survey(path, flag, now, everything=everything)
        if found.availability is Availability.MISSING:
            return found
        table, spec = self._partitions.parse_one(path)
        partition = self._partitions.find(table, [spec]).get(spec.name)
        return found if partition is None else replace(found, description=partition.describe())

    def receive_from(self, source: InstanceStore) -> None:
        if not isinstance(source, TableStore):
            raise TableRefusedError(
                store=self.root_url,
                path="",
                reason=f"its source {source.root_url} is no table",
                next_step="Use tables of Hive metastores on both clusters, or locations on both.",
            )
        receive_table(source._partitions, self._partitions)

    def _show_copy(self, table: Table, spec: PartitionSpec, version: str, guard: Guard, description: str) -> None:
        """Point a partition to a copy, which `description` tells readers how to read."""
        with _partition_lock(self.root_url, spec.name):
            self._call(guard, table, spec, version)
            self._point(table, spec, version, _allow, description)

    def _version(self, path: str, token: str) -> tuple[InstanceStore, str]:
        """Return where the content of a staging is published: a store, and a path in it."""
        table, spec = self._partitions.parse_one(path)
        return self._partitions.root(table), version_path(spec, token)

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
