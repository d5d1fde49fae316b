"""`feed notify --to`: the server of another location is told, once for each key."""

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from tests.cli.project import must, shown
from tests.cli.test_queue import ENTITIES, tick
from tests.databases import open_migrated
from tests.projects import declare, enter
from tests.server.project import listen


def test_another_location_is_told_once_for_each_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        servers = []
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            enter(tmp_path / name, monkeypatch)
            declare(tmp_path / name, ENTITIES.replace("all: [orders, approval]", "all: [orders]"), schedule="automatic")
            (tmp_path / name / "load.sql").write_text("select 1 as n")
            tick(tmp_path / name)
            database = stack.enter_context(closing(open_migrated(f"sqlite:///{tmp_path / name}/state.db")))
            servers.append(stack.enter_context(listen(build_application(load_settings(), database))))
        monkeypatch.chdir(tmp_path / "here")
        for key in ("delivery-1", "delivery-1"):
            told = must("--server", servers[0], "feed", "notify", "orders", "--to", servers[1], "--key", key)
            assert told.stdout.startswith("feed 'orders' on here")
        assert shown("feed", "events", "orders")["events"] == []
        monkeypatch.chdir(tmp_path / "there")
        assert len(shown("feed", "events", "orders")["events"]) == 1
        assert len(tick(tmp_path / "there")) == 1
