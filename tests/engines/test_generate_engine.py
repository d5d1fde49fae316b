import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyarrow.parquet import ParquetFile
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from feed_assets.engines import generate_engine
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.generate_engine import GenerateEngine, make_up_frame
from feed_assets.engines.port import MadeUpRows
from feed_assets.entities.workflow import Workflow
from feed_assets.storage.registry import open_store
from tests.engines.works import NOMINAL_TIME, target, work, written_lines

pytestmark = pytest.mark.spark

SCHEMA = "id int, price decimal(6,2), at timestamp, day date, code string, origin string, is_new boolean"
TAIL = r"N[1-9]\d{1,2}(AA|B)?-[\wé]"
COLUMNS = {
    "id": {"range": [-3, 99], "nulls": 20},
    "price": {"decimal": {"range": [-1, 99.99]}},
    "at": {"dates": ["today(0,0)", "tomorrow(0,-1)"]},
    "day": {"dates": ["2013-10-31", "today(0,0)"]},
    "code": {"regex": TAIL},
    "origin": {"choice": {"EWR": 3, "JFK": 1}},
    "is_new": {"choice": [True, False]},
}
# Recorded with Spark 4.3.0; every machine must make the same Parquet files.
DIGEST = "sha256:5685b31c3a634b8cb4820584eb83437d6123550e6894a70bc9a9789db24f7eb1"
NEW_YORK = ZoneInfo("America/New_York")


def rows(count: int = 1_000, **changed: object) -> MadeUpRows:
    workflow = Workflow.model_validate({"engine": "generate", "rows": count, "columns": {**COLUMNS, **changed}})
    return MadeUpRows(rows=count, seed=7, instance=NOMINAL_TIME, columns=workflow.columns)


def made(spark: SparkSession, made_up: MadeUpRows) -> list[Row]:
    return make_up_frame(spark, made_up, SCHEMA, NEW_YORK).collect()


@pytest.fixture
def parallelism(spark: SparkSession) -> Iterator[str]:
    name = "spark.sql.leafNodeDefaultParallelism"
    yield name
    spark.conf.unset(name)


def test_the_same_rows_are_the_same_bytes_on_every_machine_whatever_the_parallelism(
    spark: SparkSession, tmp_path: Path, parallelism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate_engine, "_ROWS_OF_A_FILE", 300)
    digests = set()
    for number in (1, 7):
        spark.conf.set(parallelism, number)
        out = replace(target(tmp_path, name=f"by-{number}", columns=SCHEMA), format="parquet")
        GenerateEngine().run(replace(work(tmp_path, "", outputs=(out,)), made_up=rows()), lambda: spark)
        store = open_store(tmp_path.as_uri(), {})
        digests.add(store.scan(f"staging/{out.name}", None, None, NOMINAL_TIME).digest)
    assert digests == {DIGEST}
    files = sorted((tmp_path / "staging" / "by-7").glob("part-*"))
    assert [ParquetFile(file).metadata.num_rows for file in files] == [250] * 4
    chunks = [ParquetFile(file).metadata.row_group(0).column(number) for file in files for number in range(7)]
    assert {len(chunk.encodings) for chunk in chunks} == {1}, "Java machines order several differently"
    assert spark.read.parquet(out.url).orderBy("code", "price").collect() == sorted(
        made(spark, rows()), key=lambda row: (row.code, row.price)
    )


def test_values_are_those_of_their_columns_in_every_release(spark: SparkSession, tmp_path: Path) -> None:
    out = target(tmp_path, columns=SCHEMA)
    job = replace(work(tmp_path, "", engine="generate", outputs=(out,)), made_up=rows(3))
    report = GenerateEngine().run(job, lambda: spark)
    assert (report.outputs[0].rows, report.details) == (3, {"seed": 7})
    assert written_lines(out) == [
        "8,34.89,2013-11-03T20:10:25.000Z,2013-11-03,N704B-O,EWR,true",
        "80,83.41,2013-11-03T07:18:36.000Z,2013-11-02,N56AA-x,EWR,false",
        "90,49.02,2013-11-03T23:40:44.000Z,2013-11-01,N75-4,EWR,false",
    ]


def test_values_are_within_their_bounds_and_as_frequent_as_they_should_be(spark: SparkSession) -> None:
    found = made(spark, rows())
    assert {row.id for row in found} == {None, *range(-3, 100)}
    assert 150 < sum(row.id is None for row in found) < 250
    assert 700 < sum(row.origin == "EWR" for row in found) < 800
    assert {row.is_new for row in found} == {True, False}
    assert all(re.fullmatch(TAIL, row.code) for row in found)
    assert {row.code[-1] for row in found} >= {"é", "_", "a"}
    assert all(-1 <= row.price < 100 for row in found)
    assert len({row.price for row in found}) > 900
    assert {row.day.isoformat() for row in found} == {f"2013-{day}" for day in ("10-31", "11-01", "11-02", "11-03")}
    seconds = make_up_frame(spark, rows(), SCHEMA, NEW_YORK).select(sf.unix_seconds("at").alias("at")).collect()
    times = [datetime.fromtimestamp(row["at"], UTC) for row in seconds]
    midnight = datetime(2013, 11, 3, 4, tzinfo=UTC)
    assert midnight <= min(times) < midnight + timedelta(hours=1)
    assert midnight + timedelta(hours=24) < max(times) < midnight + timedelta(hours=25)


def test_values_follow_from_seed_column_and_instance_alone(spark: SparkSession) -> None:
    before = made(spark, rows(20))
    assert made(spark, rows(20)) == before
    without_nulls = made(spark, rows(20, id={"range": [-3, 99]}))
    assert all(
        one.id in (None, other.id) and one[1:] == other[1:] for one, other in zip(before, without_nulls, strict=True)
    )
    assert made(spark, rows(10)) == before[:10]
    for other in (replace(rows(20), seed=8), replace(rows(20), instance=NOMINAL_TIME + timedelta(days=1))):
        assert not {row.code for row in made(spark, other)} & {row.code for row in before}


def test_dates_that_end_before_they_begin_are_refused(spark: SparkSession) -> None:
    late = rows(1, day={"dates": ["today(0,0)", "2013-11-02"]})
    with pytest.raises(OutputMismatchError, match=r"column 'day' .* its dates begin at 2013-11-03T04:00Z and end at"):
        made(spark, late)
