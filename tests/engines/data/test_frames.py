from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from feed_assets.engines.data.frames import read_input, write_output
from feed_assets.engines.errors import InputReadError, OutputMismatchError
from feed_assets.engines.port import InputData, InputInstance, OutputTarget
from tests.engines.works import FLIGHTS, NOMINAL_TIME, flights, target

pytestmark = pytest.mark.spark

COLUMNS = "name string, n bigint, ratio double, price decimal(10,2), day date, at timestamp, ok boolean"
ROWS = (
    "('a,\"b\"', 1, 0.5, 1.20, DATE '2013-11-03', TIMESTAMP '2013-11-03 04:00:00Z', true)",
    "('', 2, null, null, null, null, null)",
    "(null, -3, 1e300, -7.00, DATE '1999-12-31', TIMESTAMP '1999-12-31 23:59:00Z', false)",
)


def rows(spark: SparkSession, columns: str, *values: str) -> DataFrame:
    """A DataFrame made without Python workers, which take seconds to start."""
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    names = ", ".join(schema.fieldNames())
    query = f"SELECT * FROM VALUES {', '.join(values)} AS t({names})"
    return spark.sql(query).select(*(col(field.name).cast(field.dataType) for field in schema))


def as_input(output: OutputTarget) -> InputData:
    instance = InputInstance(nominal_time=NOMINAL_TIME, url=output.url)
    return InputData(name="back", feed=output.feed, instances=(instance,), format=output.format, columns=output.columns)


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet", "orc"])
def test_what_is_written_with_a_schema_is_read_back_the_same(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    output = replace(target(tmp_path, columns=COLUMNS), format=file_format)
    written = rows(spark, COLUMNS, *ROWS)
    report = write_output(written, output)
    frame = read_input(spark, as_input(output))
    assert report.rows == 3
    assert ", ".join(f"{name} {kind}" for name, kind in report.columns or ()) == COLUMNS
    expected = written.replace("", None) if file_format == "csv" else written
    assert sorted(map(str, frame.collect())) == sorted(map(str, expected.collect()))
    assert frame.columns == ["name", "n", "ratio", "price", "day", "at", "ok"]


def test_text_is_read_as_one_column_of_lines(spark: SparkSession, tmp_path: Path) -> None:
    output = replace(target(tmp_path, columns=None), format="text")
    assert write_output(rows(spark, "value string", "('one')", "('two')"), output).rows == 2
    assert {row.value for row in read_input(spark, as_input(output)).collect()} == {"one", "two"}


def test_a_written_directory_holds_data_files_only(spark: SparkSession, tmp_path: Path) -> None:
    output = target(tmp_path)
    write_output(rows(spark, FLIGHTS, "('JFK', 1)"), output)
    names = [file.name for file in (tmp_path / "staging" / "out").iterdir()]
    assert names
    assert [name for name in names if name.startswith(("_", "."))] == []


def test_writing_again_replaces_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    output = target(tmp_path)
    (tmp_path / "staging" / "out").mkdir(parents=True)
    (tmp_path / "staging" / "out" / "left-over.csv").write_text("origin,delay\nLGA,9\n")
    write_output(rows(spark, FLIGHTS, "('JFK', 1)", "('EWR', 2)"), output)
    assert write_output(rows(spark, FLIGHTS, "('JFK', 3)"), output).rows == 1
    assert [tuple(row) for row in read_input(spark, as_input(output)).collect()] == [("JFK", 3)]


def test_no_rows_are_counted_as_none_and_leave_a_readable_directory(spark: SparkSession, tmp_path: Path) -> None:
    output = target(tmp_path)
    frame = rows(spark, FLIGHTS, "('JFK', 1)")
    empty_at_run_time = frame.join(frame.where("delay > 5"), "origin", "left_semi")
    assert write_output(empty_at_run_time, output).rows == 0
    assert read_input(spark, as_input(output)).count() == 0
    assert write_output(spark.createDataFrame([], FLIGHTS), output).rows == 0
    assert read_input(spark, as_input(output)).count() == 0


def test_rows_after_a_shuffle_are_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1000).selectExpr("cast(id % 7 as string) AS origin", "cast(id AS int) AS delay")
    latest = frame.groupBy("origin").agg({"delay": "max"}).toDF("origin", "delay")
    assert write_output(latest, target(tmp_path)).rows == 7


