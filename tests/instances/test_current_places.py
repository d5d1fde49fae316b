"""Other places of versions than a local folder: a table of Hive without partitions, and a prefix of a bucket."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.feed import Feed
from feed_assets.log.records import FeedEventKind
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.registry import open_store
from tests.instances.harness import LifecycleHarness, feed, process, validity
from tests.instances.test_current import WATCH, work
from tests.object_servers import BUCKET, ObjectServer, s3_client
from tests.tables import Catalog

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=2)
"""Later than the real time, in which servers tell their changes."""


def readers() -> tuple[AnyEntity, ...]:
    """Each day something is named after lands, since yesterday."""
    start = TODAY - timedelta(days=1)
    how = {"inputs": {"lands": "latest(0)"}, "outputs": {"named": "now(0,0)"}, "trigger": {"on_update": "rerun"}}
    return feed("named", "days(1)", start=start), process("naming", "days(1)", start=start, **how)


@pytest.mark.server
@pytest.mark.spark
def test_a_table_that_is_overwritten_concerns_the_reader_of_today(metastore_port: int, tmp_path: Path) -> None:
    Catalog(metastore_port).make_table("default", "current_lands", tmp_path / "lands", [])
    lands = Feed(
        name="lands",
        instances="current",
        table="catalog:default:current_lands",
        clusters={"primary": validity(TODAY - timedelta(days=1), None)},
    )
    lifecycle = LifecycleHarness.of(tmp_path, lands, *readers(), catalog=f"thrift://127.0.0.1:{metastore_port}")
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


@pytest.mark.server
def test_objects_that_are_overwritten_concern_the_reader_of_today(s3_server: ObjectServer, tmp_path: Path) -> None:
    lands = Feed(
        name="lands",
        instances="current",
        format="csv",
        locations={"data": f"{s3_server.url}/{tmp_path.name}/lands"},
        clusters={"primary": validity(TODAY - timedelta(days=1), None)},
    )

    def open_with_options(url: str, options: dict[str, object]) -> InstanceStore:
        own = {**s3_server.options, "scratch": str(tmp_path / "scratch")}
        return open_store(url, own if url.startswith("s3:") else options)

    lifecycle = LifecycleHarness.of(tmp_path, lands, *readers(), stores=StorePool(open_with_options))
    client, morning = s3_client(s3_server.options), TODAY + timedelta(hours=8)
    client.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/lands/lands.csv", Body=b"DE\n")
    assert work(lifecycle, morning) == [("naming", TODAY - timedelta(days=1)), ("naming", TODAY)]
    client.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/lands/lands.csv", Body=b"FR\n")
    assert work(lifecycle, morning + WATCH) == [("naming", TODAY)]
    client.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/lands/lands.csv", Body=b"FR\n")
    assert work(lifecycle, morning + 2 * WATCH) == []
    assert [each.kind for each in lifecycle.events("lands")] == [FeedEventKind.ARRIVED, FeedEventKind.CHANGED]
