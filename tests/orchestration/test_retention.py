"""Retention as Dagster sees it: the schedule, the job of ops, and what is told of the partitions."""

import shutil
from datetime import timedelta
from pathlib import Path

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

from feed_assets.lifecycle.instances.worker_names import name_holder
from feed_assets.lifecycle.retention import planning
from feed_assets.lifecycle.retention.planning import SweepRequest, plan_sweeps
from feed_assets.lifecycle.retention.surveying import FeedSurvey, survey_feed
from feed_assets.lifecycle.retention.sweep_context import SweepContext
from feed_assets.lifecycle.retention.sweeping import begin_sweep
from feed_assets.operations.errors import SafeModeError
from feed_assets.operations.explaining.explanations import explain_feed_instance
from feed_assets.operations.safe_mode import set_safe_mode
from feed_assets.orchestration import names, retention
from feed_assets.orchestration.jobs import build_retention_job
from feed_assets.orchestration.overdue_notices import build_context
from feed_assets.orchestration.retention import run_retention_tick
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.records import FeedInstanceStatus
from feed_assets.state.sweep_records import SweepState
from feed_assets.state.sweeps import Sweeps
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, World
from tests.orchestration.small import ENTITIES, START, key, land
from tests.orchestration.test_poisons import assert_told, checks

LANDED = range(10)
EXPIRED = range(7)
KEEPS_SIX_HOURS = "\n    ---\n".join(part.strip("\n") for part in ENTITIES.split("---")[:2]).replace(
    "end: 2026-01-02T00:00Z}}}", "end: 2026-01-02T00:00Z}, retention: {limit: hours(6)}}}"
)


@pytest.fixture
def world(tmp_path: Path, instance: DagsterInstance) -> World:
    """Ten hours of numbers at noon, of which seven have expired."""
    world = World(Home(folder=tmp_path), instance, KEEPS_SIX_HOURS)
    for hour in LANDED:
        land(world.home.data, hour, hour)
    world.tick()
    return world


def look(world: World) -> RunRequest | SkipReason:
    return run_retention_tick(world.runtime, world.layout, "here", world.instance)


def run(world: World) -> ExecuteInProcessResult:
    assert isinstance(look(world), RunRequest)
    return execute(world)


def execute(world: World) -> ExecuteInProcessResult:
    job = build_retention_job(world.runtime, "here")
    return job.execute_in_process(
        instance=world.instance, resources={names.spark_resource("here"): LazyPySparkResource(spark_config={})}
    )


def evicted(world: World) -> list[int]:
    with world.runtime.database(world.instance).read() as connection:
        rows = FeedInstances(connection).find_between("numbers", "here", START, START + timedelta(days=1))
    gone = [row.nominal_time for row in rows if row.status is FeedInstanceStatus.EVICTED]
    return [int((time - START) / timedelta(hours=1)) for time in gone]


def folders(data: Path) -> list[int]:
    return sorted(int(folder.name) for folder in (data / "numbers").glob("*/*"))


def skipped(world: World) -> str:
    answer = look(world)
    assert isinstance(answer, SkipReason)
    assert answer.skip_message is not None
    return answer.skip_message


def test_row_132_the_turn_of_a_feed_starts_a_run_and_each_partition_tells_when_and_why(world: World) -> None:
    assert run(world).success

    assert evicted(world) == list(EXPIRED)
    assert folders(world.home.data) == [7, 8, 9]
    told = [event for event in world.tick().asset_events if isinstance(event, AssetObservation)]
    assert [event.partition for event in told] == [key(hour) for hour in EXPIRED]
    assert {event.asset_key for event in told} == {AssetKey(["here", "numbers"])}
    assert told[0].description == "evicted at 2026-01-01T12:05Z: it is older than hours(6) as of 2026-01-01T12:05Z"
    assert told[0].metadata[names.META_STATUS].value == "EVICTED"
    assert skipped(world) == "retention is not due for any feed"


def test_a_turn_comes_again_with_the_cadence(world: World) -> None:
    run(world)
    world.at(NOON + timedelta(hours=5, minutes=59))
    assert skipped(world) == "retention is not due for any feed"

    for hour in range(10, 18):
        land(world.home.data, hour, hour)
    world.at(NOON + timedelta(hours=6))
    world.tick()

    run(world)
    assert evicted(world) == list(range(13))


def test_a_shorter_limit_in_the_files_is_acted_on_after_its_grace_also_by_a_run_by_hand(world: World) -> None:
    run(world)
    assert evicted(world) == list(EXPIRED)
    file = next((world.home.folder / "entities").glob("*.yaml"))
    file.write_text(file.read_text().replace("limit: hours(6)", "limit: hours(2)"))
    world.reopen()
    assert skipped(world) == "retention is not due for any feed"
    assert execute(world).success
    world.tick()
    for hours in (12, 23):
        world.at(NOON + timedelta(hours=hours))
        assert skipped(world) == "retention is not due for any feed"
    assert evicted(world) == list(EXPIRED)
    world.at(NOON + timedelta(hours=24))
    assert isinstance(look(world), RunRequest)


