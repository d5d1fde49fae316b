"""The paths that others know in docs/http.md: each is there, with its command, and those of the example answer."""

import re
from pathlib import Path

import pytest

from feed_assets.server.aliases.records import Alias
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.routes import is_for
from tests.documents.markdown import ROOT, fences
from tests.server.project import open_project, serve

PAGE = ROOT / "docs/http.md"
TABLE = re.compile(r"(<!-- paths -->\n).*?(<!-- end -->\n)", re.DOTALL)


def by_path(each: Alias) -> tuple[str, str]:
    return each.path, each.method


def test_each_path_is_listed_with_its_command(request: pytest.FixtureRequest) -> None:
    rows = [
        f"| `{each.method} {each.path.replace(':path', '')}` | `{each.operation}` |"
        for each in sorted(ALIASES, key=by_path)
    ]
    table = "\n".join(["", "| request | command |", "|---|---|", *rows, "", ""])
    text = PAGE.read_text()
    expected = TABLE.sub(lambda found: found[1] + table + found[2], text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected


def test_the_paths_on_pages_for_who_comes_from_elsewhere_are_there() -> None:
    texts = [page.read_text("utf-8") for page in (ROOT / "docs/falcon.md", *(ROOT / "docs").glob("coming-from*.md"))]
    named = [found for text in texts for found in re.findall(r"`(GET|POST) (/[^` ]+)`", text)]
    assert [each for each in named if not any(is_for(alias, *each) for alias in ALIASES)] == []
    assert {path.split("/")[1] for _, path in named} == {"api", "v3"}


def test_the_requests_of_the_page_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(open_project(tmp_path, monkeypatch))
    for line in "\n".join(fences(PAGE, "http")).splitlines():
        method, url = line.split()
        assert client.request(method, url).status_code == 200, line
