"""Whether the lineage of random programs misses what changes their columns. As a program of its own, with the URL of a
Spark Connect server, a seed and a number: classic and Connect sessions exclude each other in one process.
"""

import sys
import uuid
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from feed_assets.engines.column_capture import mark_input, with_lineage
from feed_assets.engines.port import InputData, OutputReport
from feed_assets.engines.spark.sessions import open_session, restored, with_settings
from feed_assets.entities.content.column_lineage import ColumnLineage
from tests.drills import IS_DRILL
from tests.engines import connect_client
from tests.engines.random_plans import SCHEMAS, Program, changed, contents, frames, run_all
from tests.engines.works import work

QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
INPUTS = tuple(InputData(name=name, feed=name, instances=(), format="csv", optional=True) for name in SCHEMAS)


def lineage_of(spark: SparkSession, program: Program, seed: int) -> ColumnLineage:
    inputs = {name: mark_input(frame, name) for name, frame in frames(spark, contents(seed)).items()}
    here = Path(__file__)
    job = work(here.parent, here.name, engine="sql", inputs=INPUTS)  # whose VALUES are constant
    found = with_lineage(OutputReport(name="out", rows=None), program.run(spark, inputs), job, inputs).lineage
    assert found is not None
    return found


def find_faults(spark: SparkSession, seed: int) -> list[str] | None:
    """What a lineage misses; None if it is unknown."""
    program = Program(seed, with_python=IS_DRILL)
    lineage = lineage_of(spark, program, seed)
    if lineage.unknown is not None:
        print(seed, lineage.unknown)
        return None
    content = contents(seed)
    rows = {(each.input, each.column) for each in lineage.indirect}
    known = {name: rows | {(each.input, each.column) for each in found} for name, found in lineage.columns.items()}
    every = [(name, column) for name, columns in SCHEMAS.items() for column in columns]
    missing = [source for source in every if any(source not in found for found in known.values())]
    try:
        first, *others = run_all(spark, program, [content, *(changed(seed, content, *source) for source in missing)])
    except (Py4JJavaError, PySparkException) as exc:
        if "PLAN_VALIDATION_FAILED" not in str(exc):
            raise
        return []  # Spark's optimizer makes a plan that it refuses
    return [
        f"{seed}: {column!r} is changed by {source}"
        for source, values in zip(missing, others, strict=True)
        for (column, found), before, after in zip(known.items(), first, values, strict=True)
        if before != after and source not in found
    ]


def check_programs(spark: SparkSession, start: int, number: int) -> None:
    """Require that what changes a column is in its lineage, and that few are unknown."""
    session = open_session(lambda: spark, "random-plans")
    with restored(session), with_settings(session, QUICK):
        found = [find_faults(session, seed) for seed in range(start, start + number)]
    assert [fault for faults in found for fault in faults or ()] == []
    assert found.count(None) <= 1 + len(found) * 0.04
    print(f"{number - found.count(None)} of {number} are known")


if __name__ == "__main__":
    remote = connect_client.open_session(sys.argv[1], str(uuid.uuid4()))
    assert is_remote()
    check_programs(remote, *map(int, sys.argv[2:]))
