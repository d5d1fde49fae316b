"""The site of the documents: it builds without network, and its pictures are of what a new project has."""

import re
import subprocess
import sys
from pathlib import Path

from dagster import AssetCheckKey, AssetKey

from examples.pictures import MORE_COLUMNS, PICTURES, add_column, prepare
from feed_assets import build_definitions
from feed_assets.clock import SystemClock
from feed_assets.orchestration.runs.feed_checks import COLUMNS_CHECK
from feed_assets.scaffolding.projects import make_project
from feed_assets.settings import load_settings
from tests.documents.markdown import DOCS, ROOT


def test_the_site_builds_and_every_page_and_link_is_there(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in DOCS}
    assert {path.relative_to(tmp_path).with_suffix("") for path in tmp_path.rglob("*.html")} - {Path("404")} == pages
    loaded = [
        address
        for page in tmp_path.rglob("*.html")
        for address in re.findall(
            r'<(?:script|link rel="stylesheet"|img)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
    ]
    assert loaded == []


def test_every_picture_is_shown_with_a_text_and_all_are_small() -> None:
    pages = "".join(page.read_text("utf-8") for page in DOCS)
    shown = re.findall(r"!\[([^\]]{20,})\]\(pictures/(\w+\.\w+)\)", pages)
    assert {name for _, name in shown} == {path.name for path in PICTURES.iterdir()}
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < 1_000_000


def test_a_new_project_has_what_the_pictures_show(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    make_project(project, SystemClock().now())
    prepare(project)
    add_column(project)
    assert MORE_COLUMNS in (project / "shop" / "jobs.py").read_text("utf-8")
    made = build_definitions(settings=load_settings(environ={}, start=project))
    check = AssetCheckKey(AssetKey(["primary", "daily-revenue"]), COLUMNS_CHECK)
    assert check in made.resolve_asset_graph().asset_check_keys
    assert "arrival_primary" in {each.name for each in made.sensors or ()}
