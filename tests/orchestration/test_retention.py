"""Retention as Dagster sees it: the schedule, the job of ops, and what is told of the partitions."""

import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetObservation,
    DagsterInstance,
    ExecuteInProcessResult,
    Failure,
    RunRequest,
    SkipReason,
)
from dagster_pyspark import LazyPySparkResource

from feed_assets.context.errors import SafeModeError
from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain_instance
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.log.removals.records import SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import name_holder
from feed_assets.orchestration import names
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.runs import retention
from feed_assets.orchestration.runs.jobs import build_operate_job, build_retention_job
from feed_assets.orchestration.runs.retention import run_retention_tick
from feed_assets.plan.records import FeedRecord
from feed_assets.retention.sweeps.planning import SweepRequest, plan_sweeps
from feed_assets.retention.sweeps.surveying import FeedSurvey, Surveyor
from feed_assets.retention.sweeps.sweep_context import SweepContext
from feed_assets.retention.sweeps.sweeping import begin_sweep
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land
from tests.orchestration.test_poisons import assert_told, checks

LANDED = range(10)
EXPIRED = range(7)
KEEPS_SIX_HOURS = "\n    ---\n".join(part.strip("\n") for part in ENTITIES.split("---")[:2]).replace(
    "end: 2026-01-02T00:00Z}}}", "end: 2026-01-02T00:00Z}, retention: {limit: hours(6)}}}"
)


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    """Ten hours of numbers at noon, of which seven have expired."""
    harness = LocationHarness(Home(folder=tmp_path), instance, KEEPS_SIX_HOURS)
    for hour in LANDED:
        land(harness.home.data, hour, hour)
    harness.tick()
    return harness


def look(harness: LocationHarness) -> RunRequest | SkipReason:
    return run_retention_tick(harness.runtime, harness.layout, "here", harness.instance)


def run(harness: LocationHarness) -> ExecuteInProcessResult:
    assert isinstance(look(harness), RunRequest)
    return execute(harness)


def execute(harness: LocationHarness, tags: Mapping[str, str] | None = None) -> ExecuteInProcessResult:
    job = build_retention_job(harness.runtime, "here")
    resources = {names.OfCluster.SPARK.of("here"): LazyPySparkResource(spark_config={})}
    return job.execute_in_process(instance=harness.instance, resources=resources, tags=tags)


def evicted(harness: LocationHarness) -> list[int]:
    with harness.runtime.database(harness.instance).read() as connection:
        rows = FeedInstances(connection).find_between("numbers", "here", START, START + timedelta(days=1))
    gone = [row.nominal_time for row in rows if row.status is FeedInstanceStatus.EVICTED]
    return [int((time - START) / timedelta(hours=1)) for time in gone]


def folders(data: Path) -> list[int]:
    return sorted(int(folder.name) for folder in (data / "numbers").glob("*/*"))


def skipped(harness: LocationHarness) -> str:
    answer = look(harness)
    assert isinstance(answer, SkipReason)
    assert answer.skip_message is not None
    return answer.skip_message


def test_row_132_the_turn_of_a_feed_starts_a_run_and_each_partition_tells_when_and_why(
    harness: LocationHarness,
) -> None:
    assert run(harness).success

    assert evicted(harness) == list(EXPIRED)
    assert folders(harness.home.data) == [7, 8, 9]
    told = [event for event in harness.tick().asset_events if isinstance(event, AssetObservation)]
    assert [event.partition for event in told] == [key(hour) for hour in EXPIRED]
    assert {event.asset_key for event in told} == {AssetKey(["here", "numbers"])}
    assert told[0].description == "evicted at 2026-01-01T12:05Z: it is older than hours(6) as of 2026-01-01T12:05Z"
    assert told[0].metadata[names.META_STATUS].value == "EVICTED"
    assert skipped(harness) == "retention is not due for any feed"


def test_a_turn_comes_again_with_the_cadence(harness: LocationHarness) -> None:
    run(harness)
    harness.at(NOON + timedelta(hours=5, minutes=59))
    assert skipped(harness) == "retention is not due for any feed"

    for hour in range(10, 18):
        land(harness.home.data, hour, hour)
    harness.at(NOON + timedelta(hours=6))
    harness.tick()

    run(harness)
    assert evicted(harness) == list(range(13))


