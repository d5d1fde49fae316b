"""Holds leave traces beside the data that they protect, and come back from them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.entities.bundle import AnyEntity
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import Hold, ItemOutcome
from feed_assets.retention.rules.hold_traces import HoldTrace, HoldTraces, TraceDecision, decide_traces
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.storage.errors import StorageError
from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.documents import LocalDocuments
from tests.instances.harness import START
from tests.retention.harness import RetentionHarness, hourly, kept_feed

TIMES = hourly(START, 4)
EXPIRED = START + timedelta(days=2, hours=4)
VIEWS = kept_feed("views")


def held(root: Path, *entities: AnyEntity, clusters: Sequence[str] = ("primary",)) -> RetentionHarness:
    """Four expired hours of clicks, of which two are held, with a trace beside them."""
    harness = RetentionHarness.of(root, *(entities or (kept_feed(),)), clusters=clusters)
    harness.land("clicks", *TIMES)
    harness.arrive(EXPIRED)
    harness.hold("audit", first=TIMES[1], last=TIMES[2])
    assert settled(harness).lost == []
    return harness


def settled(harness: RetentionHarness, *, dry_run: bool = False) -> HoldTraces:
    traces = harness.context().hold_traces(dry_run=dry_run)
    traces.settle(harness.lifecycle.plan.feeds.values())
    return traces


def lost(harness: RetentionHarness, *entities: AnyEntity, clusters: Sequence[str] = ("primary",)) -> RetentionHarness:
    """The same storage at the same time with an empty state."""
    state = f"sqlite:///{harness.lifecycle.root / 'empty.db'}"
    found = RetentionHarness.of(harness.lifecycle.root, *(entities or (kept_feed(),)), state=state, clusters=clusters)
    found.arrive(harness.now)
    return found


def holds(harness: RetentionHarness) -> list[Hold]:
    with harness.lifecycle.database.read() as connection:
        return Holds(connection).newest()


def release(harness: RetentionHarness, name: str = "audit") -> None:
    with harness.lifecycle.database.begin() as connection:
        Holds(connection).release(name, harness.now, "ann")


def traces_of(harness: RetentionHarness, cluster: str = "primary") -> list[Path]:
    return sorted((harness.lifecycle.root / cluster / ".feed-assets/holds").glob("*.json"))


def test_a_trace_says_who_holds_what_and_why_and_goes_with_the_hold(tmp_path: Path) -> None:
    harness = held(tmp_path, kept_feed(), VIEWS)
    (file,) = traces_of(harness)
    told = json.loads(file.read_text())
    assert file.read_text() == json.dumps(told, indent=1)
    assert (told["name"], told["feed"], told["author"], told["reason"]) == ("audit", "clicks", "bob", "an audit")
    assert (told["first"], told["last"], told["expires_at"]) == ("2013-11-01T01:00:00Z", "2013-11-01T02:00:00Z", None)
    assert told["locations"] == ["/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"]
    before = file.stat()
    settled(harness)
    assert file.stat() == before
    release(harness)
    settled(harness)
    assert traces_of(harness) == []


def test_retention_of_a_lost_state_keeps_what_is_held(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = held(tmp_path)
    harness = lost(before)
    sweep = harness.sweep_now()
    assert f"hold 'audit' of bob is back from its trace in file://{tmp_path}/primary" in caplog.messages
    assert [hold.as_placed() for hold in holds(harness)] == [hold.as_placed() for hold in holds(before)]
    assert harness.outcomes(sweep) == {ItemOutcome.EVICTED: 2}
    assert [time for time in TIMES if harness.lifecycle.folder("clicks", time).exists()] == TIMES[1:3]
    assert len(traces_of(harness)) == 1


def test_a_sweep_of_an_older_backup_keeps_what_was_held_since(tmp_path: Path) -> None:
    harness = held(tmp_path)
    release(harness)
    settled(harness)
    sweep = harness.approve(harness.planned())
    (hold,) = holds(harness)
    since = replace(hold.as_placed(), name="since", created_at=harness.now)
    trace = HoldTrace.of(since)
    harness.lifecycle.store().traces().keep(trace.key, trace.render())
    harness.run(sweep)
    assert harness.outcomes(sweep) == {ItemOutcome.EVICTED: 2, ItemOutcome.KEPT: 2}


def test_the_trash_of_a_lost_hold_is_not_purged(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed())
    harness.land("clicks", *TIMES)
    harness.arrive(EXPIRED)
    sweep = harness.sweep_now()
    harness.wait(EXPIRED + timedelta(days=8))
    trace = HoldTrace.of(Hold(name="audit", feed="clicks", reason="an audit", author="bob", created_at=EXPIRED))
    harness.lifecycle.store().traces().keep(trace.key, trace.render())
    context = harness.context()
    due = find_purgeable(context, "primary", harness.now)
    (purged,) = purge_sweeps(context, "primary", due)
    assert (purged.sweep.sweep_id, purged.obstacle) == (
        sweep.sweep_id,
        "hold 'audit' of bob is on feed 'clicks': an audit",
    )


def test_a_released_hold_does_not_come_back_and_an_expired_one_neither(tmp_path: Path) -> None:
    harness = held(tmp_path)
    harness.hold("short", expires_at=harness.now + timedelta(hours=1))
    settled(harness)
    assert len(traces_of(harness)) == 2
    release(harness)
    harness.now += timedelta(hours=1)
    after = lost(harness)
    assert [hold.name for hold in settled(after).lost] == ["audit"]
    assert [hold.name for hold in holds(after)] == ["audit"]
    assert len(traces_of(harness)) == 2
    assert settled(harness).lost == []
    assert traces_of(harness) == []


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    harness = held(tmp_path)
    harness.hold("other")
    settled(harness, dry_run=True)
    assert len(traces_of(harness)) == 1
    after = lost(harness)
    assert [hold.name for hold in settled(after, dry_run=True).lost] == ["audit"]
    assert holds(after) == []


def test_a_hold_on_several_clusters_leaves_a_trace_on_each_and_comes_back_once(tmp_path: Path) -> None:
    both = kept_feed(clusters=("primary", "backup"))
    harness = held(tmp_path, both, clusters=("primary", "backup"))
    (tmp_path / "backup").mkdir()
    settled(harness)
    assert [len(traces_of(harness, cluster)) for cluster in ("primary", "backup")] == [1, 1]
    after = lost(harness, both, clusters=("primary", "backup"))
    assert [hold.name for hold in settled(after).lost] == ["audit"]
    assert len(holds(after)) == 1


@pytest.mark.parametrize("name", ["visits", "clicks"])
def test_a_lost_hold_is_on_whatever_feed_is_at_its_place_now(tmp_path: Path, name: str) -> None:
    harness = held(tmp_path)
    place = {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    after = lost(harness, kept_feed(name, locations=place), VIEWS)
    for _ in range(2):
        settled(after)
        (hold,) = holds(after)
        assert (hold.name, hold.feed, hold.first) == ("audit", name, TIMES[1])
        assert hold.cluster == (None if name == "clicks" else "primary")
    release(after)
    settled(after)
    assert (settled(after).lost, traces_of(after)) == ([], [])


def test_a_lost_hold_whose_place_nobody_has_stays_beside_its_data(tmp_path: Path) -> None:
    harness = held(tmp_path)
    after = lost(harness, VIEWS)
    assert (settled(after).lost, len(traces_of(after))) == ([], 1)
    after.lifecycle.declare(kept_feed(), VIEWS)
    assert [hold.name for hold in settled(after).lost] == ["audit"]


def test_a_hold_on_every_feed_of_a_cluster_follows_the_storage_of_the_cluster(tmp_path: Path) -> None:
    harness = held(tmp_path)
    release(harness)
    harness.hold("all", feed=None, cluster="primary")
    settled(harness)
    (tmp_path / "primary").rename(tmp_path / "other")
    after = lost(harness, kept_feed(clusters=("other",)), clusters=("other",))
    settled(after)
    assert [(hold.name, hold.feed, hold.cluster) for hold in holds(after)] == [("all", None, "other")]


def test_a_feed_whose_traces_cannot_be_read_is_not_swept(tmp_path: Path) -> None:
    harness = held(tmp_path)
    (file,) = traces_of(harness)
    (file.parent / "newer.json").write_text('{"version": 2}')
    (planned,) = harness.plan().feeds
    assert planned.survey is None
    assert planned.left_out is not None
    assert planned.left_out == (
        f"file://{tmp_path}/primary: '.feed-assets/holds': this release cannot read newer.json, the trace of a hold. "
        "Use the release that wrote it; or remove it, if nothing here needs its protection."
    )


def is_full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_trace_that_cannot_be_written_keeps_nobody_from_anything_and_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = held(tmp_path)
    harness.hold("other", feed=None, first=TIMES[3], last=TIMES[3])
    with monkeypatch.context() as patch:
        patch.setattr(LocalCalls, "write_file", is_full)
        traces = settled(harness)
        (planned,) = harness.plan().feeds
    assert [each.store for each in traces.unsettled] == [f"file://{tmp_path}/primary"]
    (reason,) = (each.reason for each in traces.unsettled)
    assert "No space left on device" in reason
    assert f"traces of holds in file://{tmp_path}/primary are not up to date: {reason}" in caplog.messages
    assert planned.survey is not None
    assert (planned.survey.instances, len(traces_of(harness))) == (1, 1)
    harness.plan()
    assert len(traces_of(harness)) == 2


def refuse(trace: HoldTrace) -> list[Hold]:
    raise AssertionError(trace)


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_a_trace_stays_while_one_of_equal_holds_protects(numbers: tuple[int, int]) -> None:
    placed = Hold(name="audit", feed="clicks", reason="an audit", author="bob", created_at=EXPIRED)
    trace = HoldTrace.of(placed)
    known = [replace(placed, number=number, released_at=EXPIRED if number == 1 else None) for number in numbers]
    assert decide_traces(known, {}, {trace.key: trace}, refuse, EXPIRED) == TraceDecision()
    released = [replace(placed, released_at=EXPIRED)]
    assert decide_traces(released, {}, {trace.key: trace}, refuse, EXPIRED) == TraceDecision(remove=(trace.key,))
    found = {"wanted": None, trace.key: trace}
    assert decide_traces([], {}, found, lambda each: [each.hold], EXPIRED) == TraceDecision(lost=(placed,))


def test_a_trace_that_goes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = lost(held(tmp_path))
    monkeypatch.setattr(LocalDocuments, "find", lambda *_: None)
    assert settled(after).lost == []


def test_traces_of_a_storage_that_fails_are_asked_for_once(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), VIEWS)
    (tmp_path / "primary/.feed-assets").mkdir(parents=True)
    (tmp_path / "primary/.feed-assets/holds").write_text("no folder")
    traces = harness.context().hold_traces()
    errors = []
    for record in harness.lifecycle.plan.feeds.values():
        with pytest.raises(StorageError) as raised:
            traces.settle([record])
        errors.append(raised.value)
    assert errors[0] is errors[1]


def test_storages_that_fail_remain_unsettled_as_far_as_holds_concern_them(tmp_path: Path) -> None:
    names = ("primary", "backup", "third")
    harness = RetentionHarness.of(tmp_path, kept_feed(clusters=names), clusters=names)
    for name in ("primary", "third"):
        (tmp_path / name / ".feed-assets").mkdir(parents=True)
        (tmp_path / name / ".feed-assets/holds").write_text("no folder")
    everywhere, somewhere = harness.context().hold_traces(), harness.context().hold_traces()
    everywhere.settle_reachable()
    assert [each.store for each in everywhere.unsettled] == [
        f"file://{tmp_path}/{name}" for name in ("primary", "third")
    ]
    assert all("Not a directory" in each.reason for each in everywhere.unsettled)
    placed = Hold(name="audit", feed="clicks", cluster="third", reason="an audit", author="bob", created_at=EXPIRED)
    somewhere.settle_reachable([placed, replace(placed, feed="views", cluster="primary")])
    assert [each.store for each in somewhere.unsettled] == [f"file://{tmp_path}/third"]
