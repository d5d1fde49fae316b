"""Which process instances wait, and which may run: materialized at their nominal time, ready when their inputs are.

Only instances that something happened to are looked at: those that have just come into being, and those that read a
feed instance of which the event log tells. The cost of a tick follows the number of events, not of instances.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.clock import TimeBudget
from feed_assets.entities.process import Order
from feed_assets.lifecycle.redefinition import find_changed, forget_changed
from feed_assets.plan.records import InputEdge, Key, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.event_log import Cursors, EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedEvent,
    FeedEventKind,
    FeedSpan,
    Frontier,
    FrontierKind,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.timing.windows import AvailabilityRecord

EVENTS_A_STEP = 5_000
PROCESSES_A_STEP = 500
INSTANCES_A_STEP = 100

SUPERSEDED = "a newer instance has come into being, and the order is LAST_ONLY"

_ARRIVING = frozenset({FeedEventKind.ARRIVED, FeedEventKind.PRODUCED, FeedEventKind.REPLICATED, FeedEventKind.RESTORED})


@dataclass(frozen=True, slots=True, kw_only=True)
class InputState:
    """What an input of a process instance has: all nominal times of its window, and those that are available.

    `expected` is None for a data-driven window that cannot be resolved yet.
    """

    edge: InputEdge
    expected: tuple[datetime, ...] | None
    available: frozenset[datetime]

    @property
    def missing(self) -> tuple[datetime, ...]:
        """Expected and not available, oldest first."""
        return tuple(time for time in self.expected or () if time not in self.available)

    @property
    def present(self) -> tuple[datetime, ...]:
        """Expected and available, oldest first."""
        return tuple(time for time in self.expected or () if time in self.available)

    @property
    def is_satisfied(self) -> bool:
        """Whether the gate is open as far as this input goes; an optional input never closes it."""
        return self.edge.optional or (self.expected is not None and not self.missing)


def decide_ready(inputs: Sequence[InputState]) -> bool:
    """A process instance may run when every mandatory instance of every window is available."""
    return all(state.is_satisfied for state in inputs)


def input_states(
    connection: Connection, plan: Plan, process: ProcessRecord, times: Iterable[datetime], as_of: datetime
) -> dict[datetime, tuple[InputState, ...]]:
    """The inputs of several instances of one process; see `input_states_many`."""
    return input_states_many(connection, plan, {process.key: list(times)}, as_of)[process.key]


def input_states_many(
    connection: Connection, plan: Plan, wanted: Mapping[Key, Sequence[datetime]], as_of: datetime
) -> dict[Key, dict[datetime, tuple[InputState, ...]]]:
    """The inputs of instances of many processes, in one statement but for data-driven windows."""
    instances = FeedInstances(connection)
    resolved = {
        key: {
            time: [(edge, _resolve(instances, plan, edge, time, as_of)) for edge in plan.processes[key].inputs]
            for time in times
        }
        for key, times in wanted.items()
    }
    spans = {
        _span(edge, window)
        for by_time in resolved.values()
        for windows in by_time.values()
        for edge, window in windows
        if window
    }
    available = {span: frozenset(times) for span, times in instances.available_times_many(list(spans)).items()}
    return {
        key: {
            time: tuple(
                InputState(
                    edge=edge,
                    expected=window,
                    available=available[_span(edge, window)] if window else frozenset(),
                )
                for edge, window in windows
            )
            for time, windows in by_time.items()
        }
        for key, by_time in resolved.items()
    }


def _resolve(
    instances: FeedInstances, plan: Plan, edge: InputEdge, time: datetime, as_of: datetime
) -> tuple[datetime, ...] | None:
    sequence = plan.feeds[edge.feed, edge.cluster].sequence
    if not edge.window.is_data_driven:
        return tuple(map(sequence.at, edge.window.indices(time, sequence)))
    found = edge.window.resolve_data_driven(time, sequence, _Recorded(instances, plan, edge), as_of)
    return None if found is None else tuple(map(sequence.at, found))


def _span(edge: InputEdge, window: tuple[datetime, ...]) -> FeedSpan:
    return FeedSpan(edge.feed, edge.cluster, window[0], window[-1])


class _Recorded(AvailabilityRecord):
    """The instance record of one feed, as `latest` and `future` ask it."""

    def __init__(self, instances: FeedInstances, plan: Plan, edge: InputEdge) -> None:
        self._instances = instances
        self._edge = edge
        self._sequence = plan.feeds[edge.feed, edge.cluster].sequence

    def latest_available(self, not_after_index: int, count: int) -> list[int]:
        edge, newest, limit = self._edge, self._sequence.at(not_after_index), count
        while True:
            times = self._instances.latest_available(edge.feed, edge.cluster, newest, limit)
            found = self._known(times)
            if len(found) >= count or len(times) < limit:
                return found[:count]
            limit *= 2

    def available_between(self, first: int, last: int) -> list[int]:
        edge, sequence = self._edge, self._sequence
        return self._known(
            self._instances.available_times(edge.feed, edge.cluster, sequence.at(first), sequence.at(last))
        )

    def _known(self, times: Iterable[datetime]) -> list[int]:
        """The record may hold times of an earlier definition, which are no instances now."""
        return [self._sequence.index(time) for time in times if self._sequence.contains(time)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readied:
    """What one tick changed: how many instances came into being, became ready and ran out of time."""

    materialized: int
    ready: int
    timed_out: int
    is_complete: bool


def apply_readiness(database: Database, plan: Plan, cluster: str, as_of: datetime, budget: TimeBudget) -> Readied:
    """For one cluster: materialize due process instances, open the gates of those whose inputs are there, and time out
    those that have waited too long.
    """
    materialized = ready = 0
    while count := _apply_materialization(database, plan, cluster, as_of):
        materialized += count[0]
        ready += count[1]
        if budget.is_spent:
            return Readied(materialized=materialized, ready=ready, timed_out=0, is_complete=False)
    ready += _apply_changed(database, plan, cluster, as_of)
    while True:
        more, count_ready = _apply_events(database, plan, cluster, as_of)
        ready += count_ready
        if not more:
            break
        if budget.is_spent:
            return Readied(materialized=materialized, ready=ready, timed_out=0, is_complete=False)
    late_ready, timed_out = _apply_deadlines(database, plan, cluster, as_of)
    return Readied(materialized=materialized, ready=ready + late_ready, timed_out=timed_out, is_complete=True)


def _apply_materialization(database: Database, plan: Plan, cluster: str, as_of: datetime) -> tuple[int, int] | None:
    with database.read() as connection:
        due = Frontiers(connection).due(FrontierKind.PROCESS, as_of, PROCESSES_A_STEP, cluster=cluster)
    if not due:
        return None
    rows: dict[Key, list[ProcessInstance]] = {}
    moved: list[Frontier] = []
    for frontier in due:
        record = plan.processes.get((frontier.entity, frontier.cluster))
        if record is None:
            moved.append(replace(frontier, next_time=None))
            continue
        new, next_frontier = decide_materialization(record, frontier, as_of)
        rows[record.key] = new
        moved.append(next_frontier)
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting([row for new in rows.values() for row in new])
        for key, new in rows.items():
            if new and plan.processes[key].order is Order.LAST_ONLY:
                _supersede(instances, plan.processes[key], new[-1].nominal_time, as_of)
        Frontiers(connection).put(moved)
        keys = {key: [row.nominal_time for row in new] for key, new in rows.items()}
        ready = _open_gates(connection, plan, keys, as_of)
    return sum(len(new) for new in rows.values()), ready


def decide_materialization(
    record: ProcessRecord, frontier: Frontier, as_of: datetime
) -> tuple[list[ProcessInstance], Frontier]:
    """The next instances of a process whose nominal time has come, at most `INSTANCES_A_STEP`, oldest first.

    An instance's time-out counts from here, as in Falcon, so catching up after downtime times nothing out. With
    LAST_ONLY an instance whose successor has come into being too is left out from the start.
    """
    sequence = record.sequence
    assert frontier.next_time is not None
    first = max(0, sequence.index_at_or_after(frontier.next_time))
    due = sequence.index_at_or_before(as_of) + 1
    if sequence.size is not None:
        due = min(due, sequence.size)
    stop = max(first, min(due, first + INSTANCES_A_STEP))
    superseded = range(first, due - 1) if record.order is Order.LAST_ONLY else range(0)
    rows = [
        ProcessInstance(
            process=record.process,
            cluster=record.cluster,
            nominal_time=sequence.at(index),
            status=ProcessInstanceStatus.SKIPPED if index in superseded else ProcessInstanceStatus.WAITING,
            updated_at=as_of,
            materialized_at=as_of,
            deadline_at=as_of + record.timeout.as_duration(),
            ended_at=as_of if index in superseded else None,
            reason=SUPERSEDED if index in superseded else None,
            definition_digest=record.digest,
        )
        for index in range(first, stop)
    ]
    ended = sequence.size is not None and stop >= sequence.size
    return rows, replace(frontier, next_index=stop, next_time=None if ended else sequence.at(stop))


def _supersede(instances: ProcessInstances, record: ProcessRecord, newest: datetime, as_of: datetime) -> None:
    """With LAST_ONLY, leave out what has not been launched when its successor comes into being, as in Falcon."""
    for status in (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY):
        rows = instances.with_status(status, record.process, record.cluster, limit=EVENTS_A_STEP)
        instances.transition_many(
            [row.key for row in rows if row.nominal_time < newest and row.request_key is None],
            {status},
            status=ProcessInstanceStatus.SKIPPED,
            ended_at=as_of,
            updated_at=as_of,
            reason=SUPERSEDED,
        )


def _cursor(cluster: str) -> str:
    return f"readiness/{cluster}"


def _apply_events(database: Database, plan: Plan, cluster: str, as_of: datetime) -> tuple[bool, int]:
    """Open the gates that the next events of the log touch. Returns whether there may be more, and how many opened."""
    with database.read() as connection:
        after = int(Cursors(connection).get(_cursor(cluster)) or 0)
        events = EventLog(connection).read(after, EVENTS_A_STEP, cluster=cluster)
    if not events:
        return False, 0
    touched = decide_touched(plan, events)
    with database.begin() as connection:
        waiting = _waiting(connection, plan, touched)
        ready = _open_gates(connection, plan, waiting, as_of)
        Cursors(connection).put(_cursor(cluster), str(events[-1].seq))
    return len(events) == EVENTS_A_STEP, ready


def decide_touched(plan: Plan, events: Sequence[FeedEvent]) -> dict[Key, list[range] | None]:
    """For each process that reads what the events tell of: index ranges of its instances; None for all that wait."""
    times: dict[Key, set[datetime]] = defaultdict(set)
    for event in events:
        if event.kind in _ARRIVING and (event.feed, event.cluster) in plan.feeds:
            times[event.feed, event.cluster].add(event.nominal_time)
    touched: dict[Key, list[range] | None] = {}
    for key, moments in times.items():
        record = plan.feeds[key]
        runs = contiguous(sorted(record.sequence.index_at_or_before(moment) for moment in moments))
        for edge in record.inputs_of:
            process = (edge.process, edge.cluster)
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


def _waiting(
    connection: Connection, plan: Plan, touched: Mapping[Key, list[range] | None]
) -> dict[Key, list[datetime]]:
    instances = ProcessInstances(connection)
    spans: dict[Key, list[tuple[datetime, datetime | None]]] = {}
    for key, runs in touched.items():
        sequence = plan.processes[key].sequence
        if runs is None:
            spans[key] = [(sequence.at(0), None)]
        else:
            spans[key] = [(sequence.at(run.start), sequence.at(run.stop - 1)) for run in runs]
    found = instances.waiting_times(spans)
    return {
        (key.entity, key.cluster): list(filter(plan.processes[key].sequence.contains, times))
        for key, times in found.items()
    }


def _open_gates(connection: Connection, plan: Plan, waiting: Mapping[Key, Sequence[datetime]], as_of: datetime) -> int:
    states = input_states_many(connection, plan, waiting, as_of)
    ready = [
        ProcessKey(*key, time)
        for key, by_time in states.items()
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


def _apply_changed(database: Database, plan: Plan, cluster: str, as_of: datetime) -> int:
    """Look again at all that wait of the processes whose definition has changed: no event tells of that."""
    with database.read() as connection:
        if not find_changed(connection, cluster):
            return 0
    with database.begin() as connection:
        keys = [key for name in sorted(find_changed(connection, cluster)) if (key := (name, cluster)) in plan.processes]
        forget_changed(connection, cluster)
        return _open_gates(connection, plan, _waiting(connection, plan, dict.fromkeys(keys)), as_of)


def _apply_deadlines(database: Database, plan: Plan, cluster: str, as_of: datetime) -> tuple[int, int]:
    """Look a last time at what is out of time; how many gates opened, and how many instances timed out.

    What the plan does not know, because it was removed or has errors, waits without a deadline until it comes back.
    """
    with database.read() as connection:
        if not ProcessInstances(connection).deadlines_passed(as_of, 1, cluster=cluster):
            return 0, 0
    with database.begin() as connection:
        instances = ProcessInstances(connection)
        known: dict[Key, list[datetime]] = defaultdict(list)
        unknown: list[ProcessKey] = []
        for row in instances.deadlines_passed(as_of, EVENTS_A_STEP, cluster=cluster):
            process = plan.processes.get((row.process, row.cluster))
            if process is not None and process.sequence.contains(row.nominal_time):
                known[process.key].append(row.nominal_time)
            else:
                unknown.append(row.key)
        waiting = {ProcessInstanceStatus.WAITING}
        instances.transition_many(unknown, waiting, deadline_at=None, updated_at=as_of)
        ready = _open_gates(connection, plan, known, as_of)
        return ready, instances.transition_many(
            [ProcessKey(*key, time) for key, times in known.items() for time in times],
            waiting,
            status=ProcessInstanceStatus.TIMEDOUT,
            ended_at=as_of,
            updated_at=as_of,
            reason="its mandatory inputs did not all become available in time",
        )
