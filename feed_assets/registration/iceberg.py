"""Instances at locations as files of an Iceberg table: the Parquet files where they lie, one commit for all that are
registered or dropped at once. Iceberg has the values of a partition from the statistics of the files.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import TableProperties
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, Transform

from feed_assets.engines.data.arrow_frames import parse_arrow_schema
from feed_assets.plan.records import FeedRecord, RegistrationRecord
from feed_assets.registration.port import OWNER, CatalogTable, OwnPlaces, Registered, RegisteredPlace
from feed_assets.storage.errors import StorageAwayError, StorageError
from feed_assets.storage.iceberg.catalogs import LakeCatalog
from feed_assets.storage.iceberg.commits import (
    Change,
    commit_change,
    described_file,
    require_writable,
    statistics_of,
)
from feed_assets.storage.iceberg.file_columns import require_columns
from feed_assets.timing.templates import WHOLE_TABLE

if TYPE_CHECKING:
    from pyiceberg.table import Table

_TRIES = 5
_MERGING = {TableProperties.MANIFEST_MERGE_ENABLED: "true", TableProperties.MANIFEST_MIN_MERGE_COUNT: "10"}
"""Each registration adds a manifest, and the next one reads all: ten become one."""
_TRANSFORMS: Mapping[str, Callable[[], Transform[Any, Any]]] = {
    "_day": DayTransform,
    "_hour": HourTransform,
    "_month": MonthTransform,
}
"""How the fields of a partition are named that are transforms of a column, as PyIceberg names them."""


class IcebergTable(CatalogTable):
    """A table of an Iceberg catalog."""

    def __init__(
        self, record: FeedRecord, registration: RegistrationRecord, own: OwnPlaces, catalog: LakeCatalog
    ) -> None:
        super().__init__(record, registration, own)
        self._catalog = catalog

    def find(self, places: Sequence[RegisteredPlace]) -> Mapping[datetime, Registered]:
        table = self._find_table()
        with self._catalog.translated():
            live = {} if table is None else self._live(table)
        return {each.nominal_time: _state(_find_files(each), live.get(each.url, ())) for each in places}

    def put(self, places: Sequence[RegisteredPlace]) -> Mapping[datetime, str]:
        if self._find_table() is None:
            self._make()
        refused: dict[datetime, str] = {}
        self._commit(partial(self._additions, places, refused))
        return refused

    def drop(self, places: Sequence[RegisteredPlace]) -> None:
        if self._find_table() is not None:
            self._commit(lambda _, live: Change(removed=[each for place in places for each in live.get(place.url, ())]))

    def find_others(
        self, places: Sequence[RegisteredPlace], first: datetime, last: datetime, *, drop: bool = False
    ) -> Mapping[str, datetime]:
        known, found = {each.url for each in places}, dict[str, datetime]()

        def decide(_: "Table", live: Mapping[str, list[DataFile]]) -> Change:
            others = {url: own[1] for url in live.keys() - known if (own := self._own.find(url)) is not None}
            found.update({url: time for url, time in others.items() if first <= time <= last})
            return Change(removed=[each for url in found for each in live[url]] if drop else [])

        if self._find_table() is not None:
            self._commit(decide)
        return found

    def _commit(self, decide: "Callable[[Table, Mapping[str, list[DataFile]]], Change]") -> None:
        """Make one commit of what is decided for the table as it is; decide anew if others were faster."""
        url = self._registration.store.url
        for _ in range(_TRIES):
            table = self._find_table()
            if table is None:
                raise self._refused(f"there is no table {self._registration.name} any more", "Try again.")
            with self._catalog.translated():
                change = decide(table, self._live(table))
                if change.removed or change.described:
                    require_writable(table, url)
                if commit_change(table, replace(change, properties={OWNER: self._owner}), url):
                    return
        raise self._refused("others keep changing the table", "Try again later.")

    def _additions(
        self,
        places: Sequence[RegisteredPlace],
        refused: dict[datetime, str],
        table: "Table",
        live: Mapping[str, list[DataFile]],
    ) -> Change:
        """Return what lets instances be partitions; tell why some cannot in `refused`."""
        if table.properties.get(OWNER) != self._owner and "" in live:
            raise self._filled_by_others(f"its file {live[''][0].file_path}")
        refused.clear()
        removed: list[DataFile] = []
        added: list[DataFile] = []
        for place in places:
            known = {each.file_path: each for each in live.get(place.url, ())}
            try:
                found = {path: self._describe(table, place, path) for path in _files(place)}
            except StorageAwayError:
                raise
            except (ValueError, StorageError) as exc:
                refused[place.nominal_time] = str(exc)
                removed += known.values()  # readers of the whole table would look for files that are gone
                continue
            same = {path for path, each in found.items() if path in known and _is_same(known[path], each)}
            removed += [each for path, each in known.items() if path not in same]
            added += [each for path, each in found.items() if path not in same]
        settings = {name: value for name, value in _MERGING.items() if name not in table.properties}
        settings |= {OWNER: self._owner} if added else {}
        return Change(removed=removed, described=added, settings=settings)

    def _live(self, table: "Table") -> dict[str, list[DataFile]]:
        """Return the live data files by the directory of their instance; by "" those that are in none of the feed."""
        found: dict[str, list[DataFile]] = defaultdict(list)
        snapshot = table.current_snapshot()
        for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.data_file.content == DataFileContent.DATA:
                    found[self._own.find_instance(entry.data_file.file_path) or ""].append(entry.data_file)
        return found

    def _describe(self, table: "Table", place: RegisteredPlace, path: str) -> DataFile:
        """Return a file for the table. Raises `ValueError` if the table cannot have it."""
        name, schema = path.rpartition("/")[2], table.schema()
        try:
            file = table.io.new_input(path)
            with file.open() as opened:
                head = pq.read_metadata(opened)
            columns = head.schema.to_arrow_schema()
            require_columns(schema, columns)
            found = statistics_of(head, table.metadata)
            partition = found.partition(table.spec(), schema)
            if head.num_rows:
                self._require_partition(table, place, columns, found, partition)
        except KeyError as exc:
            raise ValueError(f"the file {name}: its column {exc} is not laid out as Iceberg knows it") from exc
        except (ValueError, FileNotFoundError, PermissionError) as exc:
            raise ValueError(f"the file {name}: {str(exc).partition(chr(10))[0]}") from exc
        return described_file(table.metadata, path, len(file), partition, found)

    def _require_partition(
        self, table: "Table", place: RegisteredPlace, columns: pa.Schema, found: Any, partition: Any
    ) -> None:
        """Raise `ValueError` unless all rows are in one partition, that of the instance."""
        values = self._values(place)
        for at, each in enumerate(table.spec().fields):
            column, nulls = table.schema().find_field(each.source_id), found.null_value_counts.get(each.source_id)
            if column.name not in columns.names:
                raise ValueError(f"it lacks the column {column.name!r}, by which the table is partitioned")
            if partition[at] is None and nulls != found.record_count:
                raise ValueError(f"it has no statistics of {column.name!r}, by which the table is partitioned")
            if partition[at] is not None and nulls:
                raise ValueError(f"{nulls} of its rows have no {column.name!r}, by which the table is partitioned")
            value = each.transform.to_human_string(column.field_type, partition[at])
            if values.get(each.name.lower(), value) != value:
                raise ValueError(f"it has rows of {each.name}={value}, not of {values[each.name.lower()]}")

    def _values(self, place: RegisteredPlace) -> dict[str, str]:
        """Return the values of a partition that the feed names, by field in lower case."""
        if place.partition == WHOLE_TABLE:
            return {}
        return {key.lower(): value for key, _, value in (part.partition("=") for part in place.partition.split("/"))}

    def _find_table(self) -> "Table | None":
        return self._catalog.find_table(self._registration.table.database, self._registration.table.name)

    def _make(self) -> None:
        if self._record.columns is None:
            raise self._no_schema()
        try:
            columns = parse_arrow_schema(self._record.columns)
        except ValueError as exc:
            raise self._refused(f"no table can be made: {exc}", "Change the schema of the feed.") from exc
        schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(columns))
        spec = self._spec(schema)
        names = (self._registration.table.database, self._registration.table.name)
        with self._catalog.translated():
            try:
                self._catalog.open().create_table_if_not_exists(
                    names, schema, partition_spec=spec, properties={OWNER: self._owner}
                )
            except NoSuchNamespaceError as exc:
                raise self._no_database() from exc
            except ValueError as exc:
                step = "Write warehouse in catalog_options of the cluster, or make the table."
                raise self._refused(f"no table can be made: {exc}", step) from exc

    def _spec(self, schema: Schema) -> PartitionSpec:
        if self._registration.template.text == WHOLE_TABLE:
            return UNPARTITIONED_PARTITION_SPEC
        keys = [part.partition("=")[0] for part in self._registration.template.text.split("/")]
        return PartitionSpec(*(self._partition_field(schema, key, 1000 + at) for at, key in enumerate(keys)))

    def _partition_field(self, schema: Schema, key: str, number: int) -> PartitionField:
        columns = {each.name.lower(): each.field_id for each in schema.fields}
        choices: list[tuple[str, Callable[[], Transform[Any, Any]]]] = [(key, IdentityTransform)]
        choices += [(key.removesuffix(end), made) for end, made in _TRANSFORMS.items() if key.endswith(end)]
        for column, transform in choices:
            if column.lower() in columns:
                return PartitionField(
                    source_id=columns[column.lower()], field_id=number, transform=transform(), name=key
                )
        reason = f"no table can be made with the partition {key!r}: the schema has no such column, nor one of which it "
        step = "Name a column, or such as at_day for the days of the column at; or write the table without keys."
        raise self._refused(f"{reason}is the day, hour or month", step)


def _files(place: RegisteredPlace) -> dict[str, int]:
    """Return the URLs of the content of an instance, with their sizes."""
    found = place.store.survey(place.path, place.flag, 0)
    return {f"{place.url}/{each.path}": each.size for each in found.files}


def _find_files(place: RegisteredPlace) -> dict[str, int] | None:
    """Return the same; None if the instance cannot be listed, for example as a link leads out of the storage."""
    try:
        return _files(place)
    except StorageAwayError:
        raise
    except StorageError:
        return None


def _state(files: Mapping[str, int] | None, known: Iterable[DataFile]) -> Registered:
    there = {each.file_path: each.file_size_in_bytes for each in known}
    if not there:
        return Registered.EMPTY if files == {} else Registered.MISSING
    return Registered.CURRENT if there == files else Registered.OTHER


def _is_same(one: DataFile, other: DataFile) -> bool:
    """Return whether two descriptions of a file are of the same content, as far as its statistics tell."""
    facts = ("file_size_in_bytes", "record_count", "column_sizes", "null_value_counts", "lower_bounds", "upper_bounds")
    return all(getattr(one, name) == getattr(other, name) for name in facts)
