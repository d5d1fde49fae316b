"""When a failed instance is tried again: decided at its end, kept in the record, done by the tick that finds it due.

No worker waits. Source of the semantics: Falcon's retry policies; what differs is said where it does.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from feed_assets.entities.process import RetryPolicy
from feed_assets.lifecycle.governance import Governance, Governed
from feed_assets.lifecycle.redefinition import note_changed
from feed_assets.lifecycle.tellings import tell_after
from feed_assets.plan.records import RetryRecord
from feed_assets.state.database import Database
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.timing.dates import NEVER

RETRIES_A_TICK = 1_000
LONGEST_DELAY = timedelta(days=366)
"""Exponential delays end here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """What follows the end of an attempt: a time for the next one, or none; `is_exhausted` if all have been made."""

    retry_at: datetime | None = None
    is_exhausted: bool = False


def retry_delay(policy: RetryPolicy, delay: timedelta, retries: int) -> timedelta:
    """How long after a failure the next attempt begins, after `retries` automatic ones: d, d, d; d, 2d, 4d; or at once.

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
    retry: RetryRecord | None, status: ProcessInstanceStatus, retries: int, ended_at: datetime
) -> RetryDecision:
    """Whether and when an instance that ended is tried again.

    Only FAILED is, and TIMEDOUT if the policy says so; never what a person has KILLED.

    Args:
        retry: the policy; None means never.
        status: how the attempt ended.
        retries: automatic attempts that have been made since the instance was run first, or by a person.
        ended_at: when it ended.
    """
    if retry is None or status not in (ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT):
        return RetryDecision()
    if status is ProcessInstanceStatus.TIMEDOUT and not retry.on_timeout:
        return RetryDecision()
    if retries >= retry.attempts:
        return RetryDecision(is_exhausted=True)
    return RetryDecision(retry_at=ended_at + retry_delay(retry.policy, retry.delay.as_duration(), retries))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """What one tick did: instances that are tried again, and those whose attempts are used up."""

    again: tuple[ProcessKey, ...]
    exhausted: tuple[ProcessKey, ...]


def apply_retries(database: Database, governance: Governance, cluster: str, as_of: datetime) -> Retried:
    """Decide about instances that have failed since the last tick, and set those going that are due.

    The policy is the one that governs the instance now, so a change of it holds for what is running already.
    """
    with database.read() as connection:
        instances = ProcessInstances(connection)
        if not instances.undecided(cluster, 1) and not instances.due_retries(cluster, as_of, 1):
            return Retried(again=(), exhausted=())
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        exhausted = []
        for row in instances.undecided(cluster, RETRIES_A_TICK):
            decision = _decide_for(
                governance.find(connection, (row.process, row.cluster), row.nominal_time), row, as_of
            )
            reason = row.reason
            if decision.is_exhausted:
                exhausted.append(row.key)
                reason = f"{reason or row.status.value}; all {row.retries} retries have been made"
            changes: ProcessChanges = {"retry_at": decision.retry_at or NEVER, "reason": reason, "updated_at": as_of}
            if decision.retry_at is None:
                changes["tell_at"] = as_of
            instances.transition(row.key, {row.status}, **changes)
        again = []
        for row in instances.due_retries(cluster, as_of, RETRIES_A_TICK):
            governed = governance.find(connection, (row.process, row.cluster), row.nominal_time)
            if governed is None:
                instances.transition(row.key, {row.status}, retry_at=NEVER, updated_at=as_of)
            elif _set_going(instances, governed, row, as_of):
                again.append(row.key)
        note_changed(connection, [(key.process, key.cluster) for key in again])
    return Retried(again=tuple(again), exhausted=tuple(exhausted))


def _decide_for(governed: Governed | None, row: ProcessInstance, as_of: datetime) -> RetryDecision:
    retry = governed.record.retry if governed else None
    return decide_retry(retry, row.status, row.retries, min(row.ended_at or as_of, as_of))


def _set_going(instances: ProcessInstances, governed: Governed, row: ProcessInstance, as_of: datetime) -> bool:
    """Let an instance wait for its inputs anew; if they are there, the next look at it makes it ready."""
    return instances.transition(
        row.key,
        {row.status},
        status=ProcessInstanceStatus.WAITING,
        retries=row.retries + 1,
        retry_at=None,
        request_key=None,
        requested_at=None,
        deadline_at=as_of + governed.record.timeout.as_duration(),
        tell_at=tell_after(governed.record, as_of),
        ended_at=None,
        reason=f"retry {row.retries + 1} after: {row.reason or row.status.value}",
        updated_at=as_of,
    )
