"""Rows that are held to a quality while Spark writes them."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import DataFrame, SparkSession

from feed_assets.engines.code_trial import try_here
from feed_assets.engines.data.frames import judge_output, write_output
from feed_assets.engines.data.quality import RuleTrial
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.port import InputData, InputInstance, Judged, OutputTarget
from feed_assets.entities.content.quality import Quality
from tests.engines.works import NOMINAL_TIME, target
from tests.spark_session import spark

__all__ = ["spark"]
pytestmark = pytest.mark.spark

RULES = {"warm": "temp > -40", "named": "length(name) > 0"}


def held(folder: Path, form: str = "parquet", columns: str | None = None, **quality: object) -> OutputTarget:
    return replace(
        target(folder, columns=columns),
        format=form,
        quality=Quality(**({"rules": RULES, "threshold": 95} | quality)),
        quarantine=replace(target(folder, name="out@quarantine", columns=None), format="json"),
    )


def readings(spark: SparkSession, bad: int = 30) -> DataFrame:
    """A thousand rows in order; the first are too cold, one of them has no name, and one no temperature."""
    cold = f"CASE WHEN id = 0 THEN NULL WHEN id < {bad} THEN -99D ELSE double(id % 30) END AS temp"
    return spark.range(0, 1000, 1, 1).selectExpr("id", cold, "IF(id = 1, '', 's') AS name")


def kept(spark: SparkSession, output: OutputTarget, judged: Judged | None) -> DataFrame:
    """What would be published."""
    assert judged is not None
    places = [output.url] if judged.kept is None else [f"{output.url}/{folder}" for folder in judged.kept]
    return spark.read.format(output.format).options(recursiveFileLookup="true", header="true").load(places)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_good_rows_are_told_from_bad_ones_in_the_job_that_writes_them(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    output = held(tmp_path, form, columns="id bigint, temp double, name string")
    report = write_output(readings(spark), output)
    assert report.judged is not None
    assert (report.rows, report.judged.rows, report.judged.bad) == (970, 1000, 30)
    assert report.judged.broken == {"warm": 30, "named": 1}
    good = kept(spark, output, report.judged)
    assert good.columns == ["id", "temp", "name"]
    assert [int(row.id) for row in good.collect()] == list(range(30, 1000))
    assert report.judged.quarantine is not None
    assert report.judged.quarantine.rows == 30
    assert output.quarantine is not None
    bad = {row.id: row for row in spark.read.json(output.quarantine.url).collect()}
    assert sorted(bad) == list(range(30))
    assert [bad[number].broken_rules for number in (0, 1, 2)] == ["warm", "warm,named", "warm"]


def test_all_rows_with_a_repeated_key_are_bad_and_a_key_with_null_is_none(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", 1), ("a", 1), ("a", 2), (None, 1), (None, 1)]
    frame = spark.createDataFrame(rows, "`sta``tion.no` string, hour int")
    report = write_output(frame, held(tmp_path, rules={}, unique=["sta`tion.no", "HOUR"]))
    assert report.judged is not None
    assert (report.judged.bad, dict(report.judged.broken)) == (2, {"unique": 2})


def test_conditions_on_all_rows_are_judged_in_the_job_that_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    keys, before = tmp_path / "keys", tmp_path / "before"
    spark.createDataFrame([("a",), ("a",), ("b",)], "id string").write.parquet(str(keys))
    spark.createDataFrame([(1,)] * 4, "n int").write.parquet(str(before))
    output = replace(
        held(
            tmp_path / "out",
            rules={},
            in_feed={"station": "stations.id"},
            aggregates={"some": "sum(n) > 0", "many": "sum(n) > 100"},
            compare={
                "volume": {"to": "latest(1)", "at_least": 0.5},
                "total": {"value": "sum(n)", "to": "latest(1)", "at_most": 1},
                "first": {"to": "latest(9)", "at_least": 2},
            },
        ),
        others={
            "stations": InputData(name="s", feed="stations", instances=(one(keys),), format="parquet"),
            "latest(1)": InputData(name="b", feed="out", instances=(one(before),), format="parquet"),
        },
    )
    rows = [("a", 5), ("b", 6), ("c", 7), (None, 8)]
    report = write_output(spark.createDataFrame(rows, "station string, n int"), output)
    assert report.judged is not None
    assert (report.judged.rows, dict(report.judged.broken)) == (4, {"station": 1})
    assert dict(report.judged.conditions) == {
        "many": "sum(n) > 100 does not hold",
        "total": "sum(n) is 26, and must be at most 1 times the 4 of 2013-11-03T04:00Z",
    }
    assert output.quarantine is not None
    assert [row.n for row in spark.read.json(output.quarantine.url).collect()] == [7]
    wrong = replace(output, quality=Quality(aggregates={"odd": "count(DISTINCT n) > 1"}))
    with pytest.raises(OutputMismatchError, match=r"Correct quality\.aggregates"):
        write_output(spark.createDataFrame(rows, "station string, n int"), wrong)
    wrong = replace(output, quality=Quality(compare={"kinds": {"value": "min(length(station))", "at_least": 1}}))
    with pytest.raises(OutputMismatchError, match="compared with the instance of 2013-11-03T04:00Z"):
        write_output(spark.createDataFrame(rows, "station string, n int"), wrong)


def one(folder: Path) -> InputInstance:
    return InputInstance(nominal_time=NOMINAL_TIME, url=folder.as_uri())


def test_all_rows_are_kept_where_bad_ones_only_warn(spark: SparkSession, tmp_path: Path) -> None:
    output = held(tmp_path, on_fail="warn")
    report = write_output(readings(spark), output)
    assert report.rows == kept(spark, output, report.judged).count() == 1000
    assert output.quarantine is not None
    assert spark.read.json(output.quarantine.url).count() == 30


def test_however_many_rules_rows_break_they_are_good_or_bad_and_a_column_names_the_rules(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Twelve rules that are broken in every combination, whose names together are no name of a folder."""
    rules = {f"rule-{number:02d}-{'long' * 8}": f"(id >> {number}) % 2 = 0" for number in range(12)}
    output = held(tmp_path, rules=rules, threshold=0.01, on_fail="warn")
    report = write_output(spark.range(0, 4096, 1, 2).toDF("id"), output)
    assert report.judged is not None
    assert (report.judged.rows, report.judged.bad, set(report.judged.broken.values())) == (4096, 4095, {2048})
    folder = Path(urlsplit(output.url).path)
    assert len({file.parent for file in folder.rglob("part-*")}) == 2
    assert len(list(folder.rglob("part-*"))) <= 4
    assert output.quarantine is not None
    bad = {row.id: row.broken_rules for row in spark.read.json(output.quarantine.url).collect()}
    assert len(bad) == 4095
    assert bad[4095] == ",".join(rules)
    assert bad[5] == ",".join([*rules][0:3:2])


