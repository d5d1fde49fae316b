"""What a run does against a Spark Connect server, as a program of its own: classic and Connect sessions exclude each
other in one process. Arguments: the server's URL, the run's id, `work` or `compute`, a folder."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession, is_remote
from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

from feed_assets.engines.data.frames import read_input, write_output
from feed_assets.engines.errors import EngineError
from feed_assets.engines.registry import open_engine
from feed_assets.engines.spark.sessions import session_conf, tag_session
from feed_assets.entities.content.quality import Quality
from tests.engines.works import FLIGHTS, flights, target, work, written_lines

PYTHON = """
from pyspark.sql.functions import udf
from beside import double

def run(spark, flights):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    flights.createOrReplaceTempView("left_behind")
    return flights.withColumn("delay", udf(double, "int")("delay"))
"""
SQL = "CREATE TEMPORARY VIEW late AS SELECT * FROM flights WHERE delay > :least;\nSELECT * FROM late;"
FORGED = """
CREATE TEMPORARY VIEW mine AS SELECT * FROM (
  SELECT concat(origin, 'x) AS p#77777, count(1') AS origin, delay FROM flights
) WHERE concat(delay, '') <> 'p#77777';
SELECT * FROM mine
"""  # what literals invent
MISMATCH = "SELECT origin, 'late' AS delay FROM flights"


def open_session(url: str, run_id: str) -> SparkSession:
    builder = SparkSession.builder
    for name, value in session_conf(remote=url, run_id=run_id).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run_works(spark: SparkSession, folder: Path) -> None:
    (folder / "beside.py").write_text("def double(n):\n    return 2 * n\n")
    (folder / "job.py").write_text(PYTHON)
    (folder / "query.sql").write_text(SQL)
    (folder / "forged.sql").write_text(FORGED)
    (folder / "mismatch.sql").write_text(MISMATCH)
    before = spark.conf.getAll
    data = flights(folder, "origin,delay\nJFK,1\n", "origin,delay\nEWR,20\n")
    for path in ("job.py:run", "query.sql", "query.sql", "forged.sql", "mismatch.sql"):
        engine = "sql" if path.endswith(".sql") else "python"
        output = target(folder, columns=FLIGHTS)
        libs = ("beside.py",) if engine == "python" else ()
        job = work(folder, path, engine=engine, inputs=(data,), outputs=(output,), properties={"least": "5"}, libs=libs)
        try:
            report = open_engine(engine).run(job, lambda: spark)
        except EngineError as exc:
            print(engine, type(exc).__name__, exc)
        else:
            lineage = report.outputs[0].lineage
            made_of = (
                {name: [each.column for each in found] for name, found in lineage.columns.items()} if lineage else {}
            )
            print(engine, report.outputs[0].rows, written_lines(output), made_of, lineage and lineage.unknown)
    print("left", spark.conf.getAll == before, spark.catalog.listTables())
    for rule in ("delay < 10", "dely < 10"):
        output = replace(target(folder, columns=FLIGHTS), quality=Quality(rules={"punctual": rule}, unique=("origin",)))
        output = replace(output, quarantine=replace(target(folder, name="bad", columns=None), format="json"))
        try:
            judged = write_output(read_input(spark, data), output).judged
            print("judged", judged and (judged.rows, dict(judged.broken)))
        except EngineError as exc:
            print("judged", type(exc).__name__, "UNRESOLVED_COLUMN" in str(exc))


class TellWhenComputing(ProgressHandler):
    def __call__(
        self,
        stages: Iterable[StageInfo] | None,  # noqa: ARG002
        inflight_tasks: int,
        operation_id: str | None,  # noqa: ARG002
        done: bool,  # noqa: ARG002
    ) -> None:
        if inflight_tasks:
            print("computing", flush=True)


def main(url: str, run_id: str, task: str, folder: str) -> None:
    spark = open_session(url, run_id)
    assert is_remote()
    if task == "work":
        run_works(spark, Path(folder))
    else:
        tag_session(spark, run_id)
        spark.registerProgressHandler(TellWhenComputing())
        spark.sql("SELECT count(*) FROM range(1000000000000) WHERE hash(id) = 7").collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
