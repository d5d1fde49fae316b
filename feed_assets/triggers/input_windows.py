"""Resolve the input windows of process instances: their nominal times, and which of these instances are available.

An instance that has waited too long runs with what is there, if its process says so (`on_timeout: run`). Its deadline
tells it, so retries and runs for changed inputs go on with what is there; a rerun by a person waits anew. No attempt
reads less than an earlier one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.command_lines import follow_command
from feed_assets.entities.flow_names import is_of_feed
from feed_assets.entities.process import OnTimeout
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedSpan, ProcessInstance, ProcessKey
from feed_assets.plan.edges import InputEdge, Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.timing.windows import AvailabilityRecord, Window
from feed_assets.triggers.queue.batches import Batches


@dataclass(frozen=True, slots=True, kw_only=True)
class InputState:
    """The state of one input of a process instance: the nominal times of its window, and the available ones.

    `expected` is None for a data-driven window that cannot be resolved yet.
    """

    edge: InputEdge
    expected: tuple[datetime, ...] | None
    available: frozenset[datetime]

    @property
    def missing(self) -> tuple[datetime, ...]:
        """Nominal times expected and not available, oldest first."""
        return tuple(time for time in self.expected or () if time not in self.available)

    @property
    def present(self) -> tuple[datetime, ...]:
        """Nominal times expected and available, oldest first."""
        return tuple(time for time in self.expected or () if time in self.available)

    @property
    def is_satisfied(self) -> bool:
        """Whether this input leaves the gate open; an optional input never closes it."""
        if self.edge.optional:
            return True
        if self.expected is None:
            return False
        if self.edge.at_least is not None:
            return len(self.present) >= self.edge.at_least
        return len(self.missing) <= (self.edge.missing_at_most or 0)


def closed_gates(inputs: Sequence[InputState]) -> tuple[InputState, ...]:
    """Return the inputs that keep a process instance waiting; without any it may run."""
    return tuple(state for state in inputs if not state.is_satisfied)


def input_states(
    connection: Connection,
    plan: Plan,
    process: ProcessRecord,
    times: Iterable[datetime],
    as_of: datetime,
    *,
    is_partial: bool = False,
) -> dict[datetime, tuple[InputState, ...]]:
    """Return the input states of several instances of one process; see `input_states_many`."""
    return input_states_many(connection, plan, {process.key: list(times)}, as_of, is_partial=is_partial)[process.key]


def read_states(
    connection: Connection, timeline: ReleaseTimeline, keys: Iterable[ProcessKey], as_of: datetime
) -> dict[ProcessKey, tuple[InputState, ...]]:
    """Return the input states of process instances by the definitions that govern each; others are left out."""
    times: dict[Key, list[datetime]] = defaultdict(list)
    for process, cluster, time in keys:
        times[process, cluster].append(time)
    return {
        ProcessKey(*key, time): states
        for plan, wanted in timeline.group(connection, times)
        for key, by_time in input_states_many(connection, plan, wanted, as_of).items()
        for time, states in by_time.items()
    }


def input_states_many(
    connection: Connection,
    plan: Plan,
    wanted: Mapping[Key, Sequence[datetime]],
    as_of: datetime,
    *,
    is_partial: bool = False,
) -> dict[Key, dict[datetime, tuple[InputState, ...]]]:
    """Return the input states of instances of many processes, in one statement except for data-driven windows.

    With `is_partial`, a data-driven window that lacks instances has those that there are.
    """
    instances, batches = FeedInstances(connection), Batches(connection)
    resolved = {
        key: {
            time: _resolve_all(instances, batches, plan, plan.processes[key], time, as_of, is_partial=is_partial)
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


def _resolve_all(
    instances: FeedInstances,
    batches: Batches,
    plan: Plan,
    process: ProcessRecord,
    time: datetime,
    as_of: datetime,
    *,
    is_partial: bool,
) -> list[tuple[InputEdge, tuple[datetime, ...] | None]]:
    """Return the instances of each input: of its window, or those that the batch has taken."""
    taken: dict[str, set[datetime]] = {}
    if any(edge.window is None for edge in process.inputs):
        for each in batches.events_of(ProcessKey(*process.key, time)):
            taken.setdefault(each.input, set()).update(event.nominal_time for event in each.events)
    return [
        (
            edge,
            tuple(sorted(taken.get(edge.name, ())))
            if edge.window is None
            else _resolve(instances, plan, edge, edge.window, time, as_of, is_partial=is_partial),
        )
        for edge in process.inputs
    ]


def _resolve(
    instances: FeedInstances,
    plan: Plan,
    edge: InputEdge,
    window: Window,
    time: datetime,
    as_of: datetime,
    *,
    is_partial: bool,
) -> tuple[datetime, ...] | None:
    sequence = plan.feeds[edge.feed_key].sequence
    if not window.is_data_driven:
        return tuple(map(sequence.at, window.indices(time, sequence)))
    recorded = _Recorded(instances, plan, edge)
    found = window.resolve_data_driven(time, sequence, recorded, as_of, is_partial=is_partial)
    return None if found is None else tuple(map(sequence.at, found))


def _span(edge: InputEdge, window: tuple[datetime, ...]) -> FeedSpan:
    return FeedSpan(*edge.feed_key, window[0], window[-1])


class _Recorded(AvailabilityRecord):
    """The recorded instances of one feed, for `latest` and `future` windows."""

    def __init__(self, instances: FeedInstances, plan: Plan, edge: InputEdge) -> None:
        self._instances = instances
        self._edge = edge
        self._sequence = plan.feeds[edge.feed_key].sequence

    def latest_available(self, not_after_index: int, count: int) -> list[int]:
        edge, newest, limit = self._edge, self._sequence.at(not_after_index), count
        while True:
            times = self._instances.latest_available(*edge.feed_key, newest, limit)
            found = self._known(times)
            if len(found) >= count or len(times) < limit:
                return found[:count]
            limit *= 2

    def available_between(self, first: int, last: int) -> list[int]:
        edge, sequence = self._edge, self._sequence
        return self._known(self._instances.available_times(*edge.feed_key, sequence.at(first), sequence.at(last)))

    def _known(self, times: Iterable[datetime]) -> list[int]:
        """Return the indices of the times that are instances now; the record may hold times of earlier definitions."""
        return [self._sequence.index(time) for time in times if self._sequence.contains(time)]


def runs_incomplete(process: ProcessRecord, row: ProcessInstance, as_of: datetime) -> bool:
    """Return whether an instance has waited long enough to run with what is there."""
    return process.on_timeout is OnTimeout.RUN and row.deadline_at is not None and row.deadline_at <= as_of


class Gate(NamedTuple):
    """The inputs with which an instance may run now, and those that keep it from running."""

    states: tuple[InputState, ...]
    closed: tuple[InputState, ...]


def check_gate(
    connection: Connection, plan: Plan, process: ProcessRecord, row: ProcessInstance, as_of: datetime
) -> Gate:
    """Return whether an instance may run now.

    If it runs with what is there, a data-driven window that lacks instances has those that there are.
    """
    time = row.nominal_time
    states = input_states(connection, plan, process, [time], as_of)[time]
    closed = closed_gates(states)
    if not closed or not runs_incomplete(process, row, as_of):
        return Gate(states, closed)
    partial = input_states(connection, plan, process, [time], as_of, is_partial=True)[time]
    there = {state.edge.name: set(state.present) for state in partial}
    read = {frozen.name: set(frozen.nominal_times) for frozen in row.inputs}
    lost = (state for state in closed if not read.get(state.edge.name, set()) <= there[state.edge.name])
    return Gate(partial, tuple(lost))


def find_gone(
    connection: Connection,
    timeline: ReleaseTimeline,
    declared: Collection[Key],
    times: Mapping[Key, Sequence[datetime]],
    as_of: datetime,
) -> Iterator[tuple[Key, str]]:
    """Yield processes whose instances lack a feed that is not `declared` any more, with what is to be said of it."""
    found: dict[tuple[Key, Key], list[datetime]] = defaultdict(list)
    for plan, group in timeline.group(connection, times):
        wanted = group if any(feed not in declared for feed in plan.feeds) else {}
        for key, by_time in input_states_many(connection, plan, wanted, as_of).items():
            for time, states in by_time.items():
                closed = {state.edge.feed_key for state in closed_gates(states) if not is_of_feed(state.edge.process)}
                for feed in closed.difference(declared):
                    found[key, feed].append(time)
    for (consumer, (name, _)), missing in sorted(found.items()):
        waiting = f"{counted(len(missing), 'instance')} on {consumer[1]} wait{'s' if len(missing) == 1 else ''}"
        text = f"{waiting} for feed {name!r}, which is not declared any more"
        yield consumer, f"{text}; to follow what is declared: {follow_command(*consumer, min(missing))}"
