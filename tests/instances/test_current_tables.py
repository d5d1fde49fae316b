"""A table of Hive without partitions as the place of versions: of others, and of a process."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.entities.feed import Feed
from feed_assets.log.records import FeedEventKind
from tests.instances.harness import LifecycleHarness, feed, process, validity
from tests.instances.test_current import WATCH, work
from tests.tables import Catalog

pytestmark = [pytest.mark.server, pytest.mark.spark]

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=2)
"""Later than the real time, in which the metastore tells its changes."""


def test_a_table_that_is_overwritten_concerns_the_reader_of_today(metastore_port: int, tmp_path: Path) -> None:
    Catalog(metastore_port).make_table("default", "current_lands", tmp_path / "lands", [])
    lands = Feed(
        name="lands",
        instances="current",
        table="catalog:default:current_lands",
        clusters={"primary": validity(TODAY - timedelta(days=1), None)},
    )
    named = feed("named", "days(1)", start=TODAY - timedelta(days=1))
    naming = process(
        "naming",
        "days(1)",
        start=TODAY - timedelta(days=1),
        inputs={"lands": "latest(0)"},
        outputs={"named": "now(0,0)"},
        trigger={"on_update": "rerun"},
    )
    lifecycle = LifecycleHarness.of(tmp_path, lands, named, naming, catalog=f"thrift://127.0.0.1:{metastore_port}")
    morning = TODAY + timedelta(hours=8)
    assert work(lifecycle, morning) == []  # an empty table is no version
    (tmp_path / "lands").mkdir(exist_ok=True)
    (tmp_path / "lands/000000_0").write_text("DE\n")
    assert work(lifecycle, morning + WATCH) == [("naming", TODAY - timedelta(days=1)), ("naming", TODAY)]
    (tmp_path / "lands/000000_0").write_text("DE\nFR\n")
    assert work(lifecycle, morning + 2 * WATCH) == [("naming", TODAY)]
    first, second = lifecycle.events("lands")
    assert (first.kind, second.kind) == (FeedEventKind.ARRIVED, FeedEventKind.CHANGED)
    assert (second.bytes, second.files) == (6, 1)
