"""Partitions of tables in a catalog of Spark's own; `orchestration/test_tables` has those of a Hive metastore."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from feed_assets.engines.data.frames import read_input, write_output
from feed_assets.engines.data.tables import AvroTypeError, read_staged_partition, render_avro_schema
from feed_assets.engines.errors import InputReadError, OutputMismatchError
from feed_assets.engines.port import InputData, InputInstance, OutputTarget, TableName, TablePartition
from feed_assets.engines.spark.sessions import session_conf
from feed_assets.entities.content.quality import Quality
from tests.engines.works import NOMINAL_TIME

pytestmark = pytest.mark.spark

_numbers = itertools.count()


@pytest.fixture
def table(spark: SparkSession) -> Iterator[TableName]:
    """A table with three hours of two days; the value of a row says where it is."""
    name = f"clicks_{next(_numbers)}"
    spark.sql(f"CREATE TABLE {name} (User STRING, n INT) USING json PARTITIONED BY (ds STRING, hour INT)")
    rows = ", ".join(f"('{ds}-{hour}', {hour}, '{ds}', {hour})" for ds in ("d1", "d2") for hour in (1, 2, 10))
    spark.sql(f"INSERT INTO {name} VALUES {rows}")
    yield TableName(catalog="thrift://host:9083", database="default", name=name)
    spark.sql(f"DROP TABLE {name}")


def partition(table: TableName, **values: str) -> TablePartition:
    return TablePartition(table=table, values=tuple(values.items()))


def data(table: TableName, *partitions: TablePartition) -> InputData:
    instances = (InputInstance(nominal_time=NOMINAL_TIME, url="thrift://x", partition=each) for each in partitions)
    return InputData(name="clicks", feed="clicks", instances=tuple(instances), format="csv", table=table)


def output(table: TableName, folder: Path, **values: str) -> OutputTarget:
    url = (folder / "staging").as_uri()
    return OutputTarget(name="out", feed="sums", url=url, format="csv", partition=partition(table, **values))


def users(frame: DataFrame) -> list[str]:
    return sorted(row["User"] for row in frame.collect())


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([("d1", "01")], ["d1-1"]),
        ([("d1", "02"), ("d1", "10")], ["d1-10", "d1-2"]),
        ([("d1", "1"), ("d2", "10")], ["d1-1", "d2-10"]),
        ([("d3", "1")], []),
    ],
)
def test_only_the_partitions_of_the_window_are_read(
    spark: SparkSession, table: TableName, wanted: list[tuple[str, str]], expected: list[str]
) -> None:
    frame = read_input(spark, data(table, *(partition(table, ds=ds, hour=hour) for ds, hour in wanted)))
    assert users(frame) == expected
    assert frame.columns == ["User", "n", "ds", "hour"]


def test_a_window_over_two_tables_is_read_as_one(spark: SparkSession, table: TableName) -> None:
    other = replace(table, name=f"{table.name}_old")
    spark.sql(f"CREATE TABLE {other.name} AS SELECT * FROM {table.name}")
    found = read_input(spark, data(table, partition(table, ds="d1", hour="1"), partition(other, ds="d2", hour="2")))
    assert users(found) == ["d1-1", "d2-2"]
    spark.sql(f"DROP TABLE {other.name}")


def test_a_whole_table_is_read_and_written_without_keys(spark: SparkSession, table: TableName, tmp_path: Path) -> None:
    whole = replace(table, name=f"{table.name}_whole")
    spark.sql(f"CREATE TABLE {whole.name} USING json AS SELECT User, n FROM {table.name} WHERE n = 1")
    assert users(read_input(spark, data(whole, partition(whole)))) == ["d1-1", "d2-1"]
    report = write_output(spark.sql("SELECT 'ann' AS user, 1 AS n"), output(whole, tmp_path))
    assert (report.rows, report.columns) == (1, (("User", "string"), ("n", "int")))
    with pytest.raises(OutputMismatchError, match="not declared: ds"):
        write_output(spark.sql("SELECT 'ann' AS user, 1 AS n, 'd1' AS ds"), output(whole, tmp_path))
    spark.sql(f"DROP TABLE {whole.name}")


def test_what_others_add_to_a_partition_is_read_by_the_same_session(spark: SparkSession, table: TableName) -> None:
    window = data(table, partition(table, ds="d1", hour="1"))
    assert users(read_input(spark, window)) == ["d1-1"]
    location = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {table.name} AS JSON").collect()[0][0])["location"]
    (Path(location.removeprefix("file:")) / "ds=d1/hour=1/late.json").write_text('{"User": "late", "n": 1}\n')
    assert users(read_input(spark, window)) == ["d1-1", "late"]


def test_an_input_that_cannot_be_read_says_why(spark: SparkSession, table: TableName) -> None:
    missing = replace(table, name="nowhere")
    with pytest.raises(InputReadError, match=r"(?s)nowhere.*spark\.sql\.catalogImplementation=hive"):
        read_input(spark, data(missing, partition(missing, ds="d1", hour="1")))
    with pytest.raises(InputReadError, match="its window contains no instance"):
        read_input(spark, data(table))
    assert users(read_input(spark, replace(data(table), optional=True))) == []
    file = InputInstance(nominal_time=NOMINAL_TIME, url="file:///old")
    with pytest.raises(InputReadError, match="file:///old is not a partition of a table"):
        read_input(spark, replace(data(table), instances=(file,)))


@pytest.mark.parametrize("columns", ["'ann' AS user, 1 AS n", "1L AS N, 'ann' AS user, 'd1' AS ds, 1 AS HOUR"])
def test_a_partition_is_written_in_the_format_and_types_of_its_table(
    spark: SparkSession, table: TableName, tmp_path: Path, columns: str
) -> None:
    report = write_output(spark.sql(f"SELECT {columns}"), output(table, tmp_path, ds="d1", hour="01"))
    assert report.rows == 1
    (file,) = (tmp_path / "staging").glob("*.json")
    assert json.loads(file.read_text()) == {"User": "ann", "n": 1}
    assert not (tmp_path / "staging/_SUCCESS").exists()
    (row,) = read_staged_partition(spark, output(table, tmp_path, ds="d1", hour="01")).collect()
    assert row.asDict() == {"User": "ann", "n": 1}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("'ann' AS user", "the columns are not those of the table default.clicks_[0-9]+: missing: n"),
        ("'ann' AS user, 1 AS n, 2 AS m", "not declared: m"),
        ("'ann' AS user, 'one' AS n", 'column `n` is "STRING", but the schema says "INT"'),
        ("'ann' AS user, 1 AS n, 2 AS hour", "rows of another partition than ds=d1/hour=01 were returned: 1"),
        ("'ann' AS user, 1 AS n, cast(null AS string) AS ds", "rows of another partition"),
    ],
)
def test_rows_that_do_not_fit_the_table_or_the_partition_are_refused(
    spark: SparkSession, table: TableName, tmp_path: Path, columns: str, reason: str
) -> None:
    with pytest.raises(OutputMismatchError, match=reason):
        write_output(spark.sql(f"SELECT {columns}"), output(table, tmp_path, ds="d1", hour="01"))


def test_the_rows_of_a_partition_are_held_to_a_quality(spark: SparkSession, table: TableName, tmp_path: Path) -> None:
    quarantine = OutputTarget(name="bad", feed="bad", url=(tmp_path / "bad").as_uri(), format="parquet")
    held = replace(output(table, tmp_path, ds="d3", hour="1"), quality=Quality(rules={"positive": "n > 0"}))
    rows = spark.createDataFrame([(1, "ann", "d3"), (-1, "bob", "d3")], "n int, User string, ds string")
    report = write_output(rows, replace(held, quarantine=quarantine))
    assert report.judged is not None
    assert (report.rows, report.judged.bad, report.columns) == (1, 1, (("User", "string"), ("n", "int")))
    (good,) = spark.read.json([f"{held.url}/{folder}" for folder in report.judged.kept or ()]).collect()
    assert good.asDict() == {"User": "ann", "n": 1}
    (bad,) = spark.read.parquet(quarantine.url).collect()
    assert bad.asDict() == {"User": "bob", "n": -1, "broken_rules": "positive"}


def test_an_output_whose_table_is_not_seen_says_so(spark: SparkSession, table: TableName, tmp_path: Path) -> None:
    target = output(replace(table, name="nowhere"), tmp_path, ds="d1", hour="1")
    with pytest.raises(OutputMismatchError, match=r"the table default\.nowhere cannot be read"):
        write_output(spark.range(1), target)


def test_an_avro_schema_has_every_type_that_hive_knows(spark: SparkSession) -> None:
    columns = (
        "s string, b boolean, t tinyint, i int, l bigint, f float, d double, y binary, m decimal(10,2), day date, "
        "at timestamp, a array<int>, p map<string,bigint>, r struct<x: int>"
    )
    assert spark.range(1).count() == 1
    fields: Mapping[str, object] = {each["name"]: each["type"] for each in json.loads(schema(columns))["fields"]}
    assert fields["s"] == ["null", "string"]
    assert fields["a"] == ["null", {"type": "array", "items": ["null", "int"]}]
    assert fields["r"] == [
        "null",
        {"type": "record", "name": "row_r", "fields": [{"name": "x", "type": ["null", "int"], "default": None}]},
    ]
    with pytest.raises(AvroTypeError, match="no column of type map<int,int>"):
        schema("p map<int,int>")


def schema(columns: str) -> str:
    kind = StructType.fromDDL(columns)
    assert isinstance(kind, StructType)
    return render_avro_schema(kind)


def test_a_session_of_a_cluster_with_a_catalog_knows_it() -> None:
    conf = session_conf(master="local[1]", catalog="thrift://one:9083,thrift://two:9083")
    assert conf["spark.sql.catalogImplementation"] == "hive"
    assert conf["spark.hadoop.hive.metastore.uris"] == "thrift://one:9083,thrift://two:9083"
    own = session_conf(master="local[1]", catalog="thrift://one:9083", conf={"spark.sql.catalogImplementation": "x"})
    assert own["spark.sql.catalogImplementation"] == "x"
