"""The site of the documents: it builds without network, and a newcomer's first commands do what their page says."""

import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from dagster import AssetCheckKey, AssetKey

from examples.pictures import MORE_COLUMNS, PICTURES, add_column, prepare
from feed_assets import build_definitions
from feed_assets.cli.main import main
from feed_assets.clock import SystemClock
from feed_assets.operations.scaffolding.projects import ProjectRequest, make_project
from feed_assets.orchestration.runs.column_changes import COLUMNS_CHECK
from feed_assets.settings import load_settings
from tests.documents.markdown import ROOT, fences

ELSEWHERE = {"pip", "dagster", "pytest"}
"""Programs of the first page that other tests run: an installation, the daemon, and the tests of a project."""


def test_the_site_builds_and_every_page_and_link_is_there(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {path.stem for path in tmp_path.glob("*.html")} - {"404"} == pages
    loaded = [
        address
        for page in tmp_path.glob("*.html")
        for address in re.findall(
            r'<(?:script|link rel="stylesheet"|img)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
    ]
    assert loaded == []


def test_the_first_commands_of_a_newcomer_do_what_their_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    today = SystemClock().now().date()
    dates = {"TODAY": f"{today}", "YESTERDAY": f"{today - timedelta(days=1)}"}
    answers: dict[str, str] = {}
    for line in "".join(fences(ROOT / "docs" / "first-project.md", "console")).splitlines():
        command = line.removeprefix("$ ")
        for name, date in dates.items():
            command = command.replace(name, date)
        words = shlex.split(command)
        if words[0] in ELSEWHERE:
            continue
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
            monkeypatch.syspath_prepend(str(Path.cwd()))
        elif words[0] == "feed-assets":
            ran = CliRunner().invoke(main, words[1:])
            assert ran.exit_code == 0, (command, ran.output)
            answers[line.removeprefix("$ ")] = ran.output
        else:
            subprocess.run(words, check=True)
    assert "usable: 1 cluster, 2 feeds, 1 process" in answers["feed-assets validate"]
    asked = answers["feed-assets why daily-revenue TODAY"].splitlines()
    assert asked[1] == f"  because feed orders on primary at {today}T00:00Z is MISSING"
    assert "1 instance found in storage and recorded" in answers["feed-assets why daily-revenue TODAY --look"]


def test_every_picture_is_shown_with_a_text_and_all_are_small() -> None:
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md"))
    shown = re.findall(r"!\[([^\]]{20,})\]\(pictures/(\w+\.png)\)", pages)
    assert {name for _, name in shown} == {path.name for path in PICTURES.iterdir()}
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < 1_000_000


def test_a_new_project_has_what_the_pictures_show(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    make_project(ProjectRequest(folder=project, as_of=SystemClock().now()))
    prepare(project)
    add_column(project)
    assert MORE_COLUMNS in (project / "shop" / "jobs.py").read_text("utf-8")
    made = build_definitions(settings=load_settings(environ={}, start=project))
    check = AssetCheckKey(AssetKey(["primary", "daily-revenue"]), COLUMNS_CHECK)
    assert check in made.resolve_asset_graph().asset_check_keys
    assert "arrival_primary" in {each.name for each in made.sensors or ()}
