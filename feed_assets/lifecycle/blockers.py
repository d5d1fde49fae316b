"""What stands between a process instance and its run, told by the very decisions that a tick takes.

An instance runs when it has come into being, its gate is open, and it is among those that a launch decision picks. Each
blocker is one thing that keeps one of these from being so; an instance without blockers is launched by the next tick.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from feed_assets.entities.process import Order
from feed_assets.lifecycle.input_states import InputState, closed_gates
from feed_assets.lifecycle.requests import Group, decide_requests
from feed_assets.plan.records import InputEdge, ProcessRecord
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.records import Lease, ProcessInstance, ProcessInstanceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDue:
    """Its nominal time has not come."""

    nominal_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScheduled:
    """Its process is not scheduled there, or suspended: nothing comes into being, and nothing is launched."""

    state: ScheduleState


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReached:
    """It has no row yet: ticks have come as far as the instance at `next_time`; None if they will not come further."""

    next_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMissing:
    """Mandatory instances of an input are not available; `expected` is how many the window has."""

    edge: InputEdge
    missing: tuple[datetime, ...]
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUnresolved:
    """A window of `latest` or `future` finds too few available instances."""

    edge: InputEdge


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """Somebody has suspended the instance itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSlot:
    """As many runs of the process are in flight as it may have."""

    parallel: int
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotItsTurn:
    """Other ready instances go first; `ahead` of them do by the order of the process."""

    order: Order
    ahead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHeld:
    """Somebody works on the instance, or on one that it writes: a run would be refused until that has ended."""

    lease: Lease


Blocker: TypeAlias = (
    NotDue | NotScheduled | NotReached | InputMissing | InputUnresolved | Suspended | NoSlot | NotItsTurn | LeaseHeld
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """What a launch decision is taken from: the instances of the process that are READY and not asked for, by the
    definition that governs them, oldest first, and how many of its runs are in flight.
    """

    ready: tuple[Group, ...]
    in_flight: int


def existence_blockers(
    row: ProcessInstance | None, due_at: datetime, next_time: datetime | None, as_of: datetime
) -> tuple[Blocker, ...]:
    """Why an instance has not come into being; nothing if it has.

    Args:
        row: the instance, None if it has no row.
        due_at: when it comes into being: its nominal time, or later by the delay of a flow.
        next_time: where the walk of the process stands.
        as_of: the present.
    """
    if row is not None:
        return ()
    if due_at > as_of:
        return (NotDue(nominal_time=due_at),)
    return (NotReached(next_time=next_time),)


def gate_blockers(states: Sequence[InputState]) -> tuple[Blocker, ...]:
    """Which inputs keep the gate closed."""
    return tuple(
        InputUnresolved(edge=state.edge)
        if state.expected is None
        else InputMissing(edge=state.edge, missing=state.missing, expected=len(state.expected))
        for state in closed_gates(states)
    )


def launch_blockers(
    process: ProcessRecord, record: ProcessRecord, nominal_time: datetime, launches: Launches, wall: datetime
) -> tuple[Blocker, ...]:
    """Why an instance is not launched, or would not be if its gate opened now.

    Args:
        process: as it is declared now.
        record: as it governs the instance.
        nominal_time: of the instance.
        launches: the other instances; it may be among them.
        wall: the time of day.
    """
    groups = with_instance(launches.ready, record, nominal_time)
    if _is_launched(process, groups, launches.in_flight, nominal_time, wall):
        return ()
    blockers: list[Blocker] = []
    if launches.in_flight >= process.parallel or _is_launched(process, groups, 0, nominal_time, wall):
        blockers.append(NoSlot(parallel=process.parallel, in_flight=launches.in_flight))
    if not _is_launched(process, groups, 0, nominal_time, wall):
        blockers.append(NotItsTurn(order=process.order, ahead=_ahead(process, groups, nominal_time)))
    return tuple(blockers)


def with_instance(groups: Sequence[Group], record: ProcessRecord, nominal_time: datetime) -> tuple[Group, ...]:
    """Ready instances and one more, oldest first."""
    times = [(governed, governed.sequence.at(index)) for governed, indices in groups for index in indices]
    if nominal_time not in {time for _, time in times}:
        times.append((record, nominal_time))
    joined: list[tuple[ProcessRecord, list[int]]] = []
    for governed, time in sorted(times, key=lambda pair: pair[1]):
        if not joined or joined[-1][0] is not governed:
            joined.append((governed, []))
        joined[-1][1].append(governed.sequence.index(time))
    return tuple((governed, tuple(indices)) for governed, indices in joined)


def _is_launched(
    process: ProcessRecord, groups: Sequence[Group], busy: int, nominal_time: datetime, wall: datetime
) -> bool:
    requests = decide_requests(process, groups, busy, None, wall).requests
    return any(nominal_time in request.nominal_times for request in requests)


def _ahead(process: ProcessRecord, groups: Sequence[Group], nominal_time: datetime) -> int:
    times = [governed.sequence.at(index) for governed, indices in groups for index in indices]
    if process.order is Order.FIFO:
        return sum(time < nominal_time for time in times)
    return sum(time > nominal_time for time in times)


def decide_blockers(
    row: ProcessInstance | None,
    existence: Sequence[Blocker],
    states: Sequence[InputState],
    schedule: ScheduleState,
    launch: Sequence[Blocker],
    leases: Collection[Lease],
) -> tuple[Blocker, ...]:
    """All that keeps an instance from running, in the order in which it comes; nothing for one that runs or has ended,
    or that a run has been asked for and nobody else works on.
    """
    held = tuple(LeaseHeld(lease=lease) for lease in leases)
    status = None if row is None else row.status
    if status not in (None, *_TO_RUN):
        return ()
    if row is not None and row.status is ProcessInstanceStatus.READY and row.request_key is not None:
        return held
    suspended = (Suspended(),) if status is ProcessInstanceStatus.SUSPENDED else ()
    unscheduled = () if schedule is ScheduleState.SCHEDULED else (NotScheduled(state=schedule),)
    gate = () if status is ProcessInstanceStatus.READY else gate_blockers(states)
    return (*existence, *unscheduled, *suspended, *gate, *launch, *held)


_TO_RUN = (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY, ProcessInstanceStatus.SUSPENDED)
