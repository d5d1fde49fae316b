"""Iceberg tables for tests, and what other programs do to them: rows that they append or delete, and compactions."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DateType, IntegerType, NestedField, StringType, TimestamptzType

from feed_assets.storage.iceberg.catalogs import LakeCatalog, open_catalog
from feed_assets.storage.registry import open_store

SCHEMA = Schema(
    NestedField(1, "at", TimestamptzType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "n", IntegerType()),
    NestedField(4, "day", DateType()),
)
BY_DAY = PartitionSpec(
    PartitionField(1, 1000, DayTransform(), "at_day"), PartitionField(2, 1001, IdentityTransform(), "region")
)
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
PLAIN = PartitionSpec()


class Lake:
    """A catalog, by default in a file, and tables of one database on any storage."""

    def __init__(
        self,
        folder: Path,
        storage: str = "",
        options: Mapping[str, object] = {},
        address: str = "",
        database: str = "web",
        **catalog_options: str,
    ) -> None:
        self.storage = storage or f"file://{folder}"
        self.address = address or f"iceberg+sqlite:///{folder}/catalog.db"
        self.database = database
        self.options = dict(options)
        self.schema = SCHEMA
        self.catalog_options = {"warehouse": f"{self.storage}/lake", **catalog_options}
        if not address:
            (folder / "catalog.db").touch()
        self.catalog: LakeCatalog = open_catalog(self.address, self.catalog_options, self.storage, self.options)
        self.catalog.open().create_namespace_if_not_exists(database)

    def make(self, name: str, spec: PartitionSpec = BY_REGION, schema: Schema = SCHEMA) -> Table:
        return self.catalog.open().create_table((self.database, name), schema, partition_spec=spec)

    def table(self, name: str) -> Table:
        return self.catalog.open().load_table((self.database, name))

    def store(self, name: str, **more: object) -> Any:
        options = {"storage": self.storage, "storage_options": self.options, "catalog": self.address}
        return open_store(
            f"{self.address}/{self.database}/{name}", {**options, "catalog_options": self.catalog_options, **more}
        )

    def rows(self, name: str) -> list[int]:
        """The `n` of all rows that other readers see."""
        return sorted(self.table(name).scan().to_arrow().column("n").to_pylist())


def rows_of(table: Table, *rows: Mapping[str, object]) -> pa.Table:
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def write(folder: Path, table: Table, *rows: Mapping[str, object], name: str = "part-0.parquet") -> None:
    """Write rows into a file, as an engine does."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_of(table, *rows), folder / name)


def append(table: Table, *rows: Mapping[str, object]) -> None:
    """Append rows by files at a place of their own, as other programs do."""
    url = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    with table.io.new_output(url).create() as stream:
        pq.write_table(rows_of(table, *rows), pa.PythonFile(stream, "w"))
    table.refresh().add_files([url])


class _Compaction(_OverwriteFiles):
    def _summary(self, snapshot_properties: Mapping[str, str] = {}) -> Any:
        self._operation = Operation.OVERWRITE
        return super()._summary(dict(snapshot_properties)).model_copy(update={"operation": Operation.REPLACE})


def compact(table: Table, where: str) -> None:
    """Rewrite the files of a partition into one, as rewrite_data_files of Spark does."""
    table.refresh()
    tasks = list(table.scan(row_filter=where).plan_files())
    rows = table.scan(row_filter=where).to_arrow().to_pylist()
    url = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    with table.io.new_output(url).create() as stream:
        pq.write_table(rows_of(table, *rows), pa.PythonFile(stream, "w"))
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    with table.transaction() as transaction:
        producer = _Compaction(Operation.OVERWRITE, transaction, table.io)
        producer.append_data_file(parquet_file_to_data_file(table.io, table.metadata, url))
        for task in tasks:
            producer.delete_data_file(task.file)
        producer.commit()


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDelete(_FastAppendFiles):
    deleted: DataFile

    def _manifests(self) -> Any:
        table = self._transaction.table_metadata
        writer = _DeletesWriter(table.spec(), table.schema(), self.new_manifest_output(), self.snapshot_id, "deflate")
        with writer:
            writer.add(
                ManifestEntry.from_args(
                    status=1, snapshot_id=self.snapshot_id, sequence_number=None, data_file=self.deleted
                )
            )
        return [writer.to_manifest_file(), *super()._manifests()]


def delete_rows(table: Table, file: DataFile, positions: Sequence[int]) -> None:
    """Delete rows of a file by a file with their positions, as engines do that merge on read."""
    table.refresh()
    url = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    content = pa.table({"file_path": [file.file_path] * len(positions), "pos": pa.array(positions, pa.int64())})
    with table.io.new_output(url).create() as stream:
        pq.write_table(content, pa.PythonFile(stream, "w"))
    with table.transaction() as transaction:
        producer = _RowDelete(Operation.APPEND, transaction, table.io)
        producer.deleted = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=url,
            file_format=FileFormat.PARQUET,
            partition=file.partition,
            record_count=len(positions),
            file_size_in_bytes=len(table.io.new_input(url)),
            spec_id=table.spec().spec_id,
        )
        producer.commit()
