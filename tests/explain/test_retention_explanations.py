"""`why` of what retention has taken away, and of what it keeps."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.explain.explanations import explain
from feed_assets.explain.records import Explanation, Reason, ReasonCode
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, NewFeedEvent
from feed_assets.log.removals.records import Sweep
from feed_assets.retention.rules.schedule import apply_retention_schedule
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from tests.context.contexts import about, context_of
from tests.instances.harness import START, at, feed, process
from tests.retention.harness import RetentionHarness, hourly, kept_feed

EXPIRED = hourly(START, 24)
YOUNG = hourly(at("02"), 48)
SWEPT = at("04")
C = ReasonCode


@pytest.fixture
def harness(tmp_path: Path) -> RetentionHarness:
    """Three days of clicks, of which two are kept."""
    return landed(RetentionHarness.of(tmp_path))


def landed(harness: RetentionHarness) -> RetentionHarness:
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(SWEPT)
    return harness


def why(harness: RetentionHarness, time: datetime = START, as_of: datetime | None = None) -> Explanation:
    (only,) = about(explain, context_of(harness.lifecycle, as_of or harness.now), "clicks", time).items
    return only


def of(explanation: Explanation, *codes: ReasonCode) -> list[Reason]:
    return [reason for reason in explanation.reasons if reason.code in codes]


def texts(explanation: Explanation, *codes: ReasonCode) -> list[str]:
    return [reason.text for reason in of(explanation, *codes)]


def test_what_was_evicted_says_when_by_which_sweep_and_why(tmp_path: Path, state_url: str) -> None:
    harness = landed(RetentionHarness.of(tmp_path, state=state_url))
    sweep = harness.run(harness.planned())

    found = why(harness, as_of=at("04T01:00"))

    assert found.headline == "feed clicks on primary at 2013-11-01T00:00Z is EVICTED"
    (evicted,) = of(found, C.EVICTED)
    assert evicted.text == (
        f"it was evicted at 2013-11-04T00:00:00Z by sweep {sweep.sweep_id}: it is older than days(2) as of "
        "2013-11-04T00:00Z"
    )
    assert evicted.blocks
    assert {name: evicted.facts[name] for name in ("sweep", "rule", "path", "origin")} == {
        "sweep": sweep.sweep_id,
        "rule": "age",
        "path": "clicks/2013-11-01/00",
        "origin": "retention",
    }
    assert (evicted.facts["bytes"], evicted.facts["files"]) == (len("data"), 1)
    assert not of(found, C.EXPIRES, C.KEPT, C.NEXT_SWEEP)


def undo_of(sweep: Sweep) -> str:
    return f"feed-assets retention undo {sweep.sweep_id} --feed clicks --instance 2013-11-01T00:00Z"


def test_what_is_in_the_trash_says_until_when_and_how_it_comes_back(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    (trashed,) = of(why(harness), C.TRASHED)
    assert trashed.text == "it is in the trash until 2013-11-11T00:00:00Z"
    assert trashed.command == undo_of(sweep)
    assert trashed.facts == {"until": "2013-11-11T00:00:00Z", "sweep": sweep.sweep_id}


def test_what_was_purged_cannot_come_back(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.now = at("12")
    context = harness.context()
    purge_sweeps(context, "primary", find_purgeable(context, "primary", harness.now, at_once=True))

    found = why(harness)

    assert texts(found, C.PURGED) == ["the trash was emptied at 2013-11-12T00:00:00Z: it cannot be restored"]
    assert not of(found, C.TRASHED)
    assert sweep.sweep_id in texts(found, C.EVICTED)[0]


def test_what_was_archived_says_where_it_is_also_after_the_purge(tmp_path: Path) -> None:
    archive = f"file://{tmp_path}/archive/clicks/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"
    harness = landed(RetentionHarness.of(tmp_path, kept_feed(action="archive", archive_to=archive)))
    sweep = harness.run(harness.planned())
    url = f"file://{tmp_path}/archive/clicks/2013/11/01/00"
    assert (tmp_path / "archive/clicks/2013/11/01/00").is_dir()
    text = f"it is archived at {url}"
    (archived,) = of(why(harness), C.ARCHIVED)
    assert (archived.text, archived.facts, archived.command) == (text, {"url": url}, undo_of(sweep))

    harness.now = at("12")
    context = harness.context()
    purge_sweeps(context, "primary", find_purgeable(context, "primary", harness.now, at_once=True))

    assert texts(why(harness), C.ARCHIVED, C.PURGED, C.TRASHED) == [text]


def test_what_was_brought_back_is_explained_as_what_is_there(harness: RetentionHarness) -> None:
    before = why(harness)
    sweep = harness.run(harness.planned())
    harness.undo(sweep)

    found = why(harness)

    assert found.status == "AVAILABLE"
    assert not of(found, C.EVICTED, C.TRASHED)
    assert texts(found, C.EXPIRES, C.KEPT) == texts(before, C.EXPIRES, C.KEPT)
    (event,) = texts(found, C.EVENT)
    assert event.startswith("RESTORED at 2013-11-04T00:00:00Z by retention: 4 bytes in 1 file")


def test_what_goes_again_tells_of_the_newest_sweep(harness: RetentionHarness) -> None:
    first = harness.run(harness.planned())
    harness.undo(first)
    second = harness.run(harness.planned())
    (evicted,) = of(why(harness), C.EVICTED)
    assert evicted.facts["sweep"] == second.sweep_id
    assert [reason.command for reason in of(why(harness), C.TRASHED)] == [undo_of(second)]


def test_an_eviction_by_nobody_we_know_is_told_as_far_as_it_is_known(harness: RetentionHarness) -> None:
    row = harness.rows()[START]
    event = NewFeedEvent(
        feed="clicks",
        cluster="primary",
        nominal_time=START,
        kind=FeedEventKind.EVICTED,
        origin="an import",
        recorded_at=SWEPT,
        idempotency_key="imported",
    )
    with harness.lifecycle.database.begin() as connection:
        (seq,) = EventLog(connection).append([event])
        FeedInstances(connection).put([evicted_row(row, seq)])
    found = why(harness)
    assert texts(found, C.EVICTED) == ["it was evicted at 2013-11-04T00:00:00Z by an import"]
    assert not of(found, C.TRASHED, C.PURGED, C.ARCHIVED)


def evicted_row(row: FeedInstance, seq: int) -> FeedInstance:
    return FeedInstance(
        feed=row.feed,
        cluster=row.cluster,
        nominal_time=row.nominal_time,
        status=FeedInstanceStatus.EVICTED,
        updated_at=SWEPT,
        event_seq=seq,
        fence=row.fence,
    )


def test_what_is_there_says_until_when_it_is_kept(harness: RetentionHarness) -> None:
    young, old = why(harness, at("03")), why(harness)
    assert texts(young, C.EXPIRES) == ["its retention of days(2) ends at 2013-11-05T00:00:00Z"]
    assert texts(old, C.EXPIRES) == ["its retention of days(2) ended at 2013-11-03T00:00:00Z"]
    assert of(young, C.EXPIRES)[0].facts == {"at": "2013-11-05T00:00:00Z", "limit": "days(2)"}
    assert not of(young, C.KEPT, C.NEXT_SWEEP)


def test_what_has_expired_says_when_retention_comes_next(harness: RetentionHarness) -> None:
    assert not of(why(harness), C.NEXT_SWEEP)
    apply_retention_schedule(
        harness.lifecycle.database, harness.lifecycle.timeline, "primary", at("04T06:00"), timedelta(0)
    )
    (coming,) = of(why(harness), C.NEXT_SWEEP)
    assert coming.text == "retention of its feed is next due at 2013-11-04T06:00:00Z"
    assert coming.facts == {"at": "2013-11-04T06:00:00Z"}
    assert not of(why(harness, at("03")), C.NEXT_SWEEP)


def test_a_feed_without_retention_keeps_everything(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, feed("clicks"))
    harness.land("clicks", START)
    harness.arrive(SWEPT)
    assert texts(why(harness), C.KEPT, C.EXPIRES) == ["it stays: its feed has no retention here"]


def test_a_limit_that_counts_has_no_time_at_which_it_is_over(tmp_path: Path) -> None:
    harness = landed(RetentionHarness.of(tmp_path, kept_feed(limit=None, max_instances=10)))
    apply_retention_schedule(harness.lifecycle.database, harness.lifecycle.timeline, "primary", SWEPT, timedelta(0))
    assert not of(why(harness), C.EXPIRES, C.KEPT)


def test_every_hold_is_named_with_who_has_it_and_why(harness: RetentionHarness) -> None:
    harness.hold("audit", expires_at=at("20"))
    harness.hold("trial", feed=None, reason="a court")
    assert sorted(texts(why(harness), C.KEPT)) == [
        "it is protected (hold): hold 'audit' of bob until 2013-11-20T00:00Z: an audit",
        "it is protected (hold): hold 'trial' of bob: a court",
    ]
    assert len(of(why(harness, as_of=at("20")), C.KEPT)) == 1


def test_who_works_on_it_keeps_it_only_meanwhile(harness: RetentionHarness) -> None:
    Leases(harness.lifecycle.database).acquire_many(
        [("feed/clicks", "primary", START)], "writer", SWEPT, timedelta(minutes=1)
    )
    (kept,) = of(why(harness), C.KEPT)
    assert (kept.facts["protection"], kept.text) == ("lease", "it is protected (lease): 'writer' holds its lease")
    assert not of(why(harness, as_of=at("04T00:02")), C.KEPT)


def test_who_has_not_read_it_yet_keeps_it(tmp_path: Path) -> None:
    harness = RetentionHarness.of(
        tmp_path,
        kept_feed(until_read_by=["count"]),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, parallel=1),
    )
    landed(harness)
    assert texts(why(harness), C.KEPT) == [
        "it is protected (reader): instance 2013-11-01T00:00Z of process 'count' is READY",
        "it is protected (unread): instance 2013-11-01T00:00Z of process 'count' is READY and has not read it",
    ]


def test_what_belongs_to_an_evicted_instance_is_not_taken_for_it(tmp_path: Path) -> None:
    locations = {
        "data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}",
        "stats": "/stats/${YEAR}-${MONTH}-${DAY}-${HOUR}",
    }
    harness = RetentionHarness.of(tmp_path, kept_feed(locations=locations))
    landed(harness)
    first = harness.run(harness.planned())
    stats = harness.root / "stats/2013-11-01-00"
    stats.mkdir(parents=True)
    second = harness.run(harness.planned())
    assert not stats.exists()

    (evicted,) = of(why(harness), C.EVICTED)

    assert evicted.facts["sweep"] == first.sweep_id != second.sweep_id
    assert evicted.facts["kind"] == "data"
