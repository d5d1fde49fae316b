"""Late data as Dagster sees them: the sensor's ticks, tags of runs, data versions; and the whole with a real daemon."""

from datetime import timedelta
from pathlib import Path

import pytest
from dagster import AssetCheckEvaluation, AssetKey, AssetMaterialization, DagsterInstance
from pyspark.sql import SparkSession

from feed_assets.clock import SystemClock
from feed_assets.context.operation import AttemptContext
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.late import detection
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration.runs.published_metadata import published_metadata
from feed_assets.orchestration.sensors.deadlines import run_late_tick
from tests.instances.harness import FileEngine, no_session
from tests.orchestration.dagster_home import Home, materialized, runs_of, wait_until
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.in_process import materializer
from tests.orchestration.small import ENTITIES, JOBS, START, key, land, total
from tests.orchestration.test_poisons import assert_told, checks

HOUR = timedelta(hours=1)


def late_entities(cut_off: str, delay: str) -> str:
    with_cut_off = ENTITIES.replace('schema: "n int"', f'schema: "n int"\n    late_arrival: {{cut_off: {cut_off}}}')
    late = f"{{policy: periodic, delay: {delay}, inputs: [numbers]}}"
    return with_cut_off.replace("timeout: months(60)", f"timeout: months(60)\n    late_process: {late}")


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    """The sum of hour 3 was made at noon; it is looked at every 6 hours."""
    harness = LocationHarness(Home(folder=tmp_path), instance, late_entities("days(2)", "hours(6)"))
    land(harness.home.data, 3, 1)
    harness.tick()
    run(harness)
    harness.tick()
    return harness


def run(harness: LocationHarness) -> None:
    """What the run of hour 3 does, without Dagster and Spark."""
    runtime = harness.runtime
    runner = InstanceRunner(
        context=AttemptContext(
            database=runtime.database(harness.instance),
            stores=runtime.stores,
            plan=runtime.plan,
            clock=runtime.clock,
            real_clock=runtime.real_clock,
            run_id="run",
        ),
        root=runtime.root,
        session=no_session,
        engines=lambda _: FileEngine(lambda work: {target.name: "made" for target in work.outputs}),
    )
    (published,) = runner.run(runtime.plan.processes["summing", "here"], START + 3 * HOUR, lambda _: None)
    harness.metadata = published_metadata(published)  # type: ignore[attr-defined]


def look(harness: LocationHarness) -> str:
    message = run_late_tick(harness.runtime, harness.layout, "here", harness.instance).skip_message
    assert message is not None
    return message


def test_without_a_due_check_the_sensor_says_so(harness: LocationHarness) -> None:
    assert look(harness) == "no check for late data is due"


def test_a_late_change_is_told_as_a_new_data_version_and_its_run_is_tagged(harness: LocationHarness) -> None:
    land(harness.home.data, 3, 1, 2)
    harness.at(START + 15 * HOUR)
    assert look(harness) == "1 late check: 1 to be run again; 1 feed instances have changed"
    result = harness.tick()
    (request,) = result.run_requests or ()
    assert request.partition_key == key(3)
    assert request.tags["feed_assets/late"] == "2026-01-01T03:00Z: numbers"
    materialized = [event for event in result.asset_events if isinstance(event, AssetMaterialization)]
    (told,) = [event for event in materialized if event.asset_key == AssetKey(["here", "numbers"])]
    assert told.partition == key(3)
    assert told.metadata["feed_assets/late_data"].value == "files: 1 replaced"
    assert (told.tags or {})["dagster/data_version"].startswith("sha256:")
    run(harness)
    assert harness.metadata["feed_assets/late_data"] == "repeated for late data of numbers"  # type: ignore[attr-defined]
    assert harness.counts()[ProcessInstanceStatus.SUCCEEDED] == 1


def test_a_run_without_late_data_has_no_tag(harness: LocationHarness) -> None:
    land(harness.home.data, 4, 1)
    harness.at(NOON + HOUR)
    (request,) = harness.tick().run_requests or ()
    assert "feed_assets/late" not in request.tags


def test_a_refused_rerun_is_logged(harness: LocationHarness, caplog: pytest.LogCaptureFixture) -> None:
    land(harness.home.data, 3, 1, 2)
    (harness.home.data / "numbers" / "2026-01-01" / "03" / "_SUCCESS").unlink()
    harness.at(START + 3 * HOUR + timedelta(days=2))
    assert look(harness) == "1 late check: 1 refused"
    assert "'summing' on here at 2026-01-01T03:00Z: late data: inputs are incomplete" in caplog.text


