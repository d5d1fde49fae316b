"""Read partitions of tables into DataFrames and write them; the session's catalog defines format and columns."""

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING

from feed_assets.engines.data.fitting import find_differences, telling_misfits
from feed_assets.engines.data.lakes import ICEBERG_FILES, prepare_rows, read_rows, schema_of
from feed_assets.engines.data.quality import FileForm, Others, write_judged
from feed_assets.engines.failures import render_cause
from feed_assets.engines.partition_filters import quote_text
from feed_assets.engines.port import InputData, OutputReport, OutputTarget, TableName, TablePartition
from feed_assets.engines.spark.sessions import with_settings
from feed_assets.entities.maps import EMPTY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

_NO_SUCCESS_MARKER = MappingProxyType({"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"})
_NATIVE = MappingProxyType(
    {
        "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe": "parquet",
        "org.apache.hadoop.hive.ql.io.orc.OrcSerde": "orc",
    }
)
_LAKE = FileForm(format="parquet", writes=_NO_SUCCESS_MARKER)
_AVRO = "org.apache.hadoop.hive.serde2.avro.AvroSerDe"
_AVRO_SCHEMAS = frozenset({"avro.schema.literal", "avro.schema.url"})
_WRITER_PROPERTIES = frozenset({"parquet.compression", "orc.compress", *_AVRO_SCHEMAS})
_NOT_OPTIONS = frozenset({"path", "serialization.format"})
_HOW_TO_SEE_IT = (
    "Check that the table exists, and that Spark sees the catalog: a Spark Connect server is started with "
    "spark.sql.catalogImplementation=hive and spark.hadoop.hive.metastore.uris."
)


def read_partitions(spark: "SparkSession", data: InputData) -> "DataFrame":
    """Read the partitions of an input as rows of their table: its columns, with the partition keys last. A partition
    without values is the whole table.

    Raises:
        InputReadError: a mandatory input has no instance, or Spark refused.
    """
    from pyspark.errors import PySparkException

    partitions: dict[TableName, list[TablePartition]] = defaultdict(list)
    for instance in data.instances:
        if instance.partition is None:
            reason = f"{instance.url} is not a partition of a table, but others are"
            raise data.unreadable(reason, "Use one kind of location for the feed.")
        partitions[instance.partition.table].append(instance.partition)
    if not partitions and not data.optional:
        raise data.without_instance()
    if not partitions and data.table is not None:
        partitions[data.table] = []
    try:
        frames = [_read(spark, table, found) for table, found in partitions.items()]
    except PySparkException as exc:
        raise data.unreadable(render_cause(exc), _HOW_TO_SEE_IT) from exc
    return reduce(lambda one, other: one.unionByName(other), frames)


def write_partition(
    df: "DataFrame", target: OutputTarget, write: Callable[["DataFrame", OutputTarget], OutputReport], others: Others
) -> OutputReport:
    """Write a DataFrame as the content of one partition into the target's directory, and report the number of rows.

    The columns must be those of the table, in any order; they are cast by Spark's rules for storing into a table. The
    partition keys are optional columns. If they are present, every row must belong to the partition. Rows can be held
    to a quality if the table's files are of a format of Spark; `write` then writes the quarantine, and `others` are
    what they are compared with.

    Raises:
        OutputMismatchError: the columns are not those of the table, or rows belong to another partition.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    assert target.partition is not None
    partition, is_lake = target.partition, target.partition.table.rows is not None
    form = (_lake_form if is_lake else _hive_form)(df, target)
    observation, is_counted = Observation(), True
    strays = sf.count_if(reduce(lambda one, other: one | other, form.elsewhere, sf.lit(False)))
    counted = form.frame.observe(observation, sf.count(sf.lit(1)).alias("rows"), strays.alias("strays"))
    judged = None
    try:
        with telling_misfits(target), with_settings(df.sparkSession, ICEBERG_FILES if is_lake else EMPTY):
            fitted = counted.drop(*form.dropped).to(form.content)
            if target.quality is not None and form.files is None:
                reason = "its rows cannot be told apart while they are written, for the table has a format of Hive"
                raise target.mismatch(reason, "Use a table in Parquet or ORC, or remove quality from the feed.")
            if form.files is None:
                is_counted = _write_as_hive(fitted, target.url, form.table, form.content)
            elif target.quality is not None:
                judged = write_judged(fitted, target, form.files, write, others)
            else:
                form.files.write(fitted, target.url)
    except AvroTypeError as exc:
        raise target.mismatch(str(exc), "Use another format for the table, or omit the column.") from exc
    found = observation.get if is_counted else {}
    if found.get("strays"):
        reason = f"rows of another partition than {_shown(partition)} were returned: {found['strays']}"
        next_step = "Return the rows of this partition only, or omit the columns of the partition keys."
        raise target.mismatch(reason, next_step)
    if judged is not None:
        return replace(judged, columns=columns_of(form.content))
    rows = int(found["rows"]) if is_counted else None
    return OutputReport(name=target.name, rows=rows, columns=columns_of(form.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How the rows of a partition are written: the `frame` without its `dropped` columns, with the columns of the
    `content`. `elsewhere` are the conditions on which a row is of another partition. Without a form of `files`, only
    Hive knows how those of the `table` are written.
    """

    frame: "DataFrame"
    content: "StructType"
    elsewhere: "Sequence[Column]"
    dropped: Sequence[str] = ()
    files: FileForm | None
    table: Mapping[str, object] = EMPTY


