"""The instances that an instance reads and writes, and those that read and write it: Falcon's `dependency`; and
`triage`, the graph of an unhealthy instance's dependencies, upstream to the first healthy ones. Each process instance
is resolved by the definitions that govern it, so that releases with other windows are included.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import groupby

from sqlalchemy import Connection

from feed_assets.context.consolidation import Consolidated
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.lifecycles import find_single
from feed_assets.instances.lists.ranges import UNSCHEDULED, join_consecutive, render_range
from feed_assets.json_form import NominalTime
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import InputEdge, Key, OutputEdge
from feed_assets.plan.records import FeedRecord
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import Window, parse_window
from feed_assets.triggers.input_windows import input_states, input_states_many
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


PRODUCES = "produces"
CONSUMED_BY = "consumed by"
MOST_VERTICES = 2_000

_HEALTHY = frozenset({FeedInstanceStatus.AVAILABLE.value, ProcessInstanceStatus.SUCCEEDED.value})

Node = tuple[Kind, str, str, datetime]
"""An instance: kind, name, cluster, nominal time. Copies lead from one cluster to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """An instance and its state."""

    kind: Kind
    name: str
    cluster: str
    nominal_time: NominalTime
    status: str

    @property
    def label(self) -> str:
        """The label in Falcon's form: `FEED:clicks:primary:2013-11-03T05:00Z [MISSING]`."""
        return f"{self.subject}:{render_datetime(self.nominal_time)} [{self.status}]"

    @property
    def subject(self) -> str:
        """The part of the label before the time."""
        return f"{self.kind.value.upper()}:{self.name}:{self.cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge from a dependency to its dependent; both are indices of vertices."""

    source: int
    target: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageGraph:
    """The graph of one cluster. The first vertex is the queried instance; `is_whole` is False if the graph was cut off
    because of its size.
    """

    cluster: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    is_whole: bool

    @property
    def dot(self) -> str:
        """The graph in the language of Graphviz."""
        names = [f'"{vertex.label}"' for vertex in self.vertices]
        lines = [f"  {name};" for name in names]
        lines += [f'  {names[edge.source]} -> {names[edge.target]} [label="{edge.label}"];' for edge in self.edges]
        return "\n".join([f'digraph "{self.cluster}" {{', *lines, "}"])

    @property
    def text(self) -> str:
        """A tree with the dependencies below each instance. A repeated instance is not expanded again.

        Instances that end the tree are one line for each series of one feed or process in the same state.
        """
        upstream: dict[int, list[int]] = defaultdict(list)
        for edge in self.edges:
            upstream[edge.target].append(edge.source)
        lines: list[str] = []
        shown: set[int] = set()

        def show(index: int, depth: int) -> None:
            again = " (see above)" if index in shown and upstream[index] else ""
            lines.append(f"{'  ' * depth}{self.vertices[index].label}{again}")
            if index not in shown:
                shown.add(index)
                for _, series in groupby(upstream[index], lambda source: self._ending(source, upstream)):
                    show_series(list(series), depth + 1)

        def show_series(series: list[int], depth: int) -> None:
            if len(series) == 1 or upstream[series[0]]:
                for source in series:
                    show(source, depth)
                return
            first, last = self.vertices[series[0]], self.vertices[series[-1]]
            span = f"{render_datetime(first.nominal_time)} to {render_datetime(last.nominal_time)}"
            lines.append(f"{'  ' * depth}{first.subject}:{span} [{first.status}] ({len(series)} instances)")

        show(0, 0)
        return "\n".join([*lines, *([] if self.is_whole else ["... and more"])])

    def _ending(self, index: int, upstream: Mapping[int, list[int]]) -> object:
        """Return a key that only equal vertices without anything upstream share."""
        vertex = self.vertices[index]
        return index if upstream[index] else (vertex.subject, vertex.status)