def test_a_shorter_limit_in_the_files_is_acted_on_after_its_grace_also_by_a_run_by_hand(
    harness: LocationHarness,
) -> None:
    run(harness)
    assert evicted(harness) == list(EXPIRED)
    file = next((harness.home.folder / "entities").glob("*.yaml"))
    file.write_text(file.read_text().replace("limit: hours(6)", "limit: hours(2)"))
    harness.reopen()
    assert skipped(harness) == "retention is not due for any feed"
    assert execute(harness).success
    harness.tick()
    for hours in (12, 23):
        harness.at(NOON + timedelta(hours=hours))
        assert skipped(harness) == "retention is not due for any feed"
    assert evicted(harness) == list(EXPIRED)
    harness.at(NOON + timedelta(hours=24))
    assert isinstance(look(harness), RunRequest)


def test_a_feed_whose_storage_refuses_fails_the_check_of_the_location_until_it_works(harness: LocationHarness) -> None:
    numbers = harness.home.data / "numbers"
    aside = numbers.rename(numbers.with_name("aside"))
    numbers.write_text("no folder")
    run(harness)
    (told,) = [event for event in harness.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert not told.passed
    assert "retention of numbers on here fails" in str(told.metadata["failures"].value)
    assert "retention is not due for any feed; 1 failure: retention of numbers on here fails" in skipped(harness)
    assert "retention fails since 2026-01-01T12:05:00Z, next try at 2026-01-01T12:15:00Z" in why(harness)
    numbers.unlink()
    aside.rename(numbers)
    harness.at(NOON + timedelta(minutes=10))
    run(harness)
    (told,) = [event for event in harness.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert told.passed


def why(harness: LocationHarness) -> str:
    """What `why` says of an instance that has expired."""
    database = harness.runtime.database(harness.instance)
    context = build_context(harness.runtime, harness.runtime.timeline(), database, harness.runtime.clock.now())
    with database.read() as connection:
        reasons = explain_instance(context, connection, Kind.FEED, "numbers", "here", START).reasons
    return "\n".join(reason.text for reason in reasons)


def test_whatever_fails_about_one_feed_the_others_are_swept(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = KEEPS_SIX_HOURS.split("---")[1].replace("numbers", "letters")
    harness = LocationHarness(Home(folder=tmp_path), instance, f"{KEEPS_SIX_HOURS}\n    ---{letters}")
    for hour in LANDED:
        land(harness.home.data, hour, hour)
    shutil.copytree(harness.home.data / "numbers", harness.home.data / "letters")
    harness.tick()

    survey_feed = Surveyor.survey

    def survey(surveyor: Surveyor, record: FeedRecord, *former: Any) -> FeedSurvey:
        if record.feed == "letters":
            raise RuntimeError("boom")
        return survey_feed(surveyor, record, *former)

    with monkeypatch.context() as patch:
        patch.setattr(Surveyor, "survey", survey)
        assert run(harness).success
    assert evicted(harness) == list(EXPIRED)
    assert_told(harness.tick(), "retention of letters on here fails", "RuntimeError: boom")


def test_a_sweep_that_fails_is_told_and_left_for_ten_minutes(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    assert isinstance(look(harness), RunRequest)
    with monkeypatch.context() as patch:
        patch.setattr(retention, "Mover", fail)
        patch.setattr(retention, "find_purgeable", lambda *_: [])
        with pytest.raises(Failure, match="sweeps have failed"):
            execute(harness)
    assert_told(harness.tick(), "retention of sweep ", "RuntimeError: boom")
    assert "1 failure: retention of sweep " in skipped(harness)
    assert "retention of sweep " in why(harness)

    harness.at(NOON + timedelta(minutes=10))
    assert run(harness).success
    assert evicted(harness) == list(EXPIRED)
    assert skipped(harness) == "retention is not due for any feed"
    (check,) = checks(harness.tick())
    assert check.passed


def test_what_would_take_everything_waits_for_a_person(harness: LocationHarness) -> None:
    harness.at(NOON + timedelta(hours=6))

    run(harness)

    assert evicted(harness) == []
    with harness.runtime.database(harness.instance).read() as connection:
        (sweep,) = Sweeps(connection).with_state("here", {SweepState.ASKING})
    assert [obstacle.sentence for obstacle in sweep.obstacles] == ["All 10 instances of the feed would be removed."]


def test_what_was_approved_is_run_by_the_next_tick(harness: LocationHarness) -> None:
    harness.at(NOON + timedelta(hours=6))
    run(harness)
    with harness.runtime.database(harness.instance).read() as connection:
        (sweep,) = Sweeps(connection).with_state("here", {SweepState.ASKING})

    def operate(action: str, **more: str) -> None:
        config = {"action": action, "name": sweep.sweep_id, **more}
        job, run_config = build_operate_job(harness.runtime), {"ops": {"operation": {"config": config}}}
        assert job.execute_in_process(instance=harness.instance, run_config=run_config).success

    operate("approve")
    with harness.runtime.database(harness.instance).read() as connection:
        (approved,) = Sweeps(connection).with_state("here", {SweepState.PLANNED})
    assert approved.approved_by == "dagster"
    harness.at(NOON + timedelta(hours=12))

    assert run(harness).success

    assert evicted(harness) == list(LANDED)
    operate("undo", instance=key(3))
    assert evicted(harness) == [hour for hour in LANDED if hour != 3]
    assert folders(harness.home.data) == [3]


def test_a_clock_that_has_jumped_empties_no_trash(harness: LocationHarness) -> None:
    run(harness)
    harness.at(NOON + timedelta(days=400))

    assert run(harness).success

    trash = harness.runtime.stores.get(harness.runtime.plan.clusters["here"].store).trash()
    assert [len(list(trash.contents(sweep))) for sweep in trash.sweeps()] == [len(EXPIRED)]


def test_a_run_by_hand_is_refused_in_safe_mode(harness: LocationHarness) -> None:
    request = look(harness)
    set_safe_mode(harness.runtime.database(harness.instance), is_on=True, author="test", now=NOON)

    assert isinstance(request, RunRequest)
    with pytest.raises(SafeModeError, match="run of sweeps: it is not allowed during safe mode"):
        execute(harness)
    assert evicted(harness) == []


def test_a_requested_run_does_nothing_when_safe_mode_has_come_and_is_no_failure(harness: LocationHarness) -> None:
    request = look(harness)
    assert isinstance(request, RunRequest)
    set_safe_mode(harness.runtime.database(harness.instance), is_on=True, author="test", now=NOON)
    done = execute(harness, request.tags)
    assert done.success
    said = [entry.user_message for entry in harness.instance.all_logs(done.run_id)]
    assert any("nothing is done: run of sweeps: it is not allowed during safe mode" in line for line in said)
    assert evicted(harness) == []


def test_a_sweep_that_broke_off_is_gone_on_with(harness: LocationHarness) -> None:
    run(harness)
    harness.at(NOON + timedelta(hours=2))
    sweep_context = _sweep_context(harness)
    record = harness.runtime.plan.feeds["numbers", "here"]
    now = sweep_context.clock.now()
    request = SweepRequest(as_of=now, now=now, author="test")
    (sweep,) = plan_sweeps(sweep_context, "here", [record], request).sweeps
    begin_sweep(sweep_context, sweep.sweep_id)

    assert run(harness).success
    with sweep_context.database.read() as connection:
        found = Sweeps(connection).find(sweep.sweep_id)
    assert found is not None
    assert found.state is SweepState.DONE
    assert evicted(harness) == list(range(9))
    assert skipped(harness) == "retention is not due for any feed"


def test_safe_mode_lets_nothing_go(harness: LocationHarness) -> None:
    set_safe_mode(harness.runtime.database(harness.instance), is_on=True, author="test", now=NOON)

    assert skipped(harness) == "safe mode is on"


def _sweep_context(harness: LocationHarness) -> SweepContext:
    runtime = harness.runtime
    return SweepContext(
        database=runtime.database(harness.instance),
        stores=runtime.stores,
        timeline=runtime.timeline(),
        clock=runtime.clock,
        real_clock=runtime.real_clock,
        holder=name_holder(),
    )
