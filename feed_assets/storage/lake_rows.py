"""The rows of an Iceberg table, for engines: planned by PyIceberg, and read by tasks that can go to any process."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from feed_assets.plan.copy_records import StoreAddress
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.registry import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from feed_assets.storage.iceberg.store import LakeStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeScan:
    """The rows of partitions in one snapshot: their columns, and the tasks that read them, each one data file without
    its deleted rows. It can be pickled.
    """

    columns: "pa.Schema"
    tasks: tuple[Any, ...]
    metadata: Any
    io: Any

    def read(self, task: Any) -> "Iterator[pa.RecordBatch]":
        """Read the rows of one task, with the table's present columns."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self.metadata, self.io, self.metadata.schema(), AlwaysTrue())
        yield from scan.to_record_batches([task])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a column has in the rows of a partition: the value `low`; or from `low` on what is before `high`. As text
    that Spark casts to the type of the column.
    """

    column: str
    low: str
    high: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRows:
    """The rows of the Iceberg table at an address. Nothing is contacted before the first call.

    Every method raises `StorageError`.
    """

    address: StoreAddress

    def columns(self) -> "pa.Schema":
        """Return the columns of the table."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self._store().described().table.schema(), include_field_ids=False)

    def scan(self, partitions: Sequence[Mapping[str, str]]) -> LakeScan:
        """Plan the rows of partitions by the values of their fields; of the whole table, if one has none.

        Raises InstanceNotFoundError if one has no files.
        """
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.table import ManifestGroupPlanner

        store = self._store()
        paths = ["/".join(f"{key}={value}" for key, value in values.items()) for values in partitions]
        table, wanted = store.find_live(paths)
        snapshot = table.table.current_snapshot()
        for path, found in zip(paths, wanted, strict=True):
            if found is None and path:
                raise InstanceNotFoundError(store=store.root_url, path=path)
        files = {path for found in wanted if found is not None for path in found.paths}
        planner = ManifestGroupPlanner(table.table.metadata, table.table.io, options={"include_empty_files": "true"})
        manifests = [] if snapshot is None or not files else snapshot.manifests(table.table.io)
        with store.translated():
            tasks = planner.plan_files(manifests, lambda entry: entry.data_file.file_path in files)
        return LakeScan(
            columns=schema_to_pyarrow(table.table.schema(), include_field_ids=False),
            tasks=tuple(tasks),
            metadata=table.table.metadata,
            io=table.table.io,
        )

    def bounds(self, values: Mapping[str, str]) -> list[Bound]:
        """Return what the columns have in the rows of a partition."""
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import TimestamptzType

        table = self._store().described()
        given = {key.lower(): value for key, value in values.items()}
        found = []
        for field, kind in zip(table.fields, table.types, strict=True):
            value = given.get(field.name.lower())
            column = table.table.schema().find_column_name(field.source_id)
            if value is None or column is None:
                continue
            if isinstance(field.transform, IdentityTransform):
                found.append(Bound(column=column, low=value))
            else:
                zone = "Z" if isinstance(kind, TimestamptzType) else ""
                low, high = (f"{at:%Y-%m-%d %H:%M:%S}{zone}" for at in _window(str(field.transform), value))
                found.append(Bound(column=column, low=low, high=high))
        return found

    def _store(self) -> "LakeStore":
        from feed_assets.storage.iceberg.store import LakeStore

        store = open_store(self.address.url, dict(self.address.options))
        assert isinstance(store, LakeStore)
        return store


def rows_of(address: StoreAddress) -> LakeRows | None:
    """Return the rows of the table at an address; None unless it is one of Iceberg."""
    return LakeRows(address=address) if "catalog" in address.options else None


def _window(transform: str, value: str) -> tuple[datetime, datetime]:
    """Return the times from which and before which a value of a transform is.

    >>> [f"{at:%Y-%m-%d %H}" for at in _window("month", "2026-12")]
    ['2026-12-01 00', '2027-01-01 00']
    """
    parts = [int(part) for part in value.split("-")]
    year, month, day, hour = [*parts, *(1, 1, 1, 0)[len(parts) :]]
    low = datetime(year, month, day, hour, tzinfo=UTC)
    match transform:
        case "year":
            return low, low.replace(year=low.year + 1)
        case "month":
            return low, (low + timedelta(days=31)).replace(day=1)
        case "day":
            return low, low + timedelta(days=1)
    return low, low + timedelta(hours=1)
