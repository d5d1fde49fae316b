"""A project of Falcon on two clusters of HDFS, imported as it is, under a real daemon: runs, copies, late data, sweeps;
and a name node that is restarted under all of it.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.clock import SystemClock
from feed_assets.context.bulkheads import TickFailures
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.storage.hdfs.client import HdfsClient
from feed_assets.storage.registry import open_store
from tests.hdfs_cluster import HdfsCluster, run_hdfs
from tests.orchestration.dagster_home import Home, sqlite_state, wait_until
from tests.orchestration.small import JOBS
from tests.storage.harnesses import client_of

pytestmark = [pytest.mark.daemon, pytest.mark.spark, pytest.mark.drill]
HOUR = timedelta(hours=1)
HOURS, WORKED, KEPT = 12, 4, 9
"""Hours of numbers that are there, hours of them that are summed, and hours that retention keeps."""
CLUSTER = """<?xml version="1.0"?>
<cluster colo="{name}-colo" description="" name="{name}" xmlns="uri:falcon:cluster:0.1">
<interfaces><interface type="readonly" endpoint="{url}" version="2.7.0"/>
<interface type="write" endpoint="{url}" version="2.7.0"/>
<interface type="execute" endpoint="rm:8050" version="2.7.0"/>
<interface type="workflow" endpoint="http://oozie:11000/oozie/" version="4.2.0"/>
<interface type="messaging" endpoint="tcp://amq:61616?daemon=true" version="5.1.6"/></interfaces>
<locations><location name="staging" path="/apps/falcon/{name}/staging"/>
<location name="working" path="/apps/falcon/{name}/working"/></locations></cluster>"""
FEED = """<?xml version="1.0"?>
<feed name="{name}" description="" xmlns="uri:falcon:feed:0.1"><tags>owner=sums</tags>
<availabilityFlag>_SUCCESS</availabilityFlag><frequency>hours(1)</frequency><timezone>UTC</timezone>
<late-arrival cut-off="hours(8)"/>
<clusters><cluster name="primary" type="source"><validity start="{start}" end="{end}"/>
<retention limit="hours({kept})" action="delete"/></cluster>{target}</clusters>
<locations><location type="data" path="/data/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"/>
<location type="stats" path="/"/><location type="meta" path="/"/></locations>
<ACL owner="ann" group="users" permission="0x755"/><schema location="/none" provider="none"/>
<properties><property name="feed_assets.format" value='"csv"'/>
<property name="feed_assets.schema" value='"{columns}"'/>
<property name="job.counter" value="true"/><property name="maxMaps" value="2"/></properties></feed>"""
TARGET = """<cluster name="backup" type="target"><validity start="{start}" end="{end}"/>
<retention limit="months(1)" action="delete"/><locations>
<location type="data" path="/backup/sums/${{YEAR}}-${{MONTH}}-${{DAY}}-${{HOUR}}"/></locations></cluster>"""
PROCESS = """<?xml version="1.0"?>
<process name="summing" xmlns="uri:falcon:process:0.1"><tags>owner=sums</tags>
<clusters><cluster name="primary"><validity start="{start}" end="{end}"/></cluster></clusters>
<parallel>2</parallel><order>FIFO</order><timeout>hours(10)</timeout><frequency>hours(1)</frequency>
<timezone>UTC</timezone>
<inputs><input name="numbers" feed="numbers" start="now(0,0)" end="now(0,0)"/></inputs>
<outputs><output name="sums" feed="sums" instance="now(0,0)"/></outputs>
<workflow engine="pig" path="/apps/sums.pig"/>
<retry policy="periodic" delay="minutes(1)" attempts="3"/>
<late-process policy="periodic" delay="minutes(1)">
<late-input input="numbers" workflow-path="/apps/late"/></late-process>
</process>"""


@pytest.fixture
def cluster() -> Iterator[HdfsCluster]:
    with run_hdfs() as cluster:
        yield cluster


class FalconProject:
    """The project; its two clusters are two names of one name node, whose root is theirs."""

    def __init__(self, folder: Path, cluster: HdfsCluster) -> None:
        self.home, self.cluster = Home(folder=folder / "project"), cluster
        self.home.folder.mkdir()
        self.home.prepare("", JOBS)
        (self.home.folder / "entities/all.yaml").unlink()
        self.first = SystemClock().now().replace(minute=0, second=0, microsecond=0) - (HOURS - 1) * HOUR
        self.hours = [self.first + number * HOUR for number in range(HOURS)]
        self.worked = self.hours[-WORKED:]
        times = {"start": f"{self.first:%Y-%m-%dT%H:%MZ}", "end": f"{self.hours[-1] + HOUR:%Y-%m-%dT%H:%MZ}"}
        worked = times | {"start": f"{self.worked[0]:%Y-%m-%dT%H:%MZ}"}
        documents = {
            "primary": CLUSTER.format(name="primary", url=cluster.url),
            "backup": CLUSTER.format(name="backup", url=cluster.url.replace("127.0.0.1", "localhost")),
            "numbers": FEED.format(name="numbers", columns="n int", target="", kept=KEPT, **times),
            "sums": FEED.format(name="sums", columns="total bigint", target=TARGET.format(**worked), kept=99, **worked),
            "summing": PROCESS.format(**worked),
        }
        (folder / "falcon").mkdir()
        for name, text in documents.items():
            (folder / "falcon" / f"{name}.xml").write_text(text)
        (folder / "map.yaml").write_text('workflows: {summing: {engine: python, path: "jobs_of_test:summing"}}\n')
        self.files = client_of(open_store(cluster.url, {}))
        assert isinstance(self.files, HdfsClient)
        for name in ("primary", "backup"):
            for part, mode in (("staging", 0o777), ("working", 0o755)):
                self.files.make_folder(f"apps/falcon/{name}/{part}")
                self.files.set_permission(f"apps/falcon/{name}/{part}", mode)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "feed_assets", *words]
        home = self.home
        return subprocess.run(
            command, cwd=home.folder, env=home.environment, capture_output=True, text=True, check=False
        )

    def must(self, *words: str) -> str:
        done = self.command(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def land(self, hour: datetime, *numbers: int, file: str = "part") -> None:
        folder = f"data/numbers/{hour:%Y-%m-%d}/{hour:%H}"
        self.files.put(f"{folder}/{file}.csv", ("n\n" + "".join(f"{number}\n" for number in numbers)).encode())
        self.files.put(f"{folder}/_SUCCESS", b"")

    def copied(self, hour: datetime) -> int | None:
        """The sum of an hour on the second cluster."""
        folder = f"backup/sums/{hour:%Y-%m-%d-%H}"
        texts = [self.files.get(f"{folder}/{name}") for name in self.files.list(folder).files if name.endswith(".csv")]
        return int(texts[0].split()[1]) if texts else None

    def wait_for_copies(self, *sums: int) -> None:
        wait_until(
            lambda: [self.copied(hour) for hour in self.worked[: len(sums)]] == list(sums),
            lambda: f"{[self.copied(hour) for hour in self.worked]}\n{self.home.log()[-6000:]}",
        )

    def evicted(self) -> int:
        with sqlite_state(self.home).read() as connection:
            rows = FeedInstances(connection).find_between("numbers", "primary", self.first, self.hours[-1] + HOUR)
        return Counter(row.status for row in rows)[FeedInstanceStatus.EVICTED]

    def gone(self) -> list[object]:
        """All events that say that something is no longer there, but for the hours that retention does not keep."""
        kinds = (FeedEventKind.VANISHED, FeedEventKind.EVICTED)
        where = (("numbers", "primary"), ("sums", "primary"), ("sums", "backup"))
        with sqlite_state(self.home).read() as connection:
            events = [each for key in where for kind in kinds for each in EventLog(connection).for_feed(*key, kind)]
        old = [("numbers", FeedEventKind.EVICTED, hour) for hour in self.hours[:-KEPT]]
        return [each for each in events if (each.feed, each.kind, each.nominal_time) not in old]


def test_a_falcon_project_runs_on_hdfs_while_its_name_node_is_restarted(cluster: HdfsCluster, tmp_path: Path) -> None:
    project = FalconProject(tmp_path, cluster)
    falcon, mapping = str(tmp_path / "falcon"), str(tmp_path / "map.yaml")
    said = project.must("import-falcon", falcon, "--to", "entities", "--map", mapping)
    assert "cannot run here" not in said, said
    project.must("validate", "--live")
    first, _, third, fourth = project.worked
    for hour in project.hours[:-2]:
        project.land(hour, 1, 2)
    with project.home.daemon():
        project.wait_for_copies(3, 3)
        project.land(first, 10, file="late")  # its instance runs again, and is copied again
        project.wait_for_copies(13, 3)
        wait_until(lambda: project.evicted() == HOURS - KEPT, project.home.log)
        undo(project)
        for number, hour in enumerate((third, fourth)):  # they come while the name node goes and comes
            project.land(hour, 4)
            cluster.obey("stop-name-node")
            wait_for_ticks(project, failing=True)
            cluster.obey("start-name-node")
            if number:
                cluster.obey("safe-mode", "ENTER")
                time.sleep(30)  # looks go on, and whoever stages something is refused
                cluster.obey("safe-mode", "LEAVE")
            wait_for_ticks(project, failing=False)
            assert not project.gone()
        project.wait_for_copies(13, 3, 4, 4)
        assert not project.gone()
        start = f"{project.worked[0]:%Y-%m-%dT%H:%MZ}"
        verify = ("replication", "verify", "sums", "--start", start, "--deep", "--output", "json")
        # a copy is visible before it is recorded
        wait_until(lambda: project.command(*verify).returncode == 0, lambda: project.command(*verify).stdout)
        assert json.loads(project.must(*verify))["counts"] == {"in sync": WORKED}


def undo(project: FalconProject) -> None:
    """An undo fails while the name node is away, and records nothing; then it brings all back."""
    sweeps = json.loads(project.must("retention", "list", "--output", "json"))["sweeps"]
    (done,) = [each["sweep_id"] for each in sweeps if each["state"] == "DONE"]
    project.cluster.obey("stop-name-node")
    assert project.command("retention", "undo", done).returncode
    assert project.evicted() == HOURS - KEPT
    project.cluster.obey("start-name-node")
    project.must("retention", "undo", done)
    assert project.evicted() == 0


def wait_for_ticks(project: FalconProject, *, failing: bool) -> None:
    """Until ticks have told that the storage is away, or that it is there again."""

    def is_told() -> bool:
        with sqlite_state(project.home).read() as connection:
            return bool(TickFailures(connection).all()) is failing

    wait_until(is_told, project.home.log)
