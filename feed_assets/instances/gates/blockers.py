"""Find what keeps a process instance from running, with the same decisions that a tick takes.

An instance runs when it has been created, its gate is open, and a launch decision picks it. A blocker is one reason why
one of these steps has not happened. The next tick launches an instance without blockers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from feed_assets.entities.maps import EMPTY
from feed_assets.entities.process import Order
from feed_assets.instances.gates.requests import INSTANCES_A_RUN, Group, decide_requests
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.records import Lease, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import InputEdge, Key
from feed_assets.plan.records import ProcessRecord
from feed_assets.triggers.input_windows import InputState, closed_gates


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDue:
    """The nominal time of the instance lies in the future."""

    nominal_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScheduled:
    """The process is not scheduled on the cluster, or is suspended: no instances are created or launched."""

    state: ScheduleState


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReached:
    """The instance has no row yet.

    `next_time` is the nominal time of the next instance that ticks create on the way to it; None if they create no
    more. It may be of a long past (`is_past`), which waits until the pasts of `awaited` feeds were looked for.
    """

    next_time: datetime | None
    is_past: bool = False
    awaited: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMissing:
    """Mandatory instances of an input are missing; `expected` is how many instances the window has."""

    edge: InputEdge
    missing: tuple[datetime, ...]
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUnresolved:
    """A `latest` or `future` window finds too few available instances."""

    edge: InputEdge


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The instance itself is suspended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSlot:
    """The process has as many runs in flight as `parallel` allows."""

    parallel: int
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotItsTurn:
    """Other ready instances go first; `ahead` counts those that precede it in the order of the process."""

    order: Order
    ahead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHeld:
    """Another worker holds the lease of the instance, or of one of its outputs: a run would be refused until then."""

    lease: Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunAwaited:
    """Instances that write what it would read have yet to run again, as somebody has asked for; with their states."""

    writers: Mapping[ProcessKey, ProcessInstanceStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierUnread:
    """It reads what is new since an instance before it that has not succeeded."""

    nominal_time: datetime


Blocker: TypeAlias = (
    NotDue
    | NotScheduled
    | NotReached
    | InputMissing
    | InputUnresolved
    | Suspended
    | RerunAwaited
    | NoSlot
    | NotItsTurn
    | EarlierUnread
    | LeaseHeld
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """The input of a launch decision.

    `ready` has the instances of the process that are READY and not requested, grouped by the definition that governs
    them, oldest first; those of them that ran before are in `again`. `in_flight` counts the runs of the process, and
    `most` says how many instances a run has. Where each reads after the one before, `unread` is the first that has not
    succeeded.
    """

    ready: tuple[Group, ...]
    in_flight: int
    again: frozenset[datetime] = frozenset()
    most: int = INSTANCES_A_RUN
    unread: datetime | None = None


def existence_blockers(
    row: ProcessInstance | None, due_at: datetime, reached: NotReached, as_of: datetime
) -> tuple[Blocker, ...]:
    """Return why an instance has not been created; empty if it has a row.

    Args:
        row: the instance, None if it has no row.
        due_at: when it is created: at its nominal time, or later by the delay of a flow.
        reached: how far ticks are on the way to it.
        as_of: the present.
    """
    if row is not None:
        return ()
    if due_at > as_of:
        return (NotDue(nominal_time=due_at),)
    return (reached,)


def gate_blockers(states: Sequence[InputState]) -> tuple[Blocker, ...]:
    """Return the inputs that keep the gate closed."""
    return tuple(
        InputUnresolved(edge=state.edge)
        if state.expected is None
        else InputMissing(edge=state.edge, missing=state.missing, expected=len(state.expected))
        for state in closed_gates(states)
    )


def launch_blockers(
    process: ProcessRecord, record: ProcessRecord, nominal_time: datetime, launches: Launches, real_now: datetime
) -> tuple[Blocker, ...]:
    """Return why an instance is not launched, or would not be if its gate opened now.

    Args:
        process: its current declaration.
        record: the definition that governs the instance.
        nominal_time: of the instance.
        launches: the other instances; this one may be among them.
        real_now: the real time.
    """
    if launches.unread is not None and launches.unread < nominal_time:
        return (EarlierUnread(nominal_time=launches.unread),)
    groups = with_instance(launches.ready, record, nominal_time)

    def is_launched(busy: int) -> bool:
        decided = decide_requests(process, groups, busy, None, real_now, launches.again, launches.most)
        return any(nominal_time in request.nominal_times for request in decided.requests)

    if is_launched(launches.in_flight):
        return ()
    blockers: list[Blocker] = []
    if launches.in_flight >= process.parallel or is_launched(0):
        blockers.append(NoSlot(parallel=process.parallel, in_flight=launches.in_flight))
    if not is_launched(0):
        ahead = _count_ahead(process, groups, nominal_time, launches.again)
        blockers.append(NotItsTurn(order=process.order, ahead=ahead))
    return tuple(blockers)


def with_instance(groups: Sequence[Group], record: ProcessRecord, nominal_time: datetime) -> tuple[Group, ...]:
    """Return ready instances with one more added, oldest first."""
    times = [(active, active.sequence.at(index)) for active, indices in groups for index in indices]
    if nominal_time not in {time for _, time in times}:
        times.append((record, nominal_time))
    joined: list[tuple[ProcessRecord, list[int]]] = []
    for active, time in sorted(times, key=lambda pair: pair[1]):
        if not joined or joined[-1][0] is not active:
            joined.append((active, []))
        joined[-1][1].append(active.sequence.index(time))
    return tuple((active, tuple(indices)) for active, indices in joined)


def _count_ahead(
    process: ProcessRecord, groups: Sequence[Group], nominal_time: datetime, again: frozenset[datetime]
) -> int:
    times = [active.sequence.at(index) for active, indices in groups for index in indices]
    if process.order is Order.FIFO:
        turn = (nominal_time not in again, nominal_time)
        return sum((time not in again, time) < turn for time in times)
    return sum(time > nominal_time for time in times)


def decide_blockers(
    row: ProcessInstance | None,
    existence: Sequence[Blocker],
    states: Sequence[InputState],
    schedule: ScheduleState,
    launch: Sequence[Blocker],
    leases: Collection[Lease],
    awaited: Mapping[ProcessKey, ProcessInstanceStatus] = EMPTY,
) -> tuple[Blocker, ...]:
    """Return everything that keeps an instance from running, in the order of the steps.

    Empty for an instance that is running or has ended. An instance that was requested already can only be blocked by
    leases.
    """
    held = tuple(LeaseHeld(lease=lease) for lease in leases)
    status = None if row is None else row.status
    if status not in (None, *_UNSTARTED):
        return ()
    if row is not None and row.status is ProcessInstanceStatus.READY and row.request_key is not None:
        return held
    suspended = (Suspended(),) if status is ProcessInstanceStatus.SUSPENDED else ()
    unscheduled = () if schedule is ScheduleState.SCHEDULED else (NotScheduled(state=schedule),)
    gate = () if status is ProcessInstanceStatus.READY else gate_blockers(states)
    reruns = (RerunAwaited(writers=awaited),) if awaited else ()
    return (*existence, *unscheduled, *suspended, *gate, *reruns, *launch, *held)


_UNSTARTED = (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY, ProcessInstanceStatus.SUSPENDED)