def _hive_form(df: "DataFrame", target: OutputTarget) -> _Form:
    from pyspark.sql import functions as sf

    assert target.partition is not None
    spark, partition = df.sparkSession, target.partition
    table = _describe(spark, target)
    values = _values(partition)
    content, keys = _split(spark.table(_quoted(partition.table)).schema, values)
    by_name = {name.lower(): name for name in df.columns}
    _require_columns(df.columns, content.fieldNames(), values, target)
    elsewhere = [
        ~df[by_name[key.name.lower()]].eqNullSafe(sf.lit(values[key.name.lower()]).cast(key.dataType))
        for key in keys
        if key.name.lower() in by_name
    ]
    return _Form(
        frame=df,
        content=content,
        elsewhere=elsewhere,
        dropped=[by_name[key] for key in values if key in by_name],
        files=_files_of(table),
        table=table,
    )


def _lake_form(df: "DataFrame", target: OutputTarget) -> _Form:
    assert target.partition is not None
    assert target.partition.table.rows is not None
    declared = schema_of(target.partition.table.rows).fieldNames()
    frame, content, elsewhere = prepare_rows(df, target)
    _require_columns(frame.columns, declared, {}, target)
    return _Form(frame=frame, content=content, elsewhere=elsewhere, files=_LAKE)


def read_staged_partition(spark: "SparkSession", target: OutputTarget) -> "DataFrame":
    """Read the files that `write_partition` has written into the target's directory.

    Raises:
        OutputMismatchError: Spark cannot read them without a table.
    """
    assert target.partition is not None
    if target.partition.table.rows is not None:
        return spark.read.schema(schema_of(target.partition.table.rows)).parquet(target.url)
    table = _describe(spark, target)
    content, _ = _split(spark.table(_quoted(target.partition.table)).schema, _values(target.partition))
    if (form := _files_of(table)) is None:
        reason = "its files cannot be read beside the table, which has a format of Hive"
        raise target.mismatch(reason, "Use a table in Parquet or ORC.")
    return spark.read.format(form.format).schema(content).options(**_properties(table)).load(target.url)


def columns_of(schema: "StructType") -> tuple[tuple[str, str], ...]:
    """Return the columns of a schema as (name, type), the type as in Spark DDL: `bigint`, `array<string>`."""
    return tuple((field.name, field.dataType.simpleString()) for field in schema.fields)


def _read(spark: "SparkSession", table: TableName, partitions: Sequence[TablePartition]) -> "DataFrame":
    if table.rows is not None:
        return read_rows(spark, table.rows, partitions)
    name = _quoted(table)
    spark.catalog.refreshTable(name)
    frame = spark.table(name)
    if any(not each.values for each in partitions):
        return frame
    return frame.where(_condition(frame, partitions))


def _condition(frame: "DataFrame", partitions: Sequence[TablePartition]) -> "Column":
    """Return a condition that selects the rows of these partitions, in a form that limits the metastore query to
    them.
    """
    from pyspark.sql import functions as sf

    if not partitions:
        return sf.lit(False)
    types = {field.name.lower(): field.dataType for field in frame.schema.fields}
    values_of_each = [dict(each.values) for each in partitions]
    texts = {key: sorted({values[key] for values in values_of_each}) for key in values_of_each[0]}

    def literal(key: str, text: str) -> "Column":
        return sf.lit(text).cast(types[key.lower()])

    varying = [key for key, found in texts.items() if len(found) > 1]
    fixed = [frame[key] == literal(key, found[0]) for key, found in texts.items() if len(found) == 1]
    if len(varying) == 1:
        (key,) = varying
        fixed.append(frame[key].isin([literal(key, text) for text in texts[key]]))
    elif varying:
        each = (
            reduce(lambda one, other: one & other, (frame[key] == literal(key, values[key]) for key in varying))
            for values in values_of_each
        )
        fixed.append(reduce(lambda one, other: one | other, each))
    return reduce(lambda one, other: one & other, fixed)


