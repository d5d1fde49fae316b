"""Read and write rows of Iceberg tables with Spark: tasks of PyIceberg by a Python data source, and Parquet files."""

import uuid
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from feed_assets.engines.data.fitting import fitting_schema
from feed_assets.engines.port import OutputTarget, RowScan, TablePartition, TableRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

ICEBERG_FILES = MappingProxyType({"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"})
"""With these settings Spark writes times as Iceberg has them."""
_BYTES_A_TASK = 128 << 20


def read_rows(spark: "SparkSession", rows: TableRows, partitions: Sequence[TablePartition]) -> "DataFrame":
    """Read partitions of an Iceberg table as they are now, in one snapshot: rows that are deleted are left out, and
    columns have their present names.

    Python workers of Spark read them, so these need PyIceberg and feed-assets.
    """
    scan = rows.scan([dict(each.values) for each in partitions])
    source = _make_source(scan)
    spark.dataSource.register(source)
    return spark.read.format(source.name()).load()


def schema_of(rows: TableRows) -> "StructType":
    """Return the columns of an Iceberg table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(rows.columns(), prefer_timestamp_ntz=True)


def prepare_rows(df: "DataFrame", target: OutputTarget) -> "tuple[DataFrame, StructType, list[Column]]":
    """Return rows with the columns of their partition, which may be left out if it has one value of them; the columns
    that the files get; and the conditions on which a row is of another partition.
    """
    from pyspark.sql import functions as sf

    assert target.partition is not None
    rows = target.partition.table.rows
    assert rows is not None
    schema = schema_of(rows)
    types = {field.name: field.dataType for field in schema.fields}
    strays: list[Column] = []
    for bound in rows.bounds(dict(target.partition.values)):
        low = sf.lit(bound.low).cast(types[bound.column])
        by_name = {name.lower(): name for name in df.columns}
        found = by_name.get(bound.column.lower())
        if found is None and bound.high is None:
            df = df.withColumn(bound.column, low)
        elif found is not None and bound.high is None:
            strays.append(~df[found].cast(types[bound.column]).eqNullSafe(low))
        elif found is not None:
            value, high = df[found].cast(types[bound.column]), sf.lit(bound.high).cast(types[bound.column])
            strays.append(~sf.coalesce((value >= low) & (value < high), sf.lit(False)))
    return df, fitting_schema(df, schema, target.other_columns), strays


def _make_source(scan: RowScan) -> "type[DataSource]":
    """Return a data source of its own for a scan; it goes to Spark's workers as a whole."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import from_arrow_schema

    name, columns = f"feed_assets_{uuid.uuid4().hex}", from_arrow_schema(scan.columns, prefer_timestamp_ntz=True)
    batches = _batches(scan.tasks)

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(len(batches))] or [InputPartition(None)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            from pyspark.sql.pandas.types import to_arrow_schema

            wanted = to_arrow_schema(columns, timezone="UTC")
            for task in () if partition.value is None else batches[partition.value]:
                for batch in scan.read(task):
                    yield batch.cast(wanted)

    class Rows(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> "StructType":
            return columns

        def reader(self, schema: "StructType") -> Reader:  # noqa: ARG002 - it is that of `schema`
            return Reader()

    return Rows


def _batches(tasks: Sequence[Any]) -> list[list[Any]]:
    """Divide tasks into batches of many small files or one large file."""
    batches: list[list[Any]] = []
    size = _BYTES_A_TASK
    for task in tasks:
        if size + task.file.file_size_in_bytes > _BYTES_A_TASK:
            batches.append([])
            size = 0
        batches[-1].append(task)
        size += task.file.file_size_in_bytes
    return batches
