"""Making the record agree with the runs again: workers that died, requests that were lost, runs that were cancelled.

For a launched instance Dagster's run is the truth; what it says is handed in as plain values.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from feed_assets.lifecycle.run_names import is_command, is_dead_command
from feed_assets.state.attempts import Attempts
from feed_assets.state.database import Database
from feed_assets.state.leases import Leases, find_held
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey

REQUEST_PATIENCE = timedelta(seconds=60)
MOST_ATTEMPTS = 10

_DIED = ProcessInstanceStatus.FAILED


class RunState(StrEnum):
    """What has become of a run, as far as it matters here."""

    ALIVE = "alive"
    ENDED = "ended"
    CANCELED = "canceled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The instances whose truth is in a run: those that run, and those asked for long enough ago to be checked."""

    running: tuple[ProcessInstance, ...]
    requested: tuple[ProcessInstance, ...]


def find_launched(database: Database, cluster: str, wall: datetime) -> Launched:
    """What there is to reconcile on a cluster; `wall` is the wall clock."""
    with database.read() as connection:
        instances = ProcessInstances(connection)
        return Launched(
            running=tuple(instances.active_with_run(cluster)),
            requested=tuple(instances.requested_before(cluster, wall - REQUEST_PATIENCE)),
        )


def find_commands(database: Database, launched: Launched, wall: datetime) -> dict[str, RunState]:
    """What has become of the commands that work on instances: one that still holds a lease on any of them is alive, but
    for a process of this machine that has ended.
    """
    names = {(row.process, row.cluster, row.nominal_time): row.run_id or "" for row in launched.running}
    commands = {key: name for key, name in names.items() if is_command(name)}
    if not commands:
        return {}
    with database.read() as connection:
        keys = [(f"process/{process}", cluster, time) for process, cluster, time in commands]
        alive = {lease.holder for lease in find_held(connection, keys, wall) if not is_dead_command(lease.holder)}
    return {name: RunState.ALIVE if name in alive else RunState.ENDED for name in commands.values()}


def release_dead(database: Database, keys: Collection[tuple[str, str, datetime]], wall: datetime) -> None:
    """Take back what commands of this machine held on some (entity, cluster, nominal time) and died with."""
    with database.begin() as connection:
        held = find_held(connection, keys, wall)
        for holder in sorted({lease.holder for lease in held if is_dead_command(lease.holder)}):
            Leases(database).release_all(connection, holder)


def decide_reconciled(
    instance: ProcessInstance, run: RunState, as_of: datetime
) -> tuple[ProcessInstanceStatus, ProcessChanges] | None:
    """What to make of an instance whose run is in a state; None while the run may still tell.

    A worker that died is replaced, ten times at most; a run that was cancelled has been killed by somebody.
    """
    match run:
        case RunState.ALIVE:
            return None
        case RunState.CANCELED:
            return instance.status, {
                "status": ProcessInstanceStatus.KILLED,
                "ended_at": as_of,
                "reason": "its run was cancelled",
                "updated_at": as_of,
            }
        case RunState.ENDED | RunState.UNKNOWN if instance.attempt >= MOST_ATTEMPTS:
            return instance.status, {
                "status": ProcessInstanceStatus.FAILED,
                "ended_at": as_of,
                "reason": f"its worker died at attempt {instance.attempt}, and there are at most {MOST_ATTEMPTS}",
                "updated_at": as_of,
            }
        case RunState.ENDED | RunState.UNKNOWN:
            return instance.status, {
                "status": ProcessInstanceStatus.READY,
                "request_key": None,
                "requested_at": None,
                "reason": "its run ended without recording a result",
                "updated_at": as_of,
            }
        case _:
            assert_never(run)


def apply_reconciliation(
    database: Database,
    launched: Launched,
    by_run: Mapping[str, RunState],
    by_request: Mapping[str, RunState],
    as_of: datetime,
) -> Sequence[ProcessKey]:
    """Correct the record; returns the keys of the instances that were changed. Leases of runs that are over are taken
    back, so that nothing waits for them to expire; a worker that lives on against all appearance is fenced out.

    An instance that another run or request has got since `launched` was read is left alone.
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
        for instance, changes in changed:
            end = ProcessInstanceStatus.KILLED if changes["status"] is ProcessInstanceStatus.KILLED else _DIED
            attempts.end(instance.key, end, as_of, changes["reason"])
        return tuple(instance.key for instance, _ in changed)


def _launch_of(instance: ProcessInstance) -> tuple[int, str | None, str | None]:
    return instance.attempt, instance.run_id, instance.request_key
