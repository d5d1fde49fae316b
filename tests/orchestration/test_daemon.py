"""The real daemon, on both databases, with the `dagster.yaml` that the project ships for each."""

import os
import signal
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import DagsterRunStatus
from sqlalchemy import text

from feed_assets.clock import SystemClock
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, describe_cause
from tests.drills import drill
from tests.orchestration.dagster_home import (
    Home,
    home_on_postgresql,
    materialized,
    runs_of,
    sqlite_state,
    state_of,
    wait_until,
)
from tests.orchestration.small import ENTITIES, JOBS, START, key, land, total
from tests.orchestration.test_poisons import POISONED, dangle
from tests.orchestration.test_reloading import DOUBLED, command
from tests.orchestration.told import location_check, ticks_until_requested
from tests.orchestration.workers import worker_of
from tests.servers import postgres_away

pytestmark = [pytest.mark.daemon, pytest.mark.spark, pytest.mark.server]


@pytest.fixture(params=["sqlite", drill("postgres")])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param == "sqlite":
        made = Home(folder=tmp_path)
        made.prepare(ENTITIES, JOBS)
        yield made
        return
    with home_on_postgresql(tmp_path) as made:
        made.prepare(ENTITIES, JOBS)
        yield made


def test_arrivals_turn_green_and_what_became_ready_runs_in_one_run(home: Home) -> None:
    for hour in (0, 1, 2):
        land(home.data, hour, hour, 10)
    (home.folder / "entities" / "poisoned.yaml").write_text(textwrap.dedent(POISONED.replace("---", "")))
    dangle(home.data)
    looping = home.data / "poisoned" / f"{START:%Y-%m-%d}" / "04"
    looping.symlink_to(looping)
    since = SystemClock().now().timestamp()
    wanted = {key(hour) for hour in (0, 1, 2)}
    with home.instance() as instance, home.daemon():
        wait_until(lambda: materialized(instance, "here", "sums") == wanted, home.log)
        assert materialized(instance, "here", "numbers") == wanted
        wait_until(lambda: all(run.is_finished for run in runs_of(instance, "summing")), home.log)
        assert [run.status for run in runs_of(instance, "summing")] == [DagsterRunStatus.SUCCESS]
        assert [total(home.data, hour) for hour in (0, 1, 2)] == [10, 11, 12]
        assert ticks_until_requested(instance, "summing", key(2), since) <= 3
        check = location_check(instance)
        assert check is not None
        assert not check.passed
        assert "2 instances of feed poisoned on here cannot be polled" in str(check.metadata)


