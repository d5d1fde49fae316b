"""The preview of an instance: who wants one, what is in it, and where it stops."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dagster import MetadataValue, TableMetadataValue, TableRecord

from feed_assets import Cluster
from feed_assets.engines.port import InputEvent
from feed_assets.entities.content.event_messages import EventMessage
from feed_assets.instances.attempts.attempts import Published
from feed_assets.masking import remember
from feed_assets.orchestration.runs.instance_runs import CELL, COLUMNS, ROWS, build_preview, wants_preview
from feed_assets.orchestration.runs.published_metadata import SHOWN_EVENTS, published_metadata
from feed_assets.plan.location import declare_location
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.manifests import Publication
from feed_assets.storage.pool import StorePool
from tests.orchestration.test_definitions import feed

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def record_of(storage: str, **fields: object) -> FeedRecord:
    entities = [Cluster(name="here", storage=storage, spark={"master": "local[1]"}), feed("a", **fields)]  # type: ignore[arg-type]
    return declare_location(entities).plan.feeds["a", "here"]


def published(record: FeedRecord, *columns: str) -> Published:
    return Published(
        record=record,
        output="a",
        nominal_time=DAY,
        content=Publication(digest="", bytes=0, files=0, extra={}),
        rows=None,
        url="",
        inputs={},
        missing={},
        late=(),
        details={},
        attempt=1,
        seconds=0.0,
        columns=tuple((name, "string") for name in columns) or None,
    )


@pytest.mark.parametrize(
    ("own", "by_default", "wanted"), [(None, True, True), (False, True, False), (True, False, True)]
)
def test_the_word_of_a_feed_counts_before_that_of_the_settings(
    own: bool | None, by_default: bool, wanted: bool
) -> None:
    assert wants_preview(record_of("memory://shop", preview=own), by_default) is wanted


def test_a_preview_is_bounded_and_hides_secrets(tmp_path: Path) -> None:
    remember("correct horse", "PASSWORD")
    folder = tmp_path / "a" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    names = [f"c{number}" for number in range(COLUMNS + 5)]
    (folder / "_DONE").touch()
    (folder / "part-0.csv").write_text(",".join(names) + "\n")
    (folder / "part-1.csv").write_text(",".join(names) + "\n" + f"{'x' * 99},correct horse,1\n" * (ROWS + 5))
    record = record_of(tmp_path.as_uri())
    found = build_preview(StorePool().get(record.store), published(record, *names))
    assert found is not None
    assert [len(each.data) for each in found.records] == [3] * ROWS
    assert found.records[0].data == {"c0": "x" * (CELL - 1) + "…", "c1": "${env:PASSWORD}", "c2": "1"}


def test_what_cannot_be_shown_has_no_preview(tmp_path: Path) -> None:
    (tmp_path / "a" / "2026" / "01" / "01").mkdir(parents=True)
    record = record_of(tmp_path.as_uri())
    assert build_preview(StorePool().get(record.store), published(record)) is None


def test_what_people_look_for_stands_first_in_the_metadata() -> None:
    done = replace(published(record_of("memory://shop"), "n"), rows=2, details={"code": "sha256:12"})
    preview = MetadataValue.table([TableRecord({"n": "1"})])
    assert [name.rpartition("/")[2] for name in published_metadata(done, preview)] == [
        *("uri", "nominal_time", "rows", "bytes", "files", "seconds", "attempt", "preview", "inputs"),
        *("code", "partition_row_count", "column_schema"),
    ]


def test_the_newest_events_of_a_batch_are_a_table_and_all_are_counted() -> None:
    events = [
        InputEvent(number=number, feed="orders", nominal_time=DAY, recorded_at=DAY, marking=f"m{number}")
        for number in range(1, SHOWN_EVENTS + 6)
    ]
    approval = InputEvent(number=3, feed="approval", nominal_time=DAY, recorded_at=DAY)
    done = replace(
        published(record_of("memory://shop"), "n"),
        events={"orders": tuple(events), "approval": (approval,)},
        message=EventMessage(payload={"rows": 12}, marking="DAY_END"),
    )
    metadata = published_metadata(done)
    assert metadata["feed_assets/payload"] == MetadataValue.json({"rows": 12})
    assert metadata["feed_assets/marking"] == MetadataValue.text("DAY_END")
    table = metadata["feed_assets/events"]
    assert isinstance(table, TableMetadataValue)
    assert metadata["feed_assets/event_count"] == SHOWN_EVENTS + 6
    assert (len(table.records), table.records[0].data["event"]) == (SHOWN_EVENTS, 6)
    assert table.records[-1].data == {
        "input": "orders",
        "event": SHOWN_EVENTS + 5,
        "feed": "orders",
        "instance": "2026-01-01T00:00Z",
        "content": "",
        "marking": f"m{SHOWN_EVENTS + 5}",
    }