def test_a_feed_whose_storage_refuses_fails_the_check_of_the_location_until_it_works(world: World) -> None:
    numbers = world.home.data / "numbers"
    aside = numbers.rename(numbers.with_name("aside"))
    numbers.write_text("no folder")
    run(world)
    (told,) = [event for event in world.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert not told.passed
    assert "retention of numbers on here fails" in str(told.metadata["failures"].value)
    assert "retention is not due for any feed; 1 failure: retention of numbers on here fails" in skipped(world)
    assert "retention fails since 2026-01-01T12:05:00Z, next try at 2026-01-01T12:15:00Z" in why(world)
    numbers.unlink()
    aside.rename(numbers)
    world.at(NOON + timedelta(minutes=10))
    run(world)
    (told,) = [event for event in world.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert told.passed


def why(world: World) -> str:
    """What `why` says of an instance that has expired."""
    database = world.runtime.database(world.instance)
    context = build_context(world.runtime, world.runtime.timeline(), database, world.runtime.clock.now())
    with database.read() as connection:
        reasons = explain_feed_instance(context, connection, "numbers", "here", START).reasons
    return "\n".join(reason.text for reason in reasons)


def test_whatever_fails_about_one_feed_the_others_are_swept(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = KEEPS_SIX_HOURS.split("---")[1].replace("numbers", "letters")
    world = World(Home(folder=tmp_path), instance, f"{KEEPS_SIX_HOURS}\n    ---{letters}")
    for hour in LANDED:
        land(world.home.data, hour, hour)
    shutil.copytree(world.home.data / "numbers", world.home.data / "letters")
    world.tick()

    def survey(*arguments: object) -> FeedSurvey:
        if "letters" in repr(arguments[3]):
            raise RuntimeError("boom")
        return survey_feed(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(planning, "survey_feed", survey)
        assert run(world).success
    assert evicted(world) == list(EXPIRED)
    assert_told(world.tick(), "retention of letters on here fails", "RuntimeError: boom")


def test_a_sweep_that_fails_is_told_and_left_for_ten_minutes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    assert isinstance(look(world), RunRequest)
    with monkeypatch.context() as patch:
        patch.setattr(retention, "choose_mover", fail)
        patch.setattr(retention, "find_purgeable", lambda *_: [])
        with pytest.raises(Failure, match="sweeps have failed"):
            execute(world)
    assert_told(world.tick(), "retention of sweep ", "RuntimeError: boom")
    assert "1 failure: retention of sweep " in skipped(world)
    assert "retention of sweep " in why(world)

    world.at(NOON + timedelta(minutes=10))
    assert run(world).success
    assert evicted(world) == list(EXPIRED)
    assert skipped(world) == "retention is not due for any feed"
    (check,) = checks(world.tick())
    assert check.passed


def test_what_would_take_everything_waits_for_a_person(world: World) -> None:
    world.at(NOON + timedelta(hours=6))

    run(world)

    assert evicted(world) == []
    with world.runtime.database(world.instance).read() as connection:
        (sweep,) = Sweeps(connection).with_state("here", {SweepState.ASKING})
    assert [obstacle.sentence for obstacle in sweep.obstacles] == ["All 10 instances of the feed would be removed."]


def test_what_was_approved_is_run_by_the_next_tick(world: World) -> None:
    world.at(NOON + timedelta(hours=6))
    run(world)
    with world.runtime.database(world.instance).begin() as connection:
        (sweep,) = Sweeps(connection).with_state("here", {SweepState.ASKING})
        Sweeps(connection).transition(
            sweep.sweep_id, {SweepState.ASKING}, state=SweepState.PLANNED, approved_by="ann", approved_at=NOON
        )
    world.at(NOON + timedelta(hours=12))

    assert run(world).success

    assert evicted(world) == list(LANDED)


def test_a_clock_that_has_jumped_empties_no_trash(world: World) -> None:
    run(world)
    world.at(NOON + timedelta(days=400))

    assert run(world).success

    trash = world.runtime.stores.get(world.runtime.plan.clusters["here"].store).trash()
    assert [len(list(trash.contents(sweep))) for sweep in trash.sweeps()] == [len(EXPIRED)]


def test_a_run_by_hand_is_refused_in_safe_mode(world: World) -> None:
    request = look(world)
    set_safe_mode(world.runtime.database(world.instance), is_on=True, author="test", now=NOON)

    assert isinstance(request, RunRequest)
    with pytest.raises(SafeModeError, match="run of sweeps: it is not allowed during safe mode"):
        execute(world)
    assert evicted(world) == []


def test_a_sweep_that_broke_off_is_gone_on_with(world: World) -> None:
    run(world)
    world.at(NOON + timedelta(hours=2))
    sweep_context = _sweep_context(world)
    record = world.runtime.plan.feeds["numbers", "here"]
    now = sweep_context.clock.now()
    request = SweepRequest(as_of=now, now=now, real_now=now, author="test")
    (sweep,) = plan_sweeps(
        sweep_context.database, sweep_context.stores, sweep_context.timeline, "here", [record], request
    ).sweeps
    begin_sweep(sweep_context, sweep.sweep_id)

    assert run(world).success
    with sweep_context.database.read() as connection:
        found = Sweeps(connection).find(sweep.sweep_id)
    assert found is not None
    assert found.state is SweepState.DONE
    assert evicted(world) == list(range(9))
    assert skipped(world) == "retention is not due for any feed"


def test_safe_mode_lets_nothing_go(world: World) -> None:
    set_safe_mode(world.runtime.database(world.instance), is_on=True, author="test", now=NOON)

    assert skipped(world) == "safe mode is on"


def _sweep_context(world: World) -> SweepContext:
    runtime = world.runtime
    return SweepContext(
        database=runtime.database(world.instance),
        stores=runtime.stores,
        timeline=runtime.timeline(),
        clock=runtime.clock,
        real_clock=runtime.real_clock,
        holder=name_holder(),
    )
