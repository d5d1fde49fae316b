"""Record when failed instances are retried, and start due retries with the tick. No worker waits."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.instances.gates.decide_retries import LONGEST_OUTAGE, RetryDecision, decide_retry
from feed_assets.instances.gates.end_messages import tell_exhausted
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.overdue_notices import first_notice_at
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.log.run_names import is_command
from feed_assets.plan.rendering import render_length
from feed_assets.releases.timeline import note_changed
from feed_assets.sql.database import lock_log
from feed_assets.timing.dates import NEVER
from feed_assets.triggers.input_windows import runs_incomplete

RETRIES_A_STEP = 1_000


@tick_step(TickStep.RETRIES, otherwise=())
def apply_retries(tick: Tick) -> Sequence[ProcessKey]:
    """Decide on the instances that failed since the last tick, and start the due retries. Return the instances without
    attempts left.

    The release that governs the instance now gives the policy, so a changed policy applies to running instances too.
    """
    exhausted, _ = work_off(tick, _Undecided())
    work_off(tick, _Retries())
    return exhausted


class _Ended(Handler[ProcessInstance, ProcessKey]):
    """Instances that failed; a unit is a process."""

    step = TickStep.RETRIES
    at_once = RETRIES_A_STEP

    def unit_of(self, entry: ProcessInstance) -> str:
        return entry.process


class _Undecided(_Ended):
    """Decides whether instances that failed are retried; the results are those without attempts left."""

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[ProcessInstance]:
        return ProcessInstances(connection).undecided(tick.cluster, limit)

    def handle(self, tick: Tick, entries: Sequence[ProcessInstance]) -> list[ProcessKey]:
        exhausted: dict[str, list[ProcessInstance]] = defaultdict(list)
        with tick.database.begin() as connection:
            lock_log(connection)  # before any row: whoever ends an instance takes it first, too
            for row in entries:
                decision = _decide_for(connection, tick, row)
                changes: ProcessChanges = {"retry_at": decision.retry_at or NEVER, "updated_at": tick.as_of}
                if decision.is_exhausted:
                    why = f"all {row.retries} retries have been made"
                    if row.cause is Cause.OUTAGE:
                        why = f"it has been away for {render_length(LONGEST_OUTAGE)}"
                    changes["cause"] = Cause.RETRIES_EXHAUSTED
                    changes["cause_detail"] = f"{row.reason or row.status.value}; {why}"
                if decision.retry_at is None or row.run_id is None or is_command(row.run_id):  # no run shows it failed
                    changes["notice_at"] = tick.as_of
                if ProcessInstances(connection).transition(row.key, {row.status}, **changes) and decision.is_exhausted:
                    exhausted[row.process].append(row)
            for name, rows in sorted(exhausted.items()):
                tell_exhausted(connection, tick.plan.processes.get((name, tick.cluster)), rows, tick.as_of)
        return [row.key for rows in exhausted.values() for row in rows]


class _Retries(_Ended):
    """Starts the due retries; without results."""

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[ProcessInstance]:
        return ProcessInstances(connection).due_retries(tick.cluster, tick.as_of, limit)

    def handle(self, tick: Tick, entries: Sequence[ProcessInstance]) -> list[ProcessKey]:
        with tick.database.begin() as connection:
            lock_log(connection)
            again = [row.key for row in entries if _restart(connection, tick, row)]
            note_changed(connection, [(key.process, key.cluster) for key in again])
        return []


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
        else active.record.deadline_after(tick.as_of),
        notice_at=first_notice_at(active.record, row.nominal_time, tick.as_of),
        ended_at=None,
        cause=Cause.OUTAGE if is_outage else Cause.RETRY,
        cause_detail=f"{'again' if is_outage else f'retry {row.retries + 1}'} after: {row.reason or row.status.value}",
        updated_at=tick.as_of,
    )
