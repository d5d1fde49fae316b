"""Undo brings back what a sweep took, whole or in part, and never replaces anything; purge ends that."""

import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.content.quality import Quality
from feed_assets.instances.leasing import TTL
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.records import ChunkState, ItemOutcome, Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import name_holder
from feed_assets.plan.location import declare_location
from feed_assets.plan.records import Plan
from feed_assets.retention.errors import FeedsUnrestoredError, SweepRefusedError
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.sweeping import begin_sweep
from feed_assets.retention.sweeps.undoing import RestoreSelection
from feed_assets.storage.errors import StorageAwayError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.registry import open_store
from tests.instances.harness import START, at
from tests.retention.harness import RetentionHarness, Tree, hourly, kept_feed, paths_of

EXPIRED = hourly(START, 24)
YOUNG = hourly(at("02"), 48)


@pytest.fixture
def harness(tmp_path: Path, state_url: str) -> RetentionHarness:
    """Three days of clicks, of which two are kept."""
    harness = RetentionHarness.of(tmp_path, state=state_url)
    harness.land("clicks", *EXPIRED, *YOUNG)
    odd = harness.root / "clicks/2013-11-01/07"
    (odd / "_SUCCESS").touch()
    (odd / ".hidden").write_bytes(b"\0\1")
    (odd / "empty").mkdir(mode=0o750)
    (odd / "link").symlink_to("/nowhere")
    harness.arrive(at("04"))
    return harness


def archived(tmp_path: Path, state_url: str) -> tuple[RetentionHarness, Tree]:
    archive = f"file://{tmp_path}/archive/clicks/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"
    harness = RetentionHarness.of(tmp_path, kept_feed(action="archive", archive_to=archive), state=state_url)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    return harness, harness.tree()


def purge(harness: RetentionHarness, *, at_once: bool = False) -> dict[str, str | None]:
    context = harness.context()
    done = purge_sweeps(context, "primary", find_purgeable(context, "primary", harness.now, at_once=at_once))
    return {each.sweep.sweep_id: each.obstacle for each in done}


def test_an_undo_makes_everything_as_it_was(harness: RetentionHarness) -> None:
    tree, rows = harness.tree(), harness.rows()
    sweep = harness.run(harness.planned())
    done = harness.undo(sweep)
    assert (done.restored, done.left, done.sweep.state) == (24, (), SweepState.UNDONE)
    assert harness.tree() == tree
    for time, row in harness.rows().items():
        before = rows[time]
        assert (row.status, row.manifest_digest, row.bytes, row.files, row.available_at) == (
            before.status,
            before.manifest_digest,
            before.bytes,
            before.files,
            before.available_at,
        )


@pytest.mark.parametrize("has_arrived", [True, False])
def test_what_the_record_never_had_is_judged_as_what_arrives(tmp_path: Path, state_url: str, has_arrived: bool) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), state=state_url)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    with harness.lifecycle.database.begin() as connection:
        unknown = [] if has_arrived else [FeedKey("clicks", "primary", time) for time in EXPIRED]
        FeedInstances(connection).remove(unknown)
    judged = kept_feed().model_copy(update={"quality": Quality(min_rows=1)})
    harness.lifecycle.declare(judged)
    sweep = harness.run(harness.planned())
    assert harness.undo(sweep).restored == 24
    status = FeedInstanceStatus.AVAILABLE if has_arrived else FeedInstanceStatus.PARTIAL
    assert {harness.rows()[time].status for time in EXPIRED} == {status}


def test_a_feed_whose_storage_is_away_keeps_no_other_from_coming_back(tmp_path: Path, state_url: str) -> None:
    def open_without_elsewhere(url: str, options: dict[str, object]) -> InstanceStore:
        if "elsewhere" in url:
            raise StorageAwayError(store=url, path="", reason="it does not answer", next_step="Start it.")
        return open_store(url, options)

    place = f"file://{tmp_path}/elsewhere/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"
    harness = RetentionHarness.of(
        tmp_path, kept_feed("archives", locations={"data": place}), kept_feed(), state=state_url
    )
    for time in (*EXPIRED, *YOUNG):
        (tmp_path / f"elsewhere/{time:%Y-%m-%d/%H}").mkdir(parents=True)
        (tmp_path / f"elsewhere/{time:%Y-%m-%d/%H}/part.csv").touch()
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    tree, stores = harness.tree(), harness.lifecycle.stores
    sweep = harness.run(harness.planned())
    harness.lifecycle.stores = StorePool(open_without_elsewhere)
    with pytest.raises(
        FeedsUnrestoredError, match=r"restored 24 paths and is not complete\. Feed 'archives': .* answer"
    ):
        harness.undo(sweep)
    assert harness.tree() == tree
    with pytest.raises(StorageAwayError):
        harness.undo(sweep, RestoreSelection(feeds=frozenset({"archives"})))
    harness.lifecycle.stores = stores
    assert (harness.undo(sweep).restored, harness.sweep(sweep.sweep_id).state) == (24, SweepState.UNDONE)


