"""The instances that an instance reads and writes, and those that read and write it: Falcon's `dependency`; and
`triage`, the graph of an unhealthy instance's dependencies, upstream to the first healthy ones. Each process instance
is resolved by the definitions that govern it, so that releases with other windows are included.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.context.consolidation import Consolidated
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.lifecycles import find_single
from feed_assets.instances.lists.ranges import UNSCHEDULED, join_consecutive, render_range
from feed_assets.json_form import NominalTime
from feed_assets.lineage.recorded import RecordedLineage
from feed_assets.lineage.records import MORE, MOST_NODES, render_tree
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import Key
from feed_assets.releases.left_out import Reader, find_readers, find_writers
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence
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

    Differs from Falcon: all producers of a feed are found, exactly also across clock changes. Who has run is a reader
    of what it has frozen, and of nothing else; `latest` and `future` of others are resolved as they are now.

    Raises:
        InstanceQueryError: the entity does not have the lifecycle.
    """
    with context.read() as connection:
        port = RecordedLineage(context.timeline, connection)

        def read(each: Subject, cluster: str) -> Iterator[NeighbourInstance]:
            if each.kind is Kind.PROCESS:
                return _of_process(context, connection, each.name, cluster, each.instance)
            return _of_feed(context, connection, port, FeedKey(each.name, cluster, each.instance))

        found = find_single(context, subject).consolidate(read)
    return Neighbours(parts=found.parts, remarks=tuple(sorted(port.remarks)), find_sequence=context.find_sequence)


def _of_process(
    context: OperationContext, connection: Connection, name: str, cluster: str, nominal_time: datetime
) -> Iterator[NeighbourInstance]:
    active = context.active_release(connection, name, cluster, nominal_time)
    yield from _inputs(context, connection, active, nominal_time)
    yield from _outputs(connection, active, nominal_time)


def _of_feed(
    context: OperationContext, connection: Connection, port: RecordedLineage, key: FeedKey
) -> Iterator[NeighbourInstance]:
    record, nominal_time = context.feed_on(key.feed, key.cluster), key.nominal_time
    record.sequence.index(nominal_time)
    for writer in find_writers(context.timeline, connection, record, nominal_time):
        yield _process(writer.key, writer.edge.name, OUTPUT)
    found = {(each.attempt.key, each.input) for each in port.find_readers([key])}
    planned = find_readers(context.timeline, connection, record, nominal_time)
    taken = Batches(connection).takers([key])
    ran = ProcessInstances(connection).get_many({*(each.key for each in planned), *(each.batch for each in taken)})
    has_read = {(row.key, frozen.name) for row in ran.values() for frozen in row.inputs}
    found |= {(each.batch, each.input) for each in taken if (each.batch, each.input) not in has_read}
    found |= {
        (each.key, each.edge.name)
        for each in planned
        if (each.key not in ran or not ran[each.key].inputs) and _will_read(context, connection, each, nominal_time)
    }
    for process, by in sorted(found):
        yield _process(process, by, INPUT)


def _will_read(context: OperationContext, connection: Connection, reader: Reader, feed_time: datetime) -> bool:
    """Return whether an instance that has not run would read what its window names, or what it finds now."""
    edge, time = reader.edge, reader.key.nominal_time
    if not edge.is_data_driven:
        return True
    active = context.active_release(connection, edge.process, edge.cluster, time)
    states = input_states(connection, active.plan, active.record, [time], context.as_of)[time]
    return any(state.edge.name == edge.name and feed_time in (state.expected or ()) for state in states)


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
    for edge, expected in ((state.edge, state.expected) for state in states):
        for time in frozen.get(edge.name, ()) if frozen else expected or ():
            yield _feed(edge.feed_key, time, INPUT, edge.name)


def _outputs(connection: Connection, active: ActiveRelease, nominal_time: datetime) -> Iterator[NeighbourInstance]:
    for edge in active.record.outputs:
        time = active.plan.output_time(edge, nominal_time)
        is_expected = active.plan.feeds[edge.feed_key].is_expected
        if time is not None and (is_expected or FeedInstances(connection).get(*edge.feed_key, time) is not None):
            yield _feed(edge.feed_key, time, OUTPUT, edge.name)


def _feed(key: Key, time: datetime, tag: str, by: str) -> NeighbourInstance:
    return NeighbourInstance(kind=Kind.FEED, name=key[0], cluster=key[1], nominal_time=time, tag=tag, by=by)


def _process(key: ProcessKey, by: str, tag: str) -> NeighbourInstance:
    return NeighbourInstance(
        kind=Kind.PROCESS, name=key.process, cluster=key.cluster, nominal_time=key.nominal_time, tag=tag, by=by
    )


PRODUCES = "produces"
CONSUMED_BY = "consumed by"

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
        lines = [f"  {name};" for name in (*names, *([] if self.is_whole else [f'"{MORE}"']))]
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

        def line(_: int | None, first: int, last: int | None) -> str:
            vertex = self.vertices[first]
            if last is None:
                return vertex.label
            until = render_datetime(self.vertices[last].nominal_time)
            return f"{vertex.subject}:{render_datetime(vertex.nominal_time)} to {until} [{vertex.status}]"

        def series(_: int, each: int) -> Hashable:
            return (self.vertices[each].subject, self.vertices[each].status)

        return "\n".join([*render_tree([0], upstream, line, series), *([] if self.is_whole else [MORE])])


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
            return [_Triage(context, connection, cluster).graph((each.kind, each.name, cluster, each.instance))]

        return find_single(context, subject).consolidate(read)


class _Triage:
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
        while level and len(places) <= MOST_NODES:
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
                writers = find_writers(self._context.timeline, self._connection, record, time)
                yield (kind, name, cluster, time), [(Kind.PROCESS, *writer.key) for writer in writers], PRODUCES
