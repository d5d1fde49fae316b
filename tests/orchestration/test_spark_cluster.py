"""Runs on a real standalone master: where the project's code runs, what survives a worker, and what waits in vain."""

import textwrap
from pathlib import Path

import pytest

from feed_assets.transfer.executors import WORTH_BYTES
from tests.orchestration.dagster_home import Home, materialized
from tests.orchestration.small import ENTITIES, JOBS, START, key, land, total
from tests.spark_cluster import run_spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.server]

DAY = "{start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}"


def entities(master: str, **conf: str) -> str:
    """The small declaration on a master; a session of one core leaves the others to applications."""
    own = {"spark.cores.max": "1", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", **conf}
    local = 'master: "local[1]", conf: {spark.sql.shuffle.partitions: "1"}'
    written = ", ".join(f'{name}: "{value}"' for name, value in {"spark.sql.shuffle.partitions": "1", **own}.items())
    assert local in ENTITIES
    submit = "{total-executor-cores: 1, executor-memory: 512m, driver-memory: 512m}"
    return textwrap.dedent(ENTITIES).replace(local, f"master: '{master}', conf: {{{written}}}, submit: {submit}")


def feed(name: str, *, schema: str, clusters: str) -> str:
    return f"""
---
kind: feed
name: {name}
frequency: hours(1)
format: csv
schema: "{schema}"
availability_flag: _SUCCESS
locations: {{data: "/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"}}
clusters: {{{clusters}}}
"""


def process(name: str, workflow: str) -> str:
    return (
        feed(name, schema="total bigint", clusters=f"here: {{validity: {DAY}}}")
        + f"""
---
kind: process
name: make-{name}
frequency: hours(1)
clusters: {{here: {{validity: {DAY}}}}}
inputs: {{numbers: {{feed: numbers, start: "now(0,0)", end: "now(0,0)"}}}}
outputs: {{{name}: {{feed: {name}, instance: "now(0,0)"}}}}
workflow: {{{workflow}}}
timeout: months(60)
"""
    )


FAILING_WORKER = """
    import os, pathlib, signal
    from pyspark.sql import functions as f

    def parent(pid):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def doubled(n):
        import beside
        marker = pathlib.Path(FOLDER, "worker-killed")
        if not marker.exists():
            marker.touch()
            executor = parent(os.getppid())  # this, the daemon of Python workers, the executor, the worker
            worker = parent(executor)
            os.kill(worker, signal.SIGKILL)
            os.kill(executor, signal.SIGKILL)
        return beside.double(n)

    def summing(numbers):
        return numbers.select(f.udf(doubled, "int")("n").alias("n")).agg(f.sum("n").alias("total"))
"""
APPLICATION = """
import sys
from beside import double
from pyspark.sql import SparkSession, functions as f

numbers, output = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
assert spark.sparkContext.master.startswith("spark://")
frame = spark.read.csv(numbers, header=True, schema="n int").select(f.udf(double, "int")("n").alias("n"))
frame.agg(f.sum("n").alias("total")).write.mode("overwrite").csv(output, header=True)
"""


@pytest.mark.drill
def test_everything_runs_on_a_standalone_master_and_survives_a_worker(tmp_path: Path) -> None:
    home, events = Home(folder=tmp_path / "project"), tmp_path / "events"
    home.folder.mkdir()
    events.mkdir()
    there = tmp_path / "there"
    with run_spark_cluster(tmp_path / "spark", workers=2) as master:
        logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
        here = entities(master, **logged, **{"spark.eventLog.compress": "false"})
        target = f"\n---\nkind: cluster\nname: there\nstorage: {there.as_uri()}\nspark:\n"
        spark_of_here = next(line for line in here.splitlines() if line.startswith("spark:"))
        both = f"here: {{type: source, validity: {DAY}}}, there: {{type: target, validity: {DAY}}}"
        home.prepare(
            here
            + target.replace("spark:", spark_of_here)
            + process("queried", "engine: sql, path: query.sql")
            + process("applied", "engine: spark-submit, path: app.py, lib: [beside.py]")
            + feed("archive", schema="n int", clusters=both).replace("format:", "replication: {}\nformat:"),
            FAILING_WORKER.replace("FOLDER", repr(str(tmp_path))),
        )
        (home.folder / "beside.py").write_text("def double(n):\n    return 2 * n\n")
        (home.folder / "query.sql").write_text("SELECT sum(n) AS total FROM numbers")
        (home.folder / "app.py").write_text(APPLICATION)
        land(home.data, 0, 1, 2)
        land(home.data, 0, feed="archive")
        with (home.data / f"archive/{START:%Y-%m-%d}/00/large.csv").open("wb") as large:
            large.write(b"n\n" + b"1\n" * (WORTH_BYTES // 2))
        wanted = ["here/sums", "here/queried", "here/applied", "there/archive"]
        selection = " or ".join(f'key:"{each}"' for each in wanted)
        done = home.run("asset", "materialize", "-f", "definitions.py", "--select", selection, "--partition", key(0))
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-8_000:]
    assert (tmp_path / "worker-killed").exists()
    assert total(home.data, 0) == 6
    results = [next((home.data / f"{name}/2026-01-01/00").glob("part-*.csv")) for name in ("queried", "applied")]
    assert [result.read_text().split() for result in results] == [["total", "3"], ["total", "6"]]
    copied = there / "archive/2026-01-01/00/large.csv"
    assert copied.stat().st_size == WORTH_BYTES + 2
    jobs = "".join(log.read_text() for log in events.rglob("*") if log.is_file())
    assert "collect at" in jobs
    assert "sessions.py" in jobs, "the copy was made by executors"


@pytest.mark.drill
def test_a_run_that_gets_no_executor_says_what_to_check_and_fails(tmp_path: Path) -> None:
    home = Home(folder=tmp_path / "project")
    home.folder.mkdir()
    with run_spark_cluster(tmp_path / "spark", workers=0) as master:
        home.prepare(entities(master, **{"spark.feed_assets.executor_patience": "2s"}), JOBS)
        land(home.data, 0, 1, 2)
        done = home.run(
            "asset", "materialize", "-f", "definitions.py", "--select", 'key:"here/sums"', "--partition", key(0)
        )
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert f"{master} has given no executor for 1 s. Check that it has a worker" in said
    assert "The jobs are cancelled after 2 s." in said
    assert f"cancelled because {master} has given no executor for 2 s." in said
    assert "spark.executor.memory (512m)" in said
    assert "Nothing was published" in said
    with home.instance() as instance:
        assert materialized(instance, "here", "sums") == set()
    assert not (home.data / "sums" / "2026-01-01" / "00").exists()
