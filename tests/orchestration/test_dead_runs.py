"""Runs that are STARTED and have no worker any more, in a real Dagster instance."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, job, op

from feed_assets.clock import SystemClock
from feed_assets.lifecycle.leasing import TTL
from feed_assets.orchestration import names
from feed_assets.orchestration.dead_runs import SILENCE, fail_dead_runs
from feed_assets.state.database import Database, open_database
from feed_assets.state.leases import Leases
from tests.orchestration.small import START


@op
def nothing() -> None:
    """Does nothing."""


@job
def idle() -> None:
    nothing()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    (tmp_path / "instance").mkdir()
    with DagsterInstance.local_temp(str(tmp_path / "instance")) as made:
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    made.migrate()
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


def test_a_silent_run_without_a_lease_is_reported_as_failed(instance: DagsterInstance, database: Database) -> None:
    run = started(instance)
    assert fail_dead_runs(database, "here", instance, (), now() + SILENCE / 2) == []
    assert fail_dead_runs(database, "here", instance, (), now() + SILENCE) == [run.run_id]
    assert status(instance, run) is DagsterRunStatus.FAILURE
    assert fail_dead_runs(database, "here", instance, (), now() + SILENCE) == []


def test_who_has_a_lease_may_be_silent_for_as_long_as_he_renews_it(
    instance: DagsterInstance, database: Database
) -> None:
    run, later = started(instance), now() + timedelta(hours=1)
    leases = Leases(database)
    lease = leases.acquire("process/summing", "here", START, run.run_id, now(), TTL)
    lease = leases.renew(lease, later, TTL)
    assert fail_dead_runs(database, "here", instance, (), later) == []
    assert fail_dead_runs(database, "here", instance, (), later + TTL) == [run.run_id]


def test_runs_of_other_clusters_and_of_others_are_left_alone(instance: DagsterInstance, database: Database) -> None:
    strangers = [started(instance, "there"), started(instance, None)]
    assert fail_dead_runs(database, "here", instance, (), now() + timedelta(days=1)) == []
    assert {status(instance, run) for run in strangers} == {DagsterRunStatus.STARTED}


def test_a_run_that_a_person_started_counts_once_the_record_knows_it(
    instance: DagsterInstance, database: Database
) -> None:
    run = started(instance, None)
    assert fail_dead_runs(database, "here", instance, [run.run_id], now() + SILENCE) == [run.run_id]


def test_what_waits_for_a_worker_is_left_to_dagster(instance: DagsterInstance, database: Database) -> None:
    run = instance.create_run_for_job(idle, status=DagsterRunStatus.STARTING, tags={names.TAG_CLUSTER: "here"})
    assert fail_dead_runs(database, "here", instance, [run.run_id], now() + timedelta(days=1)) == []
