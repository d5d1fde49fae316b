"""When people are told why an instance is not done."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.log.instances.overdue_notices import LONGEST_PAUSE, SHORTEST_PAUSE, decide_notice, first_notice_at
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.plan.facts import SlaRecord
from feed_assets.timing.sequence import parse_frequency
from tests.instances.harness import START, LifecycleHarness, feed, process

HOUR = timedelta(hours=1)


def row(status: ProcessInstanceStatus = ProcessInstanceStatus.WAITING) -> ProcessInstance:
    return ProcessInstance(
        process="p",
        cluster="primary",
        nominal_time=START,
        status=status,
        updated_at=START,
        materialized_at=START,
        notice_at=START,
        notice_digest="before",
    )


def test_one_that_waits_is_looked_at_again_when_it_has_waited_twice_as_long() -> None:
    notice = decide_notice(row(), "now", START + 3 * HOUR)
    assert (notice.digest, notice.next_at) == ("now", START + 6 * HOUR)
    assert decide_notice(row(), "now", START).next_at == START + SHORTEST_PAUSE


@pytest.mark.parametrize("status", [ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT])
def test_one_that_has_ended_is_not_looked_at_again(status: ProcessInstanceStatus) -> None:
    notice = decide_notice(row(status), "now", START + HOUR)
    assert (notice.digest, notice.next_at) == ("now", None)


def test_one_that_cannot_be_explained_is_not_looked_at_again() -> None:
    notice = decide_notice(row(), None, START + HOUR)
    assert (notice.digest, notice.next_at) == ("before", None)


def test_it_is_told_of_at_a_deadline_that_is_ahead_else_after_half_its_frequency(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("a"), feed("b"), process("p", inputs={"a": "now(0,0)"}, outputs={"b": "now(0,0)"})
    )
    record = lifecycle.plan.processes["p", "primary"]
    assert first_notice_at(record, START, START) == START + HOUR / 2
    slow = replace(record, sequence=replace(record.sequence, frequency=parse_frequency("months(600)")))
    assert first_notice_at(slow, START, START) == START + LONGEST_PAUSE
    due = replace(record, sla=SlaRecord(low=parse_frequency("hours(2)"), high=parse_frequency("hours(3)")))
    found = [first_notice_at(due, START, START + hours * HOUR) - START for hours in (0, 2, 3)]
    assert found == [2 * HOUR, 3 * HOUR, 3.5 * HOUR]


def test_one_that_is_run_again_waits_anew(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("a"), feed("b"), process("p", inputs={"a": "now(0,0)"}, outputs={"b": "now(0,0)"})
    )
    killed = replace(row(ProcessInstanceStatus.KILLED), notice_at=None)
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).add_waiting([killed])
    as_of = START + 3 * HOUR
    apply_action(lifecycle.context(as_of).by("me"), InstanceAction.RERUN, [killed.key])
    with lifecycle.database.read() as connection:
        found = ProcessInstances(connection).get(*killed.key)
    assert found is not None
    assert found.notice_at == as_of + HOUR / 2
