"""Decide when a failed instance is retried.

Source of the semantics: Falcon's retry policies; each difference is documented where it applies.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from feed_assets.context.bulkheads import LONGEST_PAUSE, pause_by_age
from feed_assets.entities.process import Retry, RetryPolicy
from feed_assets.log.records import ProcessInstanceStatus

LONGEST_DELAY = timedelta(days=366)
"""The upper limit of exponential delays."""


LONGEST_OUTAGE = timedelta(hours=24)
"""How long an instance waits for an address that is away."""
SHORTEST_WAIT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """The time of the next attempt, if any; `is_exhausted` if all attempts were used."""

    retry_at: datetime | None = None
    is_exhausted: bool = False


def retry_delay(policy: RetryPolicy, delay: timedelta, retries: int) -> timedelta:
    """Return the delay between a failure and the next attempt, after `retries` automatic ones.

    PERIODIC gives d, d, d; EXP_BACKOFF gives d, 2d, 4d; FINAL retries at once.

    >>> [str(retry_delay(RetryPolicy.EXP_BACKOFF, timedelta(minutes=2), made)) for made in range(3)]
    ['0:02:00', '0:04:00', '0:08:00']
    """
    match policy:
        case RetryPolicy.PERIODIC:
            return min(delay, LONGEST_DELAY)
        case RetryPolicy.EXP_BACKOFF:
            return LONGEST_DELAY if retries > 60 else min(delay * 2**retries, LONGEST_DELAY)
        case RetryPolicy.FINAL:
            return timedelta(0)
        case _:
            assert_never(policy)


def decide_retry(
    retry: Retry | None,
    status: ProcessInstanceStatus,
    retries: int,
    ended_at: datetime,
    outage: timedelta | None = None,
) -> RetryDecision:
    """Decide whether and when an ended instance is retried.

    FAILED instances are, and TIMEDOUT ones if the policy says so. An instance that a person KILLED never is.

    Args:
        retry: the policy; None means never.
        status: how the attempt ended.
        retries: automatic attempts since the first run, or since the last one that a person started.
        ended_at: when it ended.
        outage: for how long an address that is needed has been away, if that has ended it; then the policy does not
            matter.
    """
    if outage is not None:
        pause = max(pause_by_age(outage, LONGEST_PAUSE), SHORTEST_WAIT)
        return RetryDecision(retry_at=ended_at + pause) if outage < LONGEST_OUTAGE else RetryDecision(is_exhausted=True)
    if retry is None or status not in (ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT):
        return RetryDecision()
    if status is ProcessInstanceStatus.TIMEDOUT and not retry.on_timeout:
        return RetryDecision()
    if retries >= retry.attempts:
        return RetryDecision(is_exhausted=True)
    return RetryDecision(retry_at=ended_at + retry_delay(retry.policy, retry.delay.as_duration(), retries))
