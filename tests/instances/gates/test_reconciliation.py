from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.instances.gates.reconciliation import (
    MOST_DEATHS,
    REQUEST_PATIENCE,
    RunState,
    apply_reconciliation,
    decide_reconciled,
    find_launched,
)
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, at, hours, process

READY, RUNNING = ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING
KILLED, FAILED = ProcessInstanceStatus.KILLED, ProcessInstanceStatus.FAILED
SUCCEEDED = ProcessInstanceStatus.SUCCEEDED
NOON = at("01T12:00")


def instance(status: ProcessInstanceStatus, deaths: int = 0) -> ProcessInstance:
    return ProcessInstance(
        process="p",
        cluster="c",
        nominal_time=START,
        status=status,
        updated_at=START,
        attempt=20,
        deaths=deaths,
        run_id="run-1",
    )


@pytest.mark.parametrize(
    ("status", "run", "becomes"),
    [
        (RUNNING, RunState.ALIVE, None),
        (RUNNING, RunState.ENDED, READY),
        (RUNNING, RunState.UNKNOWN, READY),
        (RUNNING, RunState.CANCELED, KILLED),
        (READY, RunState.ALIVE, None),
        (READY, RunState.ENDED, READY),
        (READY, RunState.UNKNOWN, READY),
        (READY, RunState.CANCELED, READY),
    ],
)
def test_the_run_decides_what_becomes_of_an_instance(
    status: ProcessInstanceStatus, run: RunState, becomes: ProcessInstanceStatus | None
) -> None:
    decided = decide_reconciled(instance(status), run, NOON)
    if becomes is None:
        assert decided is None
    else:
        assert decided is not None
        expected, changes = decided
        assert (expected, changes["status"], changes["updated_at"]) == (status, becomes, NOON)


@pytest.mark.parametrize("run", [RunState.ENDED, RunState.UNKNOWN])
def test_a_worker_is_replaced_ten_times_at_most(run: RunState) -> None:
    assert (decided := decide_reconciled(instance(RUNNING, MOST_DEATHS - 2), run, NOON)) is not None
    assert decided[1]["status"] is READY
    assert (decided := decide_reconciled(instance(RUNNING, MOST_DEATHS - 1), run, NOON)) is not None
    assert (decided[1]["status"], decided[1]["ended_at"]) == (FAILED, NOON)
    assert decided[1]["cause_detail"] == "its worker died 10 times in a row, and is not replaced any more"
    assert (decided := decide_reconciled(instance(READY, MOST_DEATHS - 1), run, NOON)) is not None
    assert decided[1]["status"] is READY


def running(lifecycle: LifecycleHarness, run_id: str = "run-1") -> None:
    """An instance that is RUNNING under a run that will never say anything again."""
    if START not in lifecycle.instances("ping"):
        lifecycle.ready(START)
    row = lifecycle.instances("ping")[START]
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).transition(
            row.key, set(ProcessInstanceStatus), status=RUNNING, run_id=run_id, attempt=row.attempt + 1, updated_at=NOON
        )


def test_an_instance_whose_run_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    lifecycle.tick(START)
    running(lifecycle)

    launched = find_launched(lifecycle.database, "primary", NOON)
    changed = apply_reconciliation(lifecycle.context(NOON), launched, {"run-1": RunState.ENDED}, {})

    assert [key.nominal_time for key in changed] == [START]
    row = lifecycle.instances("ping")[START]
    assert (row.status, row.request_key, row.reason) == (READY, None, "its run ended without recording a result")
    assert [request.nominal_times for request in lifecycle.request(NOON)] == [(START,)]


def test_ten_dead_workers_fail_the_instance(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    lifecycle.tick(START)
    for number in range(MOST_DEATHS):
        assert lifecycle.statuses("ping")[START] is READY
        running(lifecycle, f"run-{number}")
        launched = find_launched(lifecycle.database, "primary", NOON)
        apply_reconciliation(lifecycle.context(NOON), launched, {f"run-{number}": RunState.ENDED}, {})
        lifecycle.request(NOON)
    assert lifecycle.statuses("ping")[START] is FAILED


def test_a_living_run_is_left_alone(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    running(lifecycle)
    launched = find_launched(lifecycle.database, "primary", NOON)
    assert apply_reconciliation(lifecycle.context(NOON), launched, {"run-1": RunState.ALIVE}, {}) == ()
    assert lifecycle.statuses("ping") == {START: RUNNING}


def test_a_cancelled_run_kills_what_it_works_on_and_for_the_others_has_never_been(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    (request,) = lifecycle.tick(at("01T02:00"))
    before = lifecycle.instances("ping")
    running(lifecycle)
    launched = find_launched(lifecycle.database, "primary", at("01T02:00") + REQUEST_PATIENCE)
    canceled = RunState.CANCELED
    apply_reconciliation(lifecycle.context(NOON), launched, {"run-1": canceled}, {request.key: canceled})
    assert lifecycle.statuses("ping") == {START: KILLED, **dict.fromkeys(hours(3)[1:], READY)}
    after = lifecycle.instances("ping")
    for time in hours(3)[1:]:
        free = replace(before[time], request_key=None, requested_at=None, updated_at=NOON)
        assert after[time] == free
    assert [again.nominal_times for again in lifecycle.request(NOON)] == [tuple(hours(3)[1:])]


def test_a_lost_request_is_asked_again_when_patience_is_over(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    (request,) = lifecycle.tick(START)
    early = find_launched(lifecycle.database, "primary", START + REQUEST_PATIENCE - timedelta(seconds=1))
    assert early.requested == ()

    launched = find_launched(lifecycle.database, "primary", START + REQUEST_PATIENCE)
    apply_reconciliation(lifecycle.context(NOON), launched, {}, {})
    (again,) = lifecycle.request(NOON)

    assert again.nominal_times == request.nominal_times
    assert again.key != request.key


def test_a_result_that_was_recorded_in_the_meantime_stands(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    lifecycle.tick(START)
    launched = find_launched(lifecycle.database, "primary", NOON)
    lifecycle.run("ping", START, NOON)
    assert apply_reconciliation(lifecycle.context(NOON), launched, {}, {}) == ()
    assert lifecycle.statuses("ping") == {START: SUCCEEDED}


def test_another_run_that_has_begun_in_the_meantime_is_not_disturbed(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    running(lifecycle, "run-1")
    launched = find_launched(lifecycle.database, "primary", NOON)
    running(lifecycle, "run-2")
    assert apply_reconciliation(lifecycle.context(NOON), launched, {"run-1": RunState.ENDED}, {}) == ()
    assert lifecycle.statuses("ping") == {START: RUNNING}


def test_clusters_are_reconciled_by_themselves(tmp_path: Path) -> None:
    both = ("east", "west")
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", clusters=both), clusters=both)
    lifecycle.tick(START, "east")
    lifecycle.tick(START, "west")
    launched = find_launched(lifecycle.database, "east", NOON)
    assert {row.cluster for row in launched.requested} == {"east"}
