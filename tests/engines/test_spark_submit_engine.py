import logging
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.errors import WorkflowFailedError, WorkflowNotFoundError
from feed_assets.engines.port import InputData, InputInstance, SubmitOptions, TableName, TablePartition
from feed_assets.engines.spark_submit_engine import SparkSubmitEngine, render_command, render_facts, settings_of
from tests.engines.works import NOMINAL_TIME, flights, target, work, written_lines

APPLICATION = """
import json, os, sys
from pyspark.sql import SparkSession
from doubling import double

flights, weather, output, factor = sys.argv[1:]
assert weather == "NONE"
spark = SparkSession.builder.getOrCreate()
conf = spark.sparkContext.getConf()
assert conf.get("spark.feed_assets.nominal_time") == os.environ["FEED_ASSETS_NOMINAL_TIME"] == "2013-11-03T04:00Z"
assert conf.get("spark.feed_assets.min-delay") == os.environ["FEED_ASSETS_MIN_DELAY"] == "a\\\\b = c"
assert conf.get("spark.sql.shuffle.partitions") == "3"
df = spark.read.csv(flights.split(","), header=True, schema="origin string, delay int")
rows = df.count()
print("rows read:", rows)
with open(os.environ["FEED_ASSETS_FACTS"], "w") as file:
    json.dump({"facts": {"rows-read": rows}, "metadata": {"feed/flights": {"tags": ["read"]}}}, file)
if factor == "0":
    sys.exit(7)
df.withColumn("delay", df.delay * double(int(factor))).coalesce(1).write.csv(output, header=True)
"""


def no_session() -> SparkSession:
    raise AssertionError("the application makes its own session")


@pytest.mark.spark
def test_an_application_gets_paths_facts_and_properties(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "doubling.py").write_text("def double(n):\n    return 2 * n\n")
    data = flights(tmp_path, "origin,delay\nJFK,1\n", "origin,delay\nEWR,2\n")
    absent = replace(data, name="weather", instances=(), optional=True)
    output = target(tmp_path)
    job = work(
        tmp_path,
        "app.py",
        engine="spark-submit",
        inputs=(data, absent),
        outputs=(output,),
        properties={"min-delay": "a\\b = c", "nominal_time": "never"},
        libs=("doubling.py",),
        submit=SubmitOptions(master="local[1]", args=("5",), conf={"spark.sql.shuffle.partitions": "3"}),
    )
    report = SparkSubmitEngine().run(job, no_session)
    assert written_lines(output)[-2:] == ["EWR,20", "JFK,10"]
    assert [(done.name, done.rows) for done in report.outputs] == [("out", None)]
    assert "rows read: 2" in caplog.messages
    assert report.reported.facts == {"rows-read": 2}
    assert [(path, key.name) for path, values in report.reported.metadata.items() for key in values] == [
        ("feed/flights", "read")
    ]

    failing = replace(
        job, submit=SubmitOptions(master="local[1]", args=("0",), conf={"spark.sql.shuffle.partitions": "3"})
    )
    with pytest.raises(WorkflowFailedError, match="spark-submit ended with exit code 7") as caught:
        SparkSubmitEngine().run(failing, no_session)
    assert "rows read: 2" in caught.value.last_lines


def test_row_26_arguments_are_in_the_order_of_falcon(tmp_path: Path) -> None:
    (tmp_path / "app.jar").write_text("")
    (tmp_path / "lib.jar").write_text("")
    data = flights(tmp_path, "", "")
    job = work(
        tmp_path,
        "app.jar",
        inputs=(data, replace(data, name="b", instances=())),
        outputs=(target(tmp_path),),
        properties={"secret": "do not show"},
        libs=("lib.jar", "s3a://bucket/other.jar"),
        submit=SubmitOptions(master="yarn", deploy_mode="cluster", main_class="org.Example", args=("--x", "1")),
    )
    command = render_command(job, Path("facts.properties"))
    assert command[0].endswith("bin/spark-submit")
    assert command[1:] == [
        "--load-spark-defaults",
        *("--master", "yarn", "--deploy-mode", "cluster", "--name", "daily-delays 2013-11-03T04:00Z"),
        *("--class", "org.Example", "--jars", f"{tmp_path}/lib.jar,s3a://bucket/other.jar"),
        *("--properties-file", "facts.properties"),
        f"{tmp_path}/app.jar",
        ",".join(data.paths),
        "NONE",
        job.outputs[0].url,
        *("--x", "1"),
    ]


def test_row_27_an_input_in_a_table_has_filter_table_and_database(tmp_path: Path) -> None:
    (tmp_path / "app.jar").touch()
    table = TableName(catalog="thrift://host:9083", database="web", name="clicks")
    days = [TablePartition(table=table, values=(("ds", f"2013-11-0{day}"), ("region", "eu"))) for day in (3, 2)]
    instances = tuple(InputInstance(nominal_time=NOMINAL_TIME, url="thrift://x", partition=each) for each in days)
    data = InputData(name="clicks", feed="clicks", instances=instances, format="csv", table=table)
    job = replace(work(tmp_path, "app.jar", inputs=(data, flights(tmp_path, "x"))), catalog=table.catalog)
    assert render_command(job, Path("facts.properties"))[-4:-1] == [
        "(ds='2013-11-03' AND region='eu') OR (ds='2013-11-02' AND region='eu')",
        "clicks",
        "web",
    ]
    settings = settings_of(job)
    assert settings["spark.sql.catalogImplementation"] == "hive"
    assert settings["spark.hadoop.hive.metastore.uris"] == "thrift://host:9083"
    assert "spark.sql.catalogImplementation" not in settings_of(work(tmp_path, "app.jar"))


def test_row_104_pinned_files_are_submitted_in_place_of_those_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("new")
    job = replace(
        work(tmp_path, "app.py", engine="spark-submit", libs=("one/lib.py", "two/lib.py")),
        pinned={"app.py": b"old", "one/lib.py": b"1", "two/lib.py": b"2"},
    )
    (tmp_path / "submit").mkdir()
    command = render_command(job, tmp_path / "submit" / "spark.properties")
    libs = command[command.index("--py-files") + 1].split(",")
    assert [Path(file).read_text() for file in (command[-1], *libs)] == ["old", "1", "2"]
    assert [Path(file).name for file in (command[-1], *libs)] == ["app.py", "lib.py", "lib.py"]


def test_the_queue_of_a_process_is_that_of_its_application(tmp_path: Path) -> None:
    job = work(tmp_path, "app.py", engine="spark-submit", submit=SubmitOptions(queue="reports"))
    assert settings_of(job)["spark.yarn.queue"] == "reports"
    assert "spark.yarn.queue" not in settings_of(work(tmp_path, "app.py", engine="spark-submit"))


def test_an_application_in_cluster_mode_is_waited_for_on_a_standalone_master(tmp_path: Path) -> None:
    settings = settings_of(work(tmp_path, "app.jar", engine="spark-submit"))
    assert settings["spark.standalone.submit.waitAppCompletion"] == "true"


def test_a_property_does_not_replace_a_fact(tmp_path: Path) -> None:
    facts = render_facts(work(tmp_path, "app.py", properties={"run_id": "mine", "carrier": "AA"}))
    assert facts["run_id"] != "mine"
    assert (facts["carrier"], facts["timezone"], facts["attempt"]) == ("AA", "America/New_York", "1")
    assert facts["nominal_time"] == f"{NOMINAL_TIME:%Y-%m-%dT%H:%MZ}"


def test_an_application_that_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkflowNotFoundError, match=r"app\.py is not a file"):
        SparkSubmitEngine().run(work(tmp_path, "app.py"), no_session)
