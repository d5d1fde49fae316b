"""The real daemon, on both databases, with the `dagster.yaml` that the project ships for each."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterRunStatus

from tests.drills import drill
from tests.orchestration.dagster_home import Home, materialized, runs_of, wait_until
from tests.orchestration.small import ENTITIES, JOBS, key, land, total
from tests.orchestration.workers import worker_of
from tests.servers import run_tcp_postgres

pytestmark = [pytest.mark.daemon, pytest.mark.spark, pytest.mark.server]


@pytest.fixture(params=["sqlite", drill("postgres")])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param == "sqlite":
        made = Home(folder=tmp_path)
        made.prepare(ENTITIES, JOBS)
        yield made
        return
    with run_tcp_postgres() as port:
        settings = {
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_PORT": str(port),
            "DAGSTER_PG_USER": "postgres",
            "DAGSTER_PG_PASSWORD": "unused",
            "DAGSTER_PG_DB": "postgres",
        }
        made = Home(folder=tmp_path, storage="postgres", settings=settings)
        made.prepare(ENTITIES, JOBS)
        yield made


def test_arrivals_turn_green_and_what_became_ready_runs_in_one_run(home: Home) -> None:
    for hour in (0, 1, 2):
        land(home.data, hour, hour, 10)
    wanted = {key(hour) for hour in (0, 1, 2)}
    with home.instance() as instance, home.daemon():
        wait_until(lambda: materialized(instance, "here", "sums") == wanted, home.log)
        assert materialized(instance, "here", "numbers") == wanted
        wait_until(lambda: all(run.is_finished for run in runs_of(instance, "summing")), home.log)
        assert [run.status for run in runs_of(instance, "summing")] == [DagsterRunStatus.SUCCESS]
        assert [total(home.data, hour) for hour in (0, 1, 2)] == [10, 11, 12]


def test_a_killed_worker_leaves_nothing_partial_and_is_replaced(tmp_path: Path) -> None:
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
        wait_until(lambda: materialized(instance, "here", "sums") == {key(0), key(1)}, home.log)
        assert [total(home.data, hour) for hour in (0, 1)] == [3, 3]
