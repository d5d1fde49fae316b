"""What a clean-up removes of what is long past, and what stays for those who still ask."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from feed_assets.clock import TimeBudget
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain
from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import (
    Attempt,
    FeedEventKind,
    FeedInstanceStatus,
    FrozenInput,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.tables import cursors
from feed_assets.retention import cleanup
from feed_assets.retention.cleanup import KeepingTimes, Leftover, apply_state_cleanup, is_cleanup_due
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.clock_witness import note_clock
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.undoing import EVERYTHING, RestoreSelection
from feed_assets.setting_sections import CleanupSettings
from feed_assets.sql.database import Database
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.records import Mark
from feed_assets.triggers.queue.tables import trigger_inputs
from tests.context.contexts import about, context_of
from tests.instances.harness import START, at
from tests.log.samples import event, feed_instance, finished, hour, sweep_draft
from tests.retention.harness import RetentionHarness, hourly, kept_feed

pytestmark = pytest.mark.both_databases

TIMES = KeepingTimes.of(CleanupSettings())
DAY = timedelta(days=1)
EVICTED_AT = hour(0) + 10 * DAY
LATE = EVICTED_AT + 400 * DAY
READ = FrozenInput(name="raw", feed="raw", nominal_times=(hour(0),), digests=("look:1",))
KEY = ProcessKey("daily", "primary", hour(0))
INSTANCES = 3


def evict(database: Database, at: datetime = EVICTED_AT, **payload: object) -> None:
    """Let instances arrive, be produced again by two attempts at another process's instance, and be evicted."""
    with database.begin() as connection:
        log, attempts = EventLog(connection), Attempts(connection)
        arrived = [event(n) for n in range(INSTANCES)]
        log.append([*arrived, event(0, kind=FeedEventKind.CHANGED, idempotency_key="told/0")])
        for number, run in enumerate(("r1", "r2"), 1):
            running = ProcessInstanceStatus.RUNNING
            attempts.begin(
                Attempt(**KEY._asdict(), attempt=number, run_id=run, status=running, started_at=hour(number))
            )
            attempts.freeze(KEY, (READ,))
            (seq,) = log.append(
                [event(0, kind=FeedEventKind.PRODUCED, origin=f"run:{run}", payload={"process": "daily"})]
            )
            attempts.add_output(KEY, number, seq)
            attempts.end(KEY, ProcessInstanceStatus.SUCCEEDED, hour(number), None)
        gone = [
            event(
                n,
                kind=FeedEventKind.EVICTED,
                recorded_at=at,
                payload={"kind": "data", "reason": "age", **payload},
            )
            for n in range(INSTANCES)
        ]
        seqs = log.append(gone)
        FeedInstances(connection).put(
            feed_instance(n, FeedInstanceStatus.EVICTED, event_seq=seq) for n, seq in enumerate(seqs)
        )
    put(database, "readiness/primary", 9)
    put(database, "triggers/primary", 9)


def put(database: Database, name: str, seq: int) -> None:
    with database.begin() as connection:
        Cursors(connection).put(name, str(seq))


def clean(database: Database, now: datetime = LATE, *, dry_run: bool = False, **told: int) -> dict[Leftover, int]:
    with database.begin() as connection:
        note_clock(connection, "primary", now)
    done = apply_state_cleanup(database, told, TIMES, now, TimeBudget.ample(), dry_run=dry_run)[1:]
    assert all(each.is_complete and each.limit == "months(12)" for each in done)
    return {each.leftover: each.count for each in done if each.count}


def kinds(database: Database, n: int = 0) -> list[str]:
    with database.read() as connection:
        found = EventLog(connection).for_instances([("clicks", "primary", hour(n))])
    return [each.kind.value for events in found.values() for each in events]


def test_of_an_instance_evicted_long_ago_the_last_attempt_stays(database: Database) -> None:
    evict(database)
    early = EVICTED_AT + 300 * DAY
    assert (clean(database, early), clean(database, early, dry_run=True)) == ({}, {})
    assert clean(database, dry_run=True) == {Leftover.EVENTS: INSTANCES}
    assert kinds(database) == ["ARRIVED", "CHANGED", "PRODUCED", "PRODUCED", "EVICTED"]
    assert clean(database) == {Leftover.EVENTS: INSTANCES}
    # what has an idempotency key would be taken for new if it came again, and the newest number is not used again
    assert (kinds(database, 0), kinds(database, 1), kinds(database, 2)) == (["CHANGED"], [], ["EVICTED"])
    with database.read() as connection:
        (last,) = Attempts(connection).of(KEY)
        assert (last.attempt, last.inputs) == (2, (READ,))
        assert EventLog(connection).last_seq() == 9
    assert clean(database) == clean(database, dry_run=True) == {}


