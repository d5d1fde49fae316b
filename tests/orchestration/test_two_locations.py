"""Two code locations with different entities on one database, under one real daemon."""

from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.scheduler.instigation import TickStatus

from feed_assets.clock import SystemClock
from feed_assets.log.definitions.store import Definitions
from feed_assets.sql.database import open_database
from tests.orchestration.dagster_home import Home, materialized, wait_until
from tests.orchestration.small import JOBS, key, land
from tests.orchestration.test_lost_state import EXPIRED, SUMMING
from tests.orchestration.test_poisoned_daemon import others
from tests.orchestration.test_reloading import command
from tests.orchestration.told import arrival_ticks

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(3600)]

TICKS = 5
ENTITIES = f"{EXPIRED}    ---{SUMMING}"


def elsewhere(text: str) -> str:
    """The same entities with other names, on other clusters."""
    for cluster, other in (("there", "beyond"), ("here", "yonder")):
        text = text.replace(cluster, other)
    return others(text)


def test_neither_changes_the_entities_of_the_other_and_both_work(tmp_path: Path) -> None:
    first, second = (Home(folder=tmp_path / name) for name in ("first", "second"))
    for project, entities, jobs in ((first, ENTITIES, JOBS), (second, elsewhere(ENTITIES), others(JOBS))):
        project.folder.mkdir()
        project.prepare(entities, jobs)
    second.home.joinpath("dagster.yaml").unlink()
    second.home.rmdir()
    second.home.symlink_to(first.home)
    second.data.rmdir()
    second.data.symlink_to(first.data)
    (first.folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [location(first), location(second)]}))
    for feed in ("numbers", "letters"):
        for hour in (0, 1):
            land(first.data, hour, hour, 10, feed=feed)
    command(first, "apply", "--yes", "--skip-checks")  # the database is the first one's, whichever ticks first
    with first.instance() as instance, first.daemon():
        wait_until(lambda: is_green(instance, "here", "there", "numbers", "sums"), first.log)
        wait_until(lambda: "it belongs to another project. Set a namespace" in refusal(instance), first.log)
        (second.folder / "feed_assets.yaml").write_text("namespace: second\n")
        wait_until(lambda: is_green(instance, "yonder", "beyond", "letters", "counts"), first.log)
        since = SystemClock().now().timestamp()
        for sensor in ("arrival_here", "arrival_yonder"):
            wait_until(lambda sensor=sensor: len(arrival_ticks(instance, since, sensor)) >= TICKS, first.log)  # type: ignore[misc]
        ticks = [
            tick for sensor in ("arrival_here", "arrival_yonder") for tick in arrival_ticks(instance, since, sensor)
        ]
        assert {tick.status for tick in ticks} <= {TickStatus.SKIPPED, TickStatus.SUCCESS, TickStatus.STARTED}
    recorded = [
        {name: version.version for (_, name), version in found.items()}
        for found in map(definitions, (first.home / "feed_assets.db", first.home / "feed_assets.second.db"))
    ]
    assert recorded == [
        dict.fromkeys(names, 1)
        for names in (
            ("here", "there", "numbers", "sums", "summing"),
            ("yonder", "beyond", "letters", "counts", "counting"),
        )
    ]
    for project, feed in ((first, "numbers"), (second, "letters")):
        assert feed in command(project, "retention", "plan", "--dry-run")


def location(project: Home) -> dict[str, object]:
    """A project as the workspace names it."""
    folder = project.folder
    names = {"working_directory": str(folder), "location_name": folder.name}
    return {"python_file": {"relative_path": str(folder / "definitions.py"), **names}}


def is_green(instance: DagsterInstance, cluster: str, target: str, feed: str, made: str) -> bool:
    assets = ((cluster, feed), (target, feed), (cluster, made))
    return all(materialized(instance, *asset) == {key(0), key(1)} for asset in assets)


def refusal(instance: DagsterInstance) -> str:
    """Why the newest tick of the second location failed; nothing if it did not."""
    ticks = arrival_ticks(instance, 0.0, "arrival_yonder")
    return ticks[-1].error.to_string() if ticks and ticks[-1].error is not None else ""


def definitions(file: Path) -> dict[tuple[str, str], object]:
    with open_database(f"sqlite:///{file}").read() as connection:
        return dict(Definitions(connection).newest())
