"""A project of Falcon on HDFS, imported as it is: Spark reads and writes there by its own client."""

from datetime import timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from feed_assets.context.bulkheads import TickFailures
from feed_assets.definitions.falcon.importing import ImportMapping, import_documents
from feed_assets.definitions.folder import open_folder
from feed_assets.entities.workflow import Workflow
from feed_assets.loading.documents import NoteKind
from feed_assets.loading.entity_files import EntityFile
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEventKind
from feed_assets.orchestration.sensors.deadlines import run_late_tick
from feed_assets.storage.registry import open_store
from tests.hdfs_cluster import HdfsCluster, run_hdfs
from tests.orchestration.dagster_home import Home, materialized
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.in_process import materializer
from tests.orchestration.small import JOBS, START, key
from tests.orchestration.test_late_data import late_entities
from tests.storage.harnesses import client_of, read_all

CLUSTER = """<cluster colo="x" description="" name="here" xmlns="uri:falcon:cluster:0.1"><interfaces>
<interface type="readonly" endpoint="hftp://nn:50070" version="2.7.0"/>
<interface type="write" endpoint="{url}" version="2.7.0"/>
<interface type="workflow" endpoint="http://oozie:11000/oozie/" version="4.2.0"/></interfaces>
<locations><location name="staging" path="/apps/falcon/staging"/></locations></cluster>"""
FEED = """<feed name="{name}" xmlns="uri:falcon:feed:0.1"><availabilityFlag>_SUCCESS</availabilityFlag>
<frequency>hours(1)</frequency><timezone>UTC</timezone>
<clusters><cluster name="here"><validity start="2026-01-01T00:00Z" end="2026-01-02T00:00Z"/>
<retention limit="months(9)" action="delete"/></cluster></clusters>
<locations><location type="data" path="/data/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"/></locations>
<ACL owner="a" group="b" permission="*"/><schema location="/none" provider="none"/>
<properties><property name="feed_assets.format" value='"csv"'/>
<property name="feed_assets.schema" value='"{columns}"'/></properties></feed>"""
PROCESS = """<process name="summing" xmlns="uri:falcon:process:0.1">
<clusters><cluster name="here"><validity start="2026-01-01T00:00Z" end="2026-01-02T00:00Z"/></cluster></clusters>
<parallel>1</parallel><order>FIFO</order><frequency>hours(1)</frequency><timezone>UTC</timezone>
<inputs><input name="numbers" feed="numbers" start="now(0,0)" end="now(0,0)"/></inputs>
<outputs><output name="sums" feed="sums" instance="now(0,0)"/></outputs>
<workflow engine="pig" path="/apps/sums.pig"/><retry policy="periodic" delay="minutes(1)" attempts="1"/></process>"""


@pytest.mark.server
@pytest.mark.spark
def test_a_falcon_project_on_hdfs_is_imported_and_runs(
    hdfs_cluster: HdfsCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(folder=tmp_path)
    home.prepare("", JOBS)
    (tmp_path / "entities/all.yaml").unlink()
    url = f"{hdfs_cluster.url}/falcon"
    texts = {
        "cluster": CLUSTER.format(url=url),
        "numbers": FEED.format(name="numbers", columns="n int"),
        "sums": FEED.format(name="sums", columns="total bigint"),
        "process": PROCESS,
    }
    files = [EntityFile(name=f"{name}.xml", content=text.encode()) for name, text in texts.items()]
    mapping = ImportMapping().with_workflows({"summing": Workflow(path="jobs_of_test:summing")})
    report = import_documents(files, open_folder(tmp_path / "entities"), mapping)
    assert not any(note.kind is NoteKind.UNABLE for file in report.files for note in file.notes), report.lines
    assert not any(file.issues for file in report.files), report.lines
    store = open_store(url, {})
    at = START + timedelta(hours=3)
    client_of(store).put(f"data/numbers/{at:%Y-%m-%d}/{at:%H}/part.csv", b"n\n3\n4\n")
    client_of(store).put(f"data/numbers/{at:%Y-%m-%d}/{at:%H}/_SUCCESS", b"")
    with home.instance() as instance, materializer(home, instance, spark, monkeypatch) as made:
        done = made.run(key(3))
        assert done.success
        assert materialized(instance, "here", "sums") == {key(3)}
        (event,) = done.get_asset_materialization_events()
        assert "direct" in str(event.event_specific_data)
    (content,) = read_all(store, f"data/sums/{at:%Y-%m-%d}/{at:%H}").values()
    assert content.split() == [b"total", b"7"]


@pytest.mark.drill
def test_ticks_while_the_name_node_is_away_or_in_safe_mode_record_nothing(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    with run_hdfs() as cluster:
        url = f"{cluster.url}/ticks"
        entities = late_entities("days(2)", "hours(6)").replace("file://${DATA_ROOT}", url)
        harness = LocationHarness(Home(folder=tmp_path), instance, entities)
        store = open_store(url, {})

        def tick_and_look(hours: int) -> None:
            """The tick of arrivals and the looks for late data, a day later: the first one has been read by then."""
            harness.at(NOON + timedelta(hours=hours))
            harness.tick()
            run_late_tick(harness.runtime, harness.layout, "here", instance)

        def failures() -> int:
            with harness.runtime.database(instance).read() as connection:
                return len(TickFailures(connection).all())

        def events() -> list[FeedEventKind]:
            with harness.runtime.database(instance).read() as connection:
                return [event.kind for event in EventLog(connection).read(0, 99)]

        for hour in (3, 4):
            client_of(store).put(f"numbers/{START:%Y-%m-%d}/{hour:02}/part.csv", b"n\n3\n")
            client_of(store).put(f"numbers/{START:%Y-%m-%d}/{hour:02}/_SUCCESS", b"")
        tick_and_look(0)
        assert events() == [FeedEventKind.ARRIVED] * 2
        cluster.obey("stop-name-node")
        for hours in (7, 8):
            tick_and_look(hours)
        assert failures()
        assert events() == [FeedEventKind.ARRIVED] * 2
        cluster.obey("start-name-node")
        cluster.obey("safe-mode", "ENTER")
        tick_and_look(9)
        cluster.obey("safe-mode", "LEAVE")
        client_of(store).put(f"numbers/{START:%Y-%m-%d}/05/_SUCCESS", b"")
        client_of(store).put(f"numbers/{START:%Y-%m-%d}/05/part.csv", b"n\n5\n")
        for hours in (10, 11):
            tick_and_look(hours)
        assert not failures()
        assert events() == [FeedEventKind.ARRIVED] * 3
