"""Implement the store of an Iceberg table's partitions: a catalog has the table, and a snapshot what is in it.

A path is a partition, `ts_day=2026-01-01/region=eu`, or `WHOLE_TABLE`. New content is written below the table's
location in a folder of its own. One commit then puts its files in the place of those that the partition has, so a
reader sees the old rows or the new ones, never a mix. Files of former snapshots stay until the table's owner expires
these.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Self

from feed_assets.entities.copies.options import Columns
from feed_assets.storage.clearing import clearing_guard
from feed_assets.storage.copy_port import Reading, SourceFile, Standing, Survey
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    StagingLostError,
    StorageError,
    TableRefusedError,
)
from feed_assets.storage.iceberg.commits import Change, Head, commit_change, read_heads, require_writable
from feed_assets.storage.iceberg.copies import receive_table
from feed_assets.storage.iceberg.partitions import Found, LakePartitions, LakeTable
from feed_assets.storage.iceberg.trash import LakeTrash
from feed_assets.storage.listing import NOTHING, Entry, Listing, View
from feed_assets.storage.manifests import parse_json, parse_manifest, render_json
from feed_assets.storage.paths import MANIFEST_NAME, is_content, path_name
from feed_assets.storage.port import InstanceStore, StorePath, Trash
from feed_assets.storage.records import Availability, Clearing, Extra, Guard, Manifest, StagingPlace
from feed_assets.storage.table.partition_names import PartitionSpec
from feed_assets.storage.table.partition_store import WHOLE, PartitionStore, partition_lock
from feed_assets.storage.table.staging import CopyTarget
from feed_assets.storage.table.trash import remove_superseded
from feed_assets.timing.templates import WHOLE_TABLE

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry

_TRIES = 20
_ALL = 1 << 62
_PENDING = "pending"
_OWN = "feed-assets."
"""What our names in the summary of a snapshot begin with."""


class LakeStore(PartitionStore[LakeTable]):
    """The partitions of one Iceberg table, `root_url` = `iceberg+https://host/database/table`.

    An instance exists, and is AVAILABLE, if its partition has live data files. Its content is what was written: a
    compaction changes nothing, rows that others append or delete do. A whole table is EMPTY without files; its content
    is the last snapshot that is no compaction.

    Publications of one partition on one machine are serialized. One of another machine is noticed: the commit is
    refused if the partition has other files than when it began, and repeated if only others have changed.
    `columns` says what becomes of columns that the table does not have. Tables of version 3 can be read, not written.
    """

    versions_folder = "data/feed-assets"
    _partitions: LakePartitions

    def __init__(self, partitions: LakePartitions, columns: Columns = Columns.REFUSE) -> None:
        super().__init__(partitions)
        self._columns = columns
        self._commits = threading.Lock()
        """Held by who commits, so that many partitions that are published at once do not overtake each other."""

    def listings(
        self,
        paths: Sequence[str],
        view: View,  # noqa: ARG002 - all of a partition is content
        names: Sequence[str] = (),  # noqa: ARG002
        *,
        manifest: int = 0,
    ) -> Iterator[Listing]:
        table = self._partitions.find_table()
        if table is None:
            yield from (NOTHING for _ in paths)
            return
        specs, refused = self._parse_all(table, paths)
        found = self._partitions.find_content(table, [each for each in specs.values() if each is not WHOLE])
        for path in paths:
            spec = specs.get(path)
            if spec is WHOLE:
                yield self._list_table(table, manifest)
            elif spec is None or spec.name not in found:
                yield refused.get(path, NOTHING)
            else:
                yield self._list_partition(table, spec, found[spec.name], manifest)

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        table, spec = self._partitions.parse_one(path)
        live, content = self._partitions.find_both(table, spec)
        if content is None:
            raise InstanceNotFoundError(store=self.root_url, path=path)
        files = {_apart(entry): entry for entry in live.entries} if live is not None else {}
        files |= dict(_named(content.entries, self._own_prefix(table, spec, content)))
        yield _LakeReading(self, table, path, files)

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:  # noqa: ARG002
        """List files as the port says. A compaction of deleted rows shows what it has written. `everything` has also
        files that delete rows, and of our publication only what storage has; else a partition with files that delete
        rows is refused. An empty table is what a snapshot says.
        """
        table = self._partitions.find_table()
        spec = WHOLE if table is None else self._partitions.parse_with(table, path)
        live, content = (None, None) if table is None else self._partitions.find_both(table, spec)
        if table is None or live is None or content is None:
            if table is not None and spec is WHOLE:
                return Survey(availability=Availability.EMPTY, mark=_digest(""))
            return Survey(availability=Availability.MISSING)
        prefix = self._own_prefix(table, spec, content)
        names = dict(_named(content.entries, prefix))
        if not everything and len(content.data) < len(content.entries):
            if self._partitions.has_deletes(table, live):
                raise TableRefusedError(
                    store=self.root_url,
                    path=path,
                    reason="it has files that delete rows of others, and is copied file by file",
                    next_step="Compact it first, such as by rewrite_data_files; then it is copied.",
                )
            names = {_apart(entry): entry for entry in live.data}
        text = self._manifest_text(table, prefix, _ALL)
        known = {} if text is None else self._checksums(text)
        files = [_source_file(name, entry, known.get(name, "")) for name, entry in sorted(names.items())]
        if everything and prefix:
            there = self._partitions.root(table).standing(_version_of(table, prefix)).files
            is_own = {name for name, entry in names.items() if entry.data_file.file_path.startswith(prefix)}
            files = [
                each._replace(size=there.get(each.path, each.size))
                for each in files
                if each.path in there or each.path not in is_own
            ]
        mark = _digest("\n".join(sorted(file.version for file in files)))
        return Survey(availability=Availability.AVAILABLE, files=tuple(files), mark=mark)

    def standing(self, path: str) -> Standing:
        table = self._partitions.find_table()
        if table is None:
            return Standing("", {}, is_unfinished=False)
        spec = self._partitions.parse_with(table, path)
        _, content = self._partitions.find_both(table, spec)
        named = [] if content is None else _named(content.entries, self._own_prefix(table, spec, content))
        sizes = {name: entry.data_file.file_size_in_bytes for name, entry in named}
        return Standing(self.mark(path), sizes, is_unfinished=False)

    def publish(
        self, staging: StagingPlace, *, flag: str | None, guard: Guard, extra: Extra, clearing: Clearing | None = None
    ) -> Manifest:
        table, spec = self._partitions.parse_one(staging.path)
        self._require_writable(table, staging.path)
        root, version = self._partitions.root(table), self._version_path(spec, staging.token)
        pending = root.documents(_PENDING, ".json")
        pending.keep(staging.token, render_json({"path": staging.path, "version": version}))
        try:
            manifest = root.publish(replace(staging, path=version), flag=None, guard=guard, extra=extra)
        except StagingLostError as exc:
            published = root.published_manifest(version)
            if published is None or self._is_shown(table, version):
                raise StagingLostError(store=self.root_url, path=staging.path, token=staging.token) from exc
            manifest = published
        clear = clearing_guard(self, staging.path, staging.token, flag, guard, clearing)
        self._show(spec, version, manifest, clear, guard)
        pending.drop(staging.token)
        return manifest

    def described(self) -> LakeTable:
        """Return the table as it is."""
        return self._partitions.table()

    def find_live(self, paths: Sequence[str]) -> tuple[LakeTable, list[Found | None]]:
        """Return the table, and the live files of partitions, of the whole table for the path ""; None without any."""
        table = self._partitions.table()
        specs = [self._partitions.parse_with(table, path) if path else WHOLE for path in paths]
        found = self._partitions.find(table, specs)
        return table, [found.get(spec.name) for spec in specs]

    def translated(self) -> AbstractContextManager[None]:
        """Translate exceptions of the catalog and of its files."""
        return self._partitions.catalog.translated(store=self.root_url)

    def recover(self, path: str) -> bool:  # noqa: ARG002 - a commit is made or not
        return False

    def _sweep_versions(self, table: LakeTable, root: InstanceStore, older_than: datetime) -> int:  # noqa: ARG002
        swept = 0
        pending = root.documents(_PENDING, ".json")
        for token in pending.names():
            content = pending.find(token)
            if content is None:
                continue
            begun = parse_json(content)
            (look,) = root.look([begun["version"]], None)
            if look.modified_at is not None and look.modified_at >= older_than:
                continue
            swept += self._remove_version(begun["version"])
            pending.drop(token)
        return swept

    def trash(self) -> Trash:
        return LakeTrash(self, self._partitions)

    def _receive_table(self, source: Self) -> None:
        receive_table(source._partitions, self._partitions, self._columns)

    def _locate_copy(self, path: str, token: str) -> CopyTarget[LakeTable]:
        table, spec = self._partitions.parse_one(path)
        self._require_writable(table, path)
        found = self._partitions.find(table, [spec]).get(spec.name)
        there = path_name("\n".join(sorted(found.paths) if found else ()))[:12]
        version, root = self._version_path(spec, f"{token}-{there}"), self._partitions.root(table)
        present = None if found is None else StorePath(store=self, path=path)
        return CopyTarget(path=path, table=table, spec=spec, version=version, present=present, root=root)

    def _show_copy(
        self,
        target: CopyTarget[LakeTable],
        publish: Callable[[], None],
        guard: Guard,
        description: str,  # noqa: ARG002 - the commit describes the files
    ) -> None:
        token, pending = target.version.rpartition("/")[2], target.root.documents(_PENDING, ".json")
        pending.keep(token, render_json({"path": target.path, "version": target.version}))
        publish()
        manifest = target.root.published_manifest(target.version)
        if manifest is None:
            raise StagingLostError(store=self.root_url, path=target.path, token=token)
        self._show(target.spec, target.version, manifest, guard, guard, is_copy=True)
        pending.drop(token)

    def _require_writable(self, table: LakeTable, path: str) -> None:
        require_writable(table.table, self.root_url, path)
        if path.strip("/") == WHOLE_TABLE and table.keys:
            raise TableRefusedError(
                store=self.root_url,
                path=path,
                reason=f"it has partitions by {', '.join(key for key, _ in table.keys)}, and is only read as a whole",
                next_step="Name the partition of an instance, or write a table without partitions.",
            )

    def _list_to_scan(self, path: str, flag: str | None) -> Listing:
        """Files that we have published have the checksums of their manifest, others never change."""
        return self._list(path, View.CONTENT, flag, manifest=_ALL)

    def _list_partition(self, table: LakeTable, spec: PartitionSpec, found: Found, manifest: int) -> Listing:
        prefix = self._own_prefix(table, spec, found)
        text = self._manifest_text(table, prefix, manifest)
        known = self._checksums(text) if manifest >= _ALL and text is not None else {}
        entries = []
        for name, entry in _named(found.entries, prefix):
            added = table.table.snapshot_by_id(entry.snapshot_id or 0)
            mark = _digest(entry.data_file.file_path)
            size, checksum = entry.data_file.file_size_in_bytes, known.get(name, f"file:{mark}")
            modified = None if added is None else added.timestamp_ms * 1_000_000
            entries.append(Entry(name, size, mark, modified=modified, checksum=checksum))
        if prefix:
            entries.append(Entry(MANIFEST_NAME, 0, _digest(prefix)))
        return Listing(entries=entries, is_declared=True, manifest=text)

    def _list_table(self, table: LakeTable, manifest: int) -> Listing:
        snapshot = self._partitions.content_snapshot(table)
        own = snapshot.summary[f"{_OWN}version"] if snapshot is not None and snapshot.summary is not None else None
        if snapshot is None or snapshot.summary is None or (snapshot.summary["total-data-files"] == "0" and not own):
            return Listing()
        modified, version = snapshot.timestamp_ms * 1_000_000, str(snapshot.snapshot_id)
        prefix = f"{table.location}/{own}/" if own else ""
        text = self._manifest_text(table, prefix, manifest)
        if text is not None and manifest >= _ALL:
            files = parse_manifest(text, store=self.root_url, path=WHOLE_TABLE).entries
            entries = [
                Entry(each.path, each.size, version, modified=modified, checksum=each.checksum) for each in files
            ]
        else:
            size = int(snapshot.summary["total-files-size"] or 0)
            entries = [Entry(f"snapshot-{version}", size, version, modified=modified, checksum=f"snapshot:{version}")]
        if prefix:
            entries.append(Entry(MANIFEST_NAME, 0, version))
        return Listing(entries=entries, manifest=text, modified=modified)

    def _own_prefix(self, table: LakeTable, spec: PartitionSpec, found: Found) -> str:
        """Return the URL of the folder of our newest publication that has live files, with a slash; "" for none."""
        folder = f"{table.location}/{self.versions_folder}/{spec.name}/"
        own = [each for each in found.entries if each.data_file.file_path.startswith(folder)]
        newest = max(own, key=lambda each: each.sequence_number or 0, default=None)
        if newest is None:
            return ""
        return f"{folder}{newest.data_file.file_path.removeprefix(folder).partition('/')[0]}/"

    def _manifest_text(self, table: LakeTable, prefix: str, manifest: int) -> bytes | None:
        if not prefix or not manifest:
            return None
        (listing,) = self._partitions.root(table).listings([_version_of(table, prefix)], View.NAMED, manifest=manifest)
        return listing.manifest

    def _checksums(self, text: bytes) -> dict[str, str]:
        manifest = parse_manifest(text, store=self.root_url, path="")
        return {entry.path: entry.checksum for entry in manifest.entries}

    def _show(
        self,
        spec: PartitionSpec,
        version: str,
        manifest: Manifest,
        clear: Guard,
        guard: Guard,
        *,
        is_copy: bool = False,
    ) -> None:
        """Clear the place of a published version, and commit it; what is forbidden is removed."""
        with partition_lock(self.root_url, spec.name):
            try:
                heads = self._read_heads(version, manifest)
                if not heads and spec is not WHOLE:
                    self._remove_version(version)
                    raise TableRefusedError(
                        store=self.root_url,
                        path=spec.name,
                        reason="a partition without files is none, and nothing was written",
                        next_step="Write or select a Parquet file, which may have no rows.",
                    )
                clear()
                with self._commits:
                    self._commit(spec, version, manifest, heads, guard, is_copy=is_copy)
            except (StorageError, KeyboardInterrupt):
                raise
            except BaseException:
                self._remove_version(version)
                raise

    def _read_heads(self, version: str, manifest: Manifest) -> Mapping[str, Head]:
        """Return the heads of the files of a version by their URLs."""
        table = self._partitions.table()
        files = [entry.path for entry in manifest.entries if is_content(entry.path, None)]
        with self.translated():
            return read_heads(table.table.io, [f"{table.location}/{version}/{file}" for file in files], self.root_url)

    def _commit(
        self,
        spec: PartitionSpec,
        version: str,
        manifest: Manifest,
        heads: Mapping[str, Head],
        guard: Guard,
        *,
        is_copy: bool = False,
    ) -> None:
        """Put the files of a version in the place of those that the partition has.

        Raises InstanceChangingError if others write the partition meanwhile.
        """
        began: frozenset[str] | None = None
        for _ in range(_TRIES):
            table = self._partitions.table()
            found = self._partitions.find(table, [spec]).get(spec.name, Found(entries=()))
            if began is not None and found.paths != began:
                reason = "others have written into its partition meanwhile; nothing of theirs was replaced"
                raise InstanceChangingError(store=self.root_url, path=spec.name, reason=reason)
            began = found.paths
            values = () if spec is WHOLE else table.parse_values(spec, self.root_url)
            told = {name: manifest.extra[name] for name in ("process", "run", "fence") if name in manifest.extra}
            change = Change(
                removed=[entry.data_file for entry in found.data],
                added=heads,
                values=values,
                properties={f"{_OWN}{name}": text for name, text in {**told, "digest": manifest.digest}.items()}
                | {f"{_OWN}version": version, f"{_OWN}partition": spec.name},
                adds_columns=self._columns is Columns.ADD and not is_copy,
                is_copy=is_copy,
            )
            with self._partitions.catalog.translated(spec.name, store=self.root_url):
                if commit_change(table.table, change, self.root_url, guard):
                    return
        raise InstanceChangingError(store=self.root_url, path=spec.name, reason="others keep changing the table")

    def _is_shown(self, table: LakeTable, version: str) -> bool:
        """Return whether a snapshot that the table names, by a branch or a tag, has files of a version."""
        prefix = f"{table.location}/{version}/"
        summaries = (snapshot.summary for snapshot in table.table.snapshots())
        if any(each is not None and each[f"{_OWN}version"] == version for each in summaries):
            return True
        named = [table.table.snapshot_by_id(each.snapshot_id) for each in table.table.refs().values()]
        return any(path.startswith(prefix) for path in self._partitions.paths(table, filter(None, named)))

    def _remove_version(self, version: str) -> bool:
        """Remove what was published into a folder and never became visible; return whether it was removed."""
        table = self._partitions.table()
        if self._is_shown(table, version):
            return False
        remove_superseded(self._partitions.root(table), version)
        return True


class _LakeReading(Reading):
    """The files of a partition by their names in its listing."""

    def __init__(self, store: LakeStore, table: LakeTable, path: str, files: "Mapping[str, ManifestEntry]") -> None:
        self._store = store
        self._table = table
        self._path = path
        self._files = files

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        entry = self._files.get(file)
        if entry is None:
            raise InstanceNotFoundError(store=self._store.root_url, path=f"{self._path}/{file}")
        try:
            yield from self._table.chunks(entry.data_file.file_path)
        except FileNotFoundError as exc:
            raise InstanceNotFoundError(store=self._store.root_url, path=f"{self._path}/{file}") from exc


def _named(entries: "Sequence[ManifestEntry]", prefix: str) -> "Iterator[tuple[str, ManifestEntry]]":
    """Yield files by their names in our publication, others by their last names; each once."""
    seen: set[str] = set()
    for entry in entries:
        path = entry.data_file.file_path
        name = path.removeprefix(prefix) if prefix and path.startswith(prefix) else path.rpartition("/")[2]
        if name in seen or not is_content(name, None):
            name = _apart(entry)
        seen.add(name)
        yield name, entry


def _apart(entry: "ManifestEntry") -> str:
    """Return a name of a file that no other file has."""
    path = entry.data_file.file_path
    return f"{_digest(path)}-{path.rpartition('/')[2]}"


def _version_of(table: LakeTable, prefix: str) -> str:
    return prefix.removeprefix(f"{table.location}/").rstrip("/")


def _source_file(name: str, entry: "ManifestEntry", checksum: str) -> SourceFile:
    """Return a file of a table, which never changes."""
    version, size = _digest(entry.data_file.file_path), entry.data_file.file_size_in_bytes
    return SourceFile(name, size, version, is_settled=True, checksum=checksum)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
