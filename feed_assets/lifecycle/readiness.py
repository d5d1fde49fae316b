"""Which process instances wait, and which may run: materialized at their nominal time, ready when their inputs are.

Only instances that something happened to are looked at: those that have just come into being, and those that read a
feed instance of which the event log tells. The cost of a tick follows the number of events, not of instances.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.clock import TimeBudget
from feed_assets.entities.process import Order
from feed_assets.lifecycle.catching_up import MISSED, ON_TIME, decide_catch_up
from feed_assets.lifecycle.governance import BEGINNING, Governance, Governed, first_at_or_after
from feed_assets.lifecycle.input_states import decide_ready, input_states_many
from feed_assets.lifecycle.redefinition import find_changed, forget_changed
from feed_assets.lifecycle.tellings import tell_after
from feed_assets.plan.records import Key, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.event_log import Cursors, EventLog
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    EntityKey,
    FeedEvent,
    FeedEventKind,
    Frontier,
    FrontierKind,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)

EVENTS_A_STEP = 5_000
PROCESSES_A_STEP = 500
INSTANCES_A_STEP = 100

SUPERSEDED = "a newer instance has come into being, and the order is LAST_ONLY"

_MOMENT = timedelta(microseconds=1)
_ARRIVING = frozenset({FeedEventKind.ARRIVED, FeedEventKind.PRODUCED, FeedEventKind.REPLICATED, FeedEventKind.RESTORED})

Span: TypeAlias = tuple[datetime, datetime | None]
"""First and last nominal time, both inclusive; None means without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readied:
    """What one tick changed: how many instances came into being, became ready and ran out of time."""

    materialized: int
    ready: int
    timed_out: int
    is_complete: bool


def apply_readiness(
    database: Database,
    governance: Governance,
    cluster: str,
    as_of: datetime,
    budget: TimeBudget,
    *,
    without_row: ScheduleState = ScheduleState.SCHEDULED,
    on_time: timedelta = ON_TIME,
) -> Readied:
    """For one cluster: materialize due process instances, open the gates of those whose inputs are there, and time out
    those that have waited too long.

    Each instance follows the definitions that govern it. A process that is not scheduled gets no new instances, and
    nothing of it times out; its gates open as others do. `without_row` is the state of processes that have no schedule.
    An instance that comes into being later than `on_time` after its nominal time is subject to `catch_up`.
    """
    materialized = ready = 0
    while count := _apply_materialization(database, governance, cluster, as_of, without_row, on_time):
        materialized += count[0]
        ready += count[1]
        if budget.is_spent:
            return Readied(materialized=materialized, ready=ready, timed_out=0, is_complete=False)
        if not count[2]:
            break
    ready += _apply_changed(database, governance, cluster, as_of)
    while True:
        more, count_ready = _apply_events(database, governance, cluster, as_of)
        ready += count_ready
        if not more:
            break
        if budget.is_spent:
            return Readied(materialized=materialized, ready=ready, timed_out=0, is_complete=False)
    late_ready, timed_out = _apply_deadlines(database, governance, cluster, as_of, without_row)
    return Readied(materialized=materialized, ready=ready + late_ready, timed_out=timed_out, is_complete=True)


def _apply_materialization(
    database: Database,
    governance: Governance,
    cluster: str,
    as_of: datetime,
    without_row: ScheduleState,
    on_time: timedelta,
) -> tuple[int, int, bool] | None:
    """Materialize the next instances; how many there were and became ready, and whether more are due."""
    with database.read() as connection:
        due = Frontiers(connection).due(
            FrontierKind.PROCESS, as_of, PROCESSES_A_STEP, cluster=cluster, without_row=without_row
        )
    if not due:
        return None
    rows: dict[Key, list[ProcessInstance]] = {}
    moved: list[Frontier] = []
    plan = governance.plan
    with database.begin() as connection:
        for frontier in due:
            key = (frontier.entity, frontier.cluster)
            stretches = governance.stretches(connection, key, since=frontier.next_time or as_of)
            new, following = decide_materialization(stretches, frontier, as_of, on_time)
            moved.append(following)
            if key in plan.processes:
                rows[key] = new
        instances = ProcessInstances(connection)
        instances.add_waiting([row for new in rows.values() for row in new])
        for key, new in rows.items():
            kept = [row.nominal_time for row in new if row.reason != MISSED]
            if kept and plan.processes[key].order is Order.LAST_ONLY:
                _supersede(instances, plan.processes[key], kept[-1], as_of)
        Frontiers(connection).put(moved)
        waiting = {
            key: [row.nominal_time for row in new if row.status is ProcessInstanceStatus.WAITING]
            for key, new in rows.items()
        }
        ready = _open_gates(connection, governance, waiting, as_of)
    is_more = len(due) == PROCESSES_A_STEP or any(each.next_time and each.next_time <= as_of for each in moved)
    return sum(len(new) for new in rows.values()), ready, is_more


