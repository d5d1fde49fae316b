"""Updates while instances wait, as the sensors of a real Dagster instance see them; the clock is ours."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, RunRequest, SensorResult
from pyspark.sql import SparkSession

from feed_assets.clock import FrozenClock
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.orchestration.definitions import build_definitions
from feed_assets.orchestration.graph.layout import AssetLayout, lay_out
from feed_assets.orchestration.location.runtime import Runtime, open_runtime
from feed_assets.orchestration.runs.listed_instances import run_instances_tick
from feed_assets.orchestration.sensors.ticks import run_tick
from feed_assets.plan.location import load_location
from feed_assets.releases.store import Releases
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database
from feed_assets.testing.projects import GivenSpark
from tests.orchestration.dagster_home import Home
from tests.orchestration.small import ENTITIES, JOBS, START, key, land

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY


def hour(number: float) -> datetime:
    return START + timedelta(hours=number)


class Server:
    """A code server for a folder of entities: loaded when it is made, ticked by hand."""

    def __init__(self, home: Home, instance: DagsterInstance) -> None:
        self.instance = instance
        self.settings: Settings = load_settings(
            environ={"FEED_ASSETS_ENTITIES": "entities", "FEED_ASSETS_VARIABLES__DATA_ROOT": str(home.data)},
            start=home.folder,
        )
        location = load_location(self.settings)
        assert not location.errors
        self.layout: AssetLayout = lay_out(location.plan)
        self.runtime: Runtime = open_runtime(self.settings, location, lambda: load_location(self.settings))
        self.cursor: str | None = None

    def tick(self, now: datetime) -> SensorResult:
        self.runtime.clock = self.runtime.real_clock = FrozenClock(now)
        result = run_tick(self.runtime, self.layout, "here", self.instance, self.cursor)
        self.cursor = result.cursor
        return result

    def tick_for_instances(self, now: datetime) -> list[RunRequest]:
        self.runtime.clock = self.runtime.real_clock = FrozenClock(now)
        return list(run_instances_tick(self.runtime, self.layout, "here", self.instance).run_requests or ())

    @property
    def database(self) -> Database:
        return self.runtime.database(self.instance)

    def rows(self) -> dict[datetime, ProcessInstance]:
        with self.database.read() as connection:
            rows = ProcessInstances(connection).find_between("summing", "here", hour(-9), hour(99))
        return {row.nominal_time: row for row in rows}

    def times(self, status: ProcessInstanceStatus) -> list[datetime]:
        return [time for time, row in self.rows().items() if row.status is status]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(folder=tmp_path)
    earlier = ENTITIES.replace("{type: source, validity: {start: 2026-01-01", "{validity: {start: 2025-12-31")
    made.prepare(earlier.replace("timeout: months(60)", "timeout: months(60)\n    parallel: 9"), JOBS)
    return made


def rewrite(home: Home, before: str, after: str) -> None:
    """Edit the process's document, as people do in their folder."""
    file = home.folder / "entities" / "all.yaml"
    documents = file.read_text().split("---\n")
    assert before in documents[-1]
    file.write_text("---\n".join([*documents[:-1], documents[-1].replace(before, after)]))


def test_an_update_of_a_window_while_instances_wait(home: Home, instance: DagsterInstance) -> None:
    land(home.data, 0, 1)
    server = Server(home, instance)
    (first,) = server.tick(hour(2.2)).run_requests or ()
    assert first.partition_key == key(0)

    rewrite(home, 'start: "now(0,0)"', 'start: "now(-1,0)"')
    server = Server(home, instance)
    server.tick(hour(2.3))
    with server.database.read() as connection:
        releases = Releases(connection).of("summing", "here")
        versions = [version.version for version in Definitions(connection).history("process", "summing")]
    assert [release.effective_from for release in releases] == [START, hour(3)]
    assert versions == [1, 2]

    land(home.data, 1, 1)
    land(home.data, 3, 1)
    server.tick(hour(3.5))
    assert server.times(READY) == [hour(0), hour(1)]
    assert server.times(WAITING) == [hour(2), hour(3)]

    land(home.data, 2, 1)
    server.tick(hour(4.5))
    assert server.times(READY) == [hour(0), hour(1), hour(2), hour(3)]


def test_an_update_of_the_frequency_while_instances_wait(home: Home, instance: DagsterInstance) -> None:
    land(home.data, 0, 1)
    server = Server(home, instance)
    server.tick(hour(3.2))
    rewrite(home, "frequency: hours(1)", "frequency: hours(2)")
    server = Server(home, instance)
    server.tick(hour(3.3))
    for number in range(1, 8):
        land(home.data, number, 1)
    requests = server.tick(hour(6.5)).run_requests or ()

    assert list(server.rows()) == [hour(0), hour(1), hour(2), hour(3), hour(4), hour(6)]
    assert sorted(str(request.partition_key) for request in requests) == [key(0), key(2), key(4), key(6)]
    former = server.tick_for_instances(hour(6.5))
    config = [request.run_config["ops"]["run_instances_here"]["config"] for request in former]
    assert sorted(time for each in config for time in each["times"]) == ["2026-01-01T01:00Z", "2026-01-01T03:00Z"]
    assert server.tick_for_instances(hour(6.5)) == []


def test_a_server_that_has_not_seen_the_update_follows_it(home: Home, instance: DagsterInstance) -> None:
    old = Server(home, instance)
    land(home.data, 0, 1)
    old.tick(hour(2.2))
    rewrite(home, 'start: "now(0,0)"', 'start: "now(-1,0)"')
    Server(home, instance).tick(hour(2.3))
    old.tick(hour(2.4))
    old.tick(hour(3.4))
    with old.database.read() as connection:
        assert len(Releases(connection).of("summing", "here")) == 2
    edge = old.runtime.plan.processes["summing", "here"].inputs[0]
    assert edge.window.start.text == "now(-1,0)"


@pytest.mark.spark
def test_a_run_of_former_instances_publishes_them_by_their_definition(
    home: Home, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(home.folder))
    land(home.data, 0, 1)
    server = Server(home, instance)
    server.tick(hour(3.2))
    rewrite(home, "frequency: hours(1)", "frequency: hours(2)")
    land(home.data, 1, 4, 5)
    server = Server(home, instance)
    server.tick(hour(3.3))
    (request,) = server.tick_for_instances(hour(3.4))

    made = build_definitions(settings=server.settings, resources={"spark_here": GivenSpark(spark)})
    job = made.resolve_job_def("instances_here")
    result = job.execute_in_process(run_config=request.run_config, tags=dict(request.tags), instance=instance)

    assert result.success
    assert instance.get_materialized_partitions(AssetKey(["here", "sums"])) == {key(1)}
    row = server.rows()[hour(1)]
    assert (row.status, row.release) == (ProcessInstanceStatus.SUCCEEDED, 1)
    logged = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert any("follows release 1 (of 2; it was in effect at this nominal time), version 1" in text for text in logged)
