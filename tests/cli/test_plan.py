import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.log.definitions.records import DefinitionAction
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.releases.store import Releases
from feed_assets.sql.database import Database
from tests.cli.project import let_ticks_come, shown
from tests.cli.project import must as run
from tests.databases import open_migrated
from tests.definitions.verbs.test_planning import ALL, CLICKS, CLUSTER, FEED, PROCESS
from tests.log.samples import process_instance

START = datetime(2013, 11, 1, tzinfo=UTC)
SLOWER = PROCESS.replace("hours(1)", "hours(2)")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return open_migrated(f"sqlite:///{tmp_path / 'state.db'}")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a cluster, two feeds and a process that nothing has been recorded of."""
    (tmp_path / "feed_assets.yaml").write_text(
        f"state: sqlite:///{tmp_path / 'state.db'}\nvariables: {{DATA_ROOT: {tmp_path}/data}}\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "jobs.py").write_text("def count(clicks): ...\n")
    (tmp_path / "entities").mkdir()
    for name, text in ALL.items():
        (tmp_path / "entities" / f"{name}.yaml").write_text(text)
    (tmp_path / "slower.yaml").write_text(SLOWER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEED_ASSETS_STRICT", raising=False)
    monkeypatch.setenv("FEED_ASSETS_AUTHOR", "ann")
    return tmp_path


def digest_of(result: Result) -> str:
    found = re.search(r"^Plan ([0-9a-f]{64})$", result.stdout, re.MULTILINE)
    assert found is not None, result.output
    return found[1]


def begin(database: Database, time: datetime, status: ProcessInstanceStatus) -> None:
    """A process instance that has come into being somehow."""
    waiting = process_instance(process="count", nominal_time=time, updated_at=START)
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting([waiting])
        instances.transition_many([waiting.key], {waiting.status}, status=status, updated_at=START)


def test_plan_says_by_its_exit_code_whether_there_is_a_difference_and_changes_nothing(
    project: Path, database: Database
) -> None:
    result = run("plan")
    assert "+ process 'count'" in result.stdout
    assert "4 added, 0 changed, 0 removed" in result.stdout
    run("plan", "--detailed-exitcode", code=4)
    with database.read() as connection:
        assert Definitions(connection).newest() == {}
    run("apply", "--yes")
    assert run("plan", "--detailed-exitcode").stdout == "Nothing would change.\n"


def test_apply_records_what_the_folder_says_and_is_idempotent(project: Path, database: Database) -> None:
    result = run("apply", "--digest", digest_of(run("plan")))
    assert "process 'count': submitted, version 1" in result.stdout
    with database.read() as connection:
        newest = Definitions(connection).newest()["process", "count"]
        (release,) = Releases(connection).of("count", "primary")
    assert (newest.version, newest.author) == (1, "ann")
    assert release.effective_from == START
    again = run("apply", "--yes")
    assert (again.stdout, again.stderr) == ("", "Nothing would change.\n")  # no tick has looked yet
    let_ticks_come(f"sqlite:///{project / 'state.db'}")
    nothing, warning = run("apply", "--yes").stderr.splitlines()
    assert nothing == "Nothing would change."
    assert "feed 'clicks': it has never come on primary" in warning


def test_apply_of_a_file_changes_the_folder_and_a_second_time_nothing(project: Path) -> None:
    run("apply", "--yes")
    digest = digest_of(run("plan", "slower.yaml"))
    assert (project / "entities" / "count.yaml").read_text() == PROCESS
    assert "fewer than 8 characters" in run("apply", "slower.yaml", "--digest", digest[:7], code=1).stderr
    assert "it is outdated" in run("apply", "slower.yaml", "--digest", "0" * 8, code=1).stderr
    assert "process 'count': updated, version 2" in run("apply", "slower.yaml", "--digest", digest[:8]).stdout
    assert (project / "entities" / "count.yaml").read_text() == SLOWER
    assert run("apply", "slower.yaml", "--digest", digest).stdout == ""
    assert 'version: 2; changed: frequency: "hours(1)" -> "hours(2)"; digest: ' in run("admin", "audit").stdout


@pytest.mark.parametrize("moved", ["an edited file", "another change", "a suspended process", "a begun instance"])
def test_apply_refuses_when_the_world_has_moved_since(project: Path, database: Database, moved: str) -> None:
    run("apply", "--yes")
    digest = digest_of(run("plan", "slower.yaml"))
    match moved:
        case "an edited file":
            (project / "entities" / "clicks.yaml").write_text(CLICKS + "description: moved\n")
        case "another change":
            (project / "other.yaml").write_text(FEED.format(name="other"))
            run("apply", "other.yaml", "--yes")
        case "a suspended process":
            run("entity", "suspend", "process", "count")
        case _:
            begin(database, START, ProcessInstanceStatus.SUCCEEDED)
    result = run("apply", "slower.yaml", "--digest", digest, code=1)
    assert "outdated" in result.stderr
    assert "Plan again" in result.stderr
    assert (project / "entities" / "count.yaml").read_text() == PROCESS
    run("apply", "slower.yaml", "--digest", digest_of(run("plan", "slower.yaml")))
    assert (project / "entities" / "count.yaml").read_text() == SLOWER


def test_apply_shows_the_plan_and_asks(project: Path) -> None:
    refused = run("apply", code=1, stdin="n\n")
    assert "+ process 'count'" in refused.stderr
    assert "4 added" in run("plan").stdout
    assert "process 'count': submitted" in run("apply", stdin="y\n").stdout


def test_a_dry_run_is_the_plan(project: Path) -> None:
    assert run("apply", "--dry-run").stdout == run("plan").stdout
    assert "4 added" in run("plan").stdout


def test_what_is_wrong_is_named_and_nothing_of_the_change_is_made(project: Path) -> None:
    run("apply", "--yes")
    (project / "both.yaml").write_text(
        PROCESS.replace("name: count", "name: twice").replace("feed: clicks", "feed: klicks") + "---\n" + SLOWER
    )
    for command in (["plan", "both.yaml"], ["apply", "both.yaml", "--yes"]):
        result = run(*command, code=1)
        assert "process 'twice'" in result.stderr
        assert "'klicks'" in result.stderr
    assert (project / "entities" / "count.yaml").read_text() == PROCESS
    assert not (project / "entities" / "process").exists()


def test_a_wrong_file_in_the_folder_is_named_and_what_it_declared_stays(project: Path) -> None:
    run("apply", "--yes")
    (project / "entities" / "count.yaml").write_text(PROCESS.replace("hours(1)", "weeks(1)"))
    result = run("plan", code=1)
    assert "count.yaml:3: process 'count': frequency" in result.stderr
    assert result.stdout == "Nothing would change.\n"
    run("apply", "--yes", code=1)


def test_pruning_removes_and_kills_what_has_not_ended(project: Path, database: Database) -> None:
    run("apply", "--yes")
    begin(database, START, ProcessInstanceStatus.WAITING)
    (project / "wanted").mkdir()
    (project / "wanted" / "all.yaml").write_text(f"{CLUSTER}---\n{CLICKS}")
    plan = run("plan", "wanted", "--prune")
    assert "- process 'count'" in plan.stdout
    assert "process 'count' on primary: stops; 1 instance that has not ended is killed" in plan.stdout
    run("apply", "wanted", "--prune", "--digest", digest_of(plan))
    assert sorted(path.name for path in (project / "entities").iterdir()) == ["clicks.yaml", "cluster.yaml"]
    with database.read() as connection:
        (row,) = ProcessInstances(connection).find_between("count", "primary", START, START + timedelta(hours=1))
    assert row.status is ProcessInstanceStatus.KILLED
    assert run("plan", "wanted", "--prune").stdout == "Nothing would change.\n"


def test_a_deletion_of_most_entities_must_be_confirmed(project: Path, database: Database) -> None:
    run("apply", "--yes")
    for file in (project / "entities").iterdir():
        file.unlink()
    refused = run("apply", "--yes", code=1).stderr
    assert "4 of 4 declared entities are gone at once" in refused
    assert "feed-assets apply --delete-all" in refused
    run("entity", "submit", "slower.yaml", code=1)
    with database.read() as connection:
        assert {each.action for each in Definitions(connection).newest().values()} == {DefinitionAction.SUBMITTED}
    run("apply", "--digest", digest_of(run("plan")))
    with database.read() as connection:
        assert {each.action for each in Definitions(connection).newest().values()} == {DefinitionAction.DELETED}


def test_pruning_most_entities_must_be_confirmed(project: Path) -> None:
    run("apply", "--yes")
    (project / "wanted").mkdir()
    (project / "wanted" / "cluster.yaml").write_text(CLUSTER)
    assert "3 of 4 declared entities" in run("apply", "wanted", "--prune", "--yes", code=1).stderr
    run("apply", "wanted", "--prune", "--yes", "--delete-all")
    assert [path.name for path in (project / "entities").iterdir()] == ["cluster.yaml"]


def test_another_project_on_the_same_database_is_refused_until_it_has_a_namespace(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("apply", "--yes")
    other = tmp_path_factory.mktemp("other")
    (other / "entities").mkdir()
    (other / "entities" / "cluster.yaml").write_text(CLUSTER.replace("primary", "elsewhere"))
    settings = (project / "feed_assets.yaml").read_text()
    (other / "feed_assets.yaml").write_text(settings)
    monkeypatch.chdir(other)
    refused = run("plan", code=1).stderr
    assert (
        f"records the definitions of {project / 'entities'}, and 4 of these 4 entities are not declared here" in refused
    )
    (other / "feed_assets.yaml").write_text(settings + "namespace: other\n")
    run("apply", "--yes")
    assert "elsewhere" in run("entity", "list").stdout
    monkeypatch.chdir(project)
    listed = run("entity", "list").stdout
    assert "primary" in listed
    assert "elsewhere" not in listed
    assert (project / "state.other.db").exists()


def test_a_copy_of_the_project_in_another_folder_uses_the_same_database(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("apply", "--yes")
    release = tmp_path_factory.mktemp("release") / "project"
    shutil.copytree(project, release)
    monkeypatch.chdir(release)
    (release / "entities" / "count.yaml").unlink()
    run("apply", "--yes")
    assert "process" not in run("entity", "list").stdout


def test_plan_tells_of_holds_on_a_feed_that_is_removed(project: Path) -> None:
    run("apply", "--yes")
    run("hold", "add", "audit", "--every-feed", "--reason", "x")
    run("hold", "add", "books", "--feed", "counts", "--reason", "y")
    for name in ("count", "counts"):
        (project / "entities" / f"{name}.yaml").unlink()
    told = run("plan").stderr
    assert "feed 'counts': hold 'books' covers it: it stays on the feed's place, whoever declares that." in told
    assert "audit" not in told


def test_safe_mode_refuses_all_but_changes_of_clusters_and_these_need_it(project: Path, database: Database) -> None:
    run("apply", "--yes")
    (project / "moved.yaml").write_text(CLUSTER + "colo: nyc\n")
    assert "safe mode" in run("apply", "moved.yaml", "--yes", code=1).stderr
    set_safe_mode(database, is_on=True, author="ann", now=START)
    assert "safe mode" in run("apply", "slower.yaml", "--yes", code=1).stderr
    assert "safe mode" not in run("apply", "slower.yaml", "--dry-run").stderr
    result = run("apply", "moved.yaml", "--yes")
    assert "cluster 'primary': updated, version 2" in result.stdout
    assert "version: 1" in (project / "entities" / "cluster.yaml").read_text()
    assert run("plan", "moved.yaml").stdout == "Nothing would change.\n"


def test_the_json_forms_are_json_and_carry_the_digest(project: Path) -> None:
    document = shown("plan")
    assert document["difference"]["counts"]["added"] == 4
    done = shown("apply", "--digest", document["digest"])
    assert (done["verb"], len(done["outcomes"]), done["is_change"]) == ("apply", 4, True)
