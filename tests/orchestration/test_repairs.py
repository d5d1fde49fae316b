"""Repairs of replicas beside a sensor that ticks: neither disturbs the other, and Dagster is told of copies."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import AssetMaterialization, DagsterInstance, SensorResult

from feed_assets.clock import FrozenClock
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.orchestration.location.reloading import build_context, follow_plan
from feed_assets.orchestration.sensors.ticks import run_tick
from feed_assets.replication.queries import AuditQuery
from feed_assets.replication.repairing import Repaired, RepairOutcome, repair
from feed_assets.replication.status import OnProgress
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import LocationHarness
from tests.orchestration.small import START, key, land
from tests.orchestration.test_replication import HERE

NOW = START + timedelta(minutes=5)


class Site(LocationHarness):
    """The location of `HERE`, in whose first hour numbers have arrived and nothing was copied."""

    def __init__(self, home: Home, instance: DagsterInstance) -> None:
        super().__init__(home, instance, HERE)
        land(home.data, 0, 1)
        self.at(NOW)
        self.told: str | None = None

    def tick_there(self) -> SensorResult:
        result = run_tick(self.runtime, self.layout, "there", self.instance, self.told)
        self.told = result.cursor
        return result

    def row(self) -> ProcessInstance | None:
        with self.runtime.database(self.instance).read() as connection:
            return ProcessInstances(connection).get_many([KEY]).get(KEY)

    def repair(self, progress: OnProgress | None = None) -> Repaired:
        database = self.runtime.database(self.instance)
        timeline = follow_plan(self.runtime, self.location, database, NOW)
        context = build_context(self.runtime, timeline, database, NOW)
        context = replace(context, clock=FrozenClock(NOW), real_clock=FrozenClock(NOW))
        return repair(context.by("ann"), AuditQuery(feed="numbers"), progress=progress)


KEY = ProcessKey("numbers@here", "there", START)


@pytest.fixture
def site(tmp_path: Path, instance: DagsterInstance) -> Site:
    return Site(Home(folder=tmp_path), instance)


def materialized(result: SensorResult) -> list[AssetMaterialization]:
    return [event for event in result.asset_events if isinstance(event, AssetMaterialization)]


def test_a_repaired_instance_is_told_to_dagster_with_what_was_copied(site: Site) -> None:
    site.tick()
    site.tick_there()
    (done,) = site.repair().copies
    assert done.outcome is RepairOutcome.REPAIRED
    (told,) = materialized(site.tick_there())
    assert (told.asset_key.path, told.partition) == (["there", "numbers"], key(0))
    metadata = {name: value.value for name, value in told.metadata.items()}
    assert metadata["detail/copied_files"] == 1
    assert str(metadata["detail/source_digest"]).startswith("sha256:")
    assert (told.tags or {})["dagster/data_version"].startswith("sha256:")
    assert materialized(site.tick_there()) == []


def test_a_repair_at_work_is_no_dead_run(site: Site) -> None:
    seen: list[ProcessInstance | None] = []

    def tick(what: str, *_: int) -> None:
        if what != "verify":
            site.tick_there()
            seen.append(site.row())

    (done,) = site.repair(tick).copies
    assert done.outcome is RepairOutcome.REPAIRED
    assert {row.status for row in seen if row is not None} == {ProcessInstanceStatus.RUNNING}
    row = site.row()
    assert row is not None
    assert (row.status, row.attempt) == (ProcessInstanceStatus.SUCCEEDED, 1)
    assert len(materialized(site.tick_there())) == 1