@pytest.mark.parametrize("rows", [0, 30])
def test_an_instance_without_good_rows_still_has_its_columns(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    output = held(tmp_path)
    report = write_output(readings(spark).limit(rows), output)
    assert report.judged is not None
    assert (report.rows, report.judged.bad, report.judged.kept) == (0, rows, None)
    assert kept(spark, output, report.judged).columns == ["id", "temp", "name"]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("temp >", "PARSE_SYNTAX_ERROR"),
        ("tmp > 1", "UNRESOLVED_COLUMN"),
        ("temp", "DATATYPE_MISMATCH"),
        ("count(*) > 1", "MISSING_GROUP_BY"),
    ],
)
def test_a_rule_that_spark_does_not_understand_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, rule: str, reason: str
) -> None:
    output = held(tmp_path, rules={"warm": rule})
    with pytest.raises(OutputMismatchError, match=f"quality rule 'warm' .* is not understood: .*{reason}"):
        write_output(readings(spark), output)
    assert not Path(urlsplit(output.url).path).exists()
    trials = [RuleTrial(columns=columns, text=rule) for columns in ("id bigint, temp double, name string", None)]
    with_columns, without = try_here(trials, lambda: spark)
    assert reason in with_columns[0].reason
    assert len(without) == (reason == "PARSE_SYNTAX_ERROR")


def test_a_column_of_the_quarantine_and_an_unknown_column_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OutputMismatchError, match="it has a column broken_rules"):
        write_output(readings(spark).withColumnRenamed("name", "Broken_Rules"), held(tmp_path))
    with pytest.raises(OutputMismatchError, match="unique names hour, which it does not have"):
        write_output(readings(spark), held(tmp_path, unique=["id", "hour"]))


def test_the_files_of_an_application_are_judged_by_reading_them(spark: SparkSession, tmp_path: Path) -> None:
    output = held(tmp_path)
    readings(spark).write.parquet(output.url)
    report = judge_output(spark, output, NOMINAL_TIME)
    assert report.rows == kept(spark, output, report.judged).count() == 970


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("aggregates", "sum(temp)", "it is of type double, and must be a condition"),
        ("compare", "max(name)", "it is of type string, and must be a number"),
    ],
)
def test_an_aggregate_of_another_type_is_refused(
    spark: SparkSession, tmp_path: Path, field: str, text: str, reason: str
) -> None:
    demand = text if field == "aggregates" else {"value": text, "at_least": 1}
    with pytest.raises(OutputMismatchError, match=reason):
        write_output(readings(spark), held(tmp_path, **{field: {"heat": demand}}))
    ((fault,),) = try_here([RuleTrial(columns="temp double, name string", text=text, field=field)], lambda: spark)
    assert reason in fault.reason
