"""Steps with a real Spark session: functions and SQL, frames as Parquet, a rerun behind the step that has failed."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.errors import EngineError
from feed_assets.engines.port import WorkReport
from feed_assets.instances.steps.frames import AttemptStep
from feed_assets.instances.steps.store import Steps
from feed_assets.log.records import ProcessKey
from feed_assets.orchestration.runs.instance_runs import describe_parts
from tests.instances.harness import LifecycleHarness, at, feed, process
from tests.spark_session import spark

__all__ = ["spark"]
pytestmark = pytest.mark.spark

JOBS = """
def extract(spark, orders):
    paid = orders.filter("amount > 0")
    return {"paid": paid, "refunds": orders.filter("amount < 0")}


def load(spark, clean, context):
    if (context.attempt, context.process) == (1, "load"):
        raise ValueError("not today")
    return clean
"""
CLEAN = """
CREATE TEMPORARY VIEW named AS SELECT user, amount FROM paid WHERE user IS NOT NULL;
SELECT named.user, count(refunds.user) AS refunds, sum(named.amount) AS amount
FROM named LEFT JOIN refunds USING (user) GROUP BY named.user;
"""
STEPS = {
    "extract": {"path": "jobs.py:extract"},
    "clean": {"engine": "sql", "path": "clean.sql", "after": ["extract"], "recoverable": False},
    "load": {"path": "jobs.py:load", "after": ["clean"]},
}
TIME = at("01T01:00")


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "clean.sql").write_text(CLEAN)
    lifecycle = LifecycleHarness.of(tmp_path)
    lifecycle.declare(
        feed("orders", schema="user string, amount double"),
        feed("loaded", schema="user string, refunds bigint, amount double"),
        process(
            "load",
            inputs={"orders": "now(0,0)"},
            outputs={"loaded": "now(0,0)"},
            start=TIME,
            workflow={"steps": STEPS},
        ),
    )
    return lifecycle


def test_bd_15_16_30_31_a_rerun_runs_the_steps_behind_the_newest_recoverable_one_on_the_same_frames(
    lifecycle: LifecycleHarness, spark: SparkSession
) -> None:
    lifecycle.land("orders", TIME, text="user,amount\nann,2.5\nann,1.5\nbob,-1\nbob,4\n,9\n")
    lifecycle.tick(TIME)
    told: list[AttemptStep] = []
    reports: list[WorkReport] = []
    runner = replace(
        lifecycle.runner(TIME),
        engines=None,
        session=lambda: spark,
        on_step=told.append,
        on_report=lambda _, report: reports.append(report),
    )
    with pytest.raises(EngineError, match="not today"):
        runner.run(lifecycle.process("load"), TIME, lambda _: None)
    frames = sorted(folder.name for folder in lifecycle.root.rglob(".feed-assets/staging/*/*/data/*"))
    assert frames == ["clean", "paid", "refunds"]
    told.clear()

    (done,) = runner.run(lifecycle.process("load"), TIME, lambda _: None)

    lines = {line for file in lifecycle.folder("loaded", TIME).glob("part-*") for line in file.read_text().split()}
    assert lines == {"user,refunds,amount", "ann,0,4.0", "bob,1,4.0"}
    assert (done.rows, lifecycle.staged()) == (2, [])
    assert [describe_parts(step) for step in told if step.name] == [
        "step extract, kept from attempt 1, made paid (4 rows), refunds (1 row)",
        "step clean made clean (2 rows)",
        "step load made loaded (2 rows)",
    ]
    lineage = reports[0].outputs[0].lineage
    assert lineage is not None
    made_of = {name: [(each.input, each.column) for each in found] for name, found in lineage.columns.items()}
    assert made_of == {
        "user": [("orders", "user")],
        "refunds": [("orders", "user")],
        "amount": [("orders", "amount")],
    }
    assert {each.column for each in lineage.indirect} == {"user", "amount"}
    assert reports[0].details["step extract"] == "kept from attempt 1"
    assert {name for name in reports[0].details if name.startswith("code")} == {"code of clean", "code of load"}
    with lifecycle.database.read() as connection:
        runs = Steps(connection).of(ProcessKey("load", "primary", TIME))
    assert [(each.attempt, each.step, each.status.value) for each in runs] == [
        (1, "extract", "SUCCEEDED"),
        (1, "clean", "SUCCEEDED"),
        (1, "load", "FAILED"),
        (2, "extract", "KEPT"),
        (2, "clean", "SUCCEEDED"),
        (2, "load", "SUCCEEDED"),
    ]
    assert [name for name in spark.catalog.listTables() if name.isTemporary] == []
