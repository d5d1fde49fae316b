"""A project of Falcon on HDFS, imported as it is: Spark reads and writes there by its own client."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.definitions.falcon.importing import ImportMapping, import_documents
from feed_assets.definitions.folder import open_folder
from feed_assets.entities.workflow import Workflow
from feed_assets.loading.documents import NoteKind
from feed_assets.loading.entity_files import EntityFile
from feed_assets.storage.registry import open_store
from tests.hdfs_cluster import HdfsCluster
from tests.orchestration.dagster_home import Home, materialized
from tests.orchestration.in_process import materializer
from tests.orchestration.small import JOBS, START, key
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