@pytest.mark.parametrize(
    "reader", ["readiness/primary", "triggers/primary", "readiness/backup", "triggers/elsewhere", "Dagster"]
)
def test_no_event_goes_that_somebody_has_not_read(database: Database, reader: str) -> None:
    evict(database)
    put(database, reader, 8)
    assert clean(database, primary=8 if reader == "Dagster" else 9) == {Leftover.EVENTS: 2}
    # the event at which a reader is says to which log it belongs
    assert (kinds(database, 0), kinds(database, 1), kinds(database, 2)) == (
        ["CHANGED"],
        ["EVICTED"],
        ["ARRIVED", "EVICTED"],
    )
    put(database, reader, 9)
    assert clean(database, primary=9) == {Leftover.EVENTS: 1}
    assert kinds(database, 2) == ["EVICTED"]


def test_attempts_stay_that_published_what_is_still_there_and_the_last_that_published(database: Database) -> None:
    evict(database)
    with database.begin() as connection:
        attempts = Attempts(connection)
        Attempts(connection).add_output(KEY, 1, *EventLog(connection).append([event(0, feed="side")]))
        for number in (3, 4):
            running = ProcessInstanceStatus.RUNNING
            attempts.begin(Attempt(**KEY._asdict(), attempt=number, run_id="r", status=running, started_at=hour(9)))
            attempts.end(KEY, ProcessInstanceStatus.FAILED, hour(9), "it broke")
    assert clean(database) == {Leftover.EVENTS: INSTANCES}
    with database.read() as connection:
        assert [each.attempt for each in Attempts(connection).of(KEY)] == [1, 2, 4]


def test_events_of_a_cluster_without_a_known_reader_stay(database: Database) -> None:
    evict(database)
    with database.begin() as connection:
        connection.execute(delete(cursors))
    put(database, "triggers/plan/primary", 0)  # no position
    put(database, "readiness/backup", 9)
    assert clean(database) == {}
    put(database, "cleanup/events", 0)
    assert clean(database, primary=9) == {Leftover.EVENTS: INSTANCES}


def test_what_came_again_what_a_queue_reads_and_what_has_a_trash_keeps_its_events(database: Database) -> None:
    evict(database, sweep="s1")
    draft = sweep_draft()
    with database.begin() as connection:
        Sweeps(connection).add(finished(draft, state=SweepState.PLANNED), draft.chunks)
        Sweeps(connection).transition("s1", {SweepState.PLANNED}, state=SweepState.DONE, purge_at=hour(1))
    assert clean(database) == {}
    with database.begin() as connection:
        Sweeps(connection).transition("s1", {SweepState.DONE}, state=SweepState.PURGED, purged_at=hour(2))
        FeedInstances(connection).put([feed_instance(0)])
        of_queue = {"process": "p", "cluster": "primary", "input": "i", "feed": "clicks", "feed_cluster": "primary"}
        TriggerInputs(connection).add([Mark(**of_queue, counts_unchanged=False, start_seq=0, taken_seq=9)])
    put(database, "cleanup/events", 0)
    assert Leftover.EVENTS not in clean(database)
    with database.begin() as connection:
        connection.execute(delete(trigger_inputs))
    put(database, "cleanup/events", 0)
    assert clean(database)[Leftover.EVENTS] == 2
    assert (len(kinds(database, 0)), kinds(database, 1)) == (5, [])


