from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.errors import (
    OutputMismatchError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowSignatureError,
)
from feed_assets.engines.port import Work
from feed_assets.engines.sql_engine import SqlEngine
from tests.engines.works import flights, target, work, written_lines

FLIGHTS = "origin,delay\nJFK,10\nEWR,20\n"


def no_session() -> SparkSession:
    raise AssertionError("Spark must not be started for this")


def sql_work(root: Path, text: str, *, outputs: tuple[str, ...] = ("out",), name: str = "flights") -> Work:
    (root / "query.sql").write_text(text)
    return work(
        root,
        "query.sql",
        engine="sql",
        inputs=(flights(root, FLIGHTS, name=name),),
        outputs=tuple(target(root, name=output, columns=None) for output in outputs),
        properties={"min-delay": "15", "carrier": "it's; '--", "nominal_time": "never"},
    )


def temporary_views(spark: SparkSession) -> list[str]:
    return [table.name for table in spark.catalog.listTables() if table.isTemporary]


@pytest.mark.spark
def test_inputs_are_views_and_facts_are_parameters(spark: SparkSession, tmp_path: Path) -> None:
    text = (
        "CREATE TEMPORARY VIEW late AS SELECT * FROM late_flights WHERE delay > 15;\n"
        "SELECT origin, :carrier AS carrier, :nominal_time AS at, :nominal_date AS day, :cluster AS cluster\n"
        "FROM late WHERE delay > CAST(:min_delay AS INT);"
    )
    job = sql_work(tmp_path, text, name="late-flights")
    report = SqlEngine().run(job, lambda: spark)
    assert [done.rows for done in report.outputs] == [1]
    assert written_lines(job.outputs[0]) == ["EWR,it's; '--,2013-11-03T04:00:00.000Z,2013-11-03,primary"]


@pytest.mark.spark
def test_a_session_keeps_no_view_of_an_instance(spark: SparkSession, tmp_path: Path) -> None:
    job = sql_work(tmp_path, "CREATE TEMPORARY VIEW late AS SELECT * FROM flights;\nSELECT * FROM late")
    SqlEngine().run(job, lambda: spark)
    SqlEngine().run(job, lambda: spark)
    assert temporary_views(spark) == []


@pytest.mark.spark
def test_a_failing_statement_is_a_failure_and_leaves_no_view(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(WorkflowFailedError) as caught:
        SqlEngine().run(sql_work(tmp_path, "SELECT nothing FROM flights"), lambda: spark)
    assert "UNRESOLVED_COLUMN" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert temporary_views(spark) == []


@pytest.mark.spark
def test_markers_make_several_outputs(spark: SparkSession, tmp_path: Path) -> None:
    text = "-- output: b\nSELECT origin FROM flights;\n-- output: a\nSELECT count(*) AS n FROM flights;"
    job = sql_work(tmp_path, text, outputs=("a", "b"))
    report = SqlEngine().run(job, lambda: spark)
    assert [(done.name, done.rows) for done in report.outputs] == [("a", 1), ("b", 2)]
    assert written_lines(job.outputs[0]) == ["2"]


@pytest.mark.spark
def test_af_64_an_optional_output_without_rows_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    text = "-- output: a\nSELECT origin FROM flights WHERE delay > 999;\n-- output: b\nSELECT origin FROM flights;"
    job = sql_work(tmp_path, text, outputs=("a", "b"))
    optional = replace(job, outputs=tuple(replace(target, optional=True) for target in job.outputs))
    assert [(done.name, done.rows) for done in SqlEngine().run(optional, lambda: spark).outputs] == [("b", 2)]
    assert [(done.name, done.rows) for done in SqlEngine().run(job, lambda: spark).outputs] == [("a", 0), ("b", 2)]


@pytest.mark.spark
def test_a_command_is_no_output(spark: SparkSession, tmp_path: Path) -> None:
    job = sql_work(tmp_path, "SELECT 1;\n\nCREATE TEMPORARY VIEW v AS SELECT 1")
    with pytest.raises(OutputMismatchError, match=r"query.sql:3: the statement of output 'out' .* is a command"):
        SqlEngine().run(job, lambda: spark)


def test_outputs_without_exactly_one_statement_are_found_before_spark_starts(tmp_path: Path) -> None:
    text = "-- output: a\nSELECT 1;\n-- output: a\nSELECT 2;\n-- output: c\nSELECT 3"
    with pytest.raises(WorkflowSignatureError) as caught:
        SqlEngine().run(sql_work(tmp_path, text, outputs=("a", "b")), no_session)
    assert str(caught.value) == (
        "process 'daily-delays': workflow 'query.sql' does not match the process: line 6: there is no output 'c'; "
        "output 'a' (feed 'a-feed') is made by 2 statements; output 'b' (feed 'b-feed') is made by no statement. "
        "Put one comment '-- output: name' before the statement of each output, and none elsewhere."
    )


def test_a_file_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkflowNotFoundError, match=r"no\.sql cannot be read"):
        SqlEngine().run(work(tmp_path, "no.sql", engine="sql"), no_session)
    with pytest.raises(WorkflowNotFoundError, match="contains no statement"):
        SqlEngine().run(sql_work(tmp_path, "-- nothing yet\n"), no_session)
