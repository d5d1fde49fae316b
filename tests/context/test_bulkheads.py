"""A unit of work that fails is recorded and put off; the others run."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from feed_assets.actions import send_actions
from feed_assets.clock import Clock
from feed_assets.context.bulkheads import (
    FORGOTTEN_AFTER,
    LONGEST_PAUSE,
    SHORTEST_PAUSE,
    WORK_PER_PAUSE,
    Bulkheads,
    TickFailure,
    TickFailures,
    TickStep,
    without_outages,
)
from feed_assets.errors import MOST_CHARACTERS, describe_error
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateUnreachableError

START = datetime(2026, 1, 1, tzinfo=UTC)
GATES = TickStep.GATES


class SetClock(Clock):
    """A clock that tests set."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at


def fail() -> int:
    raise ValueError("it is\n  broken")


def test_a_failure_is_recorded_and_the_next_success_ends_it() -> None:
    bulkheads = Bulkheads("here", SetClock())
    assert bulkheads.run_unit(GATES, "a", 7, fail) == 7
    (failure,) = bulkheads.failures
    assert (failure.subject, failure.reason, failure.failures) == ("a", "ValueError: it is broken", 1)
    assert bulkheads.run_unit(GATES, "b", 7, lambda: 8) == 8
    assert bulkheads.has_failed(GATES, "a")
    assert not bulkheads.has_failed(GATES, "b")


def test_a_unit_that_failed_is_put_off_ever_longer_and_tried_again() -> None:
    clock = SetClock()
    bulkheads = Bulkheads("here", clock)
    tried = []

    def work() -> int:
        tried.append(clock.at - START)
        return fail()

    for _ in range(4 * 3600):
        bulkheads.run_unit(GATES, "a", 0, work)
        clock.at += timedelta(seconds=1)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[0] == SHORTEST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[-1] <= LONGEST_PAUSE
    assert len(tried) < 400
    (failure,) = bulkheads.failures
    assert (failure.since, failure.failures) == (START, len(tried))
    assert bulkheads.run_unit(GATES, "a", 0, lambda: 1) in (0, 1)
    clock.at += LONGEST_PAUSE
    assert bulkheads.run_unit(GATES, "a", 0, lambda: 1) == 1
    assert bulkheads.failures == []


def test_a_unit_that_fails_slowly_is_left_alone_for_longer_than_it_took() -> None:
    bulkheads = Bulkheads("here", SetClock())
    bulkheads.fail(TickStep.STORAGE, "s3://bucket", OSError("time-out"), seconds=30.0)
    (failure,) = bulkheads.failures
    assert failure.next_try_at - START == timedelta(seconds=30 * WORK_PER_PAUSE)


