"""Totals count what has ended, in the transaction in which it ends, and once."""

import pytest
from sqlalchemy import Connection

from feed_assets.alerts.deadlines.records import SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import Attempt, Cause, FeedEventKind, ProcessInstanceStatus, ProcessKey
from feed_assets.log.removals.records import SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.sql.database import Database
from feed_assets.sql.totals import TotalKind, Totals
from tests.log.samples import event, finished, hour, process_instance, sweep_draft
from tests.log.workers import INCREASES, PATIENCE_SECONDS, TOTALS, Team, add_totals, append_until_killed
from tests.processes import PROCESSES

pytestmark = pytest.mark.both_databases


SUCCEEDED, FAILED, RUNNING = (
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.RUNNING,
)
WAITING, SKIPPED, KILLED = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.SKIPPED, ProcessInstanceStatus.KILLED
MICROSECONDS = 1_000_000
AN_HOUR = 3600 * MICROSECONDS
WORKERS = 3


def totals_of(database: Database) -> dict[tuple[str, ...], tuple[int, int]]:
    with database.read() as connection:
        return {
            (each.kind, each.entity, each.cluster, each.label): (each.occurrences, each.amount)
            for each in Totals(connection).all()
        }


def begin(connection: Connection, n: int, number: int = 1, cause: Cause | None = Cause.INPUTS) -> ProcessKey:
    attempt = Attempt(
        process="daily",
        cluster="primary",
        nominal_time=hour(n),
        attempt=number,
        run_id="r",
        status=RUNNING,
        started_at=hour(n + 2),
        cause=cause,
    )
    Attempts(connection).begin(attempt)
    return attempt.key


def test_an_attempt_counts_when_it_begins_and_when_it_ends(database: Database) -> None:
    with database.begin() as connection:
        Attempts(connection).end(begin(connection, 0), SUCCEEDED, hour(3), None)
    with database.begin() as connection:
        begin(connection, 1)
        Attempts(connection).end(begin(connection, 1, 2, Cause.RETRY), FAILED, hour(6), "no luck")
        Attempts(connection).end(ProcessKey("daily", "primary", hour(1)), KILLED, hour(9), "it does not run any more")
    assert totals_of(database) == {
        ("ATTEMPTS", "daily", "primary", "SUCCEEDED"): (1, AN_HOUR),
        ("ATTEMPTS", "daily", "primary", "FAILED"): (2, 3 * AN_HOUR),  # the first was overtaken at once
        ("STARTS", "daily", "primary", "INPUTS"): (2, 0),
        ("STARTS", "daily", "primary", "RETRY"): (1, 0),
    }


def test_an_attempt_that_ended_before_it_began_took_no_time(database: Database) -> None:
    with database.begin() as connection:
        Attempts(connection).end(begin(connection, 0), SUCCEEDED, hour(1), None)
    assert totals_of(database)["ATTEMPTS", "daily", "primary", "SUCCEEDED"] == (1, 0)


def test_an_event_counts_once_whoever_repeats_it(database: Database) -> None:
    arrived = event(0, bytes=100, recorded_at=hour(2), idempotency_key="a")
    for _ in range(2):
        with database.begin() as connection:
            EventLog(connection).append([arrived, arrived, event(1, kind=FeedEventKind.PRODUCED, bytes=None)])
    assert totals_of(database) == {
        ("EVENTS", "clicks", "primary", "ARRIVED"): (1, 100),
        ("EVENTS", "clicks", "primary", "PRODUCED"): (2, 0),
        ("ARRIVAL_DELAY", "clicks", "primary", ""): (1, 2 * AN_HOUR),
    }


