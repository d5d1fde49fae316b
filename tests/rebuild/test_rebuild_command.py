"""`feed-assets state rebuild`, after the loss of the state of a project with replicas."""

from pathlib import Path

from feed_assets.context.safe_mode import is_restored, record_restore
from feed_assets.sql.database import open_database
from tests.cli.project import must, ok, run, shown, table
from tests.replication.project import project, replication

__all__ = ["project"]


def sync(project: Path) -> list[tuple[str, str]]:
    return [(each["nominal_time"], each["sync"]) for each in replication("status", "clicks")["instances"]]


def test_the_state_is_rebuilt_from_storage_and_says_what_it_said(project: Path) -> None:
    replication("repair", "clicks")
    hold = ("hold", "add", "audit", "--feed", "clicks", "--clusters", "west", "--end", "2013-11-01T02:00Z")
    ok(run(*hold, "--until", "2013-12-01T00:00Z", "--reason", "numbers"))
    before, holds = sync(project), ok(run("hold", "list"))
    for file in project.glob("state.db*"):
        file.unlink()
    planned = shown("state", "rebuild", "--dry-run")
    assert {each["feed"]: each["recorded"] for each in planned["feeds"]}["clicks"] == 3
    assert [(each["name"], each["last"], each["reason"]) for each in planned["holds"]] == [
        ("audit", "2013-11-01T01:59:59Z", "numbers")
    ]
    assert (sync(project) != before, table(run("hold", "list"))) == (True, [])
    asked = must("state", "rebuild", stdin="n\n", code=1)
    assert "6 feed instances, 3 process instances and 1 hold would be recorded. Record this?" in asked.output
    assert sync(project) != before
    rebuilt = run("state", "rebuild", stdin="y\n")
    assert ["feed", "clicks", "west", "3", "3", ""] in table(rebuilt)
    remark = "feed clicks to 2013-11-01T01:59:59Z until 2013-12-01T00:00Z, by ann: numbers"
    assert ["hold", "audit", "west", "1", "1", remark] in table(rebuilt)
    assert "6 feed instances, 3 process instances and 1 hold were recorded." in rebuilt.stderr
    assert (sync(project), ok(run("hold", "list"))) == (before, holds)
    assert replication("verify", "clicks", "--deep")["counts"] == {"in sync": 3}
    again = run("state", "rebuild")
    assert "The state has everything that lies on storage." in again.stderr
    assert "state rebuild" in ok(run("admin", "audit"))


def test_a_restored_state_stays_held_until_each_storage_was_read(project: Path) -> None:
    ok(run("instance", "list", "clicks"))
    database = open_database(f"sqlite:///{project}/state.db")
    with database.begin() as connection:
        record_restore(connection)
    (project / "east").rename(project / "gone")
    (project / "east").touch()
    assert run("state", "rebuild", "--yes").exit_code == 1
    with database.read() as connection:
        assert is_restored(connection)
    (project / "east").unlink()
    (project / "gone").rename(project / "east")
    ok(run("state", "rebuild", "--yes"))
    with database.read() as connection:
        assert not is_restored(connection)


def test_a_trace_that_cannot_be_read_is_named_and_everything_else_is_recorded(project: Path) -> None:
    ok(run("hold", "add", "audit", "--feed", "clicks", "--clusters", "east", "--reason", "numbers"))
    (trace,) = project.glob("east/.feed-assets/holds/*.json")
    trace.write_text("{}")
    for file in project.glob("state.db*"):
        file.unlink()
    rebuilt = must("state", "rebuild", "--yes", code=1)
    assert "3 feed instances, 0 process instances and 0 holds were recorded." in rebuilt.stderr
    told = f"the traces of holds in file://{project}/east are not up to date: this release cannot read {trace.name}"
    assert told in rebuilt.stderr
