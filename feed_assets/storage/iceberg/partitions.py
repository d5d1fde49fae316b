"""The partitions of one Iceberg table by path: fields of its partition spec, and the files that a snapshot has in them.

A field is the identity of a text, a whole number or a date, or the hour, day, month or year of a time, with Iceberg's
own spelling of its values: `2026-01-01-05`, `2026-01-01`, `2026-01`, `2026`. The path `WHOLE_TABLE` is all of a table.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DateType, IntegerType, LongType, PrimitiveType, StringType

from feed_assets.storage.copy_port import CHUNK
from feed_assets.storage.errors import InstanceChangingError, StorageError, TableRefusedError
from feed_assets.storage.iceberg.catalogs import LakeCatalog
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.table.partition_names import Keys, PartitionSpec, is_same_value
from feed_assets.storage.table.partition_store import WHOLE, Partitions
from feed_assets.timing.templates import WHOLE_TABLE

Values = tuple[object, ...]
"""The values of a partition as Iceberg keeps them, in the order of the spec; None for a field that was removed."""

_EPOCH = date(1970, 1, 1)
_NUMBERS = (IntegerType, LongType)
_TIMES: Mapping[type, tuple[re.Pattern[str], Callable[[Sequence[int]], int]]] = {
    YearTransform: (re.compile(r"(\d{4})"), lambda at: at[0] - 1970),
    MonthTransform: (re.compile(r"(\d{4})-(\d\d)"), lambda at: (at[0] - 1970) * 12 + date(at[0], at[1], 1).month - 1),
    DayTransform: (re.compile(r"(\d{4})-(\d\d)-(\d\d)"), lambda at: (date(at[0], at[1], at[2]) - _EPOCH).days),
    HourTransform: (
        re.compile(r"(\d{4})-(\d\d)-(\d\d)-([01]\d|2[0-3])"),
        lambda at: (date(at[0], at[1], at[2]) - _EPOCH).days * 24 + at[3],
    ),
}
"""How values of transforms are spelled, and their numbers since 1970."""


class LakeTable:
    """An Iceberg table as it is at one moment; `keys` are the fields of its partition spec, with the names of types.

    Raises TableRefusedError for a spec with fields that no instance can name.
    """

    def __init__(self, database: str, name: str, table: Table, store: str) -> None:
        self.database = database
        self.name = name
        self.table = table
        self.fields: tuple[PartitionField, ...] = table.spec().fields
        self.types = [table.schema().find_type(field.source_id) for field in self.fields]
        for field, kind in zip(self.fields, self.types, strict=True):
            is_plain = isinstance(kind, (StringType, DateType, *_NUMBERS))
            if isinstance(field.transform, IdentityTransform) and is_plain:
                continue
            if not isinstance(field.transform, (VoidTransform, *_TIMES)):
                raise TableRefusedError(
                    store=store,
                    path="",
                    reason=f"its partition field {field.name!r} is {field.transform} of a {kind}",
                    next_step="Instances are partitions by text, whole number or date, or by hour, day, month or year.",
                )

    @cached_property
    def keys(self) -> Keys:
        return tuple(
            (field.name, "int" if isinstance(kind, _NUMBERS) and str(field.transform) == "identity" else "string")
            for field, kind in zip(self.fields, self.types, strict=True)
            if not isinstance(field.transform, VoidTransform)
        )

    @property
    def location(self) -> str:
        return self.table.location().rstrip("/")

    def parse_values(self, spec: PartitionSpec, store: str) -> Values:
        """Return the values of a partition. Raises TableRefusedError for a text that is none of a field."""
        texts = iter(spec.values)
        return tuple(
            None if isinstance(field.transform, VoidTransform) else _parse_value(field, kind, next(texts), store)
            for field, kind in zip(self.fields, self.types, strict=True)
        )

    def chunks(self, url: str) -> Iterator[bytes]:
        """Read a file of the table from start to end."""
        with self.table.io.new_input(url).open() as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    def render_values(self, values: Values) -> dict[str, str] | None:
        """Return the values of a partition as text, by lower-case key; None if one is null."""
        shown = {}
        for field, kind, value in zip(self.fields, self.types, values, strict=True):
            if not isinstance(field.transform, VoidTransform):
                if value is None:
                    return None
                shown[field.name.lower()] = field.transform.to_human_string(kind, value)
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The entries of live files in a partition: of data, and of deleted rows."""

    entries: tuple[ManifestEntry, ...]

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(entry.data_file.file_path for entry in self.entries)

    @property
    def data(self) -> list[ManifestEntry]:
        # a number in tables of version 1
        return [entry for entry in self.entries if entry.data_file.content == DataFileContent.DATA]


