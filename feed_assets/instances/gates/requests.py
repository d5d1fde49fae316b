"""Decide which ready process instances to launch, and group neighbours into at most `parallel` runs; and find those
that events of feeds concern, without a search: by the windows that read them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias, assert_never

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Tick, tick_step
from feed_assets.entities.process import Order
from feed_assets.instances.gates.turns import find_unread
from feed_assets.instances.late.hanging import find_awaiting
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    ARRIVING,
    CONTENT,
    Cause,
    EntityKey,
    FeedEvent,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.timing.sequence import contiguous

Span: TypeAlias = tuple[datetime, datetime | None]
"""First and last nominal time, both inclusive; None means no end."""


def find_affected(timeline: ReleaseTimeline, cluster: str, events: Sequence[FeedEvent]) -> dict[Key, list[Span]]:
    """Return the time spans of instances that may read what the events mention, by any definition in force."""
    spans: dict[Key, list[Span]] = defaultdict(list)
    for key, runs in decide_affected(timeline.plan, cluster, events).items():
        spans[key].extend(_spans_of(timeline.plan.processes[key], runs))
    for older in timeline.older(cluster):
        for key, runs in decide_affected(older.plan, cluster, events).items():
            spans[key].extend(_spans_of(older.record, runs))
    return spans


def _spans_of(record: ProcessRecord, runs: Sequence[range] | None) -> list[Span]:
    sequence = record.sequence
    if runs is None:
        return [(sequence.at(0), None)]
    return [(sequence.at(run.start), sequence.at(run.stop - 1)) for run in runs]


def decide_affected(plan: Plan, cluster: str, events: Sequence[FeedEvent]) -> dict[Key, list[range] | None]:
    """Return the index ranges of the instances that read what the events mention, by process of the cluster.

    None stands for all waiting instances. Content that has changed was not available while it was judged.
    """
    times: dict[Key, set[datetime]] = defaultdict(set)
    for event in events:
        record = plan.feeds.get((event.feed, event.cluster))
        if record is not None and event.kind in (CONTENT if record.is_judged else ARRIVING):
            times[event.feed, event.cluster].add(event.nominal_time)
    affected: dict[Key, list[range] | None] = {}
    for key, moments in times.items():
        record = plan.feeds[key]
        runs = contiguous(sorted(record.sequence.index_at_or_before(moment) for moment in moments))
        for edge in record.inputs_of:
            if edge.cluster != cluster:
                continue
            process = edge.process_key
            if edge.window is not None and edge.window.is_data_driven:
                affected[process] = None
            elif (known := affected.setdefault(process, [])) is not None:
                known.extend(found for run in runs if (found := plan.reader_indices(edge, run)))
    return affected


INSTANCES_A_RUN = 100
RUN_TIME = timedelta(minutes=10)
"""How long a run is to take, if earlier instances tell."""
MEASURED = 50
"""So many attempts tell how long an instance takes."""
READY_A_TICK = 5_000
PRIORITY_STEP = 100_000_000
"""The distance between two priorities: more than LIFO's count of minutes; five steps fit a 32-bit number."""

_MINUTE = 60

Group: TypeAlias = tuple[ProcessRecord, Sequence[int]]
"""Instances that one definition governs, as ascending indices in its sequence."""


class LaunchMode(StrEnum):
    """How instances run: as partitions of the current declaration, singly if they are no partitions, or as copies."""

    PARTITIONS = "partitions"
    INSTANCES = "instances"
    COPIES = "copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A request for one run: neighbouring instances of one process. `key` is unique for ever.

    `process` is the current declaration, `record` the definition that governs these instances; `indices` are indices in
    its sequence. `late` maps the nominal times of late re-runs to the inputs whose late data they process; `reasons`
    counts the instances by why they run, and `users` have asked for it by a command.
    """

    process: ProcessRecord
    record: ProcessRecord
    indices: range
    key: str
    priority: int
    late: Mapping[datetime, tuple[str, ...]] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    users: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return what the run has: how many instances and why they run, the first and the last one, the process.

        Lists of runs show some thirty letters of it.
        """
        first, last, count = render_datetime(self.first), render_datetime(self.last), len(self.indices)
        why = ", ".join(f"{number} {reason}" for reason, number in self.reasons.items())
        return f"{why or count}: {first if count == 1 else f'{first} to {last}'} of {self.process.process}"

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
class RequestDecision:
    """Runs to request, and instances to skip for good (LAST_ONLY)."""

    requests: tuple[LaunchRequest, ...]
    skip: tuple[datetime, ...]


