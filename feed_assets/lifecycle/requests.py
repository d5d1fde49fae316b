"""Which ready process instances to launch next, and together: neighbours in at most `parallel` runs at once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, assert_never

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.process import Order
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.readiness import SUPERSEDED, contiguous
from feed_assets.lifecycle.schedules import load_schedules
from feed_assets.plan.records import Key, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.late_checks import LateChecks, LateKey
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import EntityKey, ProcessInstanceStatus, ProcessKey

INSTANCES_A_RUN = 100
READY_A_TICK = 5_000
PRIORITY_STEP = 100_000_000
"""Between two priorities; more than the minutes that LIFO counts, and five of them fit a 32-bit number."""

_MINUTE = 60

Group: TypeAlias = tuple[ProcessRecord, Sequence[int]]
"""Instances that one definition governs, as numbers in its sequence, ascending."""


class Way(StrEnum):
    """How instances are run: as partitions of what is declared now, one by one where they are none, or as copies."""

    PARTITIONS = "partitions"
    INSTANCES = "instances"
    COPIES = "copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One run to ask for: neighbouring instances of one process. `key` is unique for ever.

    `process` is what is declared now, `record` what governs these instances; `indices` are numbers in its sequence.
    `late` has the inputs whose late data the run processes, by the nominal times that are run again for that.
    """

    process: ProcessRecord
    record: ProcessRecord
    indices: range
    key: str
    priority: int
    late: Mapping[datetime, tuple[str, ...]] = field(default_factory=dict)

    @property
    def first(self) -> datetime:
        return self.record.sequence.at(self.indices.start)

    @property
    def last(self) -> datetime:
        return self.record.sequence.at(self.indices.stop - 1)

    @property
    def nominal_times(self) -> tuple[datetime, ...]:
        return tuple(self.record.sequence.at(index) for index in self.indices)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDecision:
    """Index ranges to launch, in the order of launching, and indices to leave out for good (LAST_ONLY)."""

    launch: tuple[range, ...]
    skip: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDecision:
    """Runs to ask for, and instances to leave out for good (LAST_ONLY)."""

    requests: tuple[LaunchRequest, ...]
    skip: tuple[datetime, ...]


def decide_launches(process: ProcessRecord, ready: Sequence[int], in_flight: int) -> LaunchDecision:
    """Group the ready instances of a process into at most `parallel` runs, less those that are in flight.

    `ready` holds the indices of ready instances, in any order. FIFO takes the oldest first, LIFO the newest;
    LAST_ONLY takes the newest alone and skips the rest, as in Falcon.
    """
    slots = process.parallel - in_flight
    if slots <= 0 or not ready:
        return LaunchDecision(launch=())
    ordered = sorted(ready)
    match process.order:
        case Order.LAST_ONLY:
            return LaunchDecision(launch=(range(ordered[-1], ordered[-1] + 1),), skip=tuple(ordered[:-1]))
        case Order.FIFO:
            return LaunchDecision(launch=tuple(_split(contiguous(ordered), slots)))
        case Order.LIFO:
            newest_first = list(reversed(contiguous(ordered)))
            return LaunchDecision(launch=tuple(_split(newest_first, slots, from_end=True)))
        case _:
            assert_never(process.order)