def test_several_instances_are_one_read(spark: SparkSession, tmp_path: Path) -> None:
    data = flights(tmp_path, "origin,delay\nJFK,1\n", "origin,delay\nEWR,2\nLGA,3\n")
    frame = read_input(spark, data)
    assert {tuple(row) for row in frame.collect()} == {("JFK", 1), ("EWR", 2), ("LGA", 3)}
    assert frame.columns == ["origin", "delay"]


def test_a_malformed_field_becomes_null(spark: SparkSession, tmp_path: Path) -> None:
    data = flights(tmp_path, "origin,delay\nJFK,late\n")
    assert [tuple(row) for row in read_input(spark, data).collect()] == [("JFK", None)]


def test_a_csv_whose_header_names_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    data = flights(tmp_path, "delay,origin\n1,JFK\n")
    with pytest.raises(Exception, match="CSV header does not conform to the schema"):
        read_input(spark, data).collect()


def test_a_csv_with_a_good_header_can_be_read_in_part(spark: SparkSession, tmp_path: Path) -> None:
    data = flights(tmp_path, "origin,delay\nJFK,1\nEWR,2\n")
    assert {row.delay for row in read_input(spark, data).select("delay").collect()} == {1, 2}
    assert read_input(spark, data).count() == 2


def test_options_of_the_feed_win_whatever_their_case(spark: SparkSession, tmp_path: Path) -> None:
    data = replace(flights(tmp_path, "JFK;1\n"), options={"HEADER": "false", "sep": ";"})
    assert [tuple(row) for row in read_input(spark, data).collect()] == [("JFK", 1)]


def test_row_36_an_optional_input_without_instances_is_empty_with_the_schema(spark: SparkSession) -> None:
    data = InputData(name="w", feed="weather", instances=(), format="json", columns="temp double", optional=True)
    frame = read_input(spark, data)
    assert (frame.count(), frame.dtypes) == (0, [("temp", "double")])


def test_an_empty_optional_input_needs_a_schema(spark: SparkSession) -> None:
    data = InputData(name="w", feed="weather", instances=(), format="json", optional=True)
    with pytest.raises(InputReadError) as caught:
        read_input(spark, data)
    assert str(caught.value) == (
        "input 'w' (feed 'weather') cannot be read: its window contains no instance, and without a schema "
        "the columns of an empty input are unknown. Declare schema: on the feed 'weather'."
    )


def test_an_input_that_is_not_optional_needs_an_instance(spark: SparkSession) -> None:
    with pytest.raises(InputReadError, match=r"contains no instance\. Wait for the instances"):
        read_input(spark, InputData(name="w", feed="weather", instances=(), format="json", columns="temp double"))


def test_row_37_a_partition_is_read_below_each_instance(spark: SparkSession, tmp_path: Path) -> None:
    data = flights(tmp_path, "origin,delay\nJFK,1\n")
    for part, line in {"us": "EWR,2", "eu": "CDG,3"}.items():
        folder = tmp_path / "flights" / "00" / part
        folder.mkdir()
        (folder / "part.csv").write_text(f"origin,delay\n{line}\n")
    us = read_input(spark, replace(data, partition="us"))
    assert [tuple(row) for row in us.collect()] == [("EWR", 2)]
    both = read_input(spark, replace(data, partition="{us,eu}"))
    assert {row.origin for row in both.collect()} == {"EWR", "CDG"}


def test_a_partition_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    data = replace(flights(tmp_path, "origin,delay\nJFK,1\n"), partition="us")
    with pytest.raises(InputReadError, match=r"file:.*flights/00/us does not exist\. Check the input's partition"):
        read_input(spark, data)


