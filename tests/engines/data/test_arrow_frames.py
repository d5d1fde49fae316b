"""Feeds are read without Java as Spark reads them; what only Spark can follow is refused."""

import gzip
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.data.arrow_frames import parse_arrow_schema, read_table
from feed_assets.engines.data.frames import read_input, write_output
from feed_assets.engines.errors import InputReadError
from feed_assets.engines.port import InputData, InputInstance, OutputTarget
from tests.engines.data.test_frames import COLUMNS, ROWS, as_input, rows
from tests.engines.works import NOMINAL_TIME

PEOPLE = "name string, n int, at timestamp"
ODD = """name,n,at
"a, b",1,2013-11-03 05:00:00
"quoted \\" one",x,2013-11-03T05:00:00.5Z
,9999999999,2013-11-03
"",-7,2013-11-03T05:00:00+01:00
"""


def data_in(folder: Path, file_format: str = "csv", columns: str | None = PEOPLE, **options: str) -> InputData:
    instance = InputInstance(nominal_time=NOMINAL_TIME, url=f"file://{folder}")
    return InputData(
        name="people", feed="people", instances=(instance,), format=file_format, columns=columns, options=options
    )


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["csv", "json", "parquet", "orc"])
def test_what_spark_has_written_is_the_same_in_both(spark: SparkSession, tmp_path: Path, file_format: str) -> None:
    output = OutputTarget(name="o", feed="f", url=f"file://{tmp_path}/x", format=file_format, columns=COLUMNS)
    write_output(rows(spark, COLUMNS, *ROWS), output)
    by_spark, by_arrow = read_input(spark, as_input(output)).toArrow(), read_table(as_input(output))
    assert by_arrow.schema.types == by_spark.schema.types
    assert by_arrow.sort_by("n").to_pylist() == by_spark.sort_by("n").to_pylist()
    if file_format == "parquet":
        inferred = replace(as_input(output), columns=None)
        assert read_table(inferred).schema.types == read_input(spark, inferred).toArrow().schema.types


@pytest.mark.spark
def test_odd_fields_of_a_csv_are_the_same_in_both(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text(ODD)
    data = data_in(tmp_path)
    assert read_table(data).to_pylist() == read_input(spark, data).toArrow().to_pylist()
    (tmp_path / "one.csv").write_text('name,n,at\n"a, ""b""",1,\n"",2,\n')
    with pytest.raises(InputReadError, match="doubles quotes inside quotes"):
        read_table(data)
    escaped = data_in(tmp_path, escape='"')
    assert read_table(escaped).to_pylist()[0]["name"] == 'a, "b"'
    assert read_table(escaped).to_pylist() == read_input(spark, escaped).toArrow().to_pylist()


def test_files_that_readers_do_not_see_are_left_out_and_packed_ones_are_read(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part.csv.crc").write_text("x")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "one.csv.gz").write_bytes(gzip.compress(b"name;n;at\nann;1;\n"))
    assert read_table(data_in(tmp_path, sep=";")).to_pylist() == [{"name": "ann", "n": 1, "at": None}]


def test_partitions_that_the_schema_names_are_columns(tmp_path: Path) -> None:
    (tmp_path / "country=de").mkdir()
    (tmp_path / "country=de" / "part.csv").write_text("n\n1\n")
    data = replace(data_in(tmp_path, columns="n int, country string"), partitions=("country",))
    assert read_table(data).to_pylist() == [{"n": 1, "country": "de"}]
    assert read_table(replace(data, columns="n int")).to_pylist() == [{"n": 1}]


def test_text_is_lines(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a\r\nb\n\nc")
    assert read_table(data_in(tmp_path, "text", None)).to_pydict() == {"value": ["a", "b", "", "c"]}


@pytest.mark.parametrize(
    ("file_format", "columns", "options", "content", "reason"),
    [
        ("csv", PEOPLE, {"dateFormat": "dd.MM.yyyy"}, "", "only Spark follows the option dateFormat"),
        ("csv", PEOPLE, {}, "n,name,at\n1,a,\n", "has the columns n, name, at, declared are name, n, at"),
        ("csv", PEOPLE, {}, "name,n,at\n1,2\n", "Expected 3 columns, got 2"),
        ("csv", "v variant", {}, "v\n1\n", "'variant' is a type that only Spark reads"),
        ("json", None, {}, "{}", "without a schema only Spark knows its types"),
        ("json", "n int", {}, '{"n": "x"}', "JSON parse error"),
    ],
)
def test_what_only_spark_can_follow_is_refused(
    file_format: str, columns: str | None, options: dict[str, str], content: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text(content)
    with pytest.raises(InputReadError, match="cannot be read") as caught:
        read_table(data_in(tmp_path, file_format, columns, **options))
    assert reason in str(caught.value)
    assert "ead it in a Spark session, for example with as_='spark'." in str(caught.value)


def test_types_of_spark_are_types_of_arrow() -> None:
    columns = "a array<struct<x: int, y: decimal(5,1)>>, m map<string, bigint>, t timestamp_ntz, v varchar(3) NOT NULL"
    assert parse_arrow_schema(columns).types == [
        pa.list_(pa.struct([("x", pa.int32()), ("y", pa.decimal128(5, 1))])),
        pa.map_(pa.string(), pa.int64()),
        pa.timestamp("us"),
        pa.string(),
    ]