def _split(runs: Sequence[range], slots: int, *, from_end: bool = False) -> list[range]:
    """Cut runs to size and hand out the slots: as many runs as there are slots, each as long as an even share."""
    total = sum(len(run) for run in runs)
    share = min(INSTANCES_A_RUN, -(-total // slots))
    pieces: list[range] = []
    for run in runs:
        cuts = [run[start : start + share] for start in range(0, len(run), share)]
        if from_end:
            cuts = [run[max(0, stop - share) : stop] for stop in range(len(run), 0, -share)]
        pieces.extend(cuts)
        if len(pieces) >= slots:
            break
    return pieces[:slots]


def decide_way(process: ProcessRecord, record: ProcessRecord, indices: range) -> Way:
    """How neighbouring instances of `record` are run while `process` is declared: those of flows as copies, others as
    partitions if its sequence has them, and none between.
    """
    if record.copy is not None:
        return Way.COPIES
    declared, sequence = process.sequence, record.sequence
    first, last = sequence.at(indices[0]), sequence.at(indices[-1])
    if not (declared.contains(first) and declared.contains(last)):
        return Way.INSTANCES
    is_range = declared.index(last) - declared.index(first) == indices[-1] - indices[0]
    return Way.PARTITIONS if is_range else Way.INSTANCES


def apply_requests(
    database: Database,
    governance: Governance,
    cluster: str,
    as_of: datetime,
    wall: datetime,
    limit: int,
    *,
    way: Way | None = None,
    without_row: ScheduleState = ScheduleState.SCHEDULED,
    not_yet: frozenset[Key] = frozenset(),
) -> list[LaunchRequest]:
    """Decide what to launch and mark it as asked for, in one transaction.

    Args:
        database: holds the ready instances.
        governance: has what is declared; other instances go back to waiting, until they are declared again.
        cluster: whose instances.
        as_of: the time of the data.
        wall: the time of day.
        limit: how many runs at most.
        way: only what is run in this way; None for all.
        without_row: the state of processes that have no schedule; what is not scheduled is left alone.
        not_yet: processes that cannot be run right now, and stay READY.
    """
    requests: list[LaunchRequest] = []
    with database.read() as connection:
        if not ProcessInstances(connection).has_unrequested(cluster, without_row=without_row):
            return []
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        ready = _ready(connection, governance, cluster, as_of, without_row)
        in_flight = instances.in_flight(list(ready))
        for key, times in ready.items():
            if key in not_yet:
                continue
            process = governance.plan.processes[key]
            groups = group_ready(connection, governance, key, times)
            again = _run_before(instances, process, times)
            decided = decide_requests(process, groups, in_flight.get(EntityKey(*key), 0), way, wall, again)
            _skip(instances, process, decided.skip, as_of)
            for request in decided.requests[: limit - len(requests)]:
                _mark(instances, request, as_of, wall)
                requests.append(_with_late(connection, request))
            if len(requests) >= limit:
                break
    return requests


def group_ready(connection: Connection, governance: Governance, key: Key, times: Sequence[datetime]) -> list[Group]:
    """Ready instances by the definition that governs them, as numbers in its sequence, the oldest first."""
    groups: list[tuple[ProcessRecord, list[int]]] = []
    for time in times:
        governed = governance.find(connection, key, time)
        assert governed is not None
        if not groups or groups[-1][0] is not governed.record:
            groups.append((governed.record, []))
        groups[-1][1].append(governed.record.sequence.index(time))
    return [(record, tuple(indices)) for record, indices in groups]


def decide_requests(
    process: ProcessRecord,
    groups: Sequence[Group],
    busy: int,
    way: Way | None,
    wall: datetime,
    again: frozenset[datetime] = frozenset(),
) -> RequestDecision:
    """What to ask for of one process, in the order of launching, and what to leave out for good.

    Args:
        process: as it is declared now.
        groups: its ready instances that nothing was asked for, oldest first; at least one.
        busy: how many of its runs are in flight.
        way: only what is run in this way; None for all.
        wall: the time of day.
        again: instances that have been run before; LAST_ONLY does not leave them out.
    """
    skip: list[datetime] = []
    if process.order is Order.LAST_ONLY and busy < process.parallel:
        times = [record.sequence.at(index) for record, indices in groups for index in indices]
        skip = [time for time in times[:-1] if time not in again]
        groups = [(groups[-1][0], groups[-1][1][-1:])]
    requests: list[LaunchRequest] = []
    for record, indices in groups if process.order is Order.FIFO else reversed(groups):
        mine = [index for index in indices if way in (None, decide_way(process, record, range(index, index + 1)))]
        for run in decide_launches(process, mine, busy + len(requests)).launch:
            is_torn = way is Way.PARTITIONS and decide_way(process, record, run) is not Way.PARTITIONS
            pieces = [range(index, index + 1) for index in run] if is_torn else [run]
            requests.extend(_request(process, record, piece, wall) for piece in pieces)
    return RequestDecision(requests=tuple(requests[: max(0, process.parallel - busy)]), skip=tuple(skip))


def _run_before(instances: ProcessInstances, process: ProcessRecord, times: Sequence[datetime]) -> frozenset[datetime]:
    """Which of the instances are to be run again; asked for only where that matters."""
    if process.order is not Order.LAST_ONLY:
        return frozenset()
    rows = instances.get_many([ProcessKey(*process.key, time) for time in times])
    return frozenset(row.nominal_time for row in rows.values() if row.attempt > 0)


def _with_late(connection: Connection, request: LaunchRequest) -> LaunchRequest:
    """With what late data are processed."""
    if request.record.late is None:
        return request
    keys = [LateKey(Kind.PROCESS.value, *request.process.key, time) for time in request.nominal_times]
    found = LateChecks(connection).get_many(keys)
    return replace(request, late={key.nominal_time: check.changed for key, check in found.items() if check.changed})


def _skip(instances: ProcessInstances, process: ProcessRecord, times: Sequence[datetime], as_of: datetime) -> None:
    instances.transition_many(
        [ProcessKey(*process.key, time) for time in times],
        {ProcessInstanceStatus.READY},
        status=ProcessInstanceStatus.SKIPPED,
        ended_at=as_of,
        updated_at=as_of,
        reason=SUPERSEDED,
    )


def _mark(instances: ProcessInstances, request: LaunchRequest, as_of: datetime, wall: datetime) -> None:
    instances.transition_many(
        [ProcessKey(*request.process.key, time) for time in request.nominal_times],
        {ProcessInstanceStatus.READY},
        request_key=request.key,
        requested_at=wall,
        updated_at=as_of,
    )


def _ready(
    connection: Connection, governance: Governance, cluster: str, as_of: datetime, without_row: ScheduleState
) -> Mapping[Key, Sequence[datetime]]:
    """Ready instances by process, oldest first: all, or where they are too many, the next ones of each process."""
    instances = ProcessInstances(connection)
    keys = instances.unrequested(cluster, READY_A_TICK, without_row=without_row)
    if len(keys) == READY_A_TICK:
        view = load_schedules(connection, without_row)
        processes = [record for record in governance.plan.processes.values() if record.cluster == cluster]
        processes = [record for record in processes if view.is_scheduled(*record.entity, record.cluster)]
        keys += (key for record in processes for key in _next_of(instances, record))
    ready: dict[Key, set[datetime]] = defaultdict(set)
    unknown: list[ProcessKey] = []
    for key in keys:
        if governance.find(connection, (key.process, key.cluster), key.nominal_time) is not None:
            ready[key.process, key.cluster].add(key.nominal_time)
        else:
            unknown.append(key)
    instances.transition_many(
        unknown,
        {ProcessInstanceStatus.READY},
        status=ProcessInstanceStatus.WAITING,
        deadline_at=None,
        updated_at=as_of,
        reason="it is not declared any more",
    )
    return {key: sorted(times) for key, times in ready.items()}


def _next_of(instances: ProcessInstances, process: ProcessRecord) -> list[ProcessKey]:
    """More instances than the process can have in flight, from the end at which it begins."""
    rows = instances.with_status(
        ProcessInstanceStatus.READY,
        process.process,
        process.cluster,
        limit=2 * process.parallel * INSTANCES_A_RUN,
        newest_first=process.order is not Order.FIFO,
    )
    return [row.key for row in rows if row.request_key is None]


def _request(process: ProcessRecord, record: ProcessRecord, indices: range, wall: datetime) -> LaunchRequest:
    first, newest = record.sequence.at(indices.start), record.sequence.at(indices.stop - 1)
    key = f"{process.process}@{process.cluster}|{first:%Y-%m-%dT%H:%MZ}+{len(indices)}|{wall.timestamp():.3f}"
    age = int(newest.timestamp()) // _MINUTE if process.order is Order.LIFO else 0
    priority = process.priority * PRIORITY_STEP + age
    return LaunchRequest(process=process, record=record, indices=indices, key=key, priority=priority)
