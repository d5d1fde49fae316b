"""Reconcile the record with the runs: workers that died, requests that were lost, runs that were cancelled.

For a launched instance Dagster's run is the truth. Callers pass its state as plain values. A run is only a means: what
it had not begun is READY when it ends, however it ends.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from feed_assets.command_lines import command_line
from feed_assets.entities.flow_names import declared_by
from feed_assets.instances.gates.end_messages import Ended, tell_ends
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases, find_held
from feed_assets.log.records import (
    Cause,
    ProcessChanges,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    describe_cause,
)
from feed_assets.log.run_names import is_command, is_dead_command, is_elsewhere
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.sql.database import Database
from feed_assets.sql.locks import lock_log

REQUEST_PATIENCE = timedelta(seconds=60)
MOST_DEATHS = 10
"""So many workers in a row may die with an instance; what else has run it before does not count."""

_DIED = ProcessInstanceStatus.FAILED


class RunState(StrEnum):
    """The state of a run, as far as reconciliation needs it."""

    ALIVE = "alive"
    ENDED = "ended"
    CANCELED = "canceled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The instances to reconcile: those RUNNING, and those requested at least `REQUEST_PATIENCE` ago."""

    running: tuple[ProcessInstance, ...]
    requested: tuple[ProcessInstance, ...]


def find_launched(database: Database, cluster: str, real_now: datetime) -> Launched:
    """Return the instances of a cluster to reconcile; `real_now` is the real time."""
    with database.read() as connection:
        instances = ProcessInstances(connection)
        return Launched(
            running=tuple(instances.active_with_run(cluster)),
            requested=tuple(instances.requested_before(cluster, real_now - REQUEST_PATIENCE)),
        )


def find_commands(database: Database, launched: Launched, real_now: datetime) -> dict[str, RunState]:
    """Return the states of the commands that work on instances.

    A command is alive while it holds a lease on one of them, unless it was a process of this machine that has ended.
    Of a program elsewhere nobody knows it: it counts as alive until it says how it ended, or somebody kills the batch.
    """
    names = {(row.process, row.cluster, row.nominal_time): row.run_id or "" for row in launched.running}
    commands = {key: name for key, name in names.items() if is_command(name)}
    if not commands:
        return {}
    with database.read() as connection:
        keys = [(f"process/{process}", cluster, time) for process, cluster, time in commands]
        alive = {lease.holder for lease in find_held(connection, keys, real_now) if not is_dead_command(lease.holder)}
    return {
        name: RunState.ALIVE if name in alive or is_elsewhere(name) else RunState.ENDED for name in commands.values()
    }


def release_dead(database: Database, keys: Collection[tuple[str, str, datetime]], real_now: datetime) -> None:
    """Release the leases on some (entity, cluster, nominal time) of commands of this machine that have died."""
    with database.begin() as connection:
        held = find_held(connection, keys, real_now)
        for holder in sorted({lease.holder for lease in held if is_dead_command(lease.holder)}):
            Leases(database).release_all(connection, holder)


def decide_reconciled(
    instance: ProcessInstance, run: RunState, as_of: datetime
) -> tuple[ProcessInstanceStatus, ProcessChanges] | None:
    """Return the expected status and the changes of an instance, given the state of its run; None while the run may go
    on.

    A dead worker is replaced, until ten in a row have died. Who cancels a run kills what it works on; for an instance
    that had not begun it is as if the run had never been.
    """
    is_begun = instance.status is ProcessInstanceStatus.RUNNING
    deaths, cause, detail = instance.deaths + is_begun, instance.cause, instance.cause_detail
    match run:
        case RunState.ALIVE:
            return None
        case RunState.CANCELED if not is_begun:
            status = ProcessInstanceStatus.READY
        case RunState.CANCELED:
            status, deaths, cause, detail = ProcessInstanceStatus.KILLED, 0, Cause.RUN_CANCELLED, None
        case RunState.ENDED | RunState.UNKNOWN if deaths >= MOST_DEATHS:
            detail = f"its worker died {deaths} times in a row, and is not replaced any more"
            status, deaths, cause = ProcessInstanceStatus.FAILED, 0, Cause.WORKERS_LOST
        case RunState.ENDED | RunState.UNKNOWN:
            status, cause, detail = ProcessInstanceStatus.READY, Cause.RUN_LOST, None
        case _:
            assert_never(run)
    changes: ProcessChanges = {"status": status, "deaths": deaths, "cause": cause, "updated_at": as_of}
    changes["cause_detail"] = detail
    if status is ProcessInstanceStatus.READY:
        changes["request_key"] = changes["requested_at"] = None
    else:
        changes["ended_at"] = as_of
    return instance.status, changes


def suspend_command(process: str, cluster: str) -> str:
    """Return the command that stops a process or flow: cancelling its runs does not."""
    owner, name = declared_by(process)
    return command_line("entity", "suspend", owner.value, name, clusters=[cluster])


def apply_reconciliation(
    database: Database,
    launched: Launched,
    by_run: Mapping[str, RunState],
    by_request: Mapping[str, RunState],
    as_of: datetime,
    plan: Plan | None = None,
) -> Sequence[ProcessKey]:
    """Correct the record, and tell the ends of attempts by a `plan`; return the keys of the changed instances.

    Releases the leases of ended runs, so that nothing waits for their expiry. If such a worker is alive after all, it
    is fenced out. Leaves an instance alone that got another run or request since `launched` was read.
    """
    states = [(instance, by_run.get(instance.run_id or "", RunState.UNKNOWN)) for instance in launched.running]
    states += [(item, by_request.get(item.request_key or "", RunState.UNKNOWN)) for item in launched.requested]
    decided = [
        (instance, *decision)
        for instance, state in states
        if (decision := decide_reconciled(instance, state, as_of)) is not None
    ]
    if not decided:
        return ()
    with database.begin() as connection:
        lock_log(connection)
        ended = sorted(run_id for run_id, state in by_run.items() if state is not RunState.ALIVE)
        Leases(database).release_all(connection, *ended)
        instances, attempts = ProcessInstances(connection), Attempts(connection)
        current = instances.get_many([instance.key for instance, _, _ in decided])
        changed = [
            (instance, changes)
            for instance, status, changes in decided
            if _launch_of(instance) == _launch_of(current[instance.key])
            and instances.transition(instance.key, {status}, **changes)
        ]
        by_process: dict[Key, list[Ended]] = defaultdict(list)
        for instance, changes in changed:
            end = ProcessInstanceStatus.KILLED if changes["status"] is ProcessInstanceStatus.KILLED else _DIED
            reason = describe_cause(changes["cause"], changes["cause_detail"])
            attempts.end(instance.key, end, as_of, reason)
            if instance.status is ProcessInstanceStatus.RUNNING:
                is_final = False if changes["status"] is ProcessInstanceStatus.READY else None
                told = Ended(row=instance, status=end, error=reason, is_final=is_final)
                by_process[instance.process, instance.cluster].append(told)
        if plan is not None:
            for key, ends in by_process.items():
                tell_ends(connection, plan, plan.processes.get(key), ends, as_of)
        return tuple(instance.key for instance, _ in changed)


def _launch_of(instance: ProcessInstance) -> tuple[int, str | None, str | None]:
    return instance.attempt, instance.run_id, instance.request_key
