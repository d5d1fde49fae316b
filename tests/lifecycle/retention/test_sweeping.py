"""A sweep moves what has expired, and the record says so; what protects an instance at that moment keeps it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.clock import TimeBudget
from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.evictions import TOPIC
from feed_assets.lifecycle.retention.sweeping import begin_sweep, end_sweep, run_sweep, sweep_chunks
from feed_assets.state.errors import SweepDamagedError
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.late_checks import LateCheck, LateChecks
from feed_assets.state.leases import Leases, find_held
from feed_assets.state.manifests import Manifests, RecordedManifest
from feed_assets.state.records import FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.state.retention_schema import sweep_chunks as chunk_table
from feed_assets.state.sweep_records import ChunkState, ItemOutcome, SweepState
from feed_assets.timing.dates import render_datetime
from tests.lifecycle.retention.yard import Yard, hourly, kept_feed, paths_of
from tests.lifecycle.world import START, at

EXPIRED = hourly(START, 24)
YOUNG = hourly(at("02"), 48)


@pytest.fixture
def yard(tmp_path: Path, state_url: str) -> Yard:
    """Three days of clicks, of which two are kept."""
    yard = Yard.of(tmp_path, state=state_url)
    yard.land("clicks", *EXPIRED, *YOUNG)
    yard.arrive(at("04"))
    return yard


def test_what_is_older_than_the_limit_goes_and_the_rest_stays(yard: Yard) -> None:
    before = yard.tree()
    sweep = yard.run(yard.planned())
    assert sweep.state is SweepState.DONE
    assert yard.outcomes(sweep) == {ItemOutcome.EVICTED: 24}
    gone = {path for path in before if path == "clicks/2013-11-01" or path.startswith("clicks/2013-11-01/")}
    assert yard.tree() == {path: entry for path, entry in before.items() if path not in gone}
    (count,) = sweep.counts
    assert (count.evicted, count.kept, count.failed, count.bytes, count.files) == (24, 0, 0, 96, 24)


def test_rows_events_and_messages_say_what_went(yard: Yard) -> None:
    before = yard.rows()
    sweep = yard.run(yard.planned())
    rows = yard.rows()
    assert {rows[time].status for time in EXPIRED} == {FeedInstanceStatus.EVICTED}
    assert all(rows[time] == before[time] for time in YOUNG)
    events = {event.nominal_time: event for event in yard.events(FeedEventKind.EVICTED)}
    assert list(events) == EXPIRED
    one = events[EXPIRED[5]]
    assert rows[EXPIRED[5]].event_seq == one.seq
    assert (one.bytes, one.files, one.manifest_digest) == (4, 1, before[EXPIRED[5]].manifest_digest)
    assert {name: one.payload[name] for name in ("sweep", "path", "kind", "rule", "reason", "action")} == {
        "sweep": sweep.sweep_id,
        "path": "clicks/2013-11-01/05",
        "kind": "data",
        "rule": "age",
        "reason": "it is older than days(2) as of 2013-11-04T00:00Z",
        "action": "delete",
    }
    messages = yard.messages()
    assert {message.topic for message in messages} == {TOPIC}
    assert {message.payload["path"] for message in messages} == paths_of(EXPIRED)
    assert {message.payload["operation"] for message in messages} == {"DELETE"}


def test_the_trash_says_what_it_is_about(yard: Yard) -> None:
    sweep = yard.run(yard.planned())
    trash = yard.world.store().trash()
    assert set(trash.contents(sweep.sweep_id)) == paths_of(EXPIRED)
    description = trash.find_description(sweep.sweep_id)
    assert description is not None
    assert (description["feeds"], description["instances"]) == (["clicks"], 24)
    assert description["undo"] == f"feed-assets retention undo {sweep.sweep_id}"


def test_manifests_and_late_checks_of_what_went_are_forgotten(yard: Yard) -> None:
    database = yard.world.database
    manifest = RecordedManifest(
        feed="clicks", cluster="primary", nominal_time=START, digest="d", files=(), recorded_at=START
    )
    with database.begin() as connection:
        Manifests(connection).put([replace(manifest, nominal_time=time) for time in (EXPIRED[0], YOUNG[0])])
    yard.run(yard.planned())
    with database.read() as connection:
        left = Manifests(connection).get_many([FeedKey("clicks", "primary", time) for time in (EXPIRED[0], YOUNG[0])])
    assert [key.nominal_time for key in left] == [YOUNG[0]]


def test_all_leases_are_given_back(yard: Yard) -> None:
    sweep = yard.run(yard.planned())
    keys = [("feed/clicks", "primary", time) for time in EXPIRED]
    with yard.world.database.read() as connection:
        assert find_held(connection, keys, yard.now) == []
    assert [chunk.holder for chunk in yard.chunks(sweep)] == [None]


def test_an_instance_that_somebody_writes_stays(yard: Yard) -> None:
    sweep = yard.planned()
    Leases(yard.world.database).acquire("feed/clicks", "primary", EXPIRED[3], "run-7", yard.now, timedelta(minutes=1))
    done = yard.run(sweep)
    result = yard.results(done)["clicks/2013-11-01/03"]
    assert (result.outcome, result.reason) == (ItemOutcome.KEPT, "lease: 'run-7' works on it")
    assert yard.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.KEPT: 1}
    assert (yard.root / "clicks/2013-11-01/03").is_dir()
    assert yard.rows()[EXPIRED[3]].status is FeedInstanceStatus.AVAILABLE


def test_a_hold_that_came_after_the_plan_keeps(yard: Yard) -> None:
    sweep = yard.planned()
    yard.hold("audit", first=EXPIRED[10], last=EXPIRED[12])
    done = yard.run(sweep)
    assert yard.outcomes(done) == {ItemOutcome.EVICTED: 21, ItemOutcome.KEPT: 3}
    assert yard.results(done)["clicks/2013-11-01/11"].reason == "hold: hold 'audit' of bob: an audit"


def test_a_late_check_that_came_after_the_plan_keeps(yard: Yard) -> None:
    sweep = yard.planned()
    check = LateCheck(
        kind="feed", name="clicks", cluster="primary", nominal_time=EXPIRED[2], planned_at=START, due_at=at("09"),
        cut_off_at=at("20"),
    )  # fmt: skip
    with yard.world.database.begin() as connection:
        LateChecks(connection).put([check])
    assert yard.outcomes(yard.run(sweep)) == {ItemOutcome.EVICTED: 23, ItemOutcome.KEPT: 1}


def test_an_instance_whose_record_has_changed_since_the_plan_stays(yard: Yard) -> None:
    sweep = yard.planned()
    row = yard.rows()[EXPIRED[0]]
    with yard.world.database.begin() as connection:
        FeedInstances(connection).put([replace(row, event_seq=10_000)])
    done = yard.run(sweep)
    assert yard.results(done)["clicks/2013-11-01/00"].outcome is ItemOutcome.CHANGED
    assert yard.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.CHANGED: 1}


def test_what_was_written_into_an_instance_that_is_not_on_record_keeps_it(tmp_path: Path) -> None:
    yard = Yard.of(tmp_path)
    yard.land("clicks", *EXPIRED, *YOUNG)
    yard.now = at("04")
    sweep = yard.planned()
    yard.land("clicks", EXPIRED[4], text="late")
    done = yard.run(sweep)
    assert yard.results(done)["clicks/2013-11-01/04"].outcome is ItemOutcome.CHANGED
    assert yard.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.CHANGED: 1}


def test_what_somebody_else_took_away_has_vanished(yard: Yard) -> None:
    sweep = yard.planned()
    (yard.root / "clicks/2013-11-01/07").rename(tmp := yard.world.root / "elsewhere")
    done = yard.run(sweep)
    assert yard.outcomes(done) == {ItemOutcome.EVICTED: 23, ItemOutcome.VANISHED: 1}
    assert tmp.is_dir()
    assert len(yard.events(FeedEventKind.EVICTED)) == 23


def test_another_policy_than_the_one_planned_by_keeps_everything(yard: Yard) -> None:
    sweep = yard.planned()
    yard.world.declare(kept_feed(limit="days(30)"))
    done = yard.run(sweep)
    assert yard.outcomes(done) == {ItemOutcome.KEPT: 24}
    assert "plan anew" in (yard.results(done)["clicks/2013-11-01/07"].reason or "")
    assert done.purge_at is None


def test_a_feed_that_is_not_declared_any_more_keeps_everything(yard: Yard) -> None:
    sweep = yard.planned()
    yard.world.declare(kept_feed("others"))
    assert yard.outcomes(yard.run(sweep)) == {ItemOutcome.KEPT: 24}


def test_a_sweep_is_not_run_twice(yard: Yard) -> None:
    sweep = yard.run(yard.planned())
    with pytest.raises(SweepRefusedError, match="it is DONE"):
        yard.run(sweep)


def test_a_sweep_that_asks_is_not_run(tmp_path: Path, state_url: str) -> None:
    yard = Yard.of(tmp_path, state=state_url)
    yard.land("clicks", *EXPIRED)
    yard.arrive(at("04"))
    sweep = yard.planned()
    assert sweep.state is SweepState.ASKING
    before = yard.tree(hidden=True)
    with pytest.raises(SweepRefusedError, match="it waits for approval: All 24 instances of the feed would go"):
        yard.run(sweep)
    assert yard.tree(hidden=True) == before
    assert yard.run(yard.approve(sweep)).state is SweepState.DONE


def test_a_sweep_is_not_run_before_the_time_it_was_planned_for(yard: Yard) -> None:
    sweep = yard.planned(as_of=at("05"))
    with pytest.raises(SweepRefusedError, match="it was planned for a later time"):
        yard.run(sweep)


def test_a_plan_that_was_tampered_with_is_not_run(yard: Yard) -> None:
    sweep = yard.planned()
    before = yard.tree(hidden=True)
    with yard.world.database.begin() as connection:
        connection.execute(chunk_table.update().values(count=23))
    with pytest.raises(SweepDamagedError):
        yard.run(sweep)
    assert yard.tree(hidden=True) == before


def test_a_chunk_that_was_tampered_with_is_not_run(yard: Yard) -> None:
    sweep, other = yard.planned(), yard.plan("clicks", dry_run=True)
    assert other.sweeps[0].digest == sweep.digest
    before = yard.tree()
    with yard.world.database.begin() as connection:
        connection.execute(chunk_table.update().values(content=b"nothing"))
    with pytest.raises(SweepDamagedError):
        yard.run(sweep)
    assert yard.tree() == before


def test_two_sweeps_of_one_feed_do_not_run_at_once(yard: Yard) -> None:
    sweep = yard.planned()
    begin_sweep(yard.site(), sweep.sweep_id)
    planned = yard.plan()
    assert planned.sweeps == ()
    assert planned.feeds[0].left_out == f"sweep {sweep.sweep_id} of it is RUNNING"


def test_several_workers_share_the_chunks_of_a_sweep(tmp_path: Path, state_url: str) -> None:
    yard = Yard.of(tmp_path, kept_feed(), kept_feed("views"), state=state_url)
    for name in ("clicks", "views"):
        yard.land(name, *EXPIRED, *YOUNG)
    yard.arrive(at("04"))
    sweep = yard.planned()
    one, other = yard.site(), yard.site()
    begun = begin_sweep(one, sweep.sweep_id)
    taken = one.claims(sweep.sweep_id).take(ChunkState.OPEN)
    assert taken is not None
    sweep_chunks(other, begun)
    assert end_sweep(other, sweep.sweep_id).state is SweepState.RUNNING
    one.claims(sweep.sweep_id).release()
    sweep_chunks(one, begun)
    done = end_sweep(one, sweep.sweep_id)
    assert done.state is SweepState.DONE
    assert {count.feed: count.evicted for count in done.counts} == {"clicks": 24, "views": 24}


def test_a_run_whose_time_is_up_is_gone_on_with(yard: Yard) -> None:
    sweep = yard.planned()
    assert run_sweep(yard.site(), sweep.sweep_id, budget=TimeBudget(0.0)).state is SweepState.RUNNING
    assert yard.run(sweep).state is SweepState.DONE


def test_progress_is_told(yard: Yard) -> None:
    told: list[tuple[int, int]] = []
    run_sweep(yard.site(), yard.planned().sweep_id, progress=lambda settled, total: told.append((settled, total)))
    assert told == [(24, 24)]


def test_the_trash_is_kept_as_long_as_the_feed_says(tmp_path: Path) -> None:
    yard = Yard.of(tmp_path, kept_feed(trash="hours(5)"))
    yard.land("clicks", *EXPIRED, *YOUNG)
    yard.arrive(at("04"))
    assert render_datetime(yard.run(yard.planned()).purge_at or START) == "2013-11-04T05:00Z"
