"""Apply the actions of people to process instances: kill, suspend, resume, rerun. The transition table is Falcon's.

The transaction that changes an instance also fences out its worker, so nothing that the worker does afterwards becomes
visible. The run is cancelled after the transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.context.operation import ChangeContext
from feed_assets.entities.flow_names import source_of
from feed_assets.instances.gates.end_messages import Ended, tell_all_ends
from feed_assets.instances.late.hanging import find_outputs, wake_hanging
from feed_assets.instances.late.store import LateChecks
from feed_assets.instances.steps.records import StepRun
from feed_assets.instances.steps.store import Steps
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.overdue_notices import first_notice_at
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import Cause, ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.releases.timeline import note_changed
from feed_assets.sql.database import lock_log

WAITING, READY, RUNNING = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING
SUSPENDED, SUCCEEDED, FAILED = (
    ProcessInstanceStatus.SUSPENDED,
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.FAILED,
)
KILLED, TIMEDOUT, SKIPPED = ProcessInstanceStatus.KILLED, ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.SKIPPED


class InstanceAction(StrEnum):
    """An action that a person can take on an instance."""

    KILL = "kill"
    SUSPEND = "suspend"
    RESUME = "resume"
    RERUN = "rerun"


@shows("instance", "nominal_time, cluster, before=status, run_id")
@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The effect of an action on one instance; `before` and `after` are equal if it had no effect."""

    instance: Hidden[ProcessInstance]
    after: ProcessInstanceStatus

    @shown
    def source_cluster(self) -> str | None:
        """The source of a copy."""
        return source_of(self.instance.process)

    @property
    def is_changed(self) -> bool:
        """Whether the action had an effect; a rerun leads to WAITING from every status."""
        return self.after is not self.instance.status


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEffects:
    """The effects of an action.

    `stopped` has instances whose runs must be ended now: by the run id, or by the key of a request that has no instance
    left. `abandoned` are steps whose frames nothing can use any more. `called_off` counts instances of which a rerun
    was asked for, and is so no more.
    """

    results: tuple[ActionResult, ...]
    stopped: tuple[ProcessInstance, ...]
    abandoned: tuple[StepRun, ...] = ()
    called_off: int = 0


def decide_action(action: InstanceAction, status: ProcessInstanceStatus) -> ProcessInstanceStatus:
    """Return the status that an action leads to; the same status if it has no effect.

    Differs from Falcon: killing a SUCCEEDED instance has no effect, and a waiting instance can be suspended.

    >>> decide_action(InstanceAction.KILL, SUCCEEDED).value, decide_action(InstanceAction.RERUN, FAILED).value
    ('SUCCEEDED', 'WAITING')
    """
    effect = _EFFECTS[action]
    return effect.after if status in effect.of else status


class _Effect(NamedTuple):
    """The status that an action leads to, from which ones, and what it has done, in a word."""

    after: ProcessInstanceStatus
    of: Collection[ProcessInstanceStatus]
    done: str


_EFFECTS = {
    InstanceAction.KILL: _Effect(KILLED, {WAITING, READY, RUNNING, SUSPENDED, FAILED}, "killed"),
    InstanceAction.SUSPEND: _Effect(SUSPENDED, {WAITING, READY, RUNNING}, "suspended"),
    InstanceAction.RESUME: _Effect(WAITING, {SUSPENDED}, "resumed"),
    InstanceAction.RERUN: _Effect(WAITING, {TIMEDOUT, FAILED, KILLED, SUCCEEDED, SKIPPED}, "run again"),
}


def apply_action(
    context: ChangeContext,
    action: InstanceAction,
    keys: Collection[tuple[str, str, datetime]],
    *,
    overrides: Mapping[str, str] | None = None,
    from_start: bool = False,
) -> ActionEffects:
    """Apply an action to instances in one transaction; instances without a row are left out.

    If a killed or suspended instance shares a request with others, the others are requested again. `overrides` are
    properties for the following runs; None keeps earlier overrides. `from_start` lets the next attempts repeat finished
    steps, which killing does as well.
    """
    with context.database.begin() as connection:
        lock_log(connection)
        context.timeline.refresh(connection, context.as_of)
        rows = [row for _, row in sorted(ProcessInstances(connection).get_many(keys).items())]
        return apply_to_rows(context, connection, action, rows, overrides=overrides, from_start=from_start)