def test_events_say_what_came_back(harness: RetentionHarness) -> None:
    before = harness.rows()
    sweep = harness.run(harness.planned())
    harness.undo(sweep)
    events = harness.events(FeedEventKind.RESTORED)
    assert [event.nominal_time for event in events] == EXPIRED
    assert {event.payload["sweep"] for event in events} == {sweep.sweep_id}
    assert [event.manifest_digest for event in events] == [before[time].manifest_digest for time in EXPIRED]
    assert [harness.rows()[event.nominal_time].event_seq for event in events] == [event.seq for event in events]


def test_an_undo_again_does_nothing(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.undo(sweep)
    again = harness.undo(sweep)
    assert (again.restored, again.left, again.sweep.state) == (0, (), SweepState.UNDONE)
    assert len(harness.events(FeedEventKind.RESTORED)) == 24


def test_one_instance_comes_back_and_then_the_rest(harness: RetentionHarness) -> None:
    tree = harness.tree()
    sweep = harness.run(harness.planned())
    one = harness.undo(sweep, RestoreSelection(times=frozenset({EXPIRED[3]})))
    assert (one.restored, one.sweep.state) == (1, SweepState.DONE)
    assert {time for time in EXPIRED if (harness.root / f"clicks/{time:%Y-%m-%d/%H}").exists()} == {EXPIRED[3]}
    rest = harness.undo(sweep)
    assert (rest.restored, rest.sweep.state) == (23, SweepState.UNDONE)
    assert harness.tree() == tree


def test_the_instances_of_one_feed_come_back(tmp_path: Path, state_url: str) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(), kept_feed("views"), state=state_url)
    for name in ("clicks", "views"):
        harness.land(name, *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    sweep = harness.run(harness.planned())
    done = harness.undo(sweep, RestoreSelection(feeds=frozenset({"views"})))
    assert (done.restored, done.sweep.state) == (24, SweepState.DONE)
    assert harness.rows("views")[START].status is FeedInstanceStatus.AVAILABLE
    assert harness.rows("clicks")[START].status is FeedInstanceStatus.EVICTED


def test_what_stands_there_meanwhile_is_not_replaced(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.land("clicks", EXPIRED[4], text="newer")
    done = harness.undo(sweep)
    assert done.restored == 23
    assert [(each.path, each.result.outcome) for each in done.left] == [("clicks/2013-11-01/04", ItemOutcome.OCCUPIED)]
    assert done.sweep.state is SweepState.DONE
    (file,) = (harness.root / "clicks/2013-11-01/04").iterdir()
    assert file.read_text() == "newer"
    file.unlink()
    file.parent.rmdir()
    assert harness.undo(sweep).sweep.state is SweepState.UNDONE


def test_an_instance_that_was_made_anew_is_not_replaced_by_what_went(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    row = harness.rows()[EXPIRED[4]]
    with harness.lifecycle.database.begin() as connection:
        newer = replace(row, status=FeedInstanceStatus.AVAILABLE, event_seq=10_000)
        FeedInstances(connection).put([newer])
    (left,) = harness.undo(sweep).left
    path, result = left.path, left.result
    assert (path, result.outcome) == ("clicks/2013-11-01/04", ItemOutcome.OCCUPIED)
    assert "a newer one has been AVAILABLE" in (result.reason or "")


def test_an_older_sweep_does_not_bring_back_what_a_newer_one_took_again(harness: RetentionHarness) -> None:
    first = harness.run(harness.planned())
    harness.land("clicks", EXPIRED[4], text="newer")
    second = harness.sweep_now()
    assert set(harness.results(second)) == {"clicks/2013-11-01/04"}
    (left,) = harness.undo(first).left
    result = left.result
    assert "a later sweep" in (result.reason or "")
    assert harness.undo(second).sweep.state is SweepState.UNDONE


def test_an_instance_that_somebody_writes_does_not_come_back(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    Leases(harness.lifecycle.database).acquire(
        "feed/clicks", "primary", EXPIRED[3], "run-7", harness.now, timedelta(minutes=1)
    )
    (left,) = harness.undo(sweep).left
    path, result = left.path, left.result
    assert (path, result.reason) == ("clicks/2013-11-01/03", "a writer holds its lease now")


def test_instances_that_were_never_on_record_are_looked_at_when_they_come_back(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(flag="_SUCCESS"))
    harness.land("clicks", *EXPIRED, *YOUNG)
    (harness.root / "clicks/2013-11-01/05/_SUCCESS").touch()
    harness.now = at("04")
    harness.undo(harness.run(harness.planned()))
    statuses = {time: row.status for time, row in harness.rows().items()}
    assert statuses.pop(EXPIRED[5]) is FeedInstanceStatus.AVAILABLE
    assert set(statuses.values()) == {FeedInstanceStatus.PARTIAL}


@pytest.mark.parametrize("state", ["PLANNED", "ASKING", "CANCELLED"])
def test_a_sweep_that_took_nothing_has_nothing_to_undo(harness: RetentionHarness, state: str) -> None:
    sweep = harness.planned()
    if state != "PLANNED":
        from feed_assets.log.removals.store import Sweeps

        with harness.lifecycle.database.begin() as connection:
            Sweeps(connection).transition(sweep.sweep_id, {SweepState.PLANNED}, state=SweepState(state))
    with pytest.raises(SweepRefusedError, match="has removed nothing"):
        harness.undo(sweep)


def test_a_part_of_a_sweep_that_has_not_ended_is_not_undone(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    begin_sweep(harness.context(), sweep.sweep_id)
    with pytest.raises(SweepRefusedError, match="can only be undone as a whole"):
        harness.undo(sweep, RestoreSelection(times=frozenset({START})))
    assert harness.undo(sweep).sweep.state is SweepState.UNDONE


def test_a_sweep_of_a_feed_that_is_declared_no_more_is_undone(harness: RetentionHarness) -> None:
    tree = harness.tree()
    sweep = harness.run(harness.planned())
    harness.lifecycle.declare(kept_feed("others"))
    assert harness.undo(sweep).sweep.state is SweepState.UNDONE
    assert harness.tree() == tree
    assert harness.rows()[START].status is FeedInstanceStatus.AVAILABLE


def test_the_trash_is_purged_when_its_time_is_over_and_not_before(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.wait(at("10"))
    assert purge(harness) == {}
    harness.wait(at("11"))
    assert purge(harness) == {sweep.sweep_id: None}
    assert harness.sweep(sweep.sweep_id).state is SweepState.PURGED
    assert harness.lifecycle.store().trash().sweeps() == []
    left = harness.undo(sweep).left
    assert {each.result.outcome for each in left} == {ItemOutcome.LOST}
    assert harness.sweep(sweep.sweep_id).state is SweepState.PURGED


def test_the_trash_of_what_is_held_is_not_purged(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.hold("audit", first=EXPIRED[2], last=EXPIRED[2])
    harness.wait(at("20"))
    assert purge(harness)[sweep.sweep_id] == "hold 'audit' of bob is on feed 'clicks': an audit"
    assert harness.undo(sweep).sweep.state is SweepState.UNDONE


def test_a_purge_that_is_only_tried_removes_nothing(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    tree = harness.tree(hidden=True)
    harness.wait(at("20"))
    context = harness.context()
    found = find_purgeable(context, "primary", at("20"))
    assert [each.sweep.sweep_id for each in purge_sweeps(context, "primary", found, dry_run=True)] == [sweep.sweep_id]
    assert harness.tree(hidden=True) == tree


def test_what_is_archived_lies_there_and_comes_back_from_the_trash(tmp_path: Path, state_url: str) -> None:
    harness, tree = archived(tmp_path, state_url)
    sweep = harness.run(harness.planned())
    archive = {
        file.relative_to(tmp_path / "archive").as_posix() for file in (tmp_path / "archive/clicks").rglob("*.csv")
    }
    assert {path.rpartition("/")[0] for path in archive} == {f"clicks/{time:%Y/%m/%d/%H}" for time in EXPIRED}
    (event,) = [event for event in harness.events(FeedEventKind.EVICTED) if event.nominal_time == START]
    assert event.payload["archive"] == {"store": f"file://{tmp_path}/archive/clicks", "path": "2013/11/01/00"}
    assert harness.undo(sweep).sweep.state is SweepState.UNDONE
    assert harness.tree() == tree


def test_what_is_archived_comes_back_from_the_archive_after_the_purge(tmp_path: Path, state_url: str) -> None:
    harness, tree = archived(tmp_path, state_url)
    rows = harness.rows()
    sweep = harness.run(harness.planned())
    harness.wait(at("12"))
    assert purge(harness) == {sweep.sweep_id: None}
    done = harness.undo(sweep)
    assert (done.restored, done.left) == (24, ())
    assert {path: entry[2] for path, entry in harness.tree().items()} == {
        path: entry[2] for path, entry in tree.items()
    }
    assert {time: row.manifest_digest for time, row in harness.rows().items()} == {
        time: row.manifest_digest for time, row in rows.items()
    }


def test_an_archive_that_is_taken_keeps_the_instance(tmp_path: Path, state_url: str) -> None:
    harness, tree = archived(tmp_path, state_url)
    other = tmp_path / "archive/clicks/2013/11/01/03"
    other.mkdir(parents=True)
    (other / "else.csv").write_text("else")
    sweep: Sweep = harness.run(harness.planned())
    assert harness.outcomes(sweep) == {ItemOutcome.EVICTED: 23, ItemOutcome.REFUSED: 1}
    assert sum(count.failed for count in sweep.counts) == 1
    assert paths_of([EXPIRED[3]]) <= set(harness.tree()) <= set(tree)


def put_back_unrecorded(harness: RetentionHarness, sweep: Sweep, *times: datetime) -> None:
    """What an undo leaves that dies between the filesystem and the record."""
    undo_begins(harness, sweep)
    harness.lifecycle.store().trash().restore(sweep.sweep_id, sorted(paths_of(times)))


def undo_begins(harness: RetentionHarness, sweep: Sweep) -> None:
    with harness.lifecycle.database.begin() as connection:
        Sweeps(connection).transition(sweep.sweep_id, {SweepState.DONE}, state=SweepState.UNDOING)


def dead_holder() -> str:
    """A name of a worker of this machine that has ended."""
    host, _, _, token = name_holder().split("/")
    return f"{host}/1/0/{token}"


def test_an_undo_goes_on_with_every_chunk_that_the_dead_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feed_assets.log.removals.chunks.CHUNK_ITEMS", 6)
    harness = RetentionHarness.of(tmp_path)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    tree = harness.tree()
    sweep = harness.run(harness.planned())
    put_back_unrecorded(harness, sweep, *EXPIRED[:3])
    harness.context(holder=dead_holder()).claims(sweep.sweep_id).take_many(ChunkState.DONE, 1)

    done = harness.undo(sweep)

    assert (done.restored, done.left, done.sweep.state) == (24, (), SweepState.UNDONE)
    assert harness.tree() == tree


def test_a_sweep_is_being_undone_while_others_work_on_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feed_assets.log.removals.chunks.CHUNK_ITEMS", 6)
    harness = RetentionHarness.of(tmp_path)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    tree = harness.tree()
    sweep = harness.run(harness.planned())
    put_back_unrecorded(harness, sweep, *EXPIRED[:3])
    elsewhere = harness.context(holder="elsewhere").claims(sweep.sweep_id)
    assert elsewhere.take_many(ChunkState.DONE, 1)

    done = harness.undo(sweep)

    assert (done.restored, done.is_complete, done.sweep.state) == (18, False, SweepState.UNDOING)
    harness.lag += 2 * TTL
    done = harness.undo(sweep)
    assert (done.restored, done.left, done.sweep.state) == (6, (), SweepState.UNDONE)
    assert harness.tree() == tree


def test_what_an_undo_that_broke_off_has_put_back_is_recorded_by_one_of_something_else(
    harness: RetentionHarness,
) -> None:
    tree = harness.tree()
    sweep = harness.run(harness.planned())
    put_back_unrecorded(harness, sweep, *EXPIRED[:3])

    done = harness.undo(sweep, RestoreSelection(times=frozenset(EXPIRED[20:22])))

    assert (done.restored, done.left, done.sweep.state) == (5, (), SweepState.DONE)
    done = harness.undo(sweep)
    assert (done.restored, done.left, done.sweep.state) == (19, (), SweepState.UNDONE)
    assert harness.tree() == tree
    assert {harness.rows()[time].status for time in EXPIRED} == {FeedInstanceStatus.AVAILABLE}


def test_the_trash_of_what_is_back_may_be_purged_though_it_is_held(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.undo(sweep, RestoreSelection(times=frozenset(EXPIRED[2:3])))
    harness.hold("undone", first=EXPIRED[2], last=EXPIRED[2])
    harness.wait(at("20"))
    assert purge(harness) == {sweep.sweep_id: None}


def test_the_trash_of_a_store_that_nobody_declares_any_more_stays_and_says_so(tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    harness = RetentionHarness.of(
        tmp_path, kept_feed(locations={"data": f"{elsewhere}/clicks/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"})
    )
    for time in (*EXPIRED, at("03T23:00")):
        folder = tmp_path / f"elsewhere/clicks/{time:%Y-%m-%d/%H}"
        folder.mkdir(parents=True)
        (folder / "part").write_text("1")
    harness.arrive(at("04"))
    sweep = harness.run(harness.planned())
    harness.lifecycle.declare(kept_feed("others"))
    harness.wait(at("20"))
    assert "no feed or cluster is declared there any more" in (purge(harness)[sweep.sweep_id] or "")
    assert harness.sweep(sweep.sweep_id).state is SweepState.DONE
    assert list((tmp_path / "elsewhere").rglob("part"))


def test_an_undo_of_an_unknown_time_is_refused_with_the_nearest_instances(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    wanted = RestoreSelection(times=frozenset({EXPIRED[3], START + timedelta(minutes=90)}))
    with pytest.raises(SweepRefusedError, match="it has no instance 2013-11-01T01:30Z") as refused:
        harness.undo(sweep, wanted)
    assert "2013-11-01T01:00Z and 2013-11-01T02:00Z" in str(refused.value)
    assert harness.sweep(sweep.sweep_id).state is SweepState.DONE
    assert not (harness.root / "clicks/2013-11-01/03").exists()


def test_a_purge_while_the_storage_is_not_mounted_purges_nothing(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.wait(at("20"))
    unmounted = harness.root.rename(harness.lifecycle.root / "unmounted")
    assert "the root of the storage is not there" in (purge(harness)[sweep.sweep_id] or "")
    assert harness.sweep(sweep.sweep_id).state is SweepState.DONE
    harness.root.mkdir()  # where it is to be mounted
    assert "its trash is not at" in (purge(harness)[sweep.sweep_id] or "")
    assert harness.undo(sweep).restored == 0
    assert harness.sweep(sweep.sweep_id).state is SweepState.DONE
    shutil.rmtree(harness.root)
    unmounted.rename(harness.root)
    assert harness.undo(sweep).restored == 24


def test_trash_that_somebody_has_removed_is_given_up_when_its_folder_is_made_again(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.wait(at("20"))
    trash = harness.root / ".feed-assets/trash" / sweep.sweep_id
    shutil.rmtree(trash)
    assert str(trash) in (purge(harness)[sweep.sweep_id] or "")
    trash.mkdir()
    assert purge(harness) == {sweep.sweep_id: None}
    assert harness.sweep(sweep.sweep_id).state is SweepState.PURGED


def test_an_undo_after_its_cluster_was_removed_says_so_and_changes_nothing(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    harness.lifecycle.use(Plan(digest="", clusters={}, feeds={}, processes={}))
    with pytest.raises(SweepRefusedError, match="its cluster 'primary' is not declared any more"):
        harness.undo(sweep)
    assert harness.sweep(sweep.sweep_id).state is SweepState.DONE


def test_after_a_change_of_the_url_neither_undo_nor_purge_forgets_the_trash(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    elsewhere = Cluster(name="primary", colo="colo", storage=f"file://{harness.lifecycle.root}/elsewhere")
    harness.lifecycle.use(declare_location([elsewhere, kept_feed()]).plan)
    with pytest.raises(SweepRefusedError, match="where no feed is declared any more"):
        harness.undo(sweep)
    assert harness.sweep(sweep.sweep_id).state is SweepState.DONE
    assert "its trash at" in (purge(harness, at_once=True)[sweep.sweep_id] or "")


@pytest.mark.parametrize("written", ["/./", "/x/../", "/link/"])
def test_an_undo_and_a_purge_find_a_storage_whose_url_is_written_otherwise(
    harness: RetentionHarness, written: str
) -> None:
    sweep = harness.run(harness.planned())
    (harness.lifecycle.root / "link").symlink_to(harness.lifecycle.root)
    url = f"file://{harness.lifecycle.root}{written}{harness.root.name}"
    same = Cluster(name="primary", colo="colo", storage=url)
    harness.lifecycle.use(declare_location([same, kept_feed()]).plan)
    assert harness.undo(sweep, RestoreSelection(times=frozenset({EXPIRED[3]}))).restored == 1
    assert purge(harness, at_once=True) == {sweep.sweep_id: None}


def test_a_purge_at_once_names_the_sweeps_at_work(harness: RetentionHarness) -> None:
    sweep = harness.run(harness.planned())
    with harness.lifecycle.database.begin() as connection:
        Sweeps(connection).transition(sweep.sweep_id, {SweepState.DONE}, state=SweepState.UNDOING)
    assert purge(harness, at_once=True) == {sweep.sweep_id: "it is UNDOING; end that first"}
