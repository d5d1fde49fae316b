"""When a failed instance is tried again."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.engines.errors import ServiceAwayError
from feed_assets.engines.port import Work
from feed_assets.entities.process import Retry, RetryPolicy
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.instances.gates.decide_retries import LONGEST_DELAY, RetryDecision, decide_retry, retry_delay
from feed_assets.instances.gates.retries import apply_retries
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import Cause, ProcessInstanceStatus
from feed_assets.receivers import Topic
from feed_assets.storage.errors import StorageAwayError
from feed_assets.timing.dates import NEVER
from feed_assets.timing.sequence import parse_frequency
from tests.instances.harness import START, LifecycleHarness, feed, process

ENDED = datetime(2024, 1, 1, tzinfo=UTC)
FAILED, TIMEDOUT = ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT


def policy(name: str = "periodic", delay: str = "minutes(10)", attempts: int = 3, on_timeout: bool = False) -> Retry:
    return Retry(policy=RetryPolicy(name), delay=parse_frequency(delay), attempts=attempts, on_timeout=on_timeout)


@pytest.mark.parametrize(
    ("name", "minutes"), [("periodic", [10, 10, 10]), ("exp-backoff", [10, 20, 40]), ("final", [0, 0, 0])]
)
def test_row_76_delays_follow_the_policy_and_attempts_are_not_exceeded(name: str, minutes: list[int]) -> None:
    decisions = [decide_retry(policy(name), FAILED, retries, ENDED) for retries in range(4)]
    assert [decision.retry_at for decision in decisions[:3]] == [ENDED + timedelta(minutes=n) for n in minutes]
    assert decisions[3] == RetryDecision(is_exhausted=True)


def test_row_77_a_time_out_is_retried_only_if_the_policy_says_so() -> None:
    assert decide_retry(policy(), TIMEDOUT, 0, ENDED) == RetryDecision()
    assert decide_retry(policy(on_timeout=True), TIMEDOUT, 0, ENDED).retry_at is not None
    assert decide_retry(None, TIMEDOUT, 0, ENDED) == RetryDecision()


@pytest.mark.parametrize("status", sorted(set(ProcessInstanceStatus) - {FAILED, TIMEDOUT}))
def test_row_78_nothing_else_is_retried_least_of_all_what_was_killed(status: ProcessInstanceStatus) -> None:
    assert decide_retry(policy(on_timeout=True), status, 0, ENDED) == RetryDecision()


def test_exponential_delays_end_somewhere() -> None:
    assert retry_delay(RetryPolicy.EXP_BACKOFF, timedelta(days=20), 10_000) == LONGEST_DELAY


def failing(lifecycle: LifecycleHarness, times: int) -> None:
    """Let the next runs fail so many times."""
    left = [times]

    def job(work: Work) -> dict[str, str]:
        if left[0] > 0:
            left[0] -= 1
            raise RuntimeError("no luck")
        return {target.name: f"attempt {work.attempt}" for target in work.outputs}

    lifecycle.job = job


def run_due(lifecycle: LifecycleHarness, as_of: datetime) -> int:
    """One tick, and everything it asks for; how many instances were run."""
    ran = 0
    for request in lifecycle.tick(as_of):
        for time in request.nominal_times:
            ran += 1
            with suppress(RuntimeError, StorageAwayError, ServiceAwayError):
                lifecycle.run("count", time, as_of, lifecycle.run_id())
    return ran


def counting(tmp_path: Path, **retry: object) -> LifecycleHarness:
    retry = {"policy": "exp-backoff", "delay": "minutes(10)", "attempts": 2, **retry}
    work = process("count", outputs={"counts": "now(0,0)"}, end=START + timedelta(hours=1), retry=retry)
    return LifecycleHarness.of(tmp_path, feed("counts"), work)


def test_row_80_a_retry_is_kept_in_the_record_and_done_when_it_is_due(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    failing(lifecycle, 2)
    assert run_due(lifecycle, START) == 1
    again = counting(tmp_path)  # another process, with the same state database
    again.job = lifecycle.job
    minutes = [minute for minute in range(1, 60) if run_due(again, START + timedelta(minutes=minute))]
    assert minutes == [10, 30]
    assert again.statuses("count") == {START: ProcessInstanceStatus.SUCCEEDED}
    assert again.content("counts", START) == "attempt 3"


def test_row_78_what_a_person_has_killed_between_two_attempts_stays_so(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    failing(lifecycle, 1)
    assert run_due(lifecycle, START) == 1
    key = ("count", "primary", START)
    apply_action(lifecycle.context(START).by("ann"), InstanceAction.KILL, [key])
    assert [run_due(lifecycle, START + timedelta(minutes=minute)) for minute in range(5, 60, 5)] == [0] * 11
    assert lifecycle.statuses("count") == {START: ProcessInstanceStatus.KILLED}


def test_row_79_when_all_retries_have_failed_the_instance_says_so(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path, policy="periodic", attempts=1)
    failing(lifecycle, 9)
    run_due(lifecycle, START)
    run_due(lifecycle, START + timedelta(minutes=1))
    run_due(lifecycle, START + timedelta(minutes=10))

    exhausted = apply_retries(lifecycle.open_tick(START + timedelta(minutes=11)))

    assert [key.nominal_time for key in exhausted] == [START]
    assert lifecycle.instances("count")[START].reason == "RuntimeError: no luck; all 1 retries have been made"
    assert run_due(lifecycle, START + timedelta(days=9)) == 0


def test_a_failure_without_a_policy_is_decided_once(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts"), process("count", outputs={"counts": "now(0,0)"}))
    failing(lifecycle, 1)
    run_due(lifecycle, START)
    run_due(lifecycle, START + timedelta(minutes=1))
    row = lifecycle.instances("count")[START]
    assert (row.status, row.retry_at) == (FAILED, NEVER)


def test_an_instance_that_timed_out_waits_again_for_its_data(tmp_path: Path) -> None:
    retry = {"policy": "periodic", "delay": "minutes(10)", "attempts": 1, "on_timeout": True}
    work = process("count", inputs={"clicks": "now(0,0)"}, timeout="minutes(30)", retry=retry)
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", end=START + timedelta(hours=1)), work)
    lifecycle.tick(START)
    lifecycle.tick(START + timedelta(minutes=31))
    lifecycle.tick(START + timedelta(minutes=32))
    assert lifecycle.statuses("count")[START] is TIMEDOUT
    lifecycle.tick(START + timedelta(minutes=42))
    assert lifecycle.statuses("count")[START] is ProcessInstanceStatus.WAITING
    lifecycle.land("clicks", START)
    assert run_due(lifecycle, START + timedelta(minutes=50)) == 1


AWAY = StorageAwayError(store="s3://bucket", path="", reason="connection refused", next_step="Start it.")
REACHED = ServiceAwayError(service="the catalog thrift://m:9083", reason="it does not answer", next_step="Start it.")


@pytest.mark.parametrize("error", [AWAY, REACHED])
@pytest.mark.parametrize("attempts", [0, 1])
def test_an_outage_uses_up_no_attempt_and_is_waited_for(tmp_path: Path, error: Exception, attempts: int) -> None:
    lifecycle = counting(tmp_path, attempts=attempts) if attempts else without_retry(tmp_path)
    outage(lifecycle, error)
    ran = [minute for minute in range(0, 31, 2) if run_due(lifecycle, START + timedelta(minutes=minute))]
    assert (ran[:3], len(ran) > 10) == ([0, 2, 4], True)
    row = lifecycle.instances("count")[START]
    assert (row.status, row.retries, row.cause) == (FAILED, 0, Cause.OUTAGE)
    assert "connection refused" in str(row.reason) or "does not answer" in str(row.reason)
    with lifecycle.database.read() as connection:
        assert not Outbox(connection).read(0, 9, Topic.RETRY)
        assert not Outbox(connection).read(0, 9, Topic.INSTANCE)
    failing(lifecycle, attempts)  # its own failures count as ever
    assert sum(run_due(lifecycle, START + timedelta(minutes=minute)) for minute in range(31, 47, 3)) == 1 + attempts
    row = lifecycle.instances("count")[START]
    assert (row.status, row.retries) == (ProcessInstanceStatus.SUCCEEDED, attempts)


def test_an_outage_is_waited_for_a_day(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    outage(lifecycle, AWAY)
    ran = [minute for minute in range(0, 27 * 60, 15) if run_due(lifecycle, START + timedelta(minutes=minute))]
    assert timedelta(hours=24) <= timedelta(minutes=ran[-1]) < timedelta(hours=24, minutes=31)
    row = lifecycle.instances("count")[START]
    assert (row.status, row.retry_at, row.cause) == (FAILED, NEVER, Cause.RETRIES_EXHAUSTED)
    assert row.reason == "s3://bucket: connection refused. Start it.; it has been away for 24 hours"
    with lifecycle.database.read() as connection:
        assert len(Outbox(connection).read(0, 9, Topic.RETRY)) == 1


def test_what_waits_for_an_address_is_due_when_it_answers(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    outage(lifecycle, AWAY)
    noon = START + timedelta(hours=12)
    for minute in range(0, 12 * 60, 15):
        run_due(lifecycle, START + timedelta(minutes=minute))
    failing(lifecycle, 0)
    bulkheads = Bulkheads("primary", FrozenClock(noon))
    bulkheads.fail(TickStep.STORAGE, "s3://bucket", AWAY)
    bulkheads.save(lifecycle.database)
    assert run_due(lifecycle, noon - timedelta(minutes=14)) == 0
    bulkheads.succeed(TickStep.STORAGE, "s3://bucket")
    bulkheads.save(lifecycle.database)
    assert run_due(lifecycle, noon - timedelta(minutes=13)) == 1
    assert lifecycle.statuses("count") == {START: ProcessInstanceStatus.SUCCEEDED}


def outage(lifecycle: LifecycleHarness, error: Exception) -> None:
    """Let all runs fail because an address is away."""

    def job(_: Work) -> dict[str, str]:
        raise error

    lifecycle.job = job


def without_retry(tmp_path: Path) -> LifecycleHarness:
    work = process("count", outputs={"counts": "now(0,0)"}, end=START + timedelta(hours=1))
    return LifecycleHarness.of(tmp_path, feed("counts"), work)