def decide_launches(
    process: ProcessRecord, ready: Sequence[int], in_flight: int, most: int = INSTANCES_A_RUN
) -> Sequence[range]:
    """Group the ready instances of a process into at most `parallel` runs, less those in flight, of at most `most`.

    `ready` has the indices of ready instances, in any order. FIFO takes the oldest first, LIFO the newest; LAST_ONLY
    takes the newest alone, as in Falcon.
    """
    slots = process.parallel - in_flight
    if slots <= 0 or not ready:
        return ()
    ordered = sorted(ready)
    match process.order:
        case Order.LAST_ONLY:
            return (range(ordered[-1], ordered[-1] + 1),)
        case Order.FIFO:
            return _split(contiguous(ordered), slots, most)
        case Order.LIFO:
            return _split(list(reversed(contiguous(ordered))), slots, most, from_end=True)
        case _:
            assert_never(process.order)


def _split(runs: Sequence[range], slots: int, most: int, *, from_end: bool = False) -> list[range]:
    """Cut ranges into pieces for the free slots: as many pieces as slots, each an even share."""
    total = sum(len(run) for run in runs)
    share = min(most, -(-total // slots))
    pieces: list[range] = []
    for run in runs:
        cuts = [run[start : start + share] for start in range(0, len(run), share)]
        if from_end:
            cuts = [run[max(0, stop - share) : stop] for stop in range(len(run), 0, -share)]
        pieces.extend(cuts)
        if len(pieces) >= slots:
            break
    return pieces[:slots]


def decide_launch_mode(process: ProcessRecord, record: ProcessRecord, indices: range) -> LaunchMode:
    """Return how neighbouring instances of `record` run while `process` is declared.

    Instances of flows run as copies. Others run as partitions if the declared sequence contains them without gaps, else
    singly.
    """
    if record.is_flow:
        return LaunchMode.COPIES
    declared, sequence = process.sequence, record.sequence
    first, last = sequence.at(indices[0]), sequence.at(indices[-1])
    if not (declared.contains(first) and declared.contains(last)):
        return LaunchMode.INSTANCES
    is_range = declared.index(last) - declared.index(first) == indices[-1] - indices[0]
    return LaunchMode.PARTITIONS if is_range else LaunchMode.INSTANCES


@tick_step(TickStep.REQUESTS, otherwise=())
def apply_requests(
    tick: Tick, limit: int, *, mode: LaunchMode | None = None, not_yet: frozenset[Key] = frozenset()
) -> list[LaunchRequest]:
    """Decide what to launch and mark it as requested, in one transaction. Work elsewhere is never requested,
    nor that of unscheduled processes; instances of undeclared ones return to WAITING.

    Args:
        tick: its cluster is meant.
        limit: the greatest number of runs.
        mode: request only instances of this launch mode; None for all.
        not_yet: processes that cannot run at the moment; their instances stay READY.
    """
    requests, run_time = list[LaunchRequest](), tick.clock.span(RUN_TIME)
    with tick.database.read() as connection:
        if not ProcessInstances(connection).has_unrequested(tick.cluster):
            return []
    with tick.database.begin() as connection:
        instances = ProcessInstances(connection)
        ready = _ready(connection, tick)
        in_flight, ran = instances.in_flight(list(ready)), instances.ran_before(tick.cluster)
        begun = find_beginnings(connection, (tick.plan.processes[key] for key in ready))

        def decide(key: Key, times: Sequence[datetime]) -> RequestDecision:
            process = tick.plan.processes[key]
            groups = group_ready(connection, tick.timeline, key, times)
            last = {Cause.RUN_LOST} if process.order is Order.FIFO else set()  # another worker may die of them
            keys = {time: ProcessKey(*key, time) for time in times}
            first = frozenset(time for time, each in keys.items() if each in ran and ran[each] not in last)
            first |= {time for time in times if time >= begun.get(EntityKey(*key), NEVER)}
            most, busy = plan_run(connection, process, run_time), in_flight.get(EntityKey(*key), 0)
            return decide_requests(process, groups, busy, mode, tick.real_now, first, most)

        for key, times in ready.items():
            process = tick.plan.processes[key]
            if key in not_yet or process.is_elsewhere:
                continue
            nothing = RequestDecision(requests=(), skip=())
            decided = tick.bulkheads.run_unit(TickStep.REQUESTS, process.process, nothing, decide, key, times)
            _skip(instances, process, decided.skip, tick.as_of)
            for request in decided.requests[: limit - len(requests)]:
                _mark(instances, request, tick.as_of, tick.real_now)
                requests.append(_with_reasons(connection, request))
            if len(requests) >= limit:
                break
    return requests


def group_ready(connection: Connection, timeline: ReleaseTimeline, key: Key, times: Sequence[datetime]) -> list[Group]:
    """Group ready instances by the definition that governs them, as indices in its sequence, oldest first."""
    groups: list[tuple[ProcessRecord, list[int]]] = []
    for time in times:
        active = timeline.find(connection, key, time)
        assert active is not None
        if not groups or groups[-1][0] is not active.record:
            groups.append((active.record, []))
        groups[-1][1].append(active.record.sequence.index(time))
    return [(record, tuple(indices)) for record, indices in groups]


def decide_requests(
    process: ProcessRecord,
    groups: Sequence[Group],
    busy: int,
    mode: LaunchMode | None,
    real_now: datetime,
    again: frozenset[datetime] = frozenset(),
    most: int = INSTANCES_A_RUN,
) -> RequestDecision:
    """Decide what to request for one process, in launch order, and what to skip for good.

    Args:
        process: its current declaration.
        groups: its ready instances without a request, oldest first; at least one.
        busy: how many of its runs are in flight.
        mode: request only instances of this launch mode; None for all.
        real_now: the real time.
        again: instances that ran before; FIFO takes them first, and LAST_ONLY does not skip them.
        most: how many instances a run has.
    """
    skip: list[datetime] = []
    if process.order is Order.LAST_ONLY and busy < process.parallel:
        times = [record.sequence.at(index) for record, indices in groups for index in indices]
        skip = [time for time in times[:-1] if time not in again]
        groups = [(groups[-1][0], groups[-1][1][-1:])]
    requests: list[LaunchRequest] = []
    for record, indices in _in_turn(groups, again) if process.order is Order.FIFO else reversed(groups):
        matching = [
            index for index in indices if mode in (None, decide_launch_mode(process, record, range(index, index + 1)))
        ]
        for run in decide_launches(process, matching, busy + len(requests), most):
            has_gaps = (
                mode is LaunchMode.PARTITIONS and decide_launch_mode(process, record, run) is not LaunchMode.PARTITIONS
            )
            pieces = [range(index, index + 1) for index in run] if has_gaps else [run]
            requests.extend(_request(process, record, piece, real_now) for piece in pieces)
    return RequestDecision(requests=tuple(requests[: max(0, process.parallel - busy)]), skip=tuple(skip))


def _in_turn(groups: Sequence[Group], again: frozenset[datetime]) -> list[Group]:
    """Return ready instances in the order of FIFO: what ran before, then what is new, each oldest first."""
    parts = [
        (record, tuple(index for index in indices if (record.sequence.at(index) in again) is is_again))
        for is_again in (True, False)
        for record, indices in groups
    ]
    return [(record, indices) for record, indices in parts if indices]


def plan_run(connection: Connection, process: ProcessRecord, run_time: timedelta) -> int:
    """Return how many instances a run has: about `run_time` of work by the median of earlier ones, and one at least.

    Copies are made many at once, and are not counted by time.
    """
    if process.reads_in_turn:
        return 1
    middle = None if process.is_flow else find_median(connection, process.key)
    return max(1, min(INSTANCES_A_RUN, run_time // middle)) if middle else INSTANCES_A_RUN


def find_median(connection: Connection, process: Key) -> timedelta | None:
    """Return how long an instance takes, by the last attempts that have succeeded; None if none has."""
    spans = sorted(Attempts(connection).newest_spans(*process, MEASURED))
    return spans[len(spans) // 2] if spans else None


def _with_reasons(connection: Connection, request: LaunchRequest) -> LaunchRequest:
    """Add why the instances run, and the inputs whose late data the run processes."""
    rows = ProcessInstances(connection).get_many([(*request.process.key, time) for time in request.nominal_times])
    by_command = (row.cause_detail or "" for row in rows.values() if row.cause is Cause.COMMAND)
    users = tuple(sorted({each.partition(" by ")[2] for each in by_command} - {""}))
    request = replace(request, reasons=Counter(_reason(row) for _, row in sorted(rows.items())), users=users)
    if request.record.late is None:
        return request
    keys = [AgendaKey(AgendaKind.LATE_INPUTS, *request.process.key, time) for time in request.nominal_times]
    found = LateChecks(connection).get_many(keys)
    return replace(request, late={key.nominal_time: check.changed for key, check in found.items() if check.changed})


def _reason(row: ProcessInstance) -> str:
    """Return why an instance runs, in a word."""
    match row.cause:
        case Cause.LATE_DATA | Cause.UPDATED:
            return "late"
        case Cause.COMMAND if row.attempt:
            return "rerun"
        case _:
            return "retry" if row.attempt or row.retries else "new"


def _skip(instances: ProcessInstances, process: ProcessRecord, times: Sequence[datetime], as_of: datetime) -> None:
    instances.transition_many(
        [ProcessKey(*process.key, time) for time in times],
        {ProcessInstanceStatus.READY},
        status=ProcessInstanceStatus.SKIPPED,
        ended_at=as_of,
        updated_at=as_of,
        cause=Cause.SUPERSEDED,
        cause_detail=process.superseded,
    )


def _mark(instances: ProcessInstances, request: LaunchRequest, as_of: datetime, real_now: datetime) -> None:
    instances.transition_many(
        [ProcessKey(*request.process.key, time) for time in request.nominal_times],
        {ProcessInstanceStatus.READY},
        request_key=request.key,
        requested_at=real_now,
        updated_at=as_of,
    )


def _ready(connection: Connection, tick: Tick) -> Mapping[Key, Sequence[datetime]]:
    """Return the ready instances by process, oldest first: all, or if there are too many, the next ones of each
    process. Those stay READY that await a rerun of what they would read.
    """
    instances = ProcessInstances(connection)
    keys = instances.unrequested(tick.cluster, READY_A_TICK)
    if len(keys) == READY_A_TICK:
        view = load_schedules(connection)
        processes = [record for record in tick.plan.processes.values() if record.cluster == tick.cluster]
        processes = [record for record in processes if view.is_scheduled(*record.entity, record.cluster)]
        keys += (row.key for record in processes for row in find_next(instances, record))
    ready: dict[Key, set[datetime]] = defaultdict(set)
    unknown: list[ProcessKey] = []
    for key in keys:
        if tick.timeline.find(connection, (key.process, key.cluster), key.nominal_time) is not None:
            ready[key.process, key.cluster].add(key.nominal_time)
        else:
            unknown.append(key)
    every = {ProcessKey(*key, time): () for key, times in ready.items() for time in times}
    for key in find_awaiting(connection, tick.timeline, every, tick.as_of):
        ready[key.process, key.cluster].discard(key.nominal_time)
    instances.transition_many(
        unknown,
        {ProcessInstanceStatus.READY},
        status=ProcessInstanceStatus.WAITING,
        deadline_at=None,
        updated_at=tick.as_of,
        cause=Cause.UNDECLARED,
        cause_detail=None,
    )
    unread = find_unread(connection, (key for key in ready if tick.plan.processes[key].reads_in_turn))
    found = {key: sorted(times) for key, times in ready.items() if times}
    found = {key: times[:1] if key in unread else times for key, times in found.items()}
    return {key: times for key, times in found.items() if unread.get(key, times[0]) == times[0]}


def find_next(instances: ProcessInstances, process: ProcessRecord) -> list[ProcessInstance]:
    """Return more ready instances than the process can have in flight, oldest first: those at the end that its order
    prefers, and the newest in any case, which FIFO takes before a long past.
    """
    ends, limit = {process.order is not Order.FIFO, True}, 2 * process.parallel * INSTANCES_A_RUN
    rows = (
        instances.with_status(ProcessInstanceStatus.READY, *process.key, limit=limit, newest_first=each)
        for each in ends
    )
    found = {row.key: row for each in rows for row in each if row.request_key is None}
    return [found[key] for key in sorted(found)]


def find_beginnings(connection: Connection, processes: Iterable[ProcessRecord]) -> dict[EntityKey, datetime]:
    """Return from when on instances go before the long past of a process that takes the oldest first."""
    keys = [each.key for each in processes if each.order is Order.FIFO]
    return Watermarks(connection).beginnings(WatermarkKind.PROCESS, keys)


def _request(process: ProcessRecord, record: ProcessRecord, indices: range, real_now: datetime) -> LaunchRequest:
    first, newest = record.sequence.at(indices.start), record.sequence.at(indices.stop - 1)
    key = f"{process.process}@{process.cluster}|{render_datetime(first)}+{len(indices)}|{real_now.timestamp():.3f}"
    age = int(newest.timestamp()) // _MINUTE if process.order is Order.LIFO else 0
    priority = process.priority * PRIORITY_STEP + age
    return LaunchRequest(process=process, record=record, indices=indices, key=key, priority=priority)