def _write_as_hive(frame: "DataFrame", url: str, table: Mapping[str, object], content: "StructType") -> bool:
    """Write in a format of Hive, and return whether the observed row count is available afterwards."""
    from pyspark.sql import is_remote

    serde, options = str(table.get("serde_library", "")), _properties(table)
    if serde == _AVRO and _AVRO_SCHEMAS.isdisjoint(options):
        options["avro.schema.literal"] = render_avro_schema(content)
    serde_options = ", ".join(f"{quote_text(name)}={quote_text(value)}" for name, value in options.items())
    spark, view = frame.sparkSession, f"feed_assets_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        with with_settings(spark, _NO_SUCCESS_MARKER):
            spark.sql(
                f"INSERT OVERWRITE DIRECTORY {quote_text(url)} ROW FORMAT SERDE {quote_text(serde)} "
                + (f"WITH SERDEPROPERTIES ({serde_options}) " if serde_options else "")
                + f"STORED AS INPUTFORMAT {quote_text(str(table['input_format']))} "
                f"OUTPUTFORMAT {quote_text(str(table['output_format']))} SELECT * FROM {view}"
            )
    finally:
        spark.catalog.dropTempView(view)
    return not is_remote()


def _files_of(table: Mapping[str, object]) -> FileForm | None:
    """Return the form of the files of a table; None if only Hive knows it."""
    provider = str(table.get("provider", "hive")).lower()
    native = _NATIVE.get(str(table.get("serde_library", ""))) if provider == "hive" else provider
    return None if native is None else FileForm(format=native, writes=_properties(table) | _NO_SUCCESS_MARKER)


def _values(partition: TablePartition) -> dict[str, str]:
    return {key.lower(): value for key, value in partition.values}


def _properties(table: Mapping[str, object]) -> dict[str, str]:
    """Return the table properties that a writer needs: those of its storage, and the table's compression and schema."""
    storage, own = (table.get(name) for name in ("storage_properties", "table_properties"))
    found = {name: str(text) for name, text in (own.items() if isinstance(own, dict) else ())}
    found = {name: text for name, text in found.items() if name in _WRITER_PROPERTIES}
    found |= {name: str(text) for name, text in (storage.items() if isinstance(storage, dict) else ())}
    return {name: text for name, text in found.items() if name not in _NOT_OPTIONS}


def _describe(spark: "SparkSession", target: OutputTarget) -> Mapping[str, object]:
    from pyspark.errors import PySparkException

    assert target.partition is not None
    table = target.partition.table
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {_quoted(table)} AS JSON").collect()
    except PySparkException as exc:
        reason = f"the table {table.database}.{table.name} cannot be read: {render_cause(exc)}"
        raise target.mismatch(reason, _HOW_TO_SEE_IT) from exc
    described: Mapping[str, object] = json.loads(rows[0][0])
    return described


def _split(schema: "StructType", values: Mapping[str, str]) -> "tuple[StructType, list[StructField]]":
    from pyspark.sql.types import StructType

    keys = [field for field in schema.fields if field.name.lower() in values]
    return StructType([field for field in schema.fields if field.name.lower() not in values]), keys


def _require_columns(
    returned: Sequence[str], declared: Sequence[str], keys: Mapping[str, str], target: OutputTarget
) -> None:
    assert target.partition is not None
    table = target.partition.table
    given = [name for name in returned if name.lower() not in keys]
    reasons = find_differences(given, list(declared), target.other_columns)
    if reasons:
        reason = f"the columns are not those of the table {table.database}.{table.name}: {'; '.join(reasons)}"
        raise target.mismatch(reason, f"Return exactly {', '.join(declared)}.")


def _shown(partition: TablePartition) -> str:
    return "/".join(f"{key}={value}" for key, value in partition.values)


def _quoted(table: TableName) -> str:
    return f"`{table.database}`.`{table.name}`"


_PRIMITIVES = {
    "string": "string",
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
}


class AvroTypeError(ValueError):
    """A type that Hive's AvroSerDe does not support."""


def render_avro_schema(columns: "StructType") -> str:
    """Return the schema of a record as JSON; every value may be null.

    Raises:
        AvroTypeError: a column has a type that AvroSerDe does not support.
    """
    return json.dumps(_record(columns, "row"))


def _record(columns: "StructType", name: str) -> dict[str, object]:
    fields = [
        {"name": field.name, "type": ["null", _type(field.dataType, f"{name}_{field.name}")], "default": None}
        for field in columns.fields
    ]
    return {"type": "record", "name": name, "fields": fields}


def _type(kind: "DataType", name: str) -> object:
    from pyspark.sql.types import ArrayType, DateType, DecimalType, MapType, StringType, StructType, TimestampType

    match kind:
        case StructType():
            return _record(kind, name)
        case ArrayType():
            return {"type": "array", "items": ["null", _type(kind.elementType, name)]}
        case MapType() if isinstance(kind.keyType, StringType):
            return {"type": "map", "values": ["null", _type(kind.valueType, name)]}
        case DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case DateType():
            return {"type": "int", "logicalType": "date"}
        case TimestampType():
            return {"type": "long", "logicalType": "timestamp-millis"}
        case _ if kind.typeName() in _PRIMITIVES:
            return _PRIMITIVES[kind.typeName()]
        case _:
            raise AvroTypeError(f"a table in Avro files has no column of type {kind.simpleString()}")
