"""Definitions that commands change while Dagster runs: ticks without a daemon, and the real daemon."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml
from dagster import AssetCheckEvaluation, DagsterInstance, DagsterRunStatus

from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.definitions.verbs import changes as entity_changes
from feed_assets.definitions.verbs.context import EntityContext, open_entity_context
from feed_assets.definitions.verbs.schedules import change_work
from feed_assets.definitions.verbs.verb_results import EntityVerb
from feed_assets.entities.common import Kind
from feed_assets.loading.entity_files import EntityFile
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration.location.reloading import follow_definitions
from feed_assets.orchestration.webserver import reload_locations
from feed_assets.plan.location import load_location
from tests.orchestration.dagster_home import Home, materialized, runs_of, wait_until
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, JOBS, key, land
from tests.servers import free_port

DOUBLED = """
kind: feed
name: doubles
frequency: hours(1)
format: csv
schema: "total bigint"
availability_flag: _SUCCESS
locations: {data: "/doubles/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
---
kind: process
name: doubling
frequency: hours(1)
clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
inputs: {numbers: {feed: numbers, start: "now(0,0)", end: "now(0,0)"}}
outputs: {doubles: {feed: doubles, instance: "now(0,0)"}}
workflow: {engine: python, path: "jobs_of_test:summing"}
timeout: months(60)
"""
NEW = EntityFile(name="new.yaml", content=DOUBLED.encode())


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    harness = LocationHarness(Home(folder=tmp_path), instance)
    harness.runtime.reload = partial(load_location, harness.runtime.settings)
    return harness


def entity_context_of(harness: LocationHarness) -> EntityContext:
    database = harness.runtime.database(harness.instance)
    return open_entity_context(harness.runtime.settings, database, author="ann", now=NOON, skip_checks=True)


def test_a_tick_follows_a_change_and_asks_for_no_run_that_dagster_cannot_make(harness: LocationHarness) -> None:
    land(harness.home.data, 3, 1)
    harness.tick()
    entity_changes.submit(entity_context_of(harness), [NEW], and_schedule=True)
    result = harness.tick()
    assert not result.run_requests
    assert result.skip_reason is not None
    assert result.skip_reason.skip_message == (
        "13 new process instances, 1 ready; 1 process waits for Dagster to load it"
    )
    harness.layout = follow_definitions(
        harness.runtime, harness.layout, harness.runtime.database(harness.instance)
    ).layout
    harness.runtime.active = None  # as in a process that has loaded it from the start
    (request,) = harness.tick().run_requests or ()
    assert request.tags["feed_assets/process"] == "doubling"


def test_what_is_as_it_was_loaded_needs_no_other_layout(harness: LocationHarness) -> None:
    database = harness.runtime.database(harness.instance)
    harness.tick()
    active = follow_definitions(harness.runtime, harness.layout, database)
    assert active.layout is harness.layout
    entity_changes.submit(entity_context_of(harness), [NEW])
    assert follow_definitions(harness.runtime, harness.layout, database).not_yet == {("doubling", "here")}
    entity_changes.delete(entity_context_of(harness), Kind.PROCESS, ["doubling"])
    entity_changes.delete(entity_context_of(harness), Kind.FEED, ["doubles"])
    assert follow_definitions(harness.runtime, harness.layout, database).layout is harness.layout


def test_what_cannot_be_loaded_leaves_the_definitions_before_in_force(
    harness: LocationHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.tick()
    entity_changes.submit(entity_context_of(harness), [NEW])
    entities = harness.home.folder / "entities"
    entities.rename(harness.home.folder / "elsewhere")
    database = harness.runtime.database(harness.instance)
    assert follow_definitions(harness.runtime, harness.layout, database).layout is harness.layout
    assert "the changed definitions cannot be loaded" in caplog.text
    (harness.home.folder / "elsewhere").rename(entities)
    assert ("doubling", "here") in follow_definitions(harness.runtime, harness.layout, database).plan.processes


def test_a_cluster_that_is_not_declared_any_more_does_nothing(harness: LocationHarness) -> None:
    harness.tick()
    for file in (harness.home.folder / "entities").rglob("*.yaml"):
        file.unlink()
    entity_context_of(harness).store.record_found(NOON, may_delete_all=True)
    assert "cluster here is no longer declared" in str(harness.tick().skip_reason)


def test_entities_whose_files_disappear_are_not_deleted_and_a_suspended_one_stays_so(harness: LocationHarness) -> None:
    harness.tick()
    change_work(entity_context_of(harness), EntityVerb.SUSPEND, Kind.PROCESS, ["summing"])
    entities = harness.home.folder / "entities"
    (file,) = entities.rglob("*.yaml")
    whole = file.read_text()
    file.write_text(whole.partition("---")[0])
    harness.reopen()
    result = harness.tick()
    (check,) = [event for event in result.asset_events if isinstance(event, AssetCheckEvaluation)]
    assert not check.passed
    assert "3 of 4 declared entities are gone at once" in str(result.skip_reason)
    file.write_text(whole)
    harness.reopen()
    (check,) = [event for event in harness.tick().asset_events if isinstance(event, AssetCheckEvaluation)]
    assert check.passed
    with harness.runtime.database(harness.instance).read() as connection:
        assert {each.version for each in Definitions(connection).newest().values()} == {1}
    land(harness.home.data, 3, 1)
    assert not harness.tick().run_requests


def test_a_suspended_process_stays_so_when_its_deletion_was_recorded_and_it_comes_back(
    harness: LocationHarness,
) -> None:
    harness.tick()
    change_work(entity_context_of(harness), EntityVerb.SUSPEND, Kind.PROCESS, ["summing"])
    (file,) = (harness.home.folder / "entities").rglob("*.yaml")
    whole = file.read_text()
    for text in (whole.rpartition("---")[0], whole):
        file.write_text(text)
        harness.reopen()
        harness.tick()
    with harness.runtime.database(harness.instance).read() as connection:
        versions = Definitions(connection).history("process", "summing")
    assert [each.action.value for each in versions] == ["SUBMITTED", "DELETED", "SUBMITTED"]
    land(harness.home.data, 3, 1)
    assert not harness.tick().run_requests


def test_a_tick_says_that_safe_mode_is_on(harness: LocationHarness) -> None:
    set_safe_mode(harness.runtime.database(harness.instance), is_on=True, author="root", now=NOON)
    assert "safe mode is on" in str(harness.tick().skip_reason)


def test_a_suspended_process_is_not_launched_by_a_tick(harness: LocationHarness) -> None:
    harness.tick()
    change_work(entity_context_of(harness), EntityVerb.SUSPEND, Kind.PROCESS, ["summing"])
    land(harness.home.data, 3, 1)
    harness.at(NOON.replace(hour=14))
    result = harness.tick()
    assert not result.run_requests
    assert harness.counts() == {ProcessInstanceStatus.WAITING: 12, ProcessInstanceStatus.READY: 1}


def command(home: Home, *arguments: str, stdin: str = "") -> str:
    """Give a `feed-assets` command in the project; its output."""
    done = subprocess.run(
        [sys.executable, "-c", "from feed_assets.cli.main import main; main()", *arguments],
        cwd=home.folder,
        env=home.environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


STUBBORN = """
        from pathlib import Path
        from time import sleep
        Path(__file__).with_name("begun").touch()
        try:
            sleep(300)
        except BaseException:
            sleep(300)
"""


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.daemon
def test_row_92_a_deletion_ends_the_runs_of_the_process_though_one_swallows_an_interrupt(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    home.prepare(ENTITIES, JOBS.replace("(numbers):\n", f"(numbers):{STUBBORN}"))
    land(home.data, 0, 1, 2)
    with home.instance() as instance, home.daemon():
        wait_until(lambda: any(tmp_path.rglob("begun")), home.log)
        told = command(home, "entity", "delete", "process", "summing")
        assert "killed unfinished instances: 24" in told
        wait_until(lambda: all(run.is_finished for run in runs_of(instance, "summing")), home.log)
        assert [run.status for run in runs_of(instance, "summing")] == [DagsterRunStatus.CANCELED]
        assert materialized(instance, "here", "sums") == set()


@pytest.mark.drill
@pytest.mark.spark
@pytest.mark.server
@pytest.mark.daemon
def test_a_code_server_of_its_own_is_asked_to_load_anew_by_the_next_tick(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    home.prepare(ENTITIES, JOBS)
    port = free_port()
    location = {"grpc_server": {"host": "localhost", "port": port, "location_name": "feed_assets"}}
    (home.folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [location]}))
    land(home.data, 0, 1, 2)
    command_line = ("dagster", "code-server", "start", "-f", "definitions.py", "-p", str(port))
    # The instance first: of two processes that make Dagster's SQLite tables at once one fails.
    with home.instance() as instance, home.background(*command_line, log="server.log"), home.daemon():
        wait_until(lambda: materialized(instance, "here", "sums") == {key(0)}, home.log)
        command(home, "entity", "submit-and-schedule", "-", "--skip-checks", stdin=DOUBLED)
        wait_until(lambda: materialized(instance, "here", "doubles") == {key(0)}, home.log)


@pytest.mark.server
@pytest.mark.daemon
def test_a_webserver_shows_what_was_changed_when_it_is_asked(tmp_path: Path) -> None:
    home = Home(folder=tmp_path)
    home.prepare(ENTITIES, JOBS)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with home.background("dagster_webserver", "-w", "workspace.yaml", "-p", str(port), log="webserver.log"):
        wait_until(lambda: _assets(url) is not None, lambda: (home.folder / "webserver.log").read_text())
        assert _assets(url) == {"sums", "numbers"}
        command(home, "entity", "submit", "-", "--skip-checks", stdin=DOUBLED)
        assert reload_locations(url) == ("feed_assets",)
        assert _assets(url) == {"sums", "numbers", "doubles"}


def _assets(url: str) -> set[str] | None:
    """The feeds that a webserver shows; None while it does not answer."""
    from feed_assets.orchestration.errors import WebserverError
    from feed_assets.orchestration.webserver import _ask

    try:
        found = _ask(url, "query {assetNodes {assetKey {path}}}", {})
    except WebserverError:
        return None
    paths = [node["assetKey"]["path"] for node in found["assetNodes"]]
    return {path[1] for path in paths if path[0] == "here"}
