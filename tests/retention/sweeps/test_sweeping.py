"""A sweep moves what has expired, and the record says so; what protects an instance at that moment keeps it."""

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import sleep

import pytest

from feed_assets.clock import SystemClock
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.instances.arrival.stored_data import record_vanished
from feed_assets.instances.late.store import LateCheck, LateChecks
from feed_assets.instances.leasing import Leased
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.manifests import Manifests, RecordedManifest
from feed_assets.log.leases import Leases, find_held
from feed_assets.log.messages.payloads import EvictionOperation
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.records import ChunkState, ItemOutcome, SweepState
from feed_assets.log.removals.tables import sweep_chunks as chunk_table
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.protections import lease_keys
from feed_assets.retention.sweeps.sweeping import begin_sweep, end_sweep, run_sweep, sweep_chunks
from feed_assets.sql.errors import SweepDamagedError
from feed_assets.timing.dates import render_datetime
from tests.instances.harness import START, at
from tests.log.samples import sweep_item
from tests.retention.harness import RetentionHarness, hourly, kept_feed, paths_of

EXPIRED = hourly(START, 24)
YOUNG = hourly(at("02"), 48)


@pytest.fixture
def harness(tmp_path: Path, state_url: str) -> RetentionHarness:
    """Three days of clicks, of which two are kept."""
    harness = RetentionHarness.of(tmp_path, state=state_url)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    return harness


def test_what_is_older_than_the_limit_goes_and_the_rest_stays(harness: RetentionHarness) -> None:
    before = harness.tree()
    sweep = harness.run(harness.planned())
    assert sweep.state is SweepState.DONE
    assert harness.outcomes(sweep) == {ItemOutcome.EVICTED: 24}
    gone = {path for path in before if path == "clicks/2013-11-01" or path.startswith("clicks/2013-11-01/")}
    assert harness.tree() == {path: entry for path, entry in before.items() if path not in gone}
    (count,) = sweep.counts
    assert (count.evicted, count.kept, count.failed, count.bytes, count.files) == (24, 0, 0, 96, 24)


def test_rows_events_and_messages_say_what_went(harness: RetentionHarness) -> None:
    before = harness.rows()
    sweep = harness.run(harness.planned())
    rows = harness.rows()
    assert {rows[time].status for time in EXPIRED} == {FeedInstanceStatus.EVICTED}
    assert all(rows[time] == before[time] for time in YOUNG)
    events = {event.nominal_time: event for event in harness.events(FeedEventKind.EVICTED)}
    assert list(events) == EXPIRED
    one = events[EXPIRED[5]]
    assert rows[EXPIRED[5]].event_seq == one.seq
    assert (one.bytes, one.files, one.manifest_digest) == (4, 1, before[EXPIRED[5]].manifest_digest)
    assert {name: one.payload[name] for name in ("sweep", "path", "kind", "rule", "reason")} == {
        "sweep": sweep.sweep_id,
        "path": "clicks/2013-11-01/05",
        "kind": "data",
        "rule": "age",
        "reason": "it is older than days(2) as of 2013-11-04T00:00Z",
    }
    messages = harness.messages()
    assert {message.path for message in messages} == paths_of(EXPIRED)
    assert {message.operation for message in messages} == {EvictionOperation.DELETE}


