"""Yesterday's state is restored under the real daemon, on both databases."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from dagster import DagsterInstance

from feed_assets.clock import SystemClock
from feed_assets.context.safe_mode import HELD
from feed_assets.sql.tables import VERSION_TABLE
from tests.orchestration.dagster_home import Home, home_on_postgresql, materialized, wait_until
from tests.orchestration.small import JOBS, key, land
from tests.orchestration.test_lost_state import EXPIRED, SUMMING, attempted, status, wait_until_green
from tests.orchestration.test_reloading import command
from tests.orchestration.told import arrival_ticks, location_check
from tests.servers import postgres_program

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(3600)]

MOST_TICKS = 3


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param == "sqlite":
        yield Home(folder=tmp_path)
        return
    with home_on_postgresql(tmp_path) as made:
        yield made


def test_what_is_on_storage_is_green_and_nothing_runs_again(home: Home) -> None:
    home.prepare(f"{EXPIRED}    ---{SUMMING}", JOBS)
    arrive(home, 0, 1)
    with home.instance() as instance, home.daemon():
        wait_until_green(home, instance, 0, 1)
        backup = back_up(home)
        arrive(home, 2, 3, is_old=True)
        wait_until_green(home, instance, 0, 1, 2, 3)
        said, instances, runs = status(home), attempted(home), instance.get_runs_count()
        restore(home, backup)
        since = SystemClock().now().timestamp()
        assert len(attempted(home)) < len(instances)
        arrive(home, 4, is_old=True)  # its event has a number that was reported with another
        landed = SystemClock().now().timestamp()
        wait_until(lambda: key(4) in materialized(instance, "here", "numbers"), home.log)
        green = SystemClock().now().timestamp()
        assert len([tick for tick in arrival_ticks(instance, landed) if tick.timestamp < green]) <= MOST_TICKS
        wait_until(lambda: len(arrival_ticks(instance, since)) > 2 * MOST_TICKS, home.log)
        assert instance.get_runs_count() == runs
        assert HELD in told(instance)
        command(home, "state", "rebuild", "--yes")
        wait_until_green(home, instance, 0, 1, 2, 3, 4)
        wait_until(lambda: told(instance) == "", home.log)
    again = attempted(home)
    assert again.items() >= instances.items()
    assert len(again) == len(instances) + 2
    assert status(home)[0] == said[0]


def arrive(home: Home, *hours: int, is_old: bool = False) -> None:
    """Let hours arrive; what is old is polled rarely, so that the daemon is notified."""
    for hour in hours:
        land(home.data, hour, hour, 10)
        if is_old:
            command(home, "feed", "notify", "numbers", f"2026-01-01T{hour:02d}:00Z", "--cluster", "here")


def told(instance: DagsterInstance) -> str:
    """What the check on the location says; nothing if it passes."""
    check = location_check(instance)
    return "" if check is None or check.passed else str(check.metadata["failures"].value)


def back_up(home: Home) -> Path:
    """Back the state up, as the documents say."""
    backup = home.folder / "backup"
    if home.storage == "sqlite":
        with closing(sqlite3.connect(home.home / "feed_assets.db")) as live, closing(sqlite3.connect(backup)) as copy:
            live.backup(copy)
    else:
        run_postgres_program(home, "pg_dump", "-Fc", "-t", "fa_*", "-t", VERSION_TABLE, "-f", str(backup))
    return backup


def restore(home: Home, backup: Path) -> None:
    """Put the backup in the place of the state, while the daemon runs."""
    if home.storage == "sqlite":
        state = home.home / "feed_assets.db"
        for file in state.parent.glob(f"{state.name}-*"):
            file.unlink()
        backup.replace(state)
    else:
        options = ("--clean", "--if-exists", "--single-transaction", "--no-owner")
        run_postgres_program(home, "pg_restore", *options, "-d", "postgres", str(backup))


def run_postgres_program(home: Home, program: str, *arguments: str) -> None:
    host, port = home.settings["DAGSTER_PG_HOST"], home.settings["DAGSTER_PG_PORT"]
    command_line = [postgres_program(program), "-h", host, "-p", port, "-U", "postgres", *arguments]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