class LakePartitions(Partitions[LakeTable]):
    """Queries on the partitions of one Iceberg table. Nothing is cached. A missing table is made by the first copy, if
    it is `received_on` the storage of its cluster.
    """

    def __init__(
        self,
        catalog: LakeCatalog,
        database: str,
        name: str,
        store: str,
        opener: Callable[[str], InstanceStore],
        received_on: str = "",
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.open = opener
        self.database = database
        self.name = name
        self._received_on = received_on

    def table(self) -> LakeTable:
        table = self.catalog.get_table(self.database, self.name, self.store)
        return LakeTable(self.database, self.name, table, self.store)

    def find_table(self) -> LakeTable | None:
        table = self.catalog.find_table(self.database, self.name)
        if table is None:
            return None if self._received_on else self.table()
        return LakeTable(self.database, self.name, table, self.store)

    def home(self) -> InstanceStore:
        table = self.find_table()
        return self.open(self._received_on) if table is None else self.root(table)

    def parse_with(self, table: LakeTable, path: str) -> PartitionSpec:
        if path.strip("/") == WHOLE_TABLE:
            return WHOLE
        spec = super().parse_with(table, path)
        table.parse_values(spec, self.store)
        return spec

    def root(self, table: LakeTable) -> InstanceStore:
        location = table.location
        return self.open(location if "://" in location else f"file://{location.removeprefix('file:')}")

    def names(self, table: LakeTable, fixed: Mapping[str, str]) -> list[dict[str, str]]:
        kinds = {key.lower(): kind for key, kind in table.keys}
        shown = [table.render_values(values) for values in self.live(table, table.table.current_snapshot(), None)]
        return [
            values
            for values in shown
            if values is not None and all(is_same_value(values[key], value, kinds[key]) for key, value in fixed.items())
        ]

    def find(self, table: LakeTable, specs: Collection[PartitionSpec]) -> dict[str, Found]:
        """Return the partitions that have live files, by the names of their specs, with all entries of these files."""
        return self.find_in(table, table.table.current_snapshot(), specs)

    def find_in(
        self, table: LakeTable, snapshot: Snapshot | None, specs: Collection[PartitionSpec]
    ) -> dict[str, Found]:
        """Return the partitions of a snapshot as `find` does."""
        if WHOLE in specs:
            all_live = self.live(table, snapshot, None).values()
            entries = tuple(entry for each in all_live for entry in each.entries)
            return {WHOLE_TABLE: Found(entries=entries)} if entries else {}
        wanted = {table.parse_values(spec, self.store): spec.name for spec in specs}
        live = self.live(table, snapshot, wanted)
        return {name: found for values, name in wanted.items() if (found := live.get(values)) and found.data}

    def find_content(self, table: LakeTable, specs: Collection[PartitionSpec]) -> dict[str, Found]:
        """Return the partitions as `find` does, by what was written: a compaction changes nothing.

        Instead of the files that it has written they have those that it has read, as long as the table has the
        snapshot before.
        """
        found = self.find(table, specs)
        by_name = {spec.name: spec for spec in specs}
        return {name: self._unpack(table, by_name[name], each) for name, each in found.items()}

    def find_both(self, table: LakeTable, spec: PartitionSpec) -> tuple[Found | None, Found | None]:
        """Return the live files of a partition or of the whole table, as `find` does, and those that are content."""
        live = self.find(table, [spec]).get(spec.name)
        if live is None or spec.name != WHOLE_TABLE:
            return live, live and self._unpack(table, spec, live)
        return live, self.find_in(table, self.content_snapshot(table), [spec]).get(spec.name)

    def has_deletes(self, table: LakeTable, live: Found) -> bool:
        """Return whether live files have deleted rows. Those that a compaction has written have none, also while the
        files are there that delete rows of others.
        """
        with self.catalog.translated(store=self.store):
            try:
                tasks = list(table.table.scan().plan_files())
            except ValueError:  # equality deletes, which PyIceberg does not read
                return True
        return any(task.delete_files and task.file.file_path in live.paths for task in tasks)

    def content_snapshot(self, table: LakeTable) -> Snapshot | None:
        """Return the last snapshot of a table that is no compaction, as long as the table has the one before."""
        snapshot = table.table.current_snapshot()
        while snapshot is not None and is_compaction(snapshot):
            before = table.table.snapshot_by_id(snapshot.parent_snapshot_id or 0)
            if before is None:
                break
            snapshot = before
        return snapshot

    def _unpack(self, table: LakeTable, spec: PartitionSpec, found: Found) -> Found:
        live = {entry.data_file.file_path: entry for entry in found.entries}
        while True:
            snapshots = [table.table.snapshot_by_id(each.snapshot_id or 0) for each in live.values()]
            replaced = [each for each in snapshots if each is not None and is_compaction(each)]
            last = max(replaced, key=lambda each: each.sequence_number or 0, default=None)
            before = None if last is None else table.table.snapshot_by_id(last.parent_snapshot_id or 0)
            if last is None or before is None:
                return Found(entries=tuple(live.values()))
            read, written = (self._entries_of(table, each, spec) for each in (before, last))
            if not live.keys() >= written.keys() - read.keys():
                return Found(entries=tuple(live.values()))
            kept = {path: entry for path, entry in live.items() if path not in written or path in read}
            live = kept | {path: read[path] for path in read.keys() - written.keys()}

    def _entries_of(self, table: LakeTable, snapshot: Snapshot, spec: PartitionSpec) -> dict[str, ManifestEntry]:
        found = self.live(table, snapshot, {table.parse_values(spec, self.store)})
        return {entry.data_file.file_path: entry for each in found.values() for entry in each.entries}

    def live(
        self, table: LakeTable, snapshot: Snapshot | None, wanted: Collection[Values] | None
    ) -> dict[Values, Found]:
        """Return the live files of a snapshot by partition, of those that are wanted; None: of all.

        Only manifests are read whose bounds have a wanted partition.
        """
        by_values: dict[Values, list[ManifestEntry]] = defaultdict(list)
        bounds = None if wanted is None else [sorted(set(each)) for each in zip(*_without_null(wanted), strict=True)]
        for entry in self._entries(table, snapshot, bounds, is_empty=wanted is not None and not wanted):
            partition = entry.data_file.partition
            values = tuple(partition[position] for position in range(len(table.fields)))
            if wanted is None or values in wanted:
                by_values[values].append(entry)
        return {values: Found(entries=tuple(entries)) for values, entries in by_values.items()}

    def _entries(
        self, table: LakeTable, snapshot: Snapshot | None, bounds: Sequence[Sequence[Any]] | None, *, is_empty: bool
    ) -> list[ManifestEntry]:
        if snapshot is None or is_empty:
            return []
        io, specs = table.table.io, table.table.specs()
        own = [(field.source_id, str(field.transform)) for field in table.fields]
        found: list[ManifestEntry] = []
        with self.catalog.translated(store=self.store):
            try:
                for manifest in snapshot.manifests(io):
                    if not (manifest.has_added_files() or manifest.has_existing_files()):
                        continue
                    spec = specs[manifest.partition_spec_id]
                    if [(field.source_id, str(field.transform)) for field in spec.fields] != own:
                        raise self._refused_spec(table, str(spec.spec_id))
                    if bounds is None or _may_have(table, manifest, bounds):
                        found += manifest.fetch_manifest_entry(io)
            except FileNotFoundError as exc:
                reason = f"a file of its metadata is gone: {exc}"
                raise InstanceChangingError(store=self.store, path="", reason=reason) from exc
        return found

    def paths(self, table: LakeTable, snapshots: Iterable[Snapshot]) -> Iterator[str]:
        """Yield the URLs of the live files of snapshots, of whatever partition spec."""
        io = table.table.io
        with self.catalog.translated(store=self.store):
            manifests = {each.manifest_path: each for snapshot in snapshots for each in snapshot.manifests(io)}
            for manifest in manifests.values():
                yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io))

    def _refused_spec(self, table: LakeTable, spec: str) -> StorageError:
        return TableRefusedError(
            store=self.store,
            path="",
            reason=f"it has files of another partition spec ({spec}) than its present one",
            next_step=f"Rewrite {table.database}.{table.name} in the present spec, such as by rewrite_data_files.",
        )


