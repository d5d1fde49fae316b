"""Each command is recorded as an action."""

import json
from pathlib import Path
from typing import Any

from feed_assets.actions import FILE_NAME
from feed_assets.cli.groups import Verb, Verbs
from tests.cli.project import run
from tests.commands import iter_commands

END = "2026-02-01T00:00Z"


def recorded(prepared: Path) -> list[dict[str, Any]]:
    file = prepared / FILE_NAME
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_every_command_can_be_recorded() -> None:
    found = dict(iter_commands())
    assert len(found) > 100
    assert [name for name, each in found.items() if not isinstance(each, Verb | Verbs)] == []


def test_a_command_is_recorded_with_what_it_concerned_and_how_it_ended(prepared: Path) -> None:
    assert run("entity", "submit", "all.yaml", "--author", "ann").exit_code == 0
    assert run("instance", "list", "feed", "clicks", "--clusters", "primary", "--end", END).exit_code == 0
    assert run("entity", "suspend", "process", "nobody", "--dry-run").exit_code == 1
    assert run("sla", "alerts", "--start", "2026-01").exit_code == 0
    assert run("why", "clicks", "2026-01-01").exit_code in (0, 1)
    assert run("entity", "blame", "feed", "clicks", "format").exit_code == 0
    submitted, listed, suspended, alerted, asked, blamed = recorded(prepared)
    assert blamed["dimensions"]["entity"] == "clicks"
    assert (submitted["action"], submitted["status"]) == ("entity submit", "SUCCEEDED")
    assert submitted["dimensions"]["user"] == "ann"
    assert listed["action"] == "instance list"
    user = listed["dimensions"].pop("user")
    assert user
    assert listed["dimensions"] == {
        "kind": "feed",
        "entity": "clicks",
        "cluster": "primary",
        "instances": "/2026-02-01T00:00:00+00:00",
    }
    assert (suspended["action"], suspended["status"]) == ("entity suspend", "FAILED")
    assert suspended["dimensions"]["dry_run"] == "true"
    assert "nobody" in suspended["reason"]
    assert alerted["dimensions"]["instances"] == "2026-01-01T00:00:00+00:00/"
    assert asked["dimensions"]["instances"] == "2026-01-01"
    assert all(each["seconds"] >= 0 for each in (submitted, listed, suspended))


def test_help_and_wrong_usage_are_not_recorded(prepared: Path) -> None:
    for arguments in (["--help"], ["entity", "list", "--help"], ["entity", "list", "--no-such"], ["nothing"]):
        run(*arguments)
    assert recorded(prepared) == []


def test_a_command_does_not_depend_on_its_record(prepared: Path) -> None:
    settings = prepared / "feed_assets.yaml"
    settings.write_text(f"{settings.read_text()}actions: /dev/full\n")
    result = run("validate", "all.yaml")
    assert (result.exit_code, len(result.stderr.splitlines()), recorded(prepared)) == (0, 1, [])
