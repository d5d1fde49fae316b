from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines import column_capture
from feed_assets.engines.plan_columns import PlanNotReadError
from feed_assets.engines.port import OutputReport
from feed_assets.engines.registry import open_engine
from feed_assets.entities.content.column_lineage import ColumnLineage, SourceKind
from feed_assets.entities.content.quality import OnFail, Quality
from tests.engines.works import FLIGHTS, flights, target, work

pytestmark = pytest.mark.spark

CONTENT = "origin,delay\nJFK,10\nEWR,20\n"


def report_of(
    spark: SparkSession, root: Path, text: str, *, columns: str | None = None, quality: Quality | None = None
) -> OutputReport:
    engine = "python" if text.startswith("def ") else "sql"
    path = "job.py:run" if engine == "python" else "query.sql"
    (root / path.removesuffix(":run")).write_text(text)
    output = replace(target(root, columns=columns), quality=quality)
    job = work(root, path, engine=engine, inputs=(flights(root, CONTENT),), outputs=(output,))
    (report,) = open_engine(engine).run(job, lambda: spark).outputs
    return report


def lineage_of(spark: SparkSession, root: Path, text: str) -> ColumnLineage:
    lineage = report_of(spark, root, text).lineage
    assert lineage is not None
    return lineage


def sources(lineage: ColumnLineage) -> Mapping[str, list[str]]:
    found = {**lineage.columns, "rows": lineage.indirect}
    return {
        name: [f"{'by ' * (each.kind is SourceKind.INDIRECT)}{each.input}.{each.column}" for each in every]
        for name, every in found.items()
    }


QUERY = """
CREATE OR REPLACE TEMPORARY VIEW mine AS SELECT origin, delay + 1 AS more FROM flights;
CREATE OR REPLACE TEMPORARY VIEW least AS SELECT 1 AS delay;
SELECT max(more) AS worst, origin FROM mine WHERE more > (SELECT min(delay) FROM least) GROUP BY origin
"""
FUNCTION = """def run(spark, flights):
    late = flights.alias("late").where(flights["delay"] > 5).join(flights, ["origin"]).select("origin", "late.delay")
    return late.groupBy("origin").agg({"delay": "max"}).toDF("origin", "worst")
"""


@pytest.mark.parametrize("text", [QUERY, FUNCTION], ids=["sql", "python"])
def test_an_output_tells_what_its_columns_are_made_of(spark: SparkSession, tmp_path: Path, text: str) -> None:
    before = spark.conf.getAll
    report = report_of(spark, tmp_path, text, columns="origin string, worst int")
    assert report.lineage is not None
    assert report.lineage.unknown is None
    found = sources(report.lineage)
    assert list(found) == ["origin", "worst", "rows"]  # in the order of the schema
    assert (found["origin"], found["worst"]) == (["flights.origin"], ["flights.delay"])
    assert set(found["rows"]) == {"by flights.origin", "by flights.delay"}
    assert spark.conf.getAll == before


@pytest.mark.parametrize(
    ("quality", "rows"),
    [
        (Quality(rules={"late": "delay < 15"}, threshold=0), ["by flights.delay"]),
        (Quality(unique=("delay",), threshold=0), ["by flights.delay"]),
        (Quality(rules={"late": "delay < 15"}, on_fail=OnFail.WARN), []),
    ],
)
def test_rows_that_a_quality_leaves_out_depend_on_its_columns(
    spark: SparkSession, tmp_path: Path, quality: Quality, rows: list[str]
) -> None:
    report = report_of(spark, tmp_path, "SELECT * FROM flights", columns=FLIGHTS, quality=quality)
    assert report.lineage is not None
    assert sources(report.lineage) == {"origin": ["flights.origin"], "delay": ["flights.delay"], "rows": rows}


def test_code_does_not_see_that_inputs_are_marked(spark: SparkSession, tmp_path: Path) -> None:
    text = """def run(spark, flights):
    assert "feed_assets" not in flights._jdf.queryExecution().executedPlan().toString()
    names = flights.select("_metadata.file_name", flights.origin, flights["delay"])
    assert flights.columns == ["origin", "delay"] and names.count() == 2
    return flights.join(flights.select("origin"), "origin")
"""
    assert lineage_of(spark, tmp_path, text).unknown is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def run(spark, flights):\n    return flights.localCheckpoint()", "rows come from an RDD, a checkpoint"),
        ("def run(spark, flights):\n    return flights.select('delay').transpose()", "'Transpose'"),
        ("def run(spark, flights):\n    return spark.createDataFrame(flights.toArrow())", "went through the driver"),
        ("SET spark.sql.caseSensitive=true; SELECT origin AS x, delay AS X FROM flights", "without regard to case"),
    ],
)
def test_what_tells_no_plan_is_unknown(spark: SparkSession, tmp_path: Path, text: str, reason: str) -> None:
    lineage = lineage_of(spark, tmp_path, text)
    assert reason in (lineage.unknown or "")
    assert lineage.columns == {}


