"""The commands of the page about HTTP are run, in a project that is served."""

from contextlib import closing
from pathlib import Path

import pytest

from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from tests.cli.project import must
from tests.databases import open_migrated
from tests.documents.shell import Shell, whole_commands_of
from tests.documents.test_shell_commands import ELSEWHERE, lay_tour
from tests.projects import enter
from tests.server.project import listen


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(tmp_path, monkeypatch)
    lay_tour(tmp_path)
    settings = load_settings()
    with closing(open_migrated(str(settings.state))) as database, listen(build_application(settings, database)) as url:
        places = ("https://feeds.example.org:3030", "http://127.0.0.1:3030")
        words = {**dict.fromkeys(places, url), "~/.feed-assets-token": str(tmp_path / "token")}
        shell = Shell(monkeypatch=monkeypatch, words=words, elsewhere=ELSEWHERE)
        shell.run_page("docs/http.md", only="feed-assets token")
        (tmp_path / "token").write_text("fa_1")
        for only in ("export", "feed-assets why", "feed-assets --server"):
            shell.run_page("docs/http.md", only=only)
    monkeypatch.delenv("FEED_ASSETS_SERVER")
    for line in whole_commands_of("docs/http.md"):
        shell.run(line)
    assert "clicks" in must("entity", "list").stdout