def test_a_clean_up_that_is_killed_goes_on_with_the_next_step(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict(database)
    monkeypatch.setattr(cleanup, "EVENTS_A_STEP", 1)
    before = LATE - TIMES.history.as_duration()
    for step in range(8):
        with pytest.raises(KeyboardInterrupt):
            killed(database, before)
        with database.begin() as connection:
            cleanup.remove_past(connection, {"primary": 9}, before, LATE)
        gone = [n for n in range(INSTANCES) if "ARRIVED" not in kinds(database, n)]
        assert gone == list(range(max(0, step - 5))), step
    assert clean(database) == {Leftover.EVENTS: 1}


def killed(database: Database, before: datetime) -> None:
    with database.begin() as connection:
        cleanup.remove_past(connection, {"primary": 9}, before, LATE)
        raise KeyboardInterrupt


@pytest.mark.parametrize("witnessed", [None, EVICTED_AT, LATE + DAY])
def test_a_clock_that_is_not_believed_removes_nothing(
    database: Database, caplog: pytest.LogCaptureFixture, witnessed: datetime | None
) -> None:
    evict(database)
    if witnessed is not None:
        with database.begin() as connection:
            note_clock(connection, "primary", witnessed)
    for dry_run in (True, False):
        done = apply_state_cleanup(database, {}, TIMES, LATE, TimeBudget.ample(), dry_run=dry_run)[1:]
        assert {(each.count, each.is_complete) for each in done} == {(0, False)}
    assert "nothing of long ago is removed: The clock stands at 2025-02-14T00:00Z" in caplog.text
    assert kinds(database, 1) == ["ARRIVED", "EVICTED"]


def test_what_a_clock_far_ahead_has_recorded_stays_and_stops_nothing(database: Database) -> None:
    ahead = hour(0) + 5_000 * DAY
    entry = AuditEntry(recorded_at=ahead, author="ann", action="retention run")
    with database.begin() as connection:
        EventLog(connection).append([event(50, recorded_at=ahead)])
        Audit(connection).append_many([entry, *[replace(entry, recorded_at=hour(0))] * 3])
    evict(database)
    put(database, "readiness/primary", 10)
    put(database, "triggers/primary", 10)
    with database.read() as connection:
        assert is_cleanup_due(connection, "primary", TIMES, LATE)
    removed = {Leftover.EVENTS: INSTANCES, Leftover.AUDIT: 3}  # what stands before old rows is as old
    assert clean(database, dry_run=True) == removed
    assert clean(database) == removed
    assert (kinds(database, 50), kinds(database, 1), clean(database)) == (["ARRIVED"], [], {})


def test_two_clean_ups_at_once_do_the_work_of_one(database: Database) -> None:
    evict(database)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: clean(database), range(4)))
    assert [each for each in done if each] == [{Leftover.EVENTS: INSTANCES}]


def test_paths_of_ended_sweeps_and_the_audit_go_after_a_year_but_the_newest_entry(database: Database) -> None:
    draft, asking = sweep_draft("s1"), sweep_draft("s2")
    entry = AuditEntry(recorded_at=hour(0), author="ann", action="retention run")
    with database.begin() as connection:
        Sweeps(connection).add(finished(draft), draft.chunks)
        Sweeps(connection).add(finished(asking, state=SweepState.ASKING), asking.chunks)
        Sweeps(connection).transition("s1", {SweepState.PLANNED}, state=SweepState.DONE, purge_at=hour(9))
        Audit(connection).append_many([entry] * 3)
    assert clean(database) == {Leftover.AUDIT: 2}  # its trash may be restored
    with database.begin() as connection:
        Sweeps(connection).transition("s1", {SweepState.DONE}, state=SweepState.PURGED, purged_at=hour(10))
        assert is_cleanup_due(connection, "primary", TIMES, LATE)
    assert clean(database, dry_run=True) == clean(database) == {Leftover.SWEEP_ITEMS: 3}
    with database.begin() as connection:
        assert not is_cleanup_due(connection, "primary", TIMES, LATE)
        assert Audit(connection).append(entry) == 4
        assert [*SweepChunks(connection, "s1").iter_all()] == []
        assert Sweeps(connection).find("s1") is not None
        assert SweepChunks(connection, "s2").count_outcomes() == {("clicks", None): 3}


def restorable(tmp_path: Path, state_url: str, **more: Any) -> tuple[RetentionHarness, Sweep]:
    """Return a sweep whose trash was emptied, after the clean-up of its history."""
    harness = RetentionHarness.of(tmp_path, kept_feed(**more), state=state_url)
    harness.land("clicks", *hourly(START, 24), *hourly(at("02"), 48))
    harness.arrive(at("04"))
    sweep = harness.run(harness.planned())
    harness.wait(at("12"))
    context = harness.context()
    purge_sweeps(context, "primary", find_purgeable(context, "primary", harness.now))
    harness.lifecycle.ready(at("12"))
    clean(harness.lifecycle.database, at("12") + 400 * DAY)
    return harness, sweep


def test_what_is_in_an_archive_can_be_restored_however_long_ago_it_went(tmp_path: Path, state_url: str) -> None:
    archive = f"file://{tmp_path}/archive/clicks/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}"
    harness, sweep = restorable(tmp_path, state_url, action="archive", archive_to=archive)
    assert f"retention undo {sweep.sweep_id}" in why(harness)
    assert harness.undo(sweep).restored == 24


def test_an_undo_of_paths_that_were_cleaned_up_says_so(tmp_path: Path, state_url: str) -> None:
    harness, sweep = restorable(tmp_path, state_url)
    assert "undo" not in why(harness)
    for selection in (EVERYTHING, RestoreSelection(times=frozenset({START}))):
        with pytest.raises(SweepRefusedError, match=r"its paths went from the state after `cleanup\.history`"):
            harness.undo(sweep, selection)


def why(harness: RetentionHarness) -> str:
    context = context_of(harness.lifecycle, at("12"))
    (found,) = about(explain, context, "clicks", START, kind=Kind.FEED).items
    return found.render()