FORGED = "concat(origin, 'x) AS p#77777, count(1') AS n, delay"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT n, concat(delay, 'p#77777') AS q FROM (SELECT {FORGED} FROM flights)",
        f"SELECT n FROM (SELECT {FORGED} FROM flights) WHERE concat(delay, '') <> 'p#77777'",
        f"WITH low AS (SELECT {FORGED} FROM flights) SELECT l.n, concat(r.n, 'p#77777') AS q FROM low l, low r",
        f"SELECT (SELECT max(concat(n, 'p#77777')) FROM (SELECT n FROM (SELECT {FORGED} FROM flights))) AS n",
        f"SELECT (SELECT max(n) FROM (SELECT {FORGED} FROM flights) WHERE concat(delay, '') <> 'p#77777') AS n",
        f"SELECT n FROM (SELECT {FORGED} FROM flights) GROUP BY n, concat(delay, 'p#77777')",
        f"SELECT n FROM (SELECT {FORGED} FROM flights) ORDER BY concat('p#77777', delay)",
        f"CREATE TEMPORARY VIEW low AS SELECT {FORGED} FROM flights; SELECT n, concat(delay, 'p#77777L') AS q FROM low",
        f"SELECT n, delay AS `m p#77777` FROM (SELECT {FORGED} FROM flights)",
        """def run(spark, flights):
    from pyspark.sql import functions as sf

    low = flights.select(sf.concat("origin", sf.lit("x) AS p#77777, count(1")).alias("n"), "delay")
    return low.select("n", sf.concat("delay", sf.lit("p#77777")).alias("q"))
""",
        """def run(spark, flights):
    from pyspark.sql import functions as sf

    low = flights.select(flights.origin.alias("x) AS p#77777, concat(1"), "delay")
    return low.toDF("n", "delay").select("n", sf.concat("delay", sf.lit("p#77777")).alias("q"))
""",
    ],
)
def test_a_column_that_literals_invent_hides_no_source(spark: SparkSession, tmp_path: Path, text: str) -> None:
    lineage = lineage_of(spark, tmp_path, text)
    assert lineage.unknown or "origin" in {each.column for each in lineage.columns["n"]}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n, m * 2 AS q FROM (SELECT round(max(delay), 1) AS m, count(1) AS n FROM flights GROUP BY origin)",
        "SELECT sum(s) AS s, k FROM (SELECT delay * 60 AS s, '#1 of x, y' AS k FROM flights) GROUP BY k",
        "SELECT `a#1` AS a, n FROM (SELECT delay + 1 AS `a#1`, 'a#1' AS n, upper(origin) AS o FROM flights)",
    ],
)
def test_what_is_usual_is_known(spark: SparkSession, tmp_path: Path, text: str) -> None:
    assert lineage_of(spark, tmp_path, text).unknown is None


def test_only_the_analyzed_plan_of_an_explanation_counts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = (
        ("Parsed", "... 5 more fields"),
        ("Analyzed", "k: int\nLeaf"),
        ("Optimized", "InMemoryRelation [... 5 more fields]"),
    )
    text = "\n\n".join(f"== {name} Logical Plan ==\n{plan}" for name, plan in plans)
    monkeypatch.setattr("pyspark.sql.is_remote", lambda: True)
    frame: Any = SimpleNamespace(_explain_string=lambda extended: text * extended, sparkSession=spark)
    assert column_capture._explain(frame) == "\nk: int\nLeaf"
    frame._explain_string = lambda extended: text.replace("Leaf", "f(k, ... 5 more fields)") * extended
    with pytest.raises(PlanNotReadError, match="cut off"):
        column_capture._explain(frame)


def test_no_fault_of_reading_fails_a_run_and_each_is_said_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(column_capture, "read_plan", fail)
    column_capture._log_once.cache_clear()
    with caplog.at_level("INFO", logger=column_capture.__name__):
        report = report_of(spark, tmp_path, "SELECT * FROM flights")
        (tmp_path / "again").mkdir()
        report_of(spark, tmp_path / "again", "SELECT * FROM flights")
    assert (report.rows, report.lineage) == (2, ColumnLineage(unknown="KeyError: 'no such thing'"))
    assert caplog.messages == [
        "what columns of output 'out' of process 'daily-delays' are made of is unknown: KeyError: 'no such thing'"
    ]


def test_what_is_read_beyond_the_inputs_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "beside files").mkdir()
    (tmp_path / "beside files" / "part.csv").write_text("n\n1\n")
    spark.sql("CREATE TABLE of_others USING parquet AS SELECT 1 AS m")
    try:
        text = f"""def run(spark, flights):
    beside = spark.read.csv("{tmp_path}/beside files", header=True)
    return flights.crossJoin(beside).crossJoin(spark.table("of_others")).crossJoin(spark.range(1))
"""
        lineage = lineage_of(spark, tmp_path, text)
    finally:
        spark.sql("DROP TABLE of_others")
    assert {f"external/file://{tmp_path}/beside files", "external/spark_catalog.default.of_others"} < {*lineage.beyond}
    assert not any("flights" in address for address in lineage.beyond)
    assert sources(lineage)["n"] == []
