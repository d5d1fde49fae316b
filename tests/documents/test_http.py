"""The commands of the page about HTTP are run, in a project that is served."""

import json
import shlex
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from feed_assets.operation import WRITES_FILES
from feed_assets.operation_list import list_operations
from feed_assets.server.application import build_application
from feed_assets.server.openapi import describe_routes
from feed_assets.settings import load_settings
from tests.cli.project import must
from tests.databases import open_migrated
from tests.documents.markdown import ROOT, fences, tables_of
from tests.documents.shell import Shell, commands_of, whole_commands_of
from tests.documents.test_shell_commands import ELSEWHERE, lay_tour
from tests.projects import enter
from tests.server.project import listen

PAGE = "docs/http.md"


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(tmp_path, monkeypatch)
    lay_tour(tmp_path)
    settings = load_settings()
    with closing(open_migrated(str(settings.state))) as database, listen(build_application(settings, database)) as url:
        places = ("https://feeds.example.org:3030", "http://127.0.0.1:3030")
        words = {**dict.fromkeys(places, url), "~/.feed-assets-token": str(tmp_path / "token")}
        shell = Shell(monkeypatch=monkeypatch, words=words, elsewhere=ELSEWHERE)
        shell.run_page(PAGE, only="feed-assets token")
        (tmp_path / "token").write_text("fa_1")
        for only in ("export", "feed-assets why", "feed-assets --server"):
            shell.run_page(PAGE, only=only)
        monkeypatch.delenv("FEED_ASSETS_SERVER")
        monkeypatch.setenv("NO_PROXY", "*")
        commands = ("why daily-delays 2013-11-03 --output json", "entity list --kind feed,process --output csv")
        printed = [must(*line.split()).stdout for line in commands]
        asked = [line.replace(places[1], url) for line in commands_of(PAGE) if line.startswith("curl ")]
        answers = [_ask(each, tmp_path / "answer") for each in asked]
    for line in whole_commands_of(PAGE):
        shell.run(line)
    assert "clicks" in must("entity", "list").stdout
    assert [status for status, _ in answers] == [200, 200, 200, 200, 404]
    assert [text for _, text in answers[:2]] == printed
    (problem,) = fences(ROOT / PAGE, "json")
    assert json.loads(answers[-1][1]) == json.loads(problem)


def test_the_page_lists_the_statuses_of_the_document() -> None:
    document = describe_routes()
    told = {status for each in document["paths"].values() for one in each.values() for status in one["responses"]}
    (table,) = [each for each in tables_of(PAGE) if each.header[0] == "status"]
    assert {status for row in table.rows for status in row[0].split(", ")} == told | {"405"}
    text = (ROOT / PAGE).read_text("utf-8")
    without = [each.name for each in list_operations().items if each.no_route == WRITES_FILES]
    assert [name for name in without if f"`{name}`" not in text] == []


def _ask(line: str, file: Path) -> tuple[int, str]:
    """Run a line with curl, and return the status and the body."""
    told = subprocess.run(
        [*shlex.split(line), "--silent", "--show-error", "--output", str(file), "--write-out", "%{http_code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(told.stdout), file.read_text()
