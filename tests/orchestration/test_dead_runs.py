"""Runs that are STARTED and have no worker any more, in a real Dagster instance."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, job, op

from feed_assets.clock import SystemClock
from feed_assets.instances.leasing import TTL
from feed_assets.log.leases import Leases
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.orchestration import names
from feed_assets.orchestration.location.dead_runs import SILENCE, RunHeartbeats, fail_dead_runs
from feed_assets.sql.database import Database
from tests.databases import open_migrated
from tests.orchestration.small import START

SHORT = timedelta(seconds=0.3)


@op
def nothing() -> None:
    """Does nothing."""


@job
def idle() -> None:
    nothing()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = open_migrated(f"sqlite:///{tmp_path / 'state.db'}")
    yield made
    made.close()


def started(instance: DagsterInstance, cluster: str | None = "here") -> DagsterRun:
    """A run that has logged something just now, and has no worker."""
    tags = {} if cluster is None else {names.TAG_CLUSTER: cluster}
    run = instance.create_run_for_job(idle, status=DagsterRunStatus.STARTED, tags=tags)
    instance.report_engine_event("at work", run)
    return run


def now() -> datetime:
    return SystemClock().now()


def status(instance: DagsterInstance, run: DagsterRun) -> DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def at_work(run: DagsterRun) -> list[ProcessInstance]:
    """What the record has of a run that works on the first instance."""
    row = ProcessInstance(
        process="summing",
        cluster="here",
        nominal_time=START,
        status=ProcessInstanceStatus.RUNNING,
        updated_at=START,
        run_id=run.run_id,
    )
    return [row]


class Sensor:
    """One who looks again and again. His clock is behind, so that his first look says nothing, unless it is `ahead`."""

    def __init__(self, instance: DagsterInstance, database: Database, patience: timedelta = SHORT) -> None:
        self._instance, self._database = instance, database
        self._heartbeats = RunHeartbeats(patience)

    def look(self, running: Sequence[ProcessInstance] = (), ahead: timedelta = -timedelta(hours=1)) -> list[str]:
        return fail_dead_runs(self._database, "here", self._instance, running, self._heartbeats, now() + ahead)


def test_a_silent_run_without_a_lease_is_reported_as_failed(instance: DagsterInstance, database: Database) -> None:
    run, sensor = started(instance), Sensor(instance, database)
    assert sensor.look() == []
    time.sleep(SHORT.total_seconds())
    assert sensor.look() == [run.run_id]
    assert status(instance, run) is DagsterRunStatus.FAILURE
    assert sensor.look() == []


def test_who_was_silent_before_anybody_looked_is_dead_at_the_first_look(
    instance: DagsterInstance, database: Database
) -> None:
    run = started(instance)
    assert Sensor(instance, database, SILENCE).look(ahead=SILENCE / 2) == []
    assert Sensor(instance, database, SILENCE).look(ahead=SILENCE) == [run.run_id]


def test_who_says_something_is_alive(instance: DagsterInstance, database: Database) -> None:
    run, sensor = started(instance), Sensor(instance, database)
    for _ in range(3):
        assert sensor.look() == []
        time.sleep(SHORT.total_seconds())
        instance.report_engine_event("still at work", run)
    assert sensor.look() == []


def test_who_has_a_lease_may_be_silent_for_as_long_as_he_renews_it(
    instance: DagsterInstance, database: Database
) -> None:
    run, sensor, leases = started(instance), Sensor(instance, database), Leases(database)
    lease = leases.acquire("process/summing", "here", START, run.run_id, now(), TTL)
    for _ in range(3):
        assert sensor.look(at_work(run)) == []
        time.sleep(SHORT.total_seconds())
        (lease,) = leases.renew_many([lease], now(), TTL)
    assert sensor.look(at_work(run)) == []
    time.sleep(SHORT.total_seconds())
    assert sensor.look(at_work(run)) == [run.run_id]


@pytest.mark.parametrize("step", [timedelta(days=2), -timedelta(days=2)])
def test_nobody_is_dead_because_somebody_sets_the_clock(
    instance: DagsterInstance, database: Database, step: timedelta
) -> None:
    run, sensor = started(instance), Sensor(instance, database, SILENCE)
    Leases(database).acquire("process/summing", "here", START, run.run_id, now(), TTL)
    assert sensor.look(at_work(run)) == []
    later = started(instance)
    assert sensor.look(at_work(run), ahead=step) == []
    assert {status(instance, each) for each in (run, later)} == {DagsterRunStatus.STARTED}


def test_who_died_before_the_clock_was_set_back_is_found_as_soon_as_ever(
    instance: DagsterInstance, database: Database
) -> None:
    run, sensor, back = started(instance), Sensor(instance, database), -timedelta(days=2)
    Leases(database).acquire("process/summing", "here", START, run.run_id, now(), TTL)
    assert sensor.look(at_work(run), ahead=back) == []
    time.sleep(SHORT.total_seconds())
    assert sensor.look(at_work(run), ahead=back) == [run.run_id]


def test_runs_of_other_clusters_and_of_others_are_left_alone(instance: DagsterInstance, database: Database) -> None:
    strangers = [started(instance, "there"), started(instance, None)]
    assert Sensor(instance, database).look(ahead=timedelta(days=1)) == []
    assert {status(instance, run) for run in strangers} == {DagsterRunStatus.STARTED}


def test_a_run_that_a_person_started_counts_once_the_record_knows_it(
    instance: DagsterInstance, database: Database
) -> None:
    run = started(instance, None)
    assert Sensor(instance, database).look(at_work(run), ahead=SILENCE) == [run.run_id]


def test_what_waits_for_a_worker_is_left_to_dagster(instance: DagsterInstance, database: Database) -> None:
    run = instance.create_run_for_job(idle, status=DagsterRunStatus.STARTING, tags={names.TAG_CLUSTER: "here"})
    assert Sensor(instance, database).look(at_work(run), ahead=timedelta(days=1)) == []