def decide_materialization(
    stretches: Sequence[Governed], frontier: Frontier, as_of: datetime, on_time: timedelta = ON_TIME
) -> tuple[list[ProcessInstance], Frontier]:
    """The next instances of a process whose nominal time has come, at most `INSTANCES_A_STEP`, oldest first.

    Each is an instance of the stretch that its nominal time is in, so that where a definition has changed the instances
    of the old one are followed by those of the new one. Without stretches the walk rests.

    An instance's time-out counts from here, as in Falcon, so catching up after downtime times nothing out. What comes
    later than `on_time` may be left out by the process's `catch_up`; with LAST_ONLY so is an instance whose successor
    has come into being too. Left out means SKIPPED from the start: every instance comes into being.
    """
    assert frontier.next_time is not None
    due = list(islice(_iter_due(stretches, frontier.next_time, as_of), INSTANCES_A_STEP + 1))
    taken = due[:INSTANCES_A_STEP]
    rows = [
        _come_into_being(governed.record, nominal_time, as_of, on_time, has_successor=position + 1 < len(due))
        for position, (governed, nominal_time) in enumerate(taken)
    ]
    following = first_at_or_after(stretches, taken[-1][1] + _MOMENT if taken else frontier.next_time)
    if following is None:
        index = taken[-1][0].record.sequence.index(taken[-1][1]) + 1 if taken else frontier.next_index
        return rows, replace(frontier, next_index=index, next_time=None)
    governed, next_time = following
    index = governed.record.sequence.index(next_time)
    return rows, replace(frontier, next_index=index, next_time=next_time, delay=governed.record.delay)


def _iter_due(stretches: Sequence[Governed], first: datetime, as_of: datetime) -> Iterator[tuple[Governed, datetime]]:
    for governed in stretches:
        for index in governed.between(first, as_of - governed.record.delay + _MOMENT):
            yield governed, governed.record.sequence.at(index)


def _come_into_being(
    record: ProcessRecord, nominal_time: datetime, as_of: datetime, on_time: timedelta, *, has_successor: bool
) -> ProcessInstance:
    late_by = as_of - nominal_time - record.delay
    reason = decide_catch_up(record.catch_up, late_by, has_successor=has_successor, on_time=on_time)
    if reason is None and has_successor and record.order is Order.LAST_ONLY:
        reason = SUPERSEDED
    return ProcessInstance(
        process=record.process,
        cluster=record.cluster,
        nominal_time=nominal_time,
        status=ProcessInstanceStatus.WAITING if reason is None else ProcessInstanceStatus.SKIPPED,
        updated_at=as_of,
        materialized_at=as_of,
        deadline_at=as_of + record.timeout.as_duration(),
        tell_at=tell_after(record, as_of),
        ended_at=None if reason is None else as_of,
        reason=reason,
        definition_digest=record.digest,
    )


def _supersede(instances: ProcessInstances, record: ProcessRecord, newest: datetime, as_of: datetime) -> None:
    """With LAST_ONLY, leave out what has not been launched when its successor comes into being, as in Falcon; not what
    is to be run again.
    """
    for status in (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY):
        rows = instances.with_status(status, record.process, record.cluster, limit=EVENTS_A_STEP)
        instances.transition_many(
            [row.key for row in rows if row.nominal_time < newest and row.request_key is None and row.attempt == 0],
            {status},
            status=ProcessInstanceStatus.SKIPPED,
            ended_at=as_of,
            updated_at=as_of,
            reason=SUPERSEDED,
        )


def _cursor(cluster: str) -> str:
    return f"readiness/{cluster}"


def _apply_events(database: Database, governance: Governance, cluster: str, as_of: datetime) -> tuple[bool, int]:
    """Open the gates that the next events of the log touch. Returns whether there may be more, and how many opened."""
    with database.read() as connection:
        after = int(Cursors(connection).get(_cursor(cluster)) or 0)
        events = EventLog(connection).read(after, EVENTS_A_STEP, clusters=governance.plan.read_by(cluster))
    if not events:
        return False, 0
    spans = _touched_spans(governance, cluster, events)
    with database.begin() as connection:
        waiting = ProcessInstances(connection).waiting_times(spans)
        ready = _open_gates(connection, governance, waiting, as_of)
        Cursors(connection).put(_cursor(cluster), str(events[-1].seq))
    return len(events) == EVENTS_A_STEP, ready


