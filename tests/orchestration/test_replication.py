"""Replication in the real Dagster: a replica is an asset below its source, made by runs on Spark."""

from datetime import timedelta
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    AssetSelection,
    DagsterInstance,
    ExecuteInProcessResult,
    RunRequest,
    SensorResult,
    SkipReason,
)
from dagster_pyspark import LazyPySparkResource

from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain_instance
from feed_assets.explain.records import ReasonCode
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration import names
from feed_assets.orchestration.definitions import build_definitions
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.runs.jobs import build_listed_job
from feed_assets.orchestration.runs.listed_instances import run_replication_tick
from feed_assets.orchestration.sensors.ticks import run_tick
from feed_assets.settings import load_settings
from tests.log.samples import count_by_status
from tests.orchestration.dagster_home import Home, materialized, sqlite_state
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import CLUSTER, NUMBERS, START, key, land
from tests.orchestration.test_poisons import assert_told, checks
from tests.orchestration.told import lineage

THERE = CLUSTER.replace("name: here", "name: there").replace("DATA_ROOT}", "DATA_ROOT}-there")
REPLICATED = NUMBERS.replace("    clusters: {", "    replication: {timeout: months(60)}\n    clusters: {").replace(
    "}}}", "}}, there: {type: target, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}"
)
HERE = "    ---".join((CLUSTER, THERE, REPLICATED))
SELECT = ("asset", "materialize", "-f", "definitions.py", "--select", "there/numbers")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(folder=tmp_path)
    made.prepare(HERE, "")
    return made


def there(home: Home, hour: int) -> Path:
    at = START + timedelta(hours=hour)
    return home.folder / "data-there" / "numbers" / f"{at:%Y-%m-%d}" / f"{at:%H}"


def test_a_replica_is_an_asset_below_its_source_with_the_same_partitions(home: Home) -> None:
    environ = {"FEED_ASSETS_ENTITIES": "entities", "FEED_ASSETS_VARIABLES__DATA_ROOT": str(home.data)}
    definitions = build_definitions(settings=load_settings(environ=environ, start=home.folder))
    graph = definitions.resolve_asset_graph()
    source, replica = AssetKey(["here", "numbers"]), AssetKey(["there", "numbers"])
    assert graph.get(replica).parent_keys == {source}
    assert graph.get(replica).partitions_def == graph.get(source).partitions_def
    assert graph.get(replica).is_executable
    assert AssetSelection.assets(source).downstream().resolve(graph) == {source, replica}
    assert {"replication", "spark"} <= graph.get(replica).kinds


@pytest.mark.spark
def test_row_132_replicas_of_a_range_are_made_by_one_run_and_tell_what_they_were_copied_from(home: Home) -> None:
    for hour in range(3):
        land(home.data, hour, hour)
    done = home.run(*SELECT, "--partition-range", f"{key(0)}...{key(2)}")
    assert done.returncode == 0, done.stderr[-3000:]
    with home.instance() as instance:
        assert materialized(instance, "there", "numbers") == {key(hour) for hour in range(3)}
        events = instance.fetch_materializations(AssetKey(["there", "numbers"]), limit=10).records
        told = events[0].asset_materialization
        assert told is not None
        metadata = {name: value.value for name, value in told.metadata.items()}
        assert metadata["detail/copied_files"] == 1
        assert metadata["dagster/column_lineage"] == lineage(n=[("here/numbers", "n")])
        assert metadata["detail/copied_bytes"] == len("n\n2\n")
        assert {"detail/copy_seconds", "detail/bandwidth"} <= metadata.keys()
        assert str(metadata["detail/source"]).endswith("/data/numbers/2026-01-01/02")
        assert str(metadata["detail/source_digest"]).startswith("sha256:")
        assert (told.tags or {})["dagster/data_version"].startswith("sha256:")
    for hour in range(3):
        assert (there(home, hour) / "part.csv").read_text() == f"n\n{hour}\n"
        assert (there(home, hour) / "_SUCCESS").exists()
    with sqlite_state(home).read() as connection:
        counts = count_by_status(connection, "numbers@here", "there")
    assert counts == {ProcessInstanceStatus.SUCCEEDED: 3}


def copy(harness: LocationHarness, request: RunRequest) -> ExecuteInProcessResult:
    job = build_listed_job(harness.runtime, harness.layout.find_asset, "there", names.OfCluster.REPLICATION_JOB)
    return job.execute_in_process(
        run_config=dict(request.run_config),
        tags=dict(request.tags),
        instance=harness.instance,
        resources={names.OfCluster.SPARK.of("there"): LazyPySparkResource(spark_config={})},
        raise_on_error=False,
    )


def test_the_schedule_asks_for_what_is_ready_and_its_job_copies_it(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, HERE)
    for hour in range(3):
        land(harness.home.data, hour, hour)
    harness.tick()
    run_tick(harness.runtime, harness.layout, "there", instance, None)
    asked = run_replication_tick(harness.runtime, harness.layout, "there", instance)
    assert isinstance(asked, list)
    (request,) = asked
    assert copy(harness, request).success
    assert materialized(instance, "there", "numbers") == {key(hour) for hour in range(3)}
    assert [(there(harness.home, hour) / "part.csv").read_text() for hour in range(3)] == ["n\n0\n", "n\n1\n", "n\n2\n"]
    assert isinstance(run_replication_tick(harness.runtime, harness.layout, "there", instance), SkipReason)


def test_a_flow_that_fails_is_told_until_a_copy_of_it_succeeds(tmp_path: Path, instance: DagsterInstance) -> None:
    flow = "numbers@here"
    harness = LocationHarness(Home(folder=tmp_path), instance, HERE)
    target = harness.home.folder / "data-there"

    def tick() -> SensorResult:
        result = run_tick(harness.runtime, harness.layout, "there", instance, harness.cursor)
        harness.cursor = result.cursor
        return result

    land(harness.home.data, 3, 3)
    run_tick(harness.runtime, harness.layout, "here", instance, None)
    tick()
    target.write_text("no folder")
    (request,) = run_replication_tick(harness.runtime, harness.layout, "there", instance)  # type: ignore[misc]
    assert not copy(harness, request).success
    assert_told(tick(), f"replication of {flow} on there fails", "data-there")
    skipped = run_replication_tick(harness.runtime, harness.layout, "there", instance)
    assert isinstance(skipped, SkipReason)
    assert f"1 failure: replication of {flow} on there" in (skipped.skip_message or "")
    context = build_context(harness.runtime, harness.runtime.timeline(), harness.runtime.database(instance), NOON)
    with context.database.read() as connection:
        why = explain_instance(context, connection, Kind.FEED, "numbers", "there", START + timedelta(hours=3))
    (missing,) = [reason for reason in why.reasons if reason.code is ReasonCode.NOT_WRITTEN]
    assert ReasonCode.TICK_FAILURE in [reason.code for reason in missing.causes[0].reasons]

    target.unlink()
    harness.at(NOON + timedelta(minutes=5))
    assert not checks(tick())
    (request,) = run_replication_tick(harness.runtime, harness.layout, "there", instance)  # type: ignore[misc]
    assert copy(harness, request).success
    (check,) = checks(tick())
    assert check.passed


def test_in_safe_mode_nothing_is_asked_for(tmp_path: Path, instance: DagsterInstance) -> None:
    harness = LocationHarness(Home(folder=tmp_path), instance, HERE)
    set_safe_mode(harness.runtime.database(instance), is_on=True, author="ann", now=NOON)
    asked = run_replication_tick(harness.runtime, harness.layout, "there", instance)
    assert isinstance(asked, SkipReason)