def test_each_end_of_an_instance_counts_and_no_other_change(database: Database) -> None:
    rows = [process_instance(n) for n in range(3)]
    for _ in range(2):
        with database.begin() as connection:
            ProcessInstances(connection).add_waiting([*rows, process_instance(3, SKIPPED)])
    keys = [row.key for row in rows]
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        assert instances.transition_many(keys, {WAITING}, status=KILLED, updated_at=hour(9)) == 3
        assert instances.transition_many(keys, {WAITING}, status=KILLED, updated_at=hour(9)) == 0
        assert instances.transition_many(keys, {KILLED}, updated_at=hour(9)) == 3
        assert instances.transition(keys[0], {KILLED}, status=WAITING, updated_at=hour(9))
    assert totals_of(database) == {
        ("ENDS", "daily", "primary", "KILLED"): (3, 0),
        ("ENDS", "daily", "primary", "SKIPPED"): (1, 0),
    }


def test_each_end_of_a_sweep_counts_and_no_other_change(database: Database) -> None:
    draft = sweep_draft()
    with database.begin() as connection:
        sweeps = Sweeps(connection)
        sweeps.add(finished(draft), draft.chunks)
        sweeps.add(finished(sweep_draft("s2"), state=SweepState.DONE), ())
        sweeps.transition("s1", {SweepState.PLANNED}, state=SweepState.RUNNING)
        sweeps.transition("s1", {SweepState.RUNNING}, state=SweepState.DONE)
        sweeps.transition("s1", {SweepState.RUNNING}, state=SweepState.DONE)
        sweeps.transition("s1", {SweepState.DONE}, state=SweepState.PURGED)
    assert totals_of(database) == {
        ("SWEEPS", "", "primary", "DONE"): (2, 0),
        ("SWEEPS", "", "primary", "PURGED"): (1, 0),
    }


def miss(kind: str, level: SlaLevel = SlaLevel.LOW) -> SlaMiss:
    times = {"nominal_time": hour(0), "due_at": hour(1), "missed_at": hour(2)}
    return SlaMiss(kind=kind, name="clicks", cluster="primary", level=level, **times)


def test_a_missed_deadline_counts_once_whoever_repeats_it(database: Database) -> None:
    for _ in range(2):
        with database.begin() as connection:
            SlaMisses(connection).add([miss("feed"), miss("feed"), miss("feed", SlaLevel.HIGH), miss("process")])
    assert totals_of(database) == {
        ("FEED_MISSES", "clicks", "primary", "low"): (1, 0),
        ("FEED_MISSES", "clicks", "primary", "high"): (1, 0),
        ("PROCESS_MISSES", "clicks", "primary", "low"): (1, 0),
    }


def test_what_is_rolled_back_does_not_count_neither_then_nor_later(database: Database) -> None:
    def break_off() -> None:
        with database.begin() as connection:
            EventLog(connection).append([event(0)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    with database.begin() as connection:
        EventLog(connection).append([event(1, kind=FeedEventKind.PRODUCED)])
    assert totals_of(database) == {("EVENTS", "clicks", "primary", "PRODUCED"): (1, 0)}


def test_no_increase_is_lost_among_several_writers_in_any_order(database_url: str, database: Database) -> None:
    assert Team(add_totals, database_url, WORKERS).results() == ["added"] * WORKERS
    times = WORKERS * INCREASES
    assert totals_of(database) == {("ENDS", f"p{n}", "primary", ""): (times, 2 * times) for n in range(TOTALS)}


def test_totals_are_those_of_the_rows_after_a_writer_was_killed(database_url: str, database: Database) -> None:
    for _ in range(3):
        begun = PROCESSES.Semaphore(0)
        writer = PROCESSES.Process(target=append_until_killed, args=(database_url, begun))
        writer.start()
        for _ in range(5):
            assert begun.acquire(timeout=PATIENCE_SECONDS)
        writer.kill()
        writer.join()
    with database.read() as connection:
        events, totals = EventLog(connection).last_seq(), Totals(connection).all()
    assert events >= 15
    assert [each[4:] for each in totals if each.kind is TotalKind.EVENTS] == [(events, 7 * events)]
