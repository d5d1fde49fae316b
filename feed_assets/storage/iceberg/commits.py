"""One commit to an Iceberg table: files in the place of others, files that come back, and tags, all at once or not at
all. PyIceberg prepares it; it is not repeated here, because the guard is asked right before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    UnsupportedPyArrowTypeException,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, TableUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from feed_assets.storage.errors import TableRefusedError
from feed_assets.storage.iceberg.file_columns import require_columns
from feed_assets.storage.iceberg.partitions import Values

_WRITABLE = 2
"""The highest version of the format that PyIceberg writes."""
_THREADS = 8


class Head(NamedTuple):
    """The description of a Parquet file in it, and its size."""

    told: Any
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit does. `removed` are live data files; `added` are heads of Parquet files by their URLs, whose rows
    are of the partition `values`; `described` files are added as they are. `restored` entries keep their sequence
    numbers, so that what has deleted rows of them still does. `tag` names the snapshot before, `untagged` are tags to
    drop. `properties` go to the snapshot's summary, `settings` to the properties of the table. With `adds_columns` the
    table gets those that the files have and it has not. `is_copy`: files come from a table with the same ids of
    columns, which tell what was renamed or dropped since.
    """

    removed: Sequence[DataFile] = ()
    added: Mapping[str, Head] = field(default_factory=dict)
    values: Values = ()
    described: Sequence[DataFile] = ()
    restored: Sequence[ManifestEntry] = ()
    tag: str | None = None
    untagged: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    adds_columns: bool = False
    is_copy: bool = False


def require_writable(table: Table, store: str, path: str = "", *, is_source: bool = False) -> None:
    """Raise TableRefusedError for a table that PyIceberg cannot write, and so cannot describe to another one."""
    if table.format_version > _WRITABLE:
        step = "It can be read. Write it, and remove from it, by an engine that knows the version."
        raise TableRefusedError(
            store=store,
            path=path,
            reason=f"it has version {table.format_version} of the format; version {_WRITABLE} is written here",
            next_step="It can be read by processes. Its files cannot be copied." if is_source else step,
        )


def commit_change(table: Table, change: Change, store: str, guard: Callable[[], None] | None = None) -> bool:
    """Make a change; return False if another commit was faster, and nothing has changed. Nothing is committed if the
    change has no files and no tags.

    `guard` is asked after all is prepared, directly before the call to the catalog; if it raises, nothing has changed.
    Raises TableRefusedError for files that are not of the table or of their partition, and exceptions of PyIceberg,
    after which the change may have been made.
    """
    transaction = _Transaction(table)
    snapshot = table.current_snapshot()
    producer = None
    if change.removed or change.added or change.described or change.restored:
        producer = _prepare(table, transaction, change, store)
    if change.tag is not None:
        assert snapshot is not None
        transaction._stage(*transaction._set_ref_snapshot(snapshot.snapshot_id, change.tag, "tag"))
    there = [tag for tag in change.untagged if tag in table.metadata.refs]
    transaction._stage(tuple(RemoveSnapshotRefUpdate(ref_name=tag) for tag in there))
    if not transaction._updates:
        return True
    uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
    try:
        if guard is not None:
            guard()
    except BaseException:
        _clean(producer)
        raise
    try:
        table._do_commit(updates=transaction._updates, requirements=(*transaction._requirements, uuid))
    except CommitFailedException:
        # what stands between may have asked twice, and tells the second answer
        is_made = producer is not None and _has(table, producer.snapshot_id)
        if is_made is False:
            _clean(producer)
        return bool(is_made)
    except BaseException:
        if producer is None or not _has(table, producer.snapshot_id):
            raise
    return True


def _has(table: Table, snapshot: int) -> bool | None:
    """Return whether the catalog has a snapshot; None if it does not say so."""
    with suppress(Exception):
        return table.refresh().snapshot_by_id(snapshot) is not None
    return None


def _clean(producer: "_Replacement | None") -> None:
    if producer is not None:
        producer._clean_all_uncommitted()


