"""The whole way of an instance with a real Spark session: user code in a file, CSV in, CSV out."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.clock import FrozenClock
from feed_assets.context.operation import AttemptContext
from feed_assets.engines.errors import WorkflowFailedError
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.lineage.commands import column
from feed_assets.log.records import ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, at, feed, process
from tests.spark_session import spark

__all__ = ["spark"]
pytestmark = pytest.mark.spark

JOBS = """
def count(spark, clicks, weather, context):
    if context.properties["mood"] == "bad":
        raise ValueError("not today")
    return clicks.crossJoin(weather.agg({"*": "count"}).withColumnRenamed("count(1)", "hours")).select("user", "hours")
"""
NOON = at("01T12:00")
SUCCEEDED, FAILED = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED


def declare(lifecycle: LifecycleHarness, mood: str) -> None:
    lifecycle.declare(
        feed("clicks", schema="user string", partitions=["country"]),
        feed("weather", schema="temp double"),
        feed("counts", schema="user string, hours bigint", flag="_DONE"),
        process(
            "count",
            inputs={"clicks": "now(-1,0) now(0,0)", "weather": "now(0,0)"},
            outputs={"counts": "now(0,0)"},
            optional=["weather"],
            start=at("01T01:00"),
            properties={"mood": mood},
            workflow={"path": "jobs.py:count"},
        ),
    )


def runner(lifecycle: LifecycleHarness, spark: SparkSession, run_id: str) -> InstanceRunner:
    return InstanceRunner(
        context=AttemptContext(
            database=lifecycle.database,
            stores=lifecycle.stores,
            plan=lifecycle.plan,
            clock=FrozenClock(NOON),
            real_clock=FrozenClock(NOON),
            run_id=run_id,
        ),
        root=lifecycle.root,
        session=lambda: spark,
    )


def lines(lifecycle: LifecycleHarness) -> list[str]:
    files = lifecycle.folder("counts", at("01T01:00")).glob("part-*")
    return sorted(line for file in files for line in file.read_text().splitlines())


def test_an_instance_is_read_made_published_and_survives_a_failed_rerun(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    lifecycle = LifecycleHarness.of(tmp_path)
    declare(lifecycle, "good")
    time = at("01T01:00")
    lifecycle.land("clicks", START, text="user\nann\n")
    lifecycle.land("clicks", time, text="user\nbob\ncy\n")
    assert [request.nominal_times for request in lifecycle.tick(time)] == [(time,)]

    (done,) = runner(lifecycle, spark, "run-1").run(lifecycle.process("count"), time, lambda _: None)

    assert (done.rows, dict(done.missing), done.details["input clicks"]) == (3, {"weather": (time,)}, "direct")
    assert lifecycle.statuses("count") == {time: SUCCEEDED}
    (repeated,) = runner(lifecycle, spark, "run-1b").run(lifecycle.process("count"), time, lambda _: None)
    assert repeated.content.digest == done.content.digest
    before = lines(lifecycle)
    assert [line for line in before if line[0] in "abc"] == ["ann,0", "bob,0", "cy,0"]

    declare(lifecycle, "bad")
    with pytest.raises(WorkflowFailedError, match="not today"):
        runner(lifecycle, spark, "run-2").run(lifecycle.process("count"), time, lambda _: None)

    assert lifecycle.statuses("count") == {time: FAILED}
    assert (lines(lifecycle), lifecycle.staged()) == (before, [])

    lifecycle.land("weather", time, text="temp\n4.5\n")
    declare(lifecycle, "good")
    (again,) = runner(lifecycle, spark, "run-3").run(lifecycle.process("count"), time, lambda _: None)

    assert (again.attempt, dict(again.inputs)) == (4, {"clicks": 2, "weather": 1})
    assert [line for line in lines(lifecycle) if line[0] in "abc"] == ["ann,1", "bob,1", "cy,1"]


def test_bd_55_the_columns_of_a_query_are_told_with_the_function(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "insert.sql").write_text("select concat(a, b) as c, current_database() as d from s where a > 0")
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("s", schema="a int, b int"),
        feed("t"),
        process(
            "insert",
            inputs={"s": "now(0,0)"},
            outputs={"t": "now(0,0)"},
            workflow={"engine": "sql", "path": "insert.sql"},
        ),
    )
    lifecycle.land("s", START, text="a,b\n1,2\n")
    runner(lifecycle, spark, "run-1").run(lifecycle.process("insert"), START, lambda _: None)
    graph = column(lifecycle.context(NOON), feed="t", up=True)
    names = {each.id: each.name for each in graph.nodes}
    edges = {(names[each.source], names[each.target], each.kind.value) for each in graph.edges}
    function, condition = sorted(each.name for each in graph.nodes if each.kind.value == "expression")
    assert edges == {
        ("s.a", function, "direct"),
        ("s.b", function, "direct"),
        (function, "t.c", "direct"),
        ("s.a", condition, "indirect"),
        (condition, "t.*", "indirect"),
    }
    assert function.startswith("concat(")
