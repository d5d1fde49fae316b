from dataclasses import replace

import pytest

from feed_assets.log.instances.attempts import OVERTAKEN, Attempts, RunAttempt
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Attempt, Cause, FrozenInput, ProcessInstanceStatus, ProcessKey
from feed_assets.sql.database import Database
from tests.log.samples import hour, process_instance

pytestmark = pytest.mark.both_databases


RUNNING, FAILED, SUCCEEDED = (
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.SUCCEEDED,
)
FIRST = Attempt(
    process="daily",
    cluster="primary",
    nominal_time=hour(0),
    attempt=1,
    run_id="r1",
    status=RUNNING,
    started_at=hour(1),
    cause=Cause.COMMAND,
    cause_detail="a test",
    release=2,
)


def test_an_attempt_is_noted_when_it_begins_and_when_it_ends(database: Database) -> None:
    with database.begin() as connection:
        Attempts(connection).begin(FIRST)
        assert Attempts(connection).of(FIRST.key) == [FIRST]
        Attempts(connection).end(FIRST.key, FAILED, hour(2), "no luck")
        ended = replace(FIRST, status=FAILED, ended_at=hour(2), reason="no luck")
        assert Attempts(connection).of(FIRST.key) == [ended]


def test_an_attempt_that_never_ended_has_failed_when_the_next_begins(database: Database) -> None:
    second = replace(FIRST, attempt=2, run_id="r2", started_at=hour(3))
    with database.begin() as connection:
        Attempts(connection).begin(FIRST)
        Attempts(connection).begin(second)
        Attempts(connection).end(FIRST.key, SUCCEEDED, hour(4), None)
        first, then = Attempts(connection).of(FIRST.key)
    assert (first.status, first.ended_at, first.reason) == (FAILED, hour(3), OVERTAKEN)
    assert (then.run_id, then.status, then.ended_at) == ("r2", SUCCEEDED, hour(4))


def test_an_attempt_keeps_what_it_read_and_the_numbers_of_its_events(database: Database) -> None:
    read = FrozenInput(name="clicks", feed="clicks", nominal_times=(hour(0),), digests=("blake3:1",))
    with database.begin() as connection:
        Attempts(connection).begin(FIRST)
        Attempts(connection).freeze(FIRST.key, (read,))
        Attempts(connection).add_output(FIRST.key, 1, 7)
        Attempts(connection).begin(replace(FIRST, attempt=2))
        Attempts(connection).add_output(FIRST.key, 1, 9)
        first, then = Attempts(connection).of(FIRST.key)
    assert (first.inputs, first.outputs) == ((read,), (7, 9))
    assert (then.inputs, then.outputs) == ((), ())


def test_an_end_without_a_beginning_does_nothing(database: Database) -> None:
    with database.begin() as connection:
        Attempts(connection).end(FIRST.key, SUCCEEDED, hour(4), None)
        assert Attempts(connection).of(FIRST.key) == []


def test_attempts_of_several_instances_are_read_at_once(database: Database) -> None:
    other = replace(FIRST, nominal_time=hour(5))
    with database.begin() as connection:
        for attempt in (FIRST, other, replace(FIRST, attempt=2)):
            Attempts(connection).begin(attempt)
        found = Attempts(connection).of_many([FIRST.key, other.key, ProcessKey("daily", "backup", hour(0))])
    assert {key: [attempt.attempt for attempt in attempts] for key, attempts in found.items()} == {
        FIRST.key: [1, 2],
        other.key: [1],
    }
    with database.read() as connection:
        assert Attempts(connection).of_many([]) == {}


def test_ended_attempts_are_read_in_the_order_of_their_ends_each_once(database: Database) -> None:
    with database.begin() as connection:
        attempts = Attempts(connection)
        for number in range(5):
            attempts.begin(replace(FIRST, nominal_time=hour(number), run_id=f"r{number // 2}"))
            if number < 4:
                attempts.end(replace(FIRST, nominal_time=hour(number)).key, SUCCEEDED, hour(10 + number // 3), None)
        attempts.begin(replace(FIRST, process="other", cluster="backup", run_id="r1"))
        position, found = None, []
        while read := attempts.ended("primary", position, hour(11), 2):
            found += [(each.nominal_time, each.run_id) for each in read]
            position = read[-1]
        assert found == [(hour(0), "r0"), (hour(1), "r0"), (hour(2), "r1"), (hour(3), "r1")]
        assert [each.nominal_time for each in attempts.ended("primary", None, hour(10), 9)] == [*map(hour, range(3))]
        runs = attempts.of_runs(["r1", "r2", "nobody"])
    assert sorted(runs) == ["r1", "r2"]
    assert set(runs["r1"]) == {
        RunAttempt("daily", "primary", hour(10)),
        RunAttempt("daily", "primary", hour(11)),
        RunAttempt("other", "backup", None),
    }
    assert runs["r2"] == [RunAttempt("daily", "primary", None)]


def test_the_attempts_of_a_window_began_before_its_end_and_had_not_ended_before_its_start(database: Database) -> None:
    spans = {"before": (0, 4), "to": (0, 5), "in": (6, 7), "beyond": (9, 11), "at-end": (10, 12), "over": (0, 40)}
    spans |= {"long": (1, 90)}
    with database.begin() as connection:
        attempts = Attempts(connection)
        for name, (start, end) in spans.items():
            attempts.begin(replace(FIRST, process=name, started_at=hour(start)))
            attempts.end(ProcessKey(name, "primary", hour(0)), SUCCEEDED, hour(end), None)
        attempts.begin(replace(FIRST, process="running", started_at=hour(2)))
        attempts.begin(replace(FIRST, process="elsewhere", cluster="other", started_at=hour(6)))
        suspended = ProcessInstanceStatus.SUSPENDED
        for name, changed in (("suspended", hour(3)), ("later", hour(4))):
            attempts.begin(replace(FIRST, process=name, started_at=hour(2)))
            attempts.end(ProcessKey(name, "primary", hour(0)), ProcessInstanceStatus.KILLED, hour(3), None)
            row = process_instance(process=name, status=suspended, attempt=1, updated_at=changed)
            ProcessInstances(connection).add_waiting([row])
        found = [each.process for each in attempts.active(["primary"], hour(5), hour(10))]
    assert found == ["beyond", "in", "long", "over", "running", "suspended", "to"]
