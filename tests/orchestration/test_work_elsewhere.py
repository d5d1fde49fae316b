"""Work elsewhere as Dagster sees it: assets that nothing there materializes, ticks that request nothing."""

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, SensorResult

from feed_assets import build_definitions
from feed_assets.context.operation import OperationContext
from feed_assets.external_work.calls import end_batch, init_batch, terminate_batch
from feed_assets.external_work.queries import AtWork
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.retention.rules.protections import ProtectionKind, ProtectionQuery, find_protections
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.test_as_they_come import BATCHES, notify
from tests.orchestration.told import lineage

ENTITIES = BATCHES.replace(
    'workflow: {engine: python, path: "jobs_of_test:load"}', "workflow: {engine: external}"
).replace(
    'loaded, instance: "now(0,0)"', 'loaded, instance: "now(0,0)", column_lineage: {n: [orders.n, orders.m], at: []}'
)


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES)
    harness.tick()
    folder = harness.home.data / "orders" / "2026-01-01" / "120451"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text("n\n1\n")
    notify(harness, "orders", path=str(folder))
    notify(harness, "approval")
    return harness


def context(harness: LocationHarness) -> OperationContext:
    database, timeline = harness.runtime.database(harness.instance), harness.runtime.timeline(harness.location)
    return build_context(harness.runtime, timeline, database, harness.runtime.clock.now())


def materialized(result: SensorResult) -> list[tuple[str, str | None]]:
    found = [event for event in result.asset_events if isinstance(event, AssetMaterialization)]
    return [(event.asset_key.to_user_string(), event.partition) for event in found]


def test_nothing_in_dagster_materializes_what_is_made_elsewhere(harness: LocationHarness) -> None:
    graph = build_definitions(settings=harness.settings).resolve_asset_graph()
    loaded = graph.get(AssetKey(["here", "loaded"]))
    assert not loaded.is_materializable
    assert loaded.parent_keys == {AssetKey(["here", "orders"])}
    assert loaded.kinds == {"parquet", "external", "batch"}


def test_a_tick_leaves_a_batch_to_its_program_and_reports_what_that_has_published(harness: LocationHarness) -> None:
    assert not harness.tick().run_requests
    opened = context(harness)
    found = init_batch(opened.by("ann"), "load")
    harness.at(NOON + timedelta(days=2))
    assert not harness.tick().run_requests
    (output,) = found.outputs
    (Path(urlsplit(output.url).path) / "part-0.csv").write_text("n\n1\n")
    done = end_batch(context(harness).by("ann"), AtWork(process="load"))
    assert done.status is ProcessInstanceStatus.SUCCEEDED
    result = harness.tick()
    assert ("here/loaded", "2026-01-01-12:05:00") in materialized(result)
    told = [each.metadata for each in result.asset_events if each.asset_key == AssetKey(["here", "loaded"])]
    made_of = lineage(n=[("here/orders", "m"), ("here/orders", "n")], at=[])
    assert [metadata["dagster/column_lineage"].value for metadata in told] == [made_of]


def test_what_a_batch_elsewhere_has_taken_is_kept_until_it_has_succeeded(harness: LocationHarness) -> None:
    harness.tick()
    init_batch(context(harness).by("ann"), "load")
    terminate_batch(context(harness).by("ann"), AtWork(process="load"))
    at, timeline = NOON - timedelta(seconds=9), harness.runtime.timeline(harness.location)
    with harness.runtime.database(harness.instance).begin() as connection:
        record, query = timeline.plan.feeds["orders", "here"], ProtectionQuery(as_of=NOON, real_now=NOON, holder=None)
        found = find_protections(connection, timeline, record, [at], query)
    assert ProtectionKind.QUEUED in [each.kind for each in found[at]]
