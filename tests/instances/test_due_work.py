"""All that is due at once, and a state that fails at each statement: nothing is forgotten, or done twice."""

import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.instances.gates.readiness import apply_readiness
from feed_assets.instances.gates.retries import apply_retries
from feed_assets.instances.late.detection import apply_late_checks, apply_updates
from feed_assets.instances.late.lateness import plan_update
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import agenda
from feed_assets.log.instances.tables import process_instances
from feed_assets.log.messages.outbox import outbox
from feed_assets.log.records import Cause, ProcessInstanceStatus, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.errors import StateUnreachableError
from tests.context.contexts import put, row
from tests.drills import sized
from tests.instances.harness import START, LifecycleHarness, at, feed, process
from tests.retention.faults import Fault, faulty_database

FAILED, NOW = ProcessInstanceStatus.FAILED, at("01T04")
BOOM = {"cause": Cause.FAILURE, "cause_detail": "boom", "attempt": 1, "ended_at": at("01T03:55")}
STEPS = (apply_retries, apply_readiness, apply_updates, apply_late_checks)


def declared(root: Path) -> LifecycleHarness:
    """Clicks that are counted each hour; late ones are looked for after an hour."""
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    return LifecycleHarness.of(
        root,
        feed("clicks", late_arrival={"cut_off": "days(1)"}, end=at("01T05")),
        feed("counts", end=at("01T05")),
        process(
            "count",
            inputs={"clicks": "now(0,0)"},
            outputs={"counts": "now(0,0)"},
            end=at("01T05"),
            late_process=late,
            timeout="hours(2)",
            retry={"policy": "periodic", "delay": "minutes(10)", "attempts": 1},
        ),
    )


@pytest.fixture
def due(tmp_path: Path) -> LifecycleHarness:
    """The first hour was counted, and has late clicks and an update; the second one waits longer than it may. Of others
    one failed just now, the retry of one is due, and one has no retry left.
    """
    (tmp_path / "due").mkdir()
    made = declared(tmp_path / "due")
    made.land("clicks", START)
    made.launch(made.tick(at("01T01:05")), at("01T01:05"))
    made.land("clicks", START, text="late")
    times = [at(f"01T{hour:02}") for hour in (2, 3, 4)]
    more = ({}, {"retry_at": NOW - timedelta(minutes=1)}, {"retries": 1})
    put(made, *(row("count", time, FAILED, **BOOM, **each) for time, each in zip(times, more, strict=True)))
    with made.database.begin() as connection:
        LateChecks(connection).put([plan_update(ProcessKey("count", "primary", START), NOW)])
    return made


def work(lifecycle: LifecycleHarness) -> None:
    """Two ticks: the second one finds what the first has told the log."""
    for step in STEPS * 2:
        step(lifecycle.open_tick(NOW, bulkheads=Bulkheads("primary", FrozenClock(NOW))))


def recorded(lifecycle: LifecycleHarness) -> list[list[tuple[object, ...]]]:
    with lifecycle.database.read() as connection:
        tables = (process_instances, agenda, feed_events, outbox)
        return [
            [tuple(each) for each in connection.execute(select(table).order_by(*table.primary_key))] for table in tables
        ]


def restored(due: LifecycleHarness, backup: Path) -> LifecycleHarness:
    """The same again."""
    due.database.close()
    shutil.rmtree(due.root)
    shutil.copytree(backup, due.root)
    return declared(due.root)


@pytest.mark.sample
def test_a_tick_that_breaks_off_anywhere_is_made_up_for_by_the_next(due: LifecycleHarness, tmp_path: Path) -> None:
    fault, backup = Fault(), tmp_path / "backup"
    shutil.copytree(due.root, backup)
    work(due)
    expected = recorded(due)
    statuses = [each.status for each in due.instances("count").values()]
    assert statuses == ["READY", "TIMEDOUT", "FAILED", "WAITING", "FAILED"]
    work(due)
    assert recorded(due) == expected
    at_statement, fault.struck = 1, True
    while fault.struck:
        due = restored(due, backup)
        with suppress(SQLAlchemyError, StateUnreachableError), faulty_database(fault), fault.armed(at_statement):
            work(due)
        work(due)
        assert recorded(due) == expected, f"after a failure at statement {at_statement}"
        at_statement += sized(17, 1)
    assert at_statement > 60
