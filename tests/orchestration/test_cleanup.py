"""Old runs lose what they have printed, and nothing else: in the op of the retention job, by real runs of Dagster."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterEventType,
    DagsterInstance,
    EventRecordsFilter,
    JobDefinition,
    OpDefinition,
    OpExecutionContext,
    RunRequest,
    in_process_executor,
    job,
    op,
)
from dagster._core.definitions.sensor_definition import SensorType
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from feed_assets.clock import FrozenClock
from feed_assets.context.audit_chain import verify_chain
from feed_assets.context.bulkheads import TickFailures, TickStep
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import Attempt, ProcessInstanceStatus
from feed_assets.orchestration.runs.retention import DagsterLogs
from feed_assets.orchestration.sensors.tick_cursors import ReportedEvent, TickCursor
from feed_assets.setting_sections import AuditSettings
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, START
from tests.orchestration.test_retention import execute, look, skipped

DAILY = """
    ---
    kind: process
    name: reporting
    frequency: days(1)
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-02-01T00:00Z}}}
    inputs: {sums: {feed: sums, start: "now(0,0)", end: "now(0,0)"}}
    outputs: {report: {feed: report, instance: "now(0,0)"}}
    workflow: {engine: python, path: "jobs_of_test:summing"}
    ---
    kind: feed
    name: report
    frequency: days(1)
    locations: {data: "/report/${YEAR}-${MONTH}-${DAY}"}
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-02-01T00:00Z}}}
"""
DAY = timedelta(days=1)


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance, database_url: str) -> LocationHarness:
    harness = LocationHarness(Home(folder=tmp_path), instance, ENTITIES + DAILY, state=database_url)
    harness.tick()
    return harness


def make_op(name: str) -> OpDefinition:
    @op(name=name)
    def working(context: OpExecutionContext) -> None:
        print(f"{name} has worked")
        context.log_event(AssetMaterialization(AssetKey(["here", "sums"]), partition="2026-01-01-03:00"))

    return working


def make_job(*steps: str) -> JobDefinition:
    @job(executor_def=in_process_executor)
    def working() -> None:
        for each in map(make_op, steps):
            each()

    return working


def ran(
    harness: LocationHarness, steps: list[str], *processes: str, hour: int = 0, ended_at: datetime | None = NOON
) -> str:
    """The id of a run whose steps have printed and materialized, with attempts of ours that have ended."""
    run_id = make_job(*steps).execute_in_process(instance=harness.instance).run_id
    time = START + timedelta(hours=hour)
    running = ProcessInstanceStatus.RUNNING
    with harness.runtime.database(harness.instance).begin() as connection:
        for process in processes:
            attempt = Attempt(
                process=process,
                cluster="here",
                nominal_time=time,
                attempt=1,
                run_id=run_id,
                status=running,
                started_at=time,
            )
            Attempts(connection).begin(attempt)
            if ended_at is not None:
                Attempts(connection).end(attempt.key, ProcessInstanceStatus.SUCCEEDED, ended_at, None)
    return run_id


def logs_of(harness: LocationHarness, run_id: str) -> int:
    folder = Path(harness.instance.storage_directory()) / run_id / "compute_logs"
    return len(list(folder.iterdir())) if folder.exists() else 0


def materializations(harness: LocationHarness) -> list[tuple[str, str | None]]:
    of_asset = EventRecordsFilter(DagsterEventType.ASSET_MATERIALIZATION, asset_key=AssetKey(["here", "sums"]))
    found = harness.instance.event_log_storage.get_event_records(of_asset, limit=99)
    return [(each.run_id, each.partition_key) for each in found]


def clean_on(harness: LocationHarness, day: float) -> None:
    """A day's turn of the retention job, and its run, which the real clock of Dagster takes place now."""
    harness.runtime.clock = FrozenClock(NOON + day * DAY)
    assert isinstance(look(harness), RunRequest)
    assert execute(harness).success