def _touched_spans(governance: Governance, cluster: str, events: Sequence[FeedEvent]) -> dict[Key, list[Span]]:
    """The stretches of time in which instances may be that read what the events tell of, by any definition in force."""
    spans: dict[Key, list[Span]] = defaultdict(list)
    for key, runs in decide_touched(governance.plan, cluster, events).items():
        spans[key].extend(_spans_of(governance.plan.processes[key], runs))
    for older in governance.older(cluster):
        for key, runs in decide_touched(older.plan, cluster, events).items():
            spans[key].extend(_spans_of(older.record, runs))
    return spans


def _spans_of(record: ProcessRecord, runs: Sequence[range] | None) -> list[Span]:
    sequence = record.sequence
    if runs is None:
        return [(sequence.at(0), None)]
    return [(sequence.at(run.start), sequence.at(run.stop - 1)) for run in runs]


def decide_touched(plan: Plan, cluster: str, events: Sequence[FeedEvent]) -> dict[Key, list[range] | None]:
    """For each process of a cluster that reads what the events tell of: index ranges of its instances; None for all
    that wait.
    """
    times: dict[Key, set[datetime]] = defaultdict(set)
    for event in events:
        if event.kind in _ARRIVING and (event.feed, event.cluster) in plan.feeds:
            times[event.feed, event.cluster].add(event.nominal_time)
    touched: dict[Key, list[range] | None] = {}
    for key, moments in times.items():
        record = plan.feeds[key]
        runs = contiguous(sorted(record.sequence.index_at_or_before(moment) for moment in moments))
        for edge in record.inputs_of:
            if edge.cluster != cluster:
                continue
            process = edge.process_key
            if edge.window.is_data_driven:
                touched[process] = None
            elif (known := touched.setdefault(process, [])) is not None:
                known.extend(found for run in runs if (found := plan.reader_indices(edge, run)))
    return touched


def contiguous(indices: Iterable[int]) -> list[range]:
    """Ascending numbers as runs without a gap.

    >>> contiguous([1, 2, 3, 7, 8])
    [range(1, 4), range(7, 9)]
    """
    runs: list[range] = []
    for index in indices:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs


def _open_gates(
    connection: Connection,
    governance: Governance,
    waiting: Mapping[Key, Sequence[datetime]] | Mapping[EntityKey, Sequence[datetime]],
    as_of: datetime,
) -> int:
    """Make those of the instances READY whose inputs are there, each by the definitions that govern it."""
    ready = [
        ProcessKey(*key, time)
        for plan, wanted in governance.group(connection, {(name, on): times for (name, on), times in waiting.items()})
        for key, by_time in input_states_many(connection, plan, wanted, as_of).items()
        for time, inputs in by_time.items()
        if decide_ready(inputs)
    ]
    return ProcessInstances(connection).transition_many(
        ready,
        {ProcessInstanceStatus.WAITING},
        status=ProcessInstanceStatus.READY,
        ready_at=as_of,
        updated_at=as_of,
    )


def _apply_changed(database: Database, governance: Governance, cluster: str, as_of: datetime) -> int:
    """Look again at all that wait of the processes whose definition has changed: no event tells of that."""
    with database.read() as connection:
        if not find_changed(connection, cluster):
            return 0
    with database.begin() as connection:
        keys = [(name, cluster) for name in sorted(find_changed(connection, cluster))]
        forget_changed(connection, cluster)
        waiting = ProcessInstances(connection).waiting_times({key: [(BEGINNING, None)] for key in keys})
        return _open_gates(connection, governance, waiting, as_of)


def _apply_deadlines(
    database: Database, governance: Governance, cluster: str, as_of: datetime, without_row: ScheduleState
) -> tuple[int, int]:
    """Look a last time at what is out of time; how many gates opened, and how many instances timed out.

    What the plan does not know, because it was removed or has errors, waits without a deadline until it comes back.
    """
    with database.read() as connection:
        if not ProcessInstances(connection).deadlines_passed(as_of, 1, cluster=cluster, without_row=without_row):
            return 0, 0
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        known: dict[Key, list[datetime]] = defaultdict(list)
        unknown: list[ProcessKey] = []
        for row in instances.deadlines_passed(as_of, EVENTS_A_STEP, cluster=cluster, without_row=without_row):
            key = (row.process, row.cluster)
            if governance.find(connection, key, row.nominal_time) is None:
                unknown.append(row.key)
            else:
                known[key].append(row.nominal_time)
        waiting = {ProcessInstanceStatus.WAITING}
        instances.transition_many(unknown, waiting, deadline_at=None, updated_at=as_of)
        ready = _open_gates(connection, governance, known, as_of)
        return ready, instances.transition_many(
            [ProcessKey(*key, time) for key, times in known.items() for time in times],
            waiting,
            status=ProcessInstanceStatus.TIMEDOUT,
            ended_at=as_of,
            tell_at=as_of,
            updated_at=as_of,
            reason="its mandatory inputs did not all become available in time",
        )