def test_the_trash_says_what_it_is_about(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    trash = harness.lifecycle.store().trash()
    assert set(trash.contents(sweep.sweep_id)) == paths_of(EXPIRED)
    description = trash.find_description(sweep.sweep_id)
    assert description is not None
    assert (description["feeds"], description["instances"]) == (["clicks"], 24)
    assert description["undo"] == f"feed-assets retention undo {sweep.sweep_id}"


def test_manifests_and_late_checks_of_what_went_are_forgotten(harness: RetentionHarness) -> None:
    database = harness.lifecycle.database
    manifest = RecordedManifest(
        feed="clicks", cluster="primary", nominal_time=START, digest="d", files=(), recorded_at=START
    )
    with database.begin() as connection:
        Manifests(connection).put([replace(manifest, nominal_time=time) for time in (EXPIRED[0], YOUNG[0])])
    harness.run(harness.planned())
    with database.read() as connection:
        left = Manifests(connection).get_many([FeedKey("clicks", "primary", time) for time in (EXPIRED[0], YOUNG[0])])
    assert [key.nominal_time for key in left] == [YOUNG[0]]


def test_all_leases_are_given_back(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    keys = [("feed/clicks", "primary", time) for time in EXPIRED]
    with harness.lifecycle.database.read() as connection:
        assert find_held(connection, keys, harness.now) == []
    assert [chunk.holder for chunk in harness.chunks(sweep)] == [None]


def test_an_instance_that_somebody_writes_stays(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    Leases(harness.lifecycle.database).acquire(
        "feed/clicks", "primary", EXPIRED[3], "run-7", harness.now, timedelta(minutes=1)
    )
    done = harness.run(sweep)
    result = harness.results(done)["clicks/2013-11-01/03"]
    assert (result.outcome, result.reason) == (ItemOutcome.KEPT, "lease: 'run-7' holds its lease")
    assert harness.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.KEPT: 1}
    assert (harness.root / "clicks/2013-11-01/03").is_dir()
    assert harness.rows()[EXPIRED[3]].status is FeedInstanceStatus.AVAILABLE


def test_a_hold_that_came_after_the_plan_keeps(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    harness.hold("audit", first=EXPIRED[10], last=EXPIRED[12])
    done = harness.run(sweep)
    assert harness.outcomes(done) == {ItemOutcome.EVICTED: 21, ItemOutcome.KEPT: 3}
    assert harness.results(done)["clicks/2013-11-01/11"].reason == "hold: hold 'audit' of bob: an audit"


def test_a_late_check_that_came_after_the_plan_keeps(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    check = LateCheck(
        kind=AgendaKind.LATE_FEED, name="clicks", cluster="primary", nominal_time=EXPIRED[2], planned_at=START,
        due_at=at("09"), cut_off_at=at("20"),
    )  # fmt: skip
    with harness.lifecycle.database.begin() as connection:
        LateChecks(connection).put([check])
    assert harness.outcomes(harness.run(sweep)) == {ItemOutcome.EVICTED: 23, ItemOutcome.KEPT: 1}


def test_an_instance_whose_record_has_changed_since_the_plan_stays(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    row = harness.rows()[EXPIRED[0]]
    with harness.lifecycle.database.begin() as connection:
        FeedInstances(connection).put([replace(row, event_seq=10_000)])
    done = harness.run(sweep)
    assert harness.results(done)["clicks/2013-11-01/00"].outcome is ItemOutcome.CHANGED
    assert harness.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.CHANGED: 1}


def test_what_was_written_into_an_instance_that_is_not_on_record_keeps_it(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.now = at("04")
    sweep = harness.planned()
    harness.land("clicks", EXPIRED[4], text="late")
    done = harness.run(sweep)
    assert harness.results(done)["clicks/2013-11-01/04"].outcome is ItemOutcome.CHANGED
    assert harness.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.CHANGED: 1}


@pytest.mark.parametrize("is_on_record", [False, True])
def test_content_that_was_written_in_place_with_its_old_size_and_time_keeps_its_instance(
    tmp_path: Path, is_on_record: bool
) -> None:
    harness = RetentionHarness.of(tmp_path)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.now = at("04")
    if is_on_record:
        harness.arrive(harness.now)
        assert harness.rows()[EXPIRED[4]].bytes == 4
    sweep = harness.planned()
    (file,) = harness.lifecycle.folder("clicks", EXPIRED[4]).iterdir()
    status = file.stat()
    sleep(0.01)
    file.write_text("DATA")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    done = harness.run(sweep)
    assert harness.results(done)["clicks/2013-11-01/04"].outcome is ItemOutcome.CHANGED
    assert file.read_text() == "DATA"


def test_what_somebody_else_took_away_has_vanished(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    (harness.root / "clicks/2013-11-01/07").rename(tmp := harness.lifecycle.root / "elsewhere")
    done = harness.run(sweep)
    assert harness.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.VANISHED: 1}
    assert tmp.is_dir()
    assert len(harness.events(FeedEventKind.EVICTED)) == 23


def test_another_policy_than_the_one_planned_by_keeps_everything(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    harness.lifecycle.declare(kept_feed(limit="days(30)"))
    done = harness.run(sweep)
    assert harness.outcomes(done) == {ItemOutcome.KEPT: 24}
    assert "plan again" in (harness.results(done)["clicks/2013-11-01/07"].reason or "")
    assert done.purge_at is None


def test_a_feed_that_is_not_declared_any_more_keeps_everything(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    harness.lifecycle.declare(kept_feed("others"))
    assert harness.outcomes(harness.run(sweep)) == {ItemOutcome.KEPT: 24}


def test_a_sweep_is_not_run_twice(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    with pytest.raises(SweepRefusedError, match="it is DONE"):
        harness.run(sweep)


def test_a_sweep_that_asks_is_not_run(tmp_path: Path, state_url: str) -> None:
    harness = RetentionHarness.of(tmp_path, state=state_url)
    harness.land("clicks", *EXPIRED)
    harness.arrive(at("04"))
    sweep = harness.planned()
    assert sweep.state is SweepState.ASKING
    before = harness.tree(hidden=True)
    with pytest.raises(SweepRefusedError, match="it waits for approval: All 24 instances of the feed would be removed"):
        harness.run(sweep)
    assert harness.tree(hidden=True) == before
    assert harness.run(harness.approve(sweep)).state is SweepState.DONE


def test_a_sweep_is_not_run_before_the_time_it_was_planned_for(harness: RetentionHarness) -> None:
    sweep = harness.planned(as_of=at("05"))
    with pytest.raises(SweepRefusedError, match="the sweep was planned for a later time"):
        harness.run(sweep)


def test_a_plan_that_was_tampered_with_is_not_run(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    before = harness.tree(hidden=True)
    with harness.lifecycle.database.begin() as connection:
        connection.execute(chunk_table.update().values(count=23))
    with pytest.raises(SweepDamagedError):
        harness.run(sweep)
    assert harness.tree(hidden=True) == before


def test_a_chunk_that_was_tampered_with_is_not_run(harness: RetentionHarness) -> None:
    sweep, other = harness.planned(), harness.plan("clicks", dry_run=True)
    assert other.sweeps[0].digest == sweep.digest
    before = harness.tree()
    with harness.lifecycle.database.begin() as connection:
        connection.execute(chunk_table.update().values(items=(sweep_item(0),)))
    with pytest.raises(SweepDamagedError):
        harness.run(sweep)
    assert harness.tree() == before


def test_two_sweeps_of_one_feed_do_not_run_at_once(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    begin_sweep(harness.context(), sweep.sweep_id)
    planned = harness.plan()
    assert planned.sweeps == ()
    assert planned.feeds[0].left_out == f"its sweep {sweep.sweep_id} is RUNNING"


def test_several_workers_share_the_chunks_of_a_sweep(tmp_path: Path, state_url: str) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), kept_feed("views"), state=state_url)
    for name in ("clicks", "views"):
        harness.land(name, *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    sweep = harness.planned()
    one, other = harness.context(), harness.context()
    begun = begin_sweep(one, sweep.sweep_id)
    assert one.claims(sweep.sweep_id).take_many(ChunkState.OPEN, 1)
    sweep_chunks(other, begun)
    assert end_sweep(other, sweep.sweep_id).state is SweepState.RUNNING
    one.claims(sweep.sweep_id).release()
    sweep_chunks(one, begun)
    done = end_sweep(one, sweep.sweep_id)
    assert done.state is SweepState.DONE
    assert {count.feed: count.evicted for count in done.counts} == {"clicks": 24, "views": 24}


def test_a_chunk_and_the_leases_of_its_instances_are_kept_while_the_work_lasts(harness: RetentionHarness) -> None:
    sweep, short = harness.planned(), timedelta(seconds=0.6)
    one, other = (harness.context(real_clock=SystemClock(), ttl=short) for _ in range(2))
    claims, keys = one.claims(sweep.sweep_id), lease_keys("clicks", "primary", EXPIRED)
    (chunk,) = claims.take_many(ChunkState.OPEN, 1)
    with claims.leased(chunk, "primary") as leased:
        leased.acquire_free(keys)
        assert leased.tokens == dict.fromkeys(EXPIRED, 1)
        sleep(1.0)
        assert not other.claims(sweep.sweep_id).take_many(ChunkState.OPEN, 1)
        with Leased(harness.lifecycle.database, SystemClock(), holder="other", cluster="primary") as others:
            others.acquire_free(keys)
            assert others.tokens == {}
    sleep(0.6)
    assert other.claims(sweep.sweep_id).take_many(ChunkState.OPEN, 1)


def test_a_run_that_has_only_begun_is_gone_on_with(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    begin_sweep(harness.context(), sweep.sweep_id)
    assert end_sweep(harness.context(), sweep.sweep_id).state is SweepState.RUNNING
    assert harness.run(sweep).state is SweepState.DONE


def test_what_a_sweep_has_begun_to_move_is_not_lost(harness: RetentionHarness) -> None:
    lifecycle, sweep = harness.lifecycle, harness.planned()
    begin_sweep(harness.context(), sweep.sweep_id)
    (harness.root / "clicks" / "2013-11-01").rename(harness.root / "moved")
    wanted = [Candidate(record=lifecycle.feed("clicks"), nominal_time=time) for time in EXPIRED]
    assert record_vanished(lifecycle.context(harness.now), wanted, "look") == {}
    (harness.root / "moved").rename(harness.root / "clicks" / "2013-11-01")
    assert harness.outcomes(harness.run(sweep)) == {ItemOutcome.EVICTED: 24}


def test_progress_is_told(harness: RetentionHarness) -> None:
    told: list[tuple[int, int]] = []
    run_sweep(
        harness.context(), harness.planned().sweep_id, progress=lambda settled, total: told.append((settled, total))
    )
    assert told == [(24, 24)]


def test_the_trash_is_kept_as_long_as_the_feed_says(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(trash="hours(5)"))
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    assert render_datetime(harness.run(harness.planned()).purge_at or START) == "2013-11-04T05:00Z"