def is_compaction(snapshot: Snapshot) -> bool:
    """Return whether a snapshot has other files with the same rows."""
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def _parse_value(field: PartitionField, kind: object, text: str, store: str) -> object:
    """Return the value of a field that a text spells."""
    pattern, number = _TIMES.get(type(field.transform), _TIMES[DayTransform])
    if isinstance(field.transform, IdentityTransform) and not isinstance(kind, DateType):
        if isinstance(kind, StringType):
            return text
        if re.fullmatch(r"[+-]?\d+", text):
            return int(text)
    elif (found := pattern.fullmatch(text)) is not None:
        try:
            return number([int(part) for part in found.groups()])
        except ValueError:
            pass
    raise TableRefusedError(
        store=store,
        path="",
        reason=f"{text!r} is no value of its partition field {field.name!r}, {field.transform} of a {kind}",
        next_step="Write hours as 2026-01-31-05, days as 2026-01-31, months as 2026-01, years as 2026.",
    )


def _without_null(wanted: Collection[Values]) -> list[list[Any]]:
    return [["" if value is None else value for value in values] for values in wanted]


def _may_have(table: LakeTable, manifest: ManifestFile, bounds: Sequence[Sequence[Any]]) -> bool:
    """Return whether the bounds of a manifest have a wanted value of each field."""
    for summary, kind, field, values in zip(manifest.partitions or (), table.types, table.fields, bounds, strict=False):
        if summary.lower_bound is None or summary.upper_bound is None or isinstance(field.transform, VoidTransform):
            continue
        result = field.transform.result_type(kind)
        assert isinstance(result, PrimitiveType)
        low, high = (from_bytes(result, bound) for bound in (summary.lower_bound, summary.upper_bound))
        at = bisect_left(values, low)
        if at == len(values) or values[at] > high:
            return False
    return True
