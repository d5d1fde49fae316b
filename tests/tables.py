"""What tests make in a metastore without a JVM: databases, tables and partitions, as Hive would describe them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pymetastore.hive_metastore import ttypes

from feed_assets.storage.table.metastore import Metastore, Partition, Table
from feed_assets.storage.table.partition_names import render_partition

KEYS = (("ds", "string"), ("region", "string"))
COLUMNS = (("text", "string"),)
_SERDE = "org.apache.hadoop.hive.serde2"
_IO = "org.apache.hadoop.hive.ql.io"
_TEXT_FILES = ("org.apache.hadoop.mapred.TextInputFormat", f"{_IO}.HiveIgnoreKeyTextOutputFormat")
FORMATS = {
    "text": (f"{_SERDE}.lazy.LazySimpleSerDe", *_TEXT_FILES),
    "csv": (f"{_SERDE}.OpenCSVSerde", *_TEXT_FILES),
    "parquet": (
        f"{_IO}.parquet.serde.ParquetHiveSerDe",
        f"{_IO}.parquet.MapredParquetInputFormat",
        f"{_IO}.parquet.MapredParquetOutputFormat",
    ),
    "orc": (f"{_IO}.orc.OrcSerde", f"{_IO}.orc.OrcInputFormat", f"{_IO}.orc.OrcOutputFormat"),
    "avro": (
        f"{_SERDE}.avro.AvroSerDe",
        f"{_IO}.avro.AvroContainerInputFormat",
        f"{_IO}.avro.AvroContainerOutputFormat",
    ),
}
"""SerDe, input and output format of tables as Hive makes them."""


class Catalog(Metastore):
    """A metastore in which things can be made; every call of a store is one of `asked`."""

    def __init__(self, port: int) -> None:
        super().__init__([("127.0.0.1", port)], f"thrift://127.0.0.1:{port}")
        self.asked = 0

    def _request(self, call: Any) -> Any:
        self.asked += 1
        return super()._request(call)

    def make_database(self, name: str, location: Path) -> None:
        self._request(lambda client: client.create_database(ttypes.Database(name=name, locationUri=location.as_uri())))

    def make_table(
        self,
        database: str,
        name: str,
        location: Path,
        keys: Sequence[tuple[str, str]] = KEYS,
        *,
        columns: Sequence[tuple[str, str]] = COLUMNS,
        format: str = "text",  # noqa: A002 - the word of all tables
        kind: str = "EXTERNAL_TABLE",
        parameters: Mapping[str, str] = {},
        buckets: int = -1,
        serde: Mapping[str, str] = {},
    ) -> Table:
        library, input_format, output_format = FORMATS[format]
        storage = ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema(name=column, type=kind) for column, kind in columns],
            location=f"file:{location}",
            inputFormat=input_format,
            outputFormat=output_format,
            serdeInfo=ttypes.SerDeInfo(serializationLib=library, parameters=dict(serde)),
            numBuckets=buckets,
            bucketCols=[columns[0][0]] if buckets > 0 else [],
            sortCols=[],
            parameters={},
        )
        described = ttypes.Table(
            dbName=database,
            tableName=name,
            owner="anybody",
            sd=storage,
            partitionKeys=[ttypes.FieldSchema(name=key, type=kind) for key, kind in keys],
            parameters={**({"EXTERNAL": "TRUE"} if kind == "EXTERNAL_TABLE" else {}), **parameters},
            tableType=kind,
        )
        self._request(lambda client: client.create_table(described))
        table = self.find_table(database, name)
        assert table is not None
        return table

    def drop_table(self, table: Table) -> None:
        self._request(lambda client: client.drop_table(table.database, table.name, False))

    def partition(self, table: Table, *values: str) -> Partition | None:
        found = self.find_partitions(table, [render_partition(values, table.keys)])
        return found[0] if found else None

    def put_parameters(self, table: Table, partition: Partition, parameters: Mapping[str, str]) -> None:
        """Say something of a partition, as programs that count its rows do."""
        partition.described.parameters = {**(partition.described.parameters or {}), **parameters}
        self._request(lambda client: client.alter_partition(table.database, table.name, partition.described))