def apply_to_rows(
    context: ChangeContext,
    connection: Connection,
    action: InstanceAction,
    rows: Sequence[ProcessInstance],
    *,
    overrides: Mapping[str, str] | None = None,
    from_start: bool = False,
) -> ActionEffects:
    """Apply an action as `apply_action`, in a transaction that has locked the log and read the rows."""
    instances, as_of = ProcessInstances(connection), context.as_of
    results = [ActionResult(instance=row, after=decide_action(action, row.status)) for row in rows]
    changed = [each for each in results if each.is_changed]
    ended: list[Ended] = []
    alike: dict[tuple[object, ...], tuple[ProcessChanges, list[ProcessKey]]] = {}
    for each in changed:
        changes = _changes(context, connection, action, each)
        if overrides is not None:
            changes["overrides"] = overrides
        differing = (each.instance.status, each.after, changes.get("deadline_at"), changes.get("notice_at"))
        alike.setdefault(differing, (changes, []))[1].append(each.instance.key)
        if each.instance.status is RUNNING:
            Attempts(connection).end(each.instance.key, KILLED, as_of, changes["cause_detail"])
            is_final = each.after is KILLED  # one that is suspended goes on some time
            ended.append(Ended(row=each.instance, status=KILLED, error=changes["cause_detail"], is_final=is_final))
    for (status, *_), (changes, keys) in alike.items():
        instances.transition_many(keys, {ProcessInstanceStatus(str(status))}, **changes)
    tell_all_ends(connection, context.timeline, ended, as_of)
    called_off = _call_off(context, connection, rows) if action is InstanceAction.KILL else 0
    anew = [each.instance.key for each in changed if from_start or each.after is KILLED]
    abandoned = Steps(connection).begin_anew(anew)
    stopped = _release_work(context, connection, changed)
    note_changed(
        connection, {(each.instance.process, each.instance.cluster) for each in changed if each.after is WAITING}
    )
    return ActionEffects(results=tuple(results), stopped=stopped, abandoned=tuple(abandoned), called_off=called_off)


def _call_off(context: ChangeContext, connection: Connection, rows: Sequence[ProcessInstance]) -> int:
    """End the reruns of instances that are asked for, let those be decided that wait for them, and count them."""
    checks = LateChecks(connection)
    asked = checks.reruns_of(row.key for row in rows)
    checks.remove(check.key for check, _ in asked.values())
    wake_hanging(connection, context.timeline, find_outputs(connection, context.timeline, asked), context.as_of)
    return len(asked)


def _changes(
    context: ChangeContext, connection: Connection, action: InstanceAction, each: ActionResult
) -> ProcessChanges:
    as_of = context.as_of
    changes: ProcessChanges = {
        "status": each.after,
        "request_key": None,
        "requested_at": None,
        "retry_at": None,
        "updated_at": as_of,
        "cause": Cause.COMMAND,
        "cause_detail": f"{_EFFECTS[action].done} by {context.author}",
    }
    match each.after:
        case ProcessInstanceStatus.KILLED:
            changes["ended_at"] = as_of
        case ProcessInstanceStatus.WAITING:
            row = each.instance
            active = context.timeline.find(connection, (row.process, row.cluster), row.nominal_time)
            changes["deadline_at"] = active.record.deadline_after(as_of) if active else None
            changes["notice_at"] = first_notice_at(active.record, row.nominal_time, as_of) if active else None
            changes["ended_at"] = None
    if action is InstanceAction.RERUN:
        changes["retries"] = changes["deaths"] = 0
    return changes


def _release_work(
    context: ChangeContext, connection: Connection, changed: Sequence[ActionResult]
) -> tuple[ProcessInstance, ...]:
    """Fence out the workers of running instances, and free the other instances of their requests."""
    left = [each.instance for each in changed if each.after in (KILLED, SUSPENDED)]
    running = [replace(row, request_key=None) for row in left if row.status is RUNNING and row.run_id]
    for run_id in sorted({row.run_id or "" for row in running}):
        Leases(context.database).release_all(connection, run_id)
    instances = ProcessInstances(connection)
    broken_off = {row.request_key for row in left if row.status is RUNNING}
    idle: dict[str, ProcessInstance] = {}
    for row in left:
        if row.request_key is None or row.request_key in idle:
            continue
        siblings = instances.of_request(row.cluster, row.request_key)
        if row.request_key in broken_off:
            instances.free(row.cluster, row.request_key, context.as_of)
        elif not siblings:
            idle[row.request_key] = replace(row, run_id=None)
    return (*running, *idle.values())
