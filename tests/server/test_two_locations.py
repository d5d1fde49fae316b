"""`feed notify --to`: the server of another location is told, once for each key."""

from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.clock import FrozenClock
from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from feed_assets.testing import open_project
from feed_assets.timing.dates import parse_datetime
from tests.cli.project import must, shown
from tests.databases import open_migrated
from tests.projects import declare, enter
from tests.server.project import listen
from tests.spark_session import spark
from tests.triggers.test_queues import ENTITIES, tick

__all__ = ["spark"]

NOON = "2026-03-01T12:00Z"
TAKING_ORDERS = ENTITIES.replace("all: [orders, approval]", "all: [orders]")


def test_another_location_is_told_once_for_each_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        servers = []
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            enter(tmp_path / name, monkeypatch)
            declare(tmp_path / name, TAKING_ORDERS, schedule="automatic")
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


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)")
def test_another_location_that_is_told_twice_with_a_key_makes_one_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BD-70, AF-73: with statuses that say what came of it."""
    monkeypatch.setattr("feed_assets.context.operation.open_clock", lambda _: FrozenClock(parse_datetime(NOON)))
    with ExitStack() as stack:
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            enter(tmp_path / name, monkeypatch)
            declare(tmp_path / name, TAKING_ORDERS, schedule="automatic")
            (tmp_path / name / "load.sql").write_text("select 1 as n")
        there = stack.enter_context(open_project(NOON, folder=tmp_path / "there", spark=spark))
        assert there.run() == []
        application = build_application(load_settings(), there._runtime.database(there.instance))
        told, tellers = stack.enter_context(listen(application)), open_migrated(f"sqlite:///{tmp_path}/here/state.db")
        stack.enter_context(closing(tellers))
        monkeypatch.chdir(tmp_path / "here")
        teller = stack.enter_context(listen(build_application(load_settings(), tellers)))
        runs = []
        for key in ("delivery-1", "delivery-1", "delivery-2"):
            must("--server", teller, "feed", "notify", "orders", "--to", told, "--key", key)
            there.set_clock(NOON.replace("12:00", "12:01"))
            runs.append([(each.process, each.succeeded) for each in there.run()])
        assert runs == [[("load", True)], [], [("load", True)]]
