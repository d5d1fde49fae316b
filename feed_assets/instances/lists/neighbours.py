"""The instances that an instance reads and writes, and those that read and write it: Falcon's `dependency`. Each
process instance is resolved by the definitions that govern it, so that releases with other windows are included.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from sqlalchemy import Connection

from feed_assets.context.consolidation import Consolidated
from feed_assets.context.operation import OperationContext
from feed_assets.context.subjects import Subject
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.lifecycles import find_single
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.json_form import NominalTime
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.plan.edges import InputEdge, Key, OutputEdge
from feed_assets.plan.records import FeedRecord
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import Window, parse_window
from feed_assets.triggers.input_windows import input_states
from feed_assets.triggers.queue.batches import Batches

INPUT = "Input"
OUTPUT = "Output"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourInstance:
    """An instance one step away. `tag` is the role of the feed in the process, input or output; `by` is its name
    there.
    """

    kind: Kind
    name: str
    cluster: str
    nominal_time: NominalTime
    tag: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours(Consolidated[NeighbourInstance]):
    """The neighbours of an instance on each cluster, and the sequences of their entities."""

    find_sequence: Callable[[Kind, str, str], InstanceSequence | None]

    @property
    def dependencies(self) -> tuple[tuple[str, ...], ...]:
        """Tag, kind, name, cluster, range and name there of consecutive instances."""
        joined = join_consecutive(
            (
                each.nominal_time,
                self.find_sequence(each.kind, each.name, each.cluster),
                (each.tag, each.kind.value, each.name, each.cluster, each.by),
            )
            for each in self.items
        )
        return tuple((*cells, render_range(first, last), by) for first, last, (*cells, by) in joined)


def find_dependencies(context: OperationContext, subject: Subject) -> Neighbours:
    """Return the dependencies and dependents of an instance, one step away, on each of some clusters. For a process
    instance these are the instances of its inputs, including optional ones, and of its outputs; for a copy, the
    instances at source and target. For a feed instance these are the process instances and copies that write or read
    it. Of what comes as it comes, and of batches, there are only those that have come or were cut. A cluster where the
    time is no instance fails without the others.

    Differs from Falcon: all producers of a feed are found, exactly also across clock changes; `latest` and `future` are
    resolved as they were when the instance ran, or as they are now. Only the readers through `latest` and `future` are
    guessed, as in Falcon: as if they were `now(0,0)`.

    Raises:
        InstanceQueryError: the entity does not have the lifecycle.
    """
    with context.read() as connection:

        def read(each: Subject, cluster: str) -> Iterator[NeighbourInstance]:
            ask = _of_process if each.kind is Kind.PROCESS else _of_feed
            return ask(context, connection, each.name, cluster, each.instance)

        found = find_single(context, subject).consolidate(read)
    return Neighbours(parts=found.parts, find_sequence=context.find_sequence)


def _of_process(
    context: OperationContext, connection: Connection, name: str, cluster: str, nominal_time: datetime
) -> Iterator[NeighbourInstance]:
    active = context.active_release(connection, name, cluster, nominal_time)
    yield from _inputs(context, connection, active, nominal_time)
    yield from _outputs(connection, active, nominal_time)


def _of_feed(
    context: OperationContext, connection: Connection, name: str, cluster: str, nominal_time: datetime
) -> Iterator[NeighbourInstance]:
    record = context.feed_on(name, cluster)
    record.sequence.index(nominal_time)
    for _, written, time in iter_writers(context, connection, record, nominal_time):
        yield _process(written, time, OUTPUT)
    for _, read, time in iter_readers(context, connection, record, nominal_time):
        yield _process(read, time, INPUT)
    for batch, name in Batches(connection).takers(FeedKey(*record.key, nominal_time)):
        process, where, time = batch
        yield NeighbourInstance(kind=Kind.PROCESS, name=process, cluster=where, nominal_time=time, tag=INPUT, by=name)


def _inputs(
    context: OperationContext, connection: Connection, active: ActiveRelease, nominal_time: datetime
) -> Iterator[NeighbourInstance]:
    process = active.record
    states = input_states(connection, active.plan, process, [nominal_time], context.as_of)[nominal_time]
    for taken in Batches(connection).events_of(ProcessKey(*process.key, nominal_time)) if process.trigger else ():
        if all(state.edge.name != taken.input for state in states):
            for time in sorted({event.nominal_time for event in taken.events}):
                yield _feed((taken.feed, taken.feed_cluster), time, INPUT, taken.input)
    row = ProcessInstances(connection).get(*process.key, nominal_time)
    frozen = {entry.name: entry.nominal_times for entry in row.inputs} if row else {}
    for state in states:
        edge = state.edge
        times = frozen.get(edge.name) if edge.is_data_driven else None
        for time in times or state.expected or ():
            yield _feed(edge.feed_key, time, INPUT, edge.name)


def _outputs(connection: Connection, active: ActiveRelease, nominal_time: datetime) -> Iterator[NeighbourInstance]:
    for edge in active.record.outputs:
        time = active.plan.output_time(edge, nominal_time)
        is_expected = active.plan.feeds[edge.feed_key].is_expected
        if time is not None and (is_expected or FeedInstances(connection).get(*edge.feed_key, time) is not None):
            yield _feed(edge.feed_key, time, OUTPUT, edge.name)


def _feed(key: Key, time: datetime, tag: str, by: str) -> NeighbourInstance:
    return NeighbourInstance(kind=Kind.FEED, name=key[0], cluster=key[1], nominal_time=time, tag=tag, by=by)


def _process(edge: InputEdge | OutputEdge, time: datetime, tag: str) -> NeighbourInstance:
    return NeighbourInstance(
        kind=Kind.PROCESS, name=edge.process, cluster=edge.cluster, nominal_time=time, tag=tag, by=edge.name
    )


def iter_writers(
    context: OperationContext, connection: Connection, record: FeedRecord, nominal_time: datetime
) -> Iterator[tuple[ActiveRelease, OutputEdge, datetime]]:
    """Yield the process instances that write an instance of a feed, with the definitions that govern them."""
    for active in _spans(context, connection, record, [edge.process_key for edge in record.outputs_of]):
        for edge in active.record.outputs:
            if edge.feed_key == record.key:
                for time in _times(connection, active, record, edge.window, nominal_time):
                    yield active, edge, time


def iter_readers(
    context: OperationContext, connection: Connection, record: FeedRecord, nominal_time: datetime
) -> Iterator[tuple[ActiveRelease, InputEdge, datetime]]:
    """Yield the process instances that read a feed's instance by a window, with the definitions that govern them."""
    for active in _spans(context, connection, record, [edge.process_key for edge in record.inputs_of]):
        for edge in active.record.inputs:
            if edge.feed_key == record.key and edge.window is not None:
                window = _own_time() if edge.window.is_data_driven else edge.window
                for time in _times(connection, active, record, window, nominal_time):
                    yield active, edge, time