def _prepare(table: Table, transaction: Transaction, change: Change, store: str) -> "_Replacement":
    io = table.io
    if change.adds_columns:
        known = set(table.schema().column_names)
        heads = [head.told.schema.to_arrow_schema() for head in change.added.values()]
        columns = [each for head in heads for each in head if each.name not in known]
        each_one = [pa.schema([each.with_nullable(True).remove_metadata()]) for each in columns]
        try:
            with transaction.update_schema() as update:
                update.union_by_name(pa.unify_schemas(each_one or [pa.schema([])]))
        except (pa.ArrowException, UnsupportedPyArrowTypeException, ValueError) as exc:
            raise _refused_file(store, next(iter(change.added)), f"its columns cannot be added: {exc}") from exc
    settings = dict(change.settings)
    if (change.added or change.described) and transaction.table_metadata.name_mapping() is None:
        mapping = transaction.table_metadata.schema().name_mapping
        settings[TableProperties.DEFAULT_NAME_MAPPING] = mapping.model_dump_json()
    if settings.items() - table.properties.items():
        transaction.set_properties(settings)
    operation = Operation.OVERWRITE if change.added or change.described else Operation.DELETE
    if table.current_snapshot() is None or not change.removed:
        operation = Operation.APPEND
    producer = _Replacement(operation, transaction, io, snapshot_properties=dict(change.properties))
    producer.restored = change.restored
    for url, head in change.added.items():
        producer.append_data_file(
            _describe_file(table, transaction, url, head, change.values, store, is_copy=change.is_copy)
        )
    for described in change.described:
        producer.append_data_file(described)
    for removed in change.removed:
        producer.delete_data_file(removed)
    transaction._stage(*producer._commit())
    return producer


class _Transaction(Transaction):
    """One that keeps the table as it is to be: PyIceberg copies all its snapshots each time that it asks for it."""

    _known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        if self._known is None or self._known[0] is not self._updates:
            self._known = (self._updates, super().table_metadata)
        return self._known[1]


