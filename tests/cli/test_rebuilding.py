"""`feed-assets state rebuild`, after the loss of the state of a project with replicas."""

import json
from pathlib import Path

from tests.cli.project import run
from tests.cli.replication_project import project, replication
from tests.cli.retention_project import ok, table

__all__ = ["project"]


def sync(project: Path) -> list[tuple[str, str]]:
    return [(each["nominal_time"], each["sync"]) for each in replication("status", "clicks")["instances"]]


def test_the_state_is_rebuilt_from_storage_and_says_what_it_said(project: Path) -> None:
    replication("repair", "clicks")
    before = sync(project)
    for file in project.glob("state.db*"):
        file.unlink()
    planned = run("state", "rebuild", "--dry-run", "--output", "json")
    assert {each["feed"]: each["recorded"] for each in json.loads(ok(planned))["feeds"]}["clicks"] == 3
    assert sync(project) != before
    asked = run("state", "rebuild", stdin="n\n")
    assert asked.exit_code == 1
    assert "6 feed instances and 3 process instances would be recorded. Record this?" in asked.output
    assert sync(project) != before
    rebuilt = run("state", "rebuild", stdin="y\n")
    assert ["feed", "clicks", "west", "3", "3", ""] in table(rebuilt)
    assert "6 feed instances and 3 process instances were recorded." in rebuilt.stderr
    assert sync(project) == before
    assert replication("verify", "clicks", "--deep")["counts"] == {"in sync": 3}
    again = run("state", "rebuild")
    assert "The state has everything that lies on storage." in again.stderr
    assert "state rebuild" in ok(run("admin", "audit"))