def test_row_153_captured_logs_go_by_the_frequency_of_their_process_and_nothing_else(harness: LocationHarness) -> None:
    hourly = ran(harness, ["here__summing"], "summing")
    daily = ran(harness, ["here__reporting"], "reporting")
    both = ran(harness, ["here__summing", "here__reporting"], "summing", "reporting", hour=24)
    mixed = ran(harness, ["here__summing", "somebody_else"], "summing", hour=1)
    others = ran(harness, ["somebody_else"])
    working = ran(harness, ["here__summing"], "summing", hour=2, ended_at=None)
    everything = (hourly, daily, both, mixed, others, working)
    told = materializations(harness)
    assert all(logs_of(harness, each) for each in everything)
    events = {each: len(harness.instance.all_logs(each)) for each in everything}

    assert skipped(harness) == "retention is not due for any feed"
    clean_on(harness, 2)
    assert all(logs_of(harness, each) for each in everything)
    clean_on(harness, 3.5)
    assert [each for each in everything if not logs_of(harness, each)] == [hourly]
    clean_on(harness, 13)
    assert [each for each in everything if not logs_of(harness, each)] == [hourly, daily, both]
    assert skipped(harness) == "retention is not due for any feed"

    assert materializations(harness) == told
    assert {each: len(harness.instance.all_logs(each)) for each in everything} == events
    assert len(harness.instance.get_runs()) == len(everything) + 3


def test_what_dagster_cannot_remove_is_told_and_everything_else_goes_on(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ran(harness, ["here__summing"], "summing")
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(DagsterLogs, "remove", refuse)
        clean_on(harness, 4)
    with harness.runtime.database(harness.instance).read() as connection:
        (failure,) = TickFailures(connection).all()
    assert (failure.subject, "No space left" in failure.reason) == ("captured logs", True)
    assert logs_of(harness, kept)
    harness.runtime.real_clock = FrozenClock(NOON + DAY)
    clean_on(harness, 5.5)
    assert not logs_of(harness, kept)


def test_old_runs_of_retention_lose_their_logs_too(harness: LocationHarness) -> None:
    ran(harness, ["here__summing"], "summing")
    clean_on(harness, 4)
    (run,) = harness.instance.get_runs(limit=1)
    logs = DagsterLogs(harness.instance)
    now = harness.instance.get_run_records()[0].create_timestamp
    assert logs.find_retention("here", None, now - DAY, 9).run_ids == ()
    found = logs.find_retention("here", None, now + DAY, 9)
    assert (found.run_ids, found.until, found.is_last) == ((run.run_id,), now, True)
    assert logs.find_retention("here", found.until, now + DAY, 9).run_ids == ()
    logs.remove(run.run_id)
    assert logs_of(harness, run.run_id) == 0
    assert logs.find_retention("here", None, now + DAY, 9) == replace(found, run_ids=())


def test_how_far_dagster_was_told_is_what_the_arrival_sensor_says(instance: DagsterInstance) -> None:
    def told(*cursors: str) -> dict[str, int]:
        for number, cursor in enumerate(cursors):
            place = InProcessCodeLocationOrigin(LoadableTargetOrigin(), location_name=f"project {number}")
            origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(place, "repository"), "arrival_here")
            data = SensorInstigatorData(cursor=cursor, sensor_type=SensorType.STANDARD)
            state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING, data)
            instance.add_instigator_state(state)
        return DagsterLogs(instance).find_told(["here", "there"])

    reported = TickCursor(reported=(ReportedEvent(seq=9), ReportedEvent(seq=4)), location="l")
    assert told() == {}
    assert told(reported.render()) == {"here": 9}
    assert DagsterLogs(instance).find_told(["there"]) == {}


def test_ticks_chain_the_audit_and_the_clean_up_leaves_its_last_digest(
    harness: LocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, audit = harness.runtime.database(harness.instance), AuditSettings(secret="${env:AUDIT_SECRET}")
    harness.settings = harness.settings.model_copy(update={"audit": audit})
    harness.reopen()
    entry = AuditEntry(recorded_at=START, author="ann", action="touch")
    with database.begin() as connection:
        Audit(connection).append_many([entry] * 3)
    harness.tick()
    with database.read() as connection:
        (failure,) = TickFailures(connection).all()
    assert (failure.step, "the environment has no AUDIT_SECRET" in failure.reason) == (TickStep.AUDIT, True)
    monkeypatch.setenv("AUDIT_SECRET", "correct horse battery")
    harness.at(NOON + timedelta(minutes=1))
    harness.tick()
    assert verify_chain(database, audit, lambda *_: None).summary.startswith("rows 1 to 4 are chained, all as they")
    with database.begin() as connection:
        Audit(connection).append(replace(entry, recorded_at=START + 400 * DAY))
    harness.at(START + 400 * DAY)
    harness.tick()
    clean_on(harness, 400)
    proof = verify_chain(database, audit, lambda *_: None)
    assert (proof.first, proof.last, proof.faults) == (5, 5, ())