class _Replacement(_OverwriteFiles, _MergeAppendFiles):
    """A snapshot with files in the place of others, and with entries that come back as they were. Its manifests are
    merged if the table says so.
    """

    restored: Sequence[ManifestEntry] = ()

    def _existing_manifests(self) -> list[ManifestFile]:
        """Those that only tell what was removed long ago are left out."""
        return [each for each in super()._existing_manifests() if each.has_added_files() or each.has_existing_files()]

    def _manifests(self) -> list[ManifestFile]:
        manifests = super()._manifests()
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for entry in self.restored:
            by_spec[entry.data_file.spec_id].append(entry)
        for spec, entries in by_spec.items():
            with self.new_manifest_writer(self.spec(spec)) as writer:
                for entry in entries:
                    writer.add(entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def _summary(self, snapshot_properties: Mapping[str, str] = {}) -> Summary:
        for entry in self.restored:
            self.append_data_file(entry.data_file)
        return super()._summary(dict(snapshot_properties))


def read_heads(io: Any, urls: Iterable[str], store: str) -> dict[str, Head]:
    """Return the heads of files by their URLs. Raises TableRefusedError for what is no Parquet file."""

    def read(url: str) -> tuple[str, Head]:
        input_file = io.new_input(url)
        with input_file.open() as file:
            try:
                return url, Head(pq.read_metadata(file), len(input_file))
            except (ValueError, OSError) as exc:
                if isinstance(exc, OSError) and "deserialize" not in str(exc):
                    raise
                raise _refused_file(store, url, f"it is no Parquet file: {exc}".partition("\n")[0]) from exc

    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(pool.map(read, urls))


def _describe_file(
    table: Table, transaction: Transaction, url: str, found: Head, values: Values, store: str, *, is_copy: bool
) -> DataFile:
    """Return a file as one of the table, with its statistics.

    Raises:
        TableRefusedError: it has rows of another partition, or columns that readers of the table do not understand.
    """
    metadata, head = transaction.table_metadata, found.told
    schema, columns = metadata.schema(), head.schema.to_arrow_schema()
    try:
        ids = _ids_of(head, metadata, is_copy=is_copy)
        if not is_copy:  # writers declare columns nullable that have no null: see below
            required = {each.name for each in schema.fields if each.required}
            require_columns(schema, pa.schema([each.with_nullable(each.name not in required) for each in columns]))
        full = dict.fromkeys([TableProperties.DEFAULT_WRITE_METRICS_MODE], "full")
        whole, statistics = statistics_of(head, metadata, full, ids), statistics_of(head, metadata, ids=ids)
    except (ValueError, UnsupportedPyArrowTypeException) as exc:
        raise _refused_file(store, url, str(exc).partition("\n")[0]) from exc
    if head.num_rows:
        for each in schema.fields:
            if each.required and each.field_type.is_primitive and whole.null_value_counts.get(each.field_id) != 0:
                raise _refused_file(store, url, f"its column {each.name} may have nulls (the table has {each})")
        _require_partition(table, ids, whole, url, values, store)
    return described_file(metadata, url, found.size, Record(*values), statistics)


def _ids_of(head: Any, metadata: TableMetadata, *, is_copy: bool) -> dict[str, int]:
    """Return the field ids of the columns of a file by their paths: those of the table's names. A copy has its own, or
    those of the name mapping, which may be ones that the table has dropped.

    Raises:
        ValueError: columns are not those of the table.
    """
    known, columns = parquet_path_to_id_mapping(metadata.schema()), head.schema.to_arrow_schema()
    ids, ours = dict(known), set(known.values())
    if is_copy:
        mapping = metadata.name_mapping() or metadata.schema().name_mapping
        ids = parquet_path_to_id_mapping(pyarrow_to_schema(columns, mapping, downcast_ns_timestamp_to_us=True))
        ours |= set(range(metadata.last_column_id + 1))
    paths = {head.schema.column(at).path for at in range(head.num_columns)}
    if others := [path for path in paths if ids.get(path) not in ours]:
        raise ValueError(f"the table has no {', '.join(sorted(others))}")
    return {path: ids[path] for path in paths}


def statistics_of(
    head: Any,
    metadata: TableMetadata,
    properties: Mapping[str, str] | None = None,
    ids: Mapping[str, int] | None = None,
) -> DataFileStatistics:
    """Return what the head of a Parquet file tells of the columns of a table, as much as properties say: its own.
    `ids` of its columns are by their paths; those that the table has dropped are left out.
    """
    schema = metadata.schema()
    plan = compute_statistics_plan(schema, metadata.properties if properties is None else dict(properties))
    found = dict(parquet_path_to_id_mapping(schema) if ids is None else ids)
    dropped = set(found.values()) - plan.keys()
    unread = StatisticsCollector(0, StringType(), MetricsMode(MetricModeTypes.NONE), "")
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=head,
        stats_columns=plan | dict.fromkeys(dropped, unread),
        parquet_column_mapping=found,
    )
    for each in dropped:
        statistics.column_sizes.pop(each, None)
    return statistics


def described_file(
    metadata: TableMetadata, url: str, size: int, partition: Record, statistics: DataFileStatistics
) -> DataFile:
    """Return a Parquet file as one of a table."""
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _require_partition(
    table: Table, columns: Mapping[str, int], statistics: Any, url: str, values: Values, store: str
) -> None:
    wanted = {field: value for field, value in zip(table.spec().fields, values, strict=True) if value is not None}
    own = [field.source_id for field in wanted]
    if lacking := [str(table.schema().find_column_name(each)) for each in own if each not in columns.values()]:
        raise _refused_file(store, url, f"it lacks the column {', '.join(lacking)} of the partition")
    for source in own:
        name = table.schema().find_column_name(source)
        if source not in statistics.null_value_counts:
            raise _refused_file(store, url, f"it has no statistics of {name}, by which the table is partitioned")
        if statistics.null_value_counts[source]:
            raise _refused_file(store, url, f"it has rows of another partition, which have no {name}")
    try:
        found = statistics.partition(PartitionSpec(*wanted), table.schema())
        is_other = any(found[at] != value for at, value in enumerate(wanted.values()))
    except ValueError:
        is_other = True
    if is_other:
        raise _refused_file(store, url, "it has rows of another partition")


def _refused_file(store: str, url: str, reason: str) -> TableRefusedError:
    return TableRefusedError(
        store=store,
        path="",
        reason=f"the file {url.rpartition('/')[2]} cannot be published: {reason}",
        next_step="Write other files; for a copy, rewrite them at its source.",
    )
