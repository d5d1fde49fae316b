"""`feed-assets instance kill|suspend|resume|rerun`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import update

from feed_assets.context.heartbeat import note_tick
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.log.audit import Audit
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.instances.tables import process_instances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.sql.database import Database
from tests.cli.project import run
from tests.databases import open_migrated
from tests.log.samples import process_instance
from tests.simulate.test_simulate_command import ENTITIES

START = datetime(2015, 1, 1, tzinfo=UTC)
S = ProcessInstanceStatus
RANGE = ["--start", "2015-01-01T00:00Z", "--end", "2015-01-04T00:00Z"]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Four days of the process: succeeded, failed, waiting, and waiting beyond the range."""
    (tmp_path / "feed_assets.yaml").write_text(f"entities: entities\nstate: sqlite:///{tmp_path / 'state.db'}\n")
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities/all.yaml").write_text(ENTITIES)
    monkeypatch.chdir(tmp_path)
    database = open_migrated(f"sqlite:///{tmp_path / 'state.db'}")
    statuses = (S.SUCCEEDED, S.FAILED, S.WAITING, S.WAITING)
    rows = [
        process_instance(process="count", nominal_time=START + timedelta(days=day), status=status, updated_at=START)
        for day, status in enumerate(statuses)
    ]
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting(rows)
    return database


def instance(verb: str, *options: str) -> Result:
    return run("instance", verb, "count", *RANGE, "--author", "ann", *options)


def statuses(database: Database) -> list[ProcessInstanceStatus]:
    return [row.status for row in instances(database)]


def instances(database: Database) -> list[ProcessInstance]:
    with database.read() as connection:
        return ProcessInstances(connection).find_between("count", "primary", START, START + timedelta(days=9))


def test_a_range_is_killed_and_what_succeeded_stays(database: Database) -> None:
    result = instance("kill", "--output", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["changed"] == 2
    assert statuses(database) == [S.SUCCEEDED, S.KILLED, S.KILLED, S.WAITING]
    with database.read() as connection:
        (entry,) = Audit(connection).newest(5)
    assert (entry.author, entry.action, entry.target) == ("ann", "instance kill", "process 'count'")
    assert json.loads(instance("kill", "--output", "json").stdout)["changed"] == 0


def test_who_runs_instances_again_hears_that_no_tick_does_it(database: Database) -> None:
    assert "no tick of cluster primary has ever come: nothing is polled" in instance("rerun").stderr
    note_tick(database, "primary", datetime.now(UTC))
    assert "no tick" not in instance("rerun").stderr
    assert "no tick" not in instance("kill").stderr


def test_a_dry_run_says_what_would_be_and_changes_nothing(database: Database) -> None:
    before = instances(database)
    result = instance("suspend", "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[3].split("\t") == ["2015-01-03T00:00Z", "primary", "WAITING", "SUSPENDED", ""]
    assert "would change 1 of 3 instances of count" in result.stderr
    assert instances(database) == before


def test_a_rerun_takes_properties_from_a_file_and_from_options(database: Database, tmp_path: Path) -> None:
    (tmp_path / "job.properties").write_text("# for once\ndepth=7\ncolour = red\n")
    result = instance("rerun", "--file", "job.properties", "--property", "depth=8")
    assert result.exit_code == 0, result.output
    assert statuses(database) == [S.WAITING] * 4
    assert [row.overrides for row in instances(database)] == [{"depth": "8", "colour": "red"}] * 2 + [{}] * 2


def test_a_rerun_from_the_start_lets_steps_that_have_finished_run_again(database: Database) -> None:
    done = StepRun(
        process="count",
        cluster="primary",
        nominal_time=START + timedelta(days=1),
        attempt=1,
        step="extract",
        position=0,
        status=StepStatus.SUCCEEDED,
        basis="a b",
        made_in=1,
    )
    with database.begin() as connection:
        Steps(connection).add([done])
    for options, basis in (([], "a b"), (["--from-start", "--dry-run"], "a b"), (["--from-start"], "")):
        result = instance("rerun", *options)
        assert result.exit_code == 0, result.output
        with database.begin() as connection:
            assert [run.basis for run in Steps(connection).of(done.key)] == [basis]
            connection.execute(update(process_instances).values(status=S.FAILED))