def find_triage(context: OperationContext, subject: Subject) -> Consolidated[TriageGraph]:
    """Return on each of some clusters the graph of an instance and its writers and inputs, up to AVAILABLE or SUCCEEDED
    instances. It follows mandatory inputs only, and copies to their source. A cluster where the time is no instance
    fails without the others.

    Raises:
        InstanceQueryError: the entity does not have the lifecycle.
    """
    with context.read() as connection:

        def read(each: Subject, cluster: str) -> Sequence[TriageGraph]:
            if each.kind is Kind.PROCESS:
                context.active_release(connection, each.name, cluster, each.instance)
            else:
                context.feed_on(each.name, cluster).sequence.index(each.instance)
            return [_Walk(context, connection, cluster).graph((each.kind, each.name, cluster, each.instance))]

        return find_single(context, subject).consolidate(read)


class _Walk:
    """A breadth-first walk, one level at a time, so that each level costs a few statements."""

    def __init__(self, context: OperationContext, connection: Connection, cluster: str) -> None:
        self._context = context
        self._connection = connection
        self._cluster = cluster

    def graph(self, start: Node) -> TriageGraph:
        """Walk from a node up to the healthy instances."""
        places: dict[Node, int] = {start: 0}
        vertices: list[Vertex] = []
        edges: list[Edge] = []
        level = [start]
        while level and len(places) <= MOST_VERTICES:
            statuses = self._statuses(level)
            vertices += [self._vertex(node, statuses[node]) for node in level]
            following: list[Node] = []
            for node, sources, label in self._upstream([node for node in level if statuses[node] not in _HEALTHY]):
                for source in sources:
                    if source not in places:
                        places[source] = len(places)
                        following.append(source)
                    edges.append(Edge(source=places[source], target=places[node], label=label))
            level = following
        known = len(vertices)
        inside = tuple(edge for edge in edges if edge.source < known and edge.target < known)
        return TriageGraph(cluster=self._cluster, vertices=tuple(vertices), edges=inside, is_whole=not level)

    def _vertex(self, node: Node, status: str) -> Vertex:
        kind, name, cluster, time = node
        return Vertex(kind=kind, name=name, cluster=cluster, nominal_time=time, status=status)

    def _statuses(self, nodes: Sequence[Node]) -> Mapping[Node, str]:
        feeds = [(name, cluster, time) for kind, name, cluster, time in nodes if kind is Kind.FEED]
        processes = [(name, cluster, time) for kind, name, cluster, time in nodes if kind is Kind.PROCESS]
        feed_rows = FeedInstances(self._connection).get_many(feeds)
        process_rows = ProcessInstances(self._connection).get_many(processes)
        found: dict[Node, str] = {(Kind.FEED, *key): row.status.value for key, row in feed_rows.items()}
        found |= {(Kind.PROCESS, *key): row.status.value for key, row in process_rows.items()}
        missing = FeedInstanceStatus.MISSING.value
        return {node: found.get(node, missing if node[0] is Kind.FEED else UNSCHEDULED) for node in nodes}

    def _upstream(self, nodes: Sequence[Node]) -> Iterator[tuple[Node, list[Node], str]]:
        times: dict[tuple[str, str], list[datetime]] = defaultdict(list)
        for kind, name, cluster, time in nodes:
            if kind is Kind.PROCESS:
                times[name, cluster].append(time)
        for plan, plan_times in self._context.timeline.group(self._connection, times):
            for (name, cluster), by_time in input_states_many(
                self._connection, plan, plan_times, self._context.as_of
            ).items():
                for time, states in by_time.items():
                    mandatory = [state for state in states if not state.edge.optional]
                    sources: list[Node] = [
                        (Kind.FEED, *state.edge.feed_key, each) for state in mandatory for each in state.expected or ()
                    ]
                    yield (Kind.PROCESS, name, cluster, time), sources, CONSUMED_BY
        for kind, name, cluster, time in nodes:
            record = self._context.plan.feeds.get((name, cluster)) if kind is Kind.FEED else None
            if record is not None:
                writers = iter_writers(self._context, self._connection, record, time)
                made: list[Node] = [(Kind.PROCESS, edge.process, edge.cluster, at) for _, edge, at in writers]
                yield (kind, name, cluster, time), made, PRODUCES
