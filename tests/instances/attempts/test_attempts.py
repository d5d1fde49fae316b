from pathlib import Path

import pytest

from feed_assets.instances.attempts.attempts import decide_trigger
from feed_assets.instances.gates.reconciliation import RunState, apply_reconciliation, find_launched
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import Attempt, Cause, ProcessInstance, ProcessInstanceStatus, ProcessKey
from tests.instances.harness import START, LifecycleHarness, at, feed, process

READY, WAITING, FAILED, KILLED, SUCCEEDED = (
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.KILLED,
    ProcessInstanceStatus.SUCCEEDED,
)
KEY = ProcessKey("count", "primary", START)


def a_harness(tmp_path: Path) -> LifecycleHarness:
    counting = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), counting)
    lifecycle.land("clicks", START)
    return lifecycle


def attempts(lifecycle: LifecycleHarness) -> list[Attempt]:
    with lifecycle.database.read() as connection:
        return Attempts(connection).of(KEY)


def test_each_run_of_an_instance_leaves_an_attempt(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    lifecycle.run("count", START, at("01T00:20"), "again")
    first, second = attempts(lifecycle)
    assert (first.status, first.cause, first.ended_at) == (SUCCEEDED, Cause.INPUTS, at("01T00:10"))
    assert (second.attempt, second.run_id, second.cause) == (2, "again", Cause.BY_HAND)


def test_an_attempt_that_fails_keeps_its_reason(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)

    def fail(_: object) -> dict[str, str]:
        raise RuntimeError("no luck")

    lifecycle.job = fail
    with pytest.raises(RuntimeError):
        lifecycle.run("count", START, at("01T00:10"))
    (only,) = attempts(lifecycle)
    assert (only.status, only.reason) == (FAILED, "RuntimeError: no luck")


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        (RunState.ENDED, FAILED, "its run ended without recording a result"),
        (RunState.CANCELED, KILLED, "its run was cancelled"),
    ],
)
def test_a_worker_that_died_leaves_an_attempt_that_has_ended(
    tmp_path: Path, state: RunState, status: ProcessInstanceStatus, reason: str
) -> None:
    lifecycle = a_harness(tmp_path)

    def die(_: object) -> dict[str, str]:
        launched = find_launched(lifecycle.database, "primary", at("01T00:20"))
        apply_reconciliation(lifecycle.context(at("01T00:20")), launched, {"run-1": state}, {})
        return {"counts": "late"}

    lifecycle.job = die
    with pytest.raises(Exception, match="was released"):
        lifecycle.run("count", START, at("01T00:10"))
    (only,) = attempts(lifecycle)
    assert (only.status, only.reason, only.ended_at) == (status, reason, at("01T00:20"))


def test_what_begins_an_attempt_is_why_the_instance_was_ready() -> None:
    before = ProcessInstance(process="p", cluster="c", nominal_time=START, status=READY, updated_at=START)
    assert decide_trigger(before, "run-1") == (Cause.BY_HAND, None)
    assert decide_trigger(before, "repair:ann:1f") == (Cause.REPAIR, "a repair by ann")
    asked = ProcessInstance(
        process="p",
        cluster="c",
        nominal_time=START,
        status=READY,
        updated_at=START,
        request_key="k",
        cause=Cause.LATE_DATA,
        cause_detail="late data: weather 2013-11-01T00:00Z changed",
    )
    assert decide_trigger(asked, "run-1") == (Cause.LATE_DATA, "late data: weather 2013-11-01T00:00Z changed")
