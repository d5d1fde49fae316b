"""Which ready process instances to launch next, and together: neighbours in at most `parallel` runs at once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from feed_assets.entities.process import Order
from feed_assets.lifecycle.readiness import SUPERSEDED, contiguous
from feed_assets.plan.records import Key, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import EntityKey, ProcessInstanceStatus, ProcessKey

INSTANCES_A_RUN = 100
READY_A_TICK = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One run to ask for: neighbouring instances of one process. `key` is unique for ever."""

    process: ProcessRecord
    indices: range
    key: str
    priority: int

    @property
    def first(self) -> datetime:
        return self.process.sequence.at(self.indices.start)

    @property
    def last(self) -> datetime:
        return self.process.sequence.at(self.indices.stop - 1)

    @property
    def nominal_times(self) -> tuple[datetime, ...]:
        return tuple(self.process.sequence.at(index) for index in self.indices)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDecision:
    """Index ranges to launch, in the order of launching, and indices to leave out for good (LAST_ONLY)."""

    launch: tuple[range, ...]
    skip: tuple[int, ...] = ()


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


def apply_requests(
    database: Database, plan: Plan, cluster: str, as_of: datetime, wall: datetime, limit: int
) -> list[LaunchRequest]:
    """Decide what to launch and mark it as asked for, in one transaction.

    Args:
        database: holds the ready instances.
        plan: what is declared; other instances go back to waiting, until they are declared again.
        cluster: whose instances.
        as_of: the time of the data.
        wall: the time of day.
        limit: how many runs at most.
    """
    requests: list[LaunchRequest] = []
    with database.read() as connection:
        if not ProcessInstances(connection).has_unrequested(cluster):
            return []
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        ready = _ready(instances, plan, cluster, as_of)
        in_flight = instances.in_flight(list(ready))
        for key, indices in ready.items():
            process = plan.processes[key]
            decision = decide_launches(process, indices, in_flight.get(EntityKey(*key), 0))
            if decision.skip:
                instances.transition_many(
                    [ProcessKey(*key, process.sequence.at(index)) for index in decision.skip],
                    {ProcessInstanceStatus.READY},
                    status=ProcessInstanceStatus.SKIPPED,
                    ended_at=as_of,
                    updated_at=as_of,
                    reason=SUPERSEDED,
                )
            requests.extend(_request(process, run, wall) for run in decision.launch[: limit - len(requests)])
            if len(requests) >= limit:
                break
        for request in requests:
            instances.transition_many(
                [ProcessKey(*request.process.key, time) for time in request.nominal_times],
                {ProcessInstanceStatus.READY},
                request_key=request.key,
                requested_at=wall,
                updated_at=as_of,
            )
    return requests


def _ready(instances: ProcessInstances, plan: Plan, cluster: str, as_of: datetime) -> Mapping[Key, Sequence[int]]:
    """The numbers of ready instances by process: of all, or where they are too many, the next ones of each process."""
    keys = instances.unrequested(cluster, READY_A_TICK)
    if len(keys) == READY_A_TICK:
        processes = [record for record in plan.processes.values() if record.cluster == cluster]
        keys += (key for record in processes for key in _next_of(instances, record))
    ready: dict[Key, set[int]] = defaultdict(set)
    unknown: list[ProcessKey] = []
    for key in keys:
        process = plan.processes.get((key.process, key.cluster))
        if process is not None and process.sequence.contains(key.nominal_time):
            ready[process.key].add(process.sequence.index(key.nominal_time))
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
    return {key: sorted(indices) for key, indices in ready.items()}


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


def _request(process: ProcessRecord, indices: range, wall: datetime) -> LaunchRequest:
    first = process.sequence.at(indices.start)
    newest = process.sequence.at(indices.stop - 1)
    key = f"{process.process}@{process.cluster}|{first:%Y-%m-%dT%H:%MZ}+{len(indices)}|{wall.timestamp():.3f}"
    priority = int(newest.timestamp()) if process.order is Order.LIFO else 0
    return LaunchRequest(process=process, indices=indices, key=key, priority=priority)
