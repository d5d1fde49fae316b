"""What people do to process instances: kill, suspend, resume, run again. The table of what acts on what is Falcon's.

A worker that is busy with an instance is fenced out in the transaction that changes the instance, so nothing it does
from then on becomes visible; its run is cancelled afterwards.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from sqlalchemy import Connection

from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.redefinition import note_changed
from feed_assets.lifecycle.tellings import tell_after
from feed_assets.state.attempts import Attempts
from feed_assets.state.database import Database
from feed_assets.state.leases import Leases
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessChanges, ProcessInstance, ProcessInstanceStatus

WAITING, READY, RUNNING = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.RUNNING,
)
SUSPENDED, SUCCEEDED, FAILED = (
    ProcessInstanceStatus.SUSPENDED,
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.FAILED,
)
KILLED, TIMEDOUT, SKIPPED = (
    ProcessInstanceStatus.KILLED,
    ProcessInstanceStatus.TIMEDOUT,
    ProcessInstanceStatus.SKIPPED,
)


class InstanceAction(StrEnum):
    """What can be done to an instance."""

    KILL = "kill"
    SUSPEND = "suspend"
    RESUME = "resume"
    RERUN = "rerun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """What an action did to one instance; `before` and `after` are the same where it did nothing."""

    instance: ProcessInstance
    after: ProcessInstanceStatus

    @property
    def before(self) -> ProcessInstanceStatus:
        return self.instance.status

    @property
    def is_changed(self) -> bool:
        """Whether the action did something; a re-run leads to WAITING from everywhere."""
        return self.after is not self.instance.status


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEffects:
    """What an action did; `stopped` are instances whose run is to be ended now: by its id, or by the key of a request
    of which no instance is left.
    """

    acted: tuple[Acted, ...]
    stopped: tuple[ProcessInstance, ...]


def decide_action(action: InstanceAction, status: ProcessInstanceStatus) -> ProcessInstanceStatus:
    """The status that an action leads to; the same where it does nothing.

    Differs from Falcon: an instance that SUCCEEDED stays so when it is killed; what waits can be suspended too.

    >>> decide_action(InstanceAction.KILL, SUCCEEDED).value, decide_action(InstanceAction.RERUN, FAILED).value
    ('SUCCEEDED', 'WAITING')
    """
    match action:
        case InstanceAction.KILL:
            return KILLED if status in (WAITING, READY, RUNNING, SUSPENDED, FAILED) else status
        case InstanceAction.SUSPEND:
            return SUSPENDED if status in (WAITING, READY, RUNNING) else status
        case InstanceAction.RESUME:
            return WAITING if status is SUSPENDED else status
        case InstanceAction.RERUN:
            return WAITING if status in (TIMEDOUT, FAILED, KILLED, SUCCEEDED, SKIPPED) else status
        case _:
            assert_never(action)


def apply_action(
    database: Database,
    governance: Governance,
    action: InstanceAction,
    keys: Collection[tuple[str, str, datetime]],
    *,
    author: str,
    as_of: datetime,
    overrides: Mapping[str, str] | None = None,
) -> ActionEffects:
    """Do something to instances, in one transaction; those without a row are left out.

    Instances that were asked for together with one that is killed or suspended are asked for anew. `overrides` are
    properties for the runs to come; None leaves those that were given before.
    """
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        rows = [row for _, row in sorted(instances.get_many(keys).items())]
        acted = [Acted(instance=row, after=decide_action(action, row.status)) for row in rows]
        changed = [each for each in acted if each.is_changed]
        for each in changed:
            changes = _changes(connection, governance, action, each, author, as_of)
            if overrides is not None:
                changes["overrides"] = overrides
            instances.transition(each.instance.key, {each.before}, **changes)
            if each.before is RUNNING:
                Attempts(connection).end(each.instance.key, KILLED, as_of, changes["reason"])
        stopped = _let_go(database, connection, changed, as_of)
        note_changed(
            connection, {(each.instance.process, each.instance.cluster) for each in changed if each.after is WAITING}
        )
    return ActionEffects(acted=tuple(acted), stopped=stopped)


def _changes(
    connection: Connection,
    governance: Governance,
    action: InstanceAction,
    each: Acted,
    author: str,
    as_of: datetime,
) -> ProcessChanges:
    changes: ProcessChanges = {
        "status": each.after,
        "request_key": None,
        "requested_at": None,
        "retry_at": None,
        "updated_at": as_of,
        "reason": f"{_DONE[action]} by {author}",
    }
    match each.after:
        case ProcessInstanceStatus.KILLED:
            changes["ended_at"] = as_of
        case ProcessInstanceStatus.WAITING:
            row = each.instance
            governed = governance.find(connection, (row.process, row.cluster), row.nominal_time)
            changes["deadline_at"] = as_of + governed.record.timeout.as_duration() if governed else None
            changes["tell_at"] = tell_after(governed.record, as_of) if governed else None
            changes["ended_at"] = None
    if action is InstanceAction.RERUN:
        changes["retries"] = 0
    return changes


_DONE = {
    InstanceAction.KILL: "killed",
    InstanceAction.SUSPEND: "suspended",
    InstanceAction.RESUME: "resumed",
    InstanceAction.RERUN: "run again",
}


def _let_go(
    database: Database, connection: Connection, changed: Sequence[Acted], as_of: datetime
) -> tuple[ProcessInstance, ...]:
    """Fence out the workers of what was running, and free what was asked for in the same runs."""
    left = [each.instance for each in changed if each.after in (KILLED, SUSPENDED)]
    running = [replace(row, request_key=None) for row in left if row.status is RUNNING and row.run_id]
    for run_id in sorted({row.run_id or "" for row in running}):
        Leases(database).release_all(connection, run_id)
    instances = ProcessInstances(connection)
    broken_off = {row.request_key for row in left if row.status is RUNNING}
    idle: dict[str, ProcessInstance] = {}
    for row in left:
        if row.request_key is None or row.request_key in idle:
            continue
        siblings = instances.of_request(row.cluster, row.request_key)
        if row.request_key in broken_off:
            keys = [sibling.key for sibling in siblings if sibling.status is READY]
            instances.transition_many(keys, {READY}, request_key=None, requested_at=None, updated_at=as_of)
        elif not siblings:
            idle[row.request_key] = replace(row, run_id=None)
    return (*running, *idle.values())
