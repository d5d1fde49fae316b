"""Record when failed instances are retried, and start due retries with the tick. No worker waits."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.context.tick import Tick, tick_step
from feed_assets.context.tick_failures import TickStep
from feed_assets.instances.gates.decide_retries import LONGEST_OUTAGE, RetryDecision, decide_retry
from feed_assets.instances.gates.end_messages import tell_exhausted
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.overdue_notices import first_notice_at
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.log.run_names import is_command
from feed_assets.plan.rendering import render_length
from feed_assets.releases.timeline import note_changed
from feed_assets.sql.locks import lock_log
from feed_assets.timing.dates import NEVER
from feed_assets.triggers.input_windows import runs_incomplete

RETRIES_A_TICK = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryResult:
    """The result of one tick: the instances that are retried, and those without attempts left."""

    again: tuple[ProcessKey, ...] = ()
    exhausted: tuple[ProcessKey, ...] = ()


@tick_step(TickStep.RETRIES, otherwise=RetryResult())
def apply_retries(tick: Tick) -> RetryResult:
    """Decide on the instances that failed since the last tick, and start the due retries.

    The release that governs the instance now gives the policy, so a changed policy applies to running instances too.
    """
    with tick.database.read() as connection:
        instances = ProcessInstances(connection)
        if not instances.undecided(tick.cluster, 1) and not instances.due_retries(tick.cluster, tick.as_of, 1):
            return RetryResult()
    with tick.database.begin() as connection:
        lock_log(connection)  # before any row: whoever ends an instance takes it first, too
        instances = ProcessInstances(connection)
        exhausted: list[ProcessInstance] = []
        for row in instances.undecided(tick.cluster, RETRIES_A_TICK):
            decision = tick.bulkheads.run_unit(TickStep.RETRIES, row.process, None, _decide_for, connection, tick, row)
            if decision is None:
                continue
            changes: ProcessChanges = {"retry_at": decision.retry_at or NEVER, "updated_at": tick.as_of}
            if decision.is_exhausted:
                exhausted.append(row)
                changes["cause"] = Cause.RETRIES_EXHAUSTED
                why = f"all {row.retries} retries have been made"
                if row.cause is Cause.OUTAGE:
                    why = f"it has been away for {render_length(LONGEST_OUTAGE)}"
                changes["cause_detail"] = f"{row.reason or row.status.value}; {why}"
            if decision.retry_at is None or row.run_id is None or is_command(row.run_id):  # no run shows it as failed
                changes["notice_at"] = tick.as_of
            instances.transition(row.key, {row.status}, **changes)
        for name in sorted({row.process for row in exhausted}):
            rows = [row for row in exhausted if row.process == name]
            tell_exhausted(connection, tick.plan.processes.get((name, tick.cluster)), rows, tick.as_of)
        again = []
        for row in instances.due_retries(tick.cluster, tick.as_of, RETRIES_A_TICK):
            if tick.bulkheads.run_unit(TickStep.RETRIES, row.process, False, _restart, connection, tick, row):
                again.append(row.key)
        note_changed(connection, [(key.process, key.cluster) for key in again])
    return RetryResult(again=tuple(again), exhausted=tuple(row.key for row in exhausted))


def _decide_for(connection: Connection, tick: Tick, row: ProcessInstance) -> RetryDecision:
    active = tick.timeline.find(connection, (row.process, row.cluster), row.nominal_time)
    retry = active.record.retry if active else None
    ended_at = min(row.ended_at or tick.as_of, tick.as_of)
    return decide_retry(retry, row.status, row.retries, ended_at, _find_outage(connection, row, ended_at))


def _find_outage(connection: Connection, row: ProcessInstance, ended_at: datetime) -> timedelta | None:
    """Return for how long an instance has failed by an outage: since the end of the attempt that was no repetition."""
    if row.cause is not Cause.OUTAGE:
        return None
    attempts = Attempts(connection).of(row.key)
    first = next((each for each in reversed(attempts) if each.cause is not Cause.OUTAGE), None)
    return ended_at - ((first and first.ended_at) or ended_at)


def _restart(connection: Connection, tick: Tick, row: ProcessInstance) -> bool:
    """Return an instance to WAITING; the next check of its gate makes it READY if its inputs are available.

    One that ran with what is there does not wait again. An instance of a process that is no longer declared is not
    retried.
    """
    instances, is_outage = ProcessInstances(connection), row.cause is Cause.OUTAGE
    active = tick.timeline.find(connection, (row.process, row.cluster), row.nominal_time)
    if active is None:
        instances.transition(row.key, {row.status}, retry_at=NEVER, updated_at=tick.as_of)
        return False
    return instances.transition(
        row.key,
        {row.status},
        status=ProcessInstanceStatus.WAITING,
        retries=row.retries + (not is_outage),
        retry_at=None,
        request_key=None,
        requested_at=None,
        deadline_at=row.deadline_at
        if runs_incomplete(active.record, row, tick.as_of)
        else tick.as_of + active.record.timeout.as_duration(),
        notice_at=first_notice_at(active.record, row.nominal_time, tick.as_of),
        ended_at=None,
        cause=Cause.OUTAGE if is_outage else Cause.RETRY,
        cause_detail=f"{'again' if is_outage else f'retry {row.retries + 1}'} after: {row.reason or row.status.value}",
        updated_at=tick.as_of,
    )