def test_units_are_done_together_and_only_those_that_fail_alone_are_left_out() -> None:
    calls = []

    def work(numbers: list[int]) -> list[int]:
        calls.append(list(numbers))
        return [12 // number for number in numbers]

    bulkheads = Bulkheads("here", SetClock())
    assert bulkheads.run_apart(GATES, {"a": 1, "b": 2}, work) == [12, 6]
    assert bulkheads.run_apart(GATES, {"a": 1, "zero": 0, "b": 3}, work) == [12, 4]
    assert bulkheads.run_apart(GATES, {"zero": 0, "b": 3}, work) == [4]
    assert calls == [[1, 2], [1, 0, 3], [1], [0], [3], [3]]
    assert [failure.subject for failure in bulkheads.failures] == ["zero"]


@pytest.mark.parametrize(
    "error",
    [
        StateUnreachableError(reason="it is away", next_step="Start it."),
        OperationalError("SELECT 1", {}, Exception("gone")),
    ],
)
def test_what_concerns_the_record_itself_is_not_confined(error: Exception) -> None:
    def work(*_: object) -> list[int]:
        raise error

    bulkheads = Bulkheads("here", SetClock())
    with pytest.raises(type(error)):
        bulkheads.run(GATES, [], work)
    with pytest.raises(type(error)):
        bulkheads.run_apart(GATES, {"a": 1}, work)
    assert bulkheads.failures == []


def test_the_record_is_what_fails_now(database: Database) -> None:
    clock = SetClock()
    first = Bulkheads.open(database, "here", clock)
    first.run_unit(GATES, "a", 0, fail)
    first.run_unit(TickStep.ARRIVALS, "", 0, fail)
    first.save(database)
    other = Bulkheads.open(database, "there", clock)
    other.run_unit(GATES, "a", 0, fail)
    other.save(database)

    clock.at += LONGEST_PAUSE
    second = Bulkheads.open(database, "here", clock)
    assert [(each.step, each.subject) for each in second.failures] == [(TickStep.ARRIVALS, ""), (GATES, "a")]
    assert second.run_unit(GATES, "a", 0, lambda: 1) == 1
    second.save(database)
    with database.read() as connection:
        known = TickFailures(connection).all()
    assert [(each.cluster, each.step) for each in known] == [("here", TickStep.ARRIVALS), ("there", GATES)]


def test_a_unit_that_nothing_tries_any_more_is_forgotten(database: Database) -> None:
    clock = SetClock()
    bulkheads = Bulkheads.open(database, "here", clock)
    bulkheads.run_unit(GATES, "removed", 0, fail)
    bulkheads.save(database)
    clock.at += FORGOTTEN_AFTER + LONGEST_PAUSE
    later = Bulkheads.open(database, "here", clock)
    later.save(database)
    with database.read() as connection:
        assert TickFailures(connection).all() == []


def test_row_151_each_step_and_each_unit_that_fails_is_an_action(tmp_path: Path) -> None:
    send_actions(Settings(actions=str(tmp_path / "actions.jsonl"), namespace="shop"), {})
    bulkheads = Bulkheads("here", SetClock())
    bulkheads.run(TickStep.ARRIVALS, 0, lambda: 1)
    bulkheads.run(TickStep.RECONCILIATION, 0, fail)
    bulkheads.run(TickStep.RECONCILIATION, 0, fail)  # it is put off
    bulkheads.run_unit(GATES, "good", 0, lambda: 1)
    bulkheads.run_unit(GATES, "bad", 0, fail)
    bulkheads.fail(TickStep.STORAGE, "s3://bucket", OSError("time-out"), seconds=30.0)
    send_actions(Settings(actions="off"), {})
    found = [json.loads(line) for line in (tmp_path / "actions.jsonl").read_text().splitlines()]
    assert [(each["action"], each["status"]) for each in found] == [
        ("tick arrivals", "SUCCEEDED"),
        ("tick reconciliation", "FAILED"),
        ("tick gates", "FAILED"),
        ("tick storage", "FAILED"),
    ]
    everywhere = {"cluster": "here", "namespace": "shop"}
    assert [each["dimensions"] for each in found] == [
        everywhere,
        everywhere,
        {**everywhere, "kind": "process", "entity": "bad"},
        {**everywhere, "unit": "s3://bucket"},
    ]
    assert found[2]["reason"] == "ValueError: it is broken"
    assert found[3]["seconds"] == 30.0


def test_a_reason_has_an_upper_limit() -> None:
    assert len(describe_error(ValueError("x" * 10_000))) == MOST_CHARACTERS


@pytest.mark.parametrize(
    ("reason", "is_named"),
    [
        ("s3://logs/2026/01/01: it does not answer", True),
        ("nothing answers at s3://logs. Start it.", True),
        ("no answer of s3://logs", True),
        ("s3://logs-old/2026/01/01: access denied", False),
        ("s3://logs.old: access denied", False),
        ("s3://logs2: access denied", False),
    ],
)
def test_what_names_a_longer_address_fails_by_itself(reason: str, is_named: bool) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    failure = TickFailure(
        cluster="primary", step=TickStep.LATE_DATA, subject="clicks", reason=reason, since=now, next_try_at=now
    )
    assert without_outages([failure], ["s3://logs"]) == ([] if is_named else [failure])
