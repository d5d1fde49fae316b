from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.instances.gates.blockers import (
    Launches,
    LeaseHeld,
    NoSlot,
    NotDue,
    NotItsTurn,
    NotReached,
    NotScheduled,
    RerunAwaited,
    Suspended,
    decide_blockers,
    existence_blockers,
    launch_blockers,
    with_instance,
)
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.records import Lease, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.records import ProcessRecord
from tests.instances.harness import START, LifecycleHarness, at, process

HOUR = timedelta(hours=1)
WAITING, READY, RUNNING, SUSPENDED = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.SUSPENDED,
)
SCHEDULED = ScheduleState.SCHEDULED
LEASE = Lease(
    entity="process/p", cluster="primary", nominal_time=START, token=1, holder="run-1", expires_at=at("01T01:00")
)


def record(tmp_path: Path, **more: Any) -> ProcessRecord:
    return LifecycleHarness.of(tmp_path, process("p", **more)).process("p")


def instance(status: ProcessInstanceStatus, **more: Any) -> ProcessInstance:
    return ProcessInstance(process="p", cluster="primary", nominal_time=START, status=status, updated_at=START, **more)


def test_an_instance_without_a_row_has_not_come_or_has_not_been_reached() -> None:
    noon, reached = at("01T12:00"), NotReached(next_time=START)
    assert existence_blockers(None, noon, reached, START) == (NotDue(nominal_time=noon),)
    assert existence_blockers(None, START, reached, noon) == (reached,)
    assert existence_blockers(instance(WAITING), START, reached, noon) == ()


@pytest.mark.parametrize(
    ("order", "ready", "in_flight", "expected"),
    [
        ("FIFO", [], 0, []),
        ("FIFO", [1], 1, []),
        ("FIFO", [1], 2, [NoSlot(parallel=2, in_flight=2)]),
        ("FIFO", [-2, -1], 0, []),
        ("LIFO", [4], 1, [NoSlot(parallel=2, in_flight=1)]),
        ("LAST_ONLY", [-1], 0, []),
        ("LAST_ONLY", [1, 2], 0, ["turn"]),
        ("LAST_ONLY", [1], 2, [NoSlot(parallel=2, in_flight=2), "turn"]),
    ],
)
def test_slots_and_turns(tmp_path: Path, order: str, ready: list[int], in_flight: int, expected: list[Any]) -> None:
    """The instance in question is number 10; `ready` are others, counted from it."""
    known = record(tmp_path, order=order, parallel=2)
    groups = ((known, tuple(10 + number for number in ready)),) if ready else ()
    found = launch_blockers(known, known, known.sequence.at(10), Launches(ready=groups, in_flight=in_flight), at("02"))
    turn = NotItsTurn(order=known.order, ahead=sum(number > 0 for number in ready))
    assert list(found) == [turn if each == "turn" else each for each in expected]


def test_an_instance_takes_its_place_among_others_once(tmp_path: Path) -> None:
    known = record(tmp_path)
    groups = with_instance([(known, (1, 3))], known, known.sequence.at(2))
    assert groups == ((known, (1, 2, 3)),)
    assert with_instance(groups, known, known.sequence.at(2)) == groups


def test_all_that_blocks_is_named_in_its_order() -> None:
    slot = NoSlot(parallel=1, in_flight=1)
    awaited = {ProcessKey("make", "primary", START): SUSPENDED}
    found = decide_blockers(instance(SUSPENDED), (), (), ScheduleState.SUSPENDED, [slot], [LEASE], awaited)
    of_schedule, of_rerun = NotScheduled(state=ScheduleState.SUSPENDED), RerunAwaited(writers=awaited)
    assert found == (of_schedule, Suspended(), of_rerun, slot, LeaseHeld(lease=LEASE))


@pytest.mark.parametrize("status", sorted(set(ProcessInstanceStatus) - {WAITING, READY, SUSPENDED}))
def test_nothing_blocks_what_runs_or_has_ended(status: ProcessInstanceStatus) -> None:
    assert decide_blockers(instance(status), (), (), ScheduleState.SUBMITTED, (), [LEASE]) == ()


def test_only_a_lease_stands_against_a_run_that_was_asked_for() -> None:
    asked = instance(READY, request_key="k")
    slot = NoSlot(parallel=1, in_flight=1)
    assert decide_blockers(asked, (), (), ScheduleState.SUSPENDED, [slot], []) == ()
    assert decide_blockers(asked, (), (), SCHEDULED, [slot], [LEASE]) == (LeaseHeld(lease=LEASE),)


def test_before_it_has_come_into_being_all_that_is_ahead_is_named() -> None:
    not_due: datetime = at("02")
    found = decide_blockers(None, [NotDue(nominal_time=not_due)], (), ScheduleState.SUBMITTED, (), ())
    assert found == (NotDue(nominal_time=not_due), NotScheduled(state=ScheduleState.SUBMITTED))
