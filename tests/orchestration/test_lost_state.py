"""The state and Dagster's storage are lost under the real daemon, and rebuilt from what lies on storage."""

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance

from feed_assets.log.instances.process_instances import ProcessInstances
from tests.orchestration.dagster_home import Home, materialized, state_of, wait_until
from tests.orchestration.small import ENTITIES, JOBS, START, key, land
from tests.orchestration.test_reloading import command
from tests.orchestration.test_replication import HERE

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server]

EXPIRED = HERE.replace("{here: {type: source,", "{here: {type: source, retention: {limit: days(2)},")
SUMMING = ENTITIES.partition("---")[2].partition("---")[2]
ASSETS = (("here", "numbers"), ("here", "sums"), ("there", "numbers"))
PROCESSES = (("summing", "here"), ("numbers@here", "there"))


def test_nothing_runs_again_and_what_lies_on_storage_is_green_again(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    home.prepare(f"{EXPIRED}    ---{SUMMING}", JOBS)
    for hour in (0, 1, 2):
        land(home.data, hour, hour, 10)
    with home.instance() as instance, home.daemon():
        wait_until_green(home, instance, 0, 1, 2)
    command(
        home, "hold", "add", "audit", "--feed", "numbers", "--instance", "2026-01-01T01:00Z", "--reason", "an audit"
    )
    said, instances = status(home), attempted(home)
    assert len(instances) == 2 * 3
    lose_everything(home)
    planned = json.loads(command(home, "state", "rebuild", "--dry-run", "--output", "json"))
    assert {each["process"]: each["recorded"] for each in planned["processes"]} == {"summing": 3, "numbers@here": 3}
    assert [each["name"] for each in planned["holds"]] == ["audit"]
    assert attempted(home) == {}
    command(home, "state", "rebuild", "--yes")
    assert (status(home), attempted(home)) == (said, instances)
    with home.instance() as instance, home.daemon():
        wait_until_green(home, instance, 0, 1, 2)
        land(home.data, 3, 3, 10)
        # what is so old is polled rarely
        command(home, "feed", "notify", "numbers", "2026-01-01T03:00Z", "--cluster", "here")
        wait_until_green(home, instance, 0, 1, 2, 3)
    again = attempted(home)
    assert again.items() > instances.items()
    assert len(again) == 2 * 4


def wait_until_green(home: Home, instance: DagsterInstance, *hours: int) -> None:
    """Wait until exactly these hours of all feeds are green, and nothing runs."""
    wanted = {key(hour) for hour in hours}
    wait_until(lambda: all(materialized(instance, *asset) == wanted for asset in ASSETS), home.log)
    wait_until(lambda: all(run.is_finished for run in instance.get_runs()), home.log)


def lose_everything(home: Home) -> None:
    """Leave nothing of the Dagster home but its settings."""
    settings = (home.home / "dagster.yaml").read_text()
    shutil.rmtree(home.home)
    home.home.mkdir()
    (home.home / "dagster.yaml").write_text(settings)


def status(home: Home) -> tuple[object, object, str]:
    """What the state says of the replicas of three hours, which instances have expired and are kept why, and holds."""
    hours = ("--start", "2026-01-01T00:00Z", "--end", "2026-01-01T03:00Z")
    replicas = json.loads(command(home, "replication", "status", "numbers", *hours, "--output", "json"))
    planned = json.loads(command(home, "retention", "plan", "--dry-run", "--output", "json"))
    copied = [
        [each[name] for name in ("nominal_time", "sync", "run_id", "copied_digest")] for each in replicas["instances"]
    ]
    names = ("feed", "cluster", "instances", "bytes", "oldest", "newest", "rules", "kept")
    return copied, [[each[name] for name in names] for each in planned["feeds"]], command(home, "hold", "list")


def attempted(home: Home) -> dict[tuple[str, datetime], tuple[object, ...]]:
    """How each process instance ended that was ever attempted, in which run and from which inputs."""
    with state_of(home).read() as connection:
        instances = ProcessInstances(connection)
        rows = [
            row for process in PROCESSES for row in instances.find_between(*process, START, START + timedelta(days=1))
        ]
    return {
        (row.process, row.nominal_time): (row.status, row.attempt, row.run_id, row.inputs)
        for row in rows
        if row.attempt
    }