def test_directories_of_declared_partitions_are_read_too(spark: SparkSession, tmp_path: Path) -> None:
    for part in ("us", "eu"):
        folder = tmp_path / "00" / part
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f"origin,delay\n{part},1\n")
    instance = InputInstance(nominal_time=NOMINAL_TIME, url=(tmp_path / "00").as_uri())
    data = InputData(name="f", feed="f", instances=(instance,), format="csv", columns=FLIGHTS, partitions=("region",))
    assert {row.origin for row in read_input(spark, data).collect()} == {"us", "eu"}


def test_partition_directories_become_the_column_that_the_schema_names(spark: SparkSession, tmp_path: Path) -> None:
    for part in ("us", "eu"):
        folder = tmp_path / "00" / f"region={part}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text("origin,delay\nX,1\n")
    instance = InputInstance(nominal_time=NOMINAL_TIME, url=(tmp_path / "00").as_uri())
    data = InputData(
        name="f",
        feed="f",
        instances=(instance,),
        format="csv",
        columns=f"{FLIGHTS}, region string",
        partitions=("region",),
    )
    assert {row.region for row in read_input(spark, data).collect()} == {"us", "eu"}


def test_nothing_to_infer_a_schema_from_says_what_to_declare(spark: SparkSession, tmp_path: Path) -> None:
    instance = InputInstance(nominal_time=NOMINAL_TIME, url=tmp_path.as_uri())
    with pytest.raises(InputReadError, match=r"infer a schema\. Declare schema: on the feed 'f'\."):
        read_input(spark, InputData(name="f", feed="f", instances=(instance,), format="parquet"))


def test_a_schema_that_is_none_is_named(spark: SparkSession, tmp_path: Path) -> None:
    data = replace(flights(tmp_path, "origin\nJFK\n"), columns="origin strin")
    with pytest.raises(InputReadError, match=r"'origin strin' is not a Spark schema.*Correct schema: of the feed"):
        read_input(spark, data)


def test_columns_are_written_in_the_order_and_spelling_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    output = target(tmp_path)
    write_output(rows(spark, "DELAY smallint, Origin string", "(1, 'JFK')"), output)
    part = next((tmp_path / "staging" / "out").iterdir())
    assert part.read_text() == "origin,delay\nJFK,1\n"


def test_missing_and_extra_columns_are_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, "origin string, minutes int", "('JFK', 1)")
    with pytest.raises(OutputMismatchError) as caught:
        write_output(frame, target(tmp_path))
    assert str(caught.value) == (
        "output 'out' (feed 'out-feed'): the columns are not those of the feed's schema: missing: delay; "
        "not declared: minutes. Return exactly origin, delay, or change schema: of the feed 'out-feed'."
    )
    assert not (tmp_path / "staging").exists()


def test_a_column_that_is_there_twice_is_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, FLIGHTS, "('JFK', 1)")
    twice = frame.join(frame.withColumnRenamed("delay", "d2"), frame.delay == 1).drop("d2")
    with pytest.raises(OutputMismatchError, match="more than once: origin"):
        write_output(twice, target(tmp_path))


def test_text_is_not_stored_as_a_number(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, "origin string, delay string", "('JFK', '1')")
    with pytest.raises(OutputMismatchError) as caught:
        write_output(frame, target(tmp_path))
    assert str(caught.value) == (
        "output 'out' (feed 'out-feed'): column `delay` is \"STRING\", but the schema says \"INT\". "
        "Cast it in the workflow, or in the query of an import, or change the schema."
    )


def test_a_number_that_does_not_fit_its_column_fails_the_write(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, "origin string, delay bigint", f"('JFK', {2**40})")
    with pytest.raises(Exception, match="CAST_OVERFLOW"):
        write_output(frame, target(tmp_path))


def test_a_column_that_may_be_null_is_not_stored_as_not_null(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, FLIGHTS, "('JFK', 1)", "('EWR', null)")
    with pytest.raises(OutputMismatchError, match="column `delay` may be null, but the schema says NOT NULL"):
        write_output(frame, target(tmp_path, columns="origin string, delay int not null"))