def _spans(
    context: OperationContext, connection: Connection, record: FeedRecord, processes: Iterable[Key]
) -> Iterator[ActiveRelease]:
    """Yield the releases in effect of all processes that touch a feed, by the current definitions or an older
    release.
    """
    timeline = context.timeline
    older = [*timeline.older(record.cluster), *timeline.older_readers(record.cluster)]
    for process in sorted({*processes, *(each.record.key for each in older)}):
        yield from timeline.spans(connection, process)


def _times(
    connection: Connection, active: ActiveRelease, record: FeedRecord, window: Window, nominal_time: datetime
) -> Iterator[datetime]:
    """Yield the instances of a release span whose window contains the feed's instance, by the feed of that span; only
    those that there are, if something makes each.
    """
    feed, process = active.plan.feeds.get(record.key), active.record
    if feed is None or not feed.sequence.contains(nominal_time):
        return
    found = window.consumers(feed.sequence.index(nominal_time), feed.sequence, process.sequence)
    times: Iterable[datetime] = map(process.sequence.at, found)
    if found and not process.is_enumerated:
        first, last = process.sequence.at(found[0]), process.sequence.at(found[-1])
        times = (row.nominal_time for row in ProcessInstances(connection).find_between(*process.key, first, last))
    yield from filter(active.contains, times)


@cache  # building the parser of expressions takes a tenth of a second, which `why` need not wait for
def _own_time() -> Window:
    return parse_window("now(0,0)", "now(0,0)")