def test_a_check_that_cannot_read_its_input_fails_the_check_of_the_location_until_it_can(
    harness: LocationHarness,
) -> None:
    harness.at(START + 15 * HOUR)
    harness.tick()
    folder = harness.home.data / "numbers" / "2026-01-01" / "03"
    aside = folder.rename(folder.with_name("aside"))
    folder.symlink_to(folder)
    look(harness)
    (told,) = [event for event in harness.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert not told.passed
    assert "late data of numbers on here fails" in str(told.metadata["failures"].value)
    folder.unlink()
    aside.rename(folder)
    harness.at(START + 40 * HOUR)
    look(harness)
    (told,) = [event for event in harness.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert told.passed


def test_a_check_that_cannot_be_decided_is_told_and_made_again(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    land(harness.home.data, 3, 1, 2)
    harness.at(START + 15 * HOUR)
    harness.tick()
    with monkeypatch.context() as patch:
        patch.setattr(detection, "decide_check", fail)
        assert "1 failure: late data of process summing on here fails" in look(harness)
        assert_told(harness.tick(), "late data of process summing on here fails", "RuntimeError: boom")
        assert not checks(harness.tick())
    assert "no check for late data is due; 1 failure: late data" in look(harness)

    harness.at(START + 15 * HOUR + timedelta(minutes=1))
    assert look(harness) == "1 late check: 1 to be run again; 1 feed instances have changed"
    (check,) = checks(harness.tick())
    assert check.passed


def test_ticks_leave_the_checks_alone_that_another_one_still_makes(harness: LocationHarness) -> None:
    with harness.runtime.alone("late_data_here"):
        assert look(harness) == "an earlier tick is still at work"
    assert look(harness) == "no check for late data is due"


@pytest.mark.spark
def test_a_run_for_late_data_makes_the_output_again(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"ORIGIN": NOON, "REAL_START": SystemClock().now(), "SPEED": 1}
    settings = {f"FEED_ASSETS_DEMO__REPLAY__{name}": str(value) for name, value in clock.items()}
    harness = LocationHarness(Home(folder=tmp_path, settings=settings), instance, late_entities("days(2)", "hours(6)"))
    land(harness.home.data, 3, 1, 2)
    with materializer(harness.home, instance, spark, monkeypatch) as made:
        (request,) = harness.tick().run_requests or ()
        assert made.run(key(3), tags=request.tags).success
        assert total(harness.home.data, 3) == 3
        harness.tick()
        land(harness.home.data, 3, 1, 2, 30)
        harness.at(START + 15 * HOUR)
        look(harness)
        (request,) = harness.tick().run_requests or ()
        assert made.run(key(3), tags=request.tags).success
    assert total(harness.home.data, 3) == 33
    tags = [run.tags.get("feed_assets/late") for run in runs_of(instance, "summing")]
    assert tags == [None, "2026-01-01T03:00Z: numbers"]
    records = instance.fetch_materializations(AssetKey(["here", "sums"]), limit=10).records
    versions = [(record.asset_materialization.tags or {})["dagster/data_version"] for record in records]  # type: ignore[union-attr]
    assert len(set(versions)) == 2


@pytest.mark.drill
@pytest.mark.daemon
@pytest.mark.spark
@pytest.mark.server
def test_what_arrives_late_is_in_the_output_in_the_end(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    home.prepare(late_entities("months(60)", "minutes(1)"), JOBS)
    land(home.data, 0, 1, 2)
    with home.instance() as instance, home.daemon():
        wait_until(lambda: materialized(instance, "here", "sums") == {key(0)}, home.log)
        wait_until(lambda: all(run.is_finished for run in runs_of(instance, "summing")), home.log)
        assert total(home.data, 0) == 3
        land(home.data, 0, 1, 2, 30)
        wait_until(lambda: len(runs_of(instance, "summing")) == 2, home.log)
        wait_until(lambda: all(run.is_finished for run in runs_of(instance, "summing")), home.log)
        assert total(home.data, 0) == 33
        tags = [run.tags.get("feed_assets/late") for run in runs_of(instance, "summing")]
        assert sorted(tags, key=str) == ["2026-01-01T00:00Z: numbers", None]
        records = instance.fetch_materializations(AssetKey(["here", "sums"]), limit=10).records
        versions = [(record.asset_materialization.tags or {})["dagster/data_version"] for record in records]  # type: ignore[union-attr]
        assert len(set(versions)) == 2