@pytest.mark.drill
def test_a_workflow_that_ends_its_process_takes_no_other_instance_along(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    deadly = "\n        if context.nominal_time.hour == 1:\n            __import__('os')._exit(0)\n"
    home.prepare(ENTITIES, JOBS.replace("summing(numbers):\n", f"summing(numbers, context):{deadly}"))
    for hour in range(4):
        land(home.data, hour, hour)

    def status() -> tuple[str, str]:
        with sqlite_state(home).read() as connection:
            row = ProcessInstances(connection).get("summing", "here", START + timedelta(hours=1))
        return ("", "") if row is None else (row.status.value, row.reason or "")

    with home.instance() as instance, home.daemon():
        wait_until(lambda: materialized(instance, "here", "sums") == {key(0), key(2), key(3)}, home.log)
        assert len(runs_of(instance, "summing")) == 2
        wait_until(lambda: status()[0] == "FAILED", home.log)
        assert "its worker died 10 times in a row" in status()[1]


@pytest.mark.drill
def test_terminate_kills_what_is_at_work_and_the_others_go_on(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    slow = "\n        import time\n        time.sleep(90 if context.nominal_time.hour == 1 else 0)\n"
    home.prepare(ENTITIES, JOBS.replace("summing(numbers):\n", f"summing(numbers, context):{slow}"))
    for hour in range(4):
        land(home.data, hour, hour)

    def statuses() -> list[str]:
        with sqlite_state(home).read() as connection:
            rows = ProcessInstances(connection).find_between("summing", "here", START, START + timedelta(hours=3))
        return [row.status.value for row in rows]

    with home.instance() as instance, home.daemon():
        wait_until(lambda: materialized(instance, "here", "sums") == {key(0)}, home.log)
        wait_until(lambda: statuses()[1] == "RUNNING", home.log)
        (run,) = runs_of(instance, "summing")
        assert instance.run_coordinator.cancel_run(run.run_id)
        wait_until(lambda: materialized(instance, "here", "sums") == {key(0), key(2), key(3)}, home.log)
        assert statuses() == ["SUCCEEDED", "KILLED", "SUCCEEDED", "SUCCEEDED"]


@pytest.mark.drill
def test_a_retry_begins_before_the_rest_of_a_run(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    entities = ENTITIES.replace("timeout:", "retry: {policy: periodic, delay: minutes(1), attempts: 3}\n    timeout:")
    slow = """
        import time
        from pathlib import Path
        has_failed = Path(__file__).with_name("failed")
        if context.nominal_time.hour == 0 and not has_failed.exists():
            has_failed.touch()
            raise RuntimeError("the first time")
        time.sleep(6)
"""
    home.prepare(entities, JOBS.replace("summing(numbers):\n", f"summing(numbers, context):{slow}"))
    for hour in range(22):
        land(home.data, hour, hour)
    with home.instance() as instance, home.daemon():
        wait_until(lambda: materialized(instance, "here", "sums") == set(map(key, range(22))), home.log)
        wait_until(lambda: all(run.is_finished for run in runs_of(instance, "summing")), home.log)
        runs = runs_of(instance, "summing")
        with sqlite_state(home).read() as connection:
            failed, *others = ProcessInstances(connection).find_between(
                "summing", "here", START, START + timedelta(hours=21)
            )
    assert failed.attempt == 2
    assert {row.attempt for row in others} == {1}
    later = [row for row in others if row.started_at and failed.started_at and row.started_at > failed.started_at]
    assert 1 < len(later) < len(others)
    assert [run.status for run in runs] == [
        DagsterRunStatus.FAILURE,
        DagsterRunStatus.SUCCESS,
        DagsterRunStatus.SUCCESS,
    ]


@pytest.mark.drill
def test_a_database_that_is_away_for_a_minute_fails_no_instance(tmp_path: Path) -> None:
    """Dagster's and ours are one. The daemon may die of it, and is started again, as its supervisor does."""
    with home_on_postgresql(tmp_path) as home:
        slow = JOBS.replace("(numbers):\n", "(numbers):\n        import time; time.sleep(5)\n")
        home.prepare(ENTITIES, slow)
        hours = range(12)
        for hour in hours:
            land(home.data, hour, hour)
        with home.instance() as instance:
            with home.daemon():
                wait_until(lambda: materialized(instance, "here", "sums") != set(), home.log)
                with postgres_away(int(home.settings["DAGSTER_PG_PORT"])):
                    time.sleep(60)
            with home.daemon():
                wait_until(lambda: materialized(instance, "here", "sums") == {key(hour) for hour in hours}, home.log)
        with closing(state_of(home)) as state, state.read() as connection:
            reasons = connection.scalars(text("SELECT reason FROM fa_attempts WHERE status = 'FAILED'")).all()
        assert set(reasons) <= {describe_cause(Cause.RUN_LOST, None)}
        assert [total(home.data, hour) for hour in hours] == list(hours)


def test_a_killed_worker_is_replaced_and_meanwhile_new_assets_appear_and_run_without_restart(tmp_path: Path) -> None:
    """Both wait for a minute: for the lease of the dead, and for Dagster to load the location anew."""
    home = Home(folder=tmp_path)
    slow = JOBS.replace(
        "    def summing(numbers):\n", "    def summing(numbers):\n        import time; time.sleep(3)\n"
    )
    home.prepare(ENTITIES, slow)
    for hour in (0, 1):
        land(home.data, hour, 1, 2)
    with home.instance() as instance, home.daemon():
        wait_until(lambda: worker_of(instance, "summing") is not None, home.log)
        os.kill(worker_of(instance, "summing") or 0, signal.SIGKILL)
        command(home, "entity", "submit-and-schedule", "-", "--skip-checks", stdin=DOUBLED)
        wait_until(lambda: materialized(instance, "here", "doubles") == {key(0), key(1)}, home.log)
        wait_until(lambda: materialized(instance, "here", "sums") == {key(0), key(1)}, home.log)
        assert [total(home.data, hour) for hour in (0, 1)] == [3, 3]
