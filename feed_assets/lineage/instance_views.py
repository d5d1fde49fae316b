"""The instances that an instance reads and writes, and those that read and write it: Falcon's `dependency`; and
`triage`, the graph of an unhealthy instance's dependencies, upstream to the first healthy ones. Each process instance
is resolved by the definitions that govern it, so that releases with other windows are included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from feed_assets.context.consolidation import Consolidated
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.lifecycles import find_single
from feed_assets.instances.lists.ranges import UNSCHEDULED, join_consecutive, render_range
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.lineage.recorded import RecordedLineage
from feed_assets.lineage.records import MORE, MOST_NODES, Edge, EdgeKind, LineageGraph, Node, NodeKind
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.plan.edges import InputEdge
from feed_assets.releases.left_out import find_readers, find_writers
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.triggers.input_windows import input_states, read_states
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
                active = context.active_release(connection, each.name, cluster, each.instance)
                return chain(
                    _inputs(context, connection, active, each.instance), _outputs(connection, active, each.instance)
                )
            return _of_feed(context, connection, port, FeedKey(each.name, cluster, each.instance))

        found = find_single(context, subject).consolidate(read)
    return Neighbours(parts=found.parts, remarks=tuple(sorted(port.remarks)), find_sequence=context.find_sequence)


def _of_feed(
    context: OperationContext, connection: Connection, port: RecordedLineage, key: FeedKey
) -> Iterator[NeighbourInstance]:
    record, nominal_time = context.feed_on(key.feed, key.cluster), key.nominal_time
    record.sequence.index(nominal_time)
    for out, writer in find_writers(context.timeline, connection, record, nominal_time):
        yield _neighbour(Kind.PROCESS, writer, OUTPUT, out.name)
    found = {(each.attempt.key, each.input) for each in port.find_readers([key])}
    planned = find_readers(context.timeline, connection, record, nominal_time)
    taken = Batches(connection).takers([key])
    ran = ProcessInstances(connection).get_many({*(reader for _, reader in planned), *(each.batch for each in taken)})
    has_read = {(row.key, frozen.name) for row in ran.values() for frozen in row.inputs}
    found |= {(each.batch, each.input) for each in taken if (each.batch, each.input) not in has_read}
    found |= {
        (reader, edge.name)
        for edge, reader in planned
        if (reader not in ran or not ran[reader].inputs)
        and _will_read(context, connection, edge, reader.nominal_time, nominal_time)
    }
    for process, by in sorted(found):
        yield _neighbour(Kind.PROCESS, process, INPUT, by)


def _will_read(
    context: OperationContext, connection: Connection, edge: InputEdge, time: datetime, feed_time: datetime
) -> bool:
    """Return whether an instance that has not run would read what its window names, or what it finds now."""
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
            for key in sorted({event.key for event in taken.events}):
                yield _neighbour(Kind.FEED, key, INPUT, taken.input)
    row = ProcessInstances(connection).get(*process.key, nominal_time)
    frozen = {entry.name: entry.nominal_times for entry in row.inputs} if row else {}
    for edge, expected in ((state.edge, state.expected) for state in states):
        for time in frozen.get(edge.name, ()) if frozen else expected or ():
            yield _neighbour(Kind.FEED, FeedKey(*edge.feed_key, time), INPUT, edge.name)


def _outputs(connection: Connection, active: ActiveRelease, nominal_time: datetime) -> Iterator[NeighbourInstance]:
    for edge in active.record.outputs:
        time = active.plan.output_time(edge, nominal_time)
        is_expected = active.plan.feeds[edge.feed_key].is_expected
        if time is not None and (is_expected or FeedInstances(connection).get(*edge.feed_key, time) is not None):
            yield _neighbour(Kind.FEED, FeedKey(*edge.feed_key, time), OUTPUT, edge.name)


def _neighbour(kind: Kind, key: FeedKey | ProcessKey, tag: str, by: str) -> NeighbourInstance:
    name, cluster, time = key
    return NeighbourInstance(kind=kind, name=name, cluster=cluster, nominal_time=time, tag=tag, by=by)


LABELS = {EdgeKind.MADE: "produces", EdgeKind.READ: "consumed by"}

_HEALTHY = frozenset({FeedInstanceStatus.AVAILABLE.value, ProcessInstanceStatus.SUCCEEDED.value})

_Instance = tuple[Kind, str, str, datetime]
"""Kind, name, cluster, nominal time. Copies lead from one cluster to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageGraph:
    """The graph of one cluster, in Falcon's form. The first vertex is the queried instance; `is_whole` is False if it
    was cut off because of its size.
    """

    cluster: str
    graph: Hidden[LineageGraph]

    @shown
    def vertices(self) -> tuple[Mapping[str, str], ...]:
        """The instances with their states."""
        return tuple(map(_cells, self.graph.nodes))

    @shown
    def edges(self) -> tuple[Mapping[str, int | str], ...]:
        """The edges from a dependency to its dependent, by the indices of the vertices."""
        places = {each.id: place for place, each in enumerate(self.graph.nodes)}
        return tuple(
            {"source": places[each.source], "target": places[each.target], "label": LABELS[each.kind]}
            for each in self.graph.edges
        )

    @shown
    def is_whole(self) -> bool:
        """Whether nothing was cut off."""
        return self.graph.is_whole

    @property
    def dot(self) -> str:
        """The graph in the language of Graphviz."""
        names = {each.id: f'"{label_of(each)}"' for each in self.graph.nodes}
        lines = [f"  {name};" for name in (*names.values(), *([] if self.is_whole else [f'"{MORE}"']))]
        lines += [f'  {names[e.source]} -> {names[e.target]} [label="{LABELS[e.kind]}"];' for e in self.graph.edges]
        return "\n".join([f'digraph "{self.cluster}" {{', *lines, "}"])

    @property
    def text(self) -> str:
        """A tree with the dependencies below each instance. A repeated instance is not expanded again.

        Instances that end the tree are one line for each series of one feed or process in the same state.
        """
        return "\n".join([*self.graph.tree(upwards=True, label=label_of), *([] if self.is_whole else [MORE])])


def _cells(node: Node) -> dict[str, str]:
    time = render_datetime(node.nominal_time) if node.nominal_time else ""
    status, cluster = node.state or "", node.cluster or ""
    return {"kind": node.kind.value, "name": node.name, "cluster": cluster, "nominal_time": time, "status": status}


def label_of(node: Node, until: datetime | None = None) -> str:
    """Return the label of an instance in Falcon's form: `FEED:clicks:primary:2013-11-03T05:00Z [MISSING]`."""
    *cells, status = _cells(node).values()
    span = f" to {render_datetime(until)}" if until else ""
    return f"{':'.join([cells[0].upper(), *cells[1:]])}{span} [{status}]"


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
            start = (each.kind, each.name, cluster, each.instance)
            return [TriageGraph(cluster=cluster, graph=_walk_to_healthy(context, connection, start))]

        return find_single(context, subject).consolidate(read)


def _walk_to_healthy(context: OperationContext, connection: Connection, start: _Instance) -> LineageGraph:
    """Walk up to the healthy instances, breadth-first, one level at a time, so that each costs a few statements."""
    nodes: dict[_Instance, Node] = {}
    edges: list[tuple[_Instance, _Instance, EdgeKind]] = []
    level = [start]
    while level and len(nodes) + len(level) <= MOST_NODES:
        statuses = _statuses(connection, level)
        for each in level:
            kind, name, cluster, time = each
            more: dict[str, Any] = {"cluster": cluster, "nominal_time": time, "state": statuses[each]}
            nodes[each] = Node(id=f"{kind}/{name}/{cluster}/{time}", kind=NodeKind(kind), name=name, **more)
        unhealthy = [each for each in level if statuses[each] not in _HEALTHY]
        found = [*_upstream(context, connection, unhealthy)]
        edges += found
        level = [*dict.fromkeys(source for source, _, _ in found if source not in nodes)]
    return LineageGraph(
        starts=(nodes[start].id,),
        nodes=tuple(nodes.values()),
        edges=tuple(
            Edge(source=nodes[source].id, target=nodes[target].id, kind=kind)
            for source, target, kind in edges
            if source in nodes
        ),
        is_whole=not level,
        down=False,
    )


def _statuses(connection: Connection, instances: Sequence[_Instance]) -> Mapping[_Instance, str]:
    rows: dict[Kind, Mapping[Any, FeedInstance | ProcessInstance]] = {
        Kind.FEED: FeedInstances(connection).get_many([each[1:] for each in instances if each[0] is Kind.FEED]),
        Kind.PROCESS: ProcessInstances(connection).get_many(
            [each[1:] for each in instances if each[0] is Kind.PROCESS]
        ),
    }
    none = {Kind.FEED: FeedInstanceStatus.MISSING.value, Kind.PROCESS: UNSCHEDULED}
    return {
        each: row.status.value if (row := rows[each[0]].get(each[1:])) is not None else none[each[0]]
        for each in instances
    }


def _upstream(
    context: OperationContext, connection: Connection, instances: Sequence[_Instance]
) -> Iterator[tuple[_Instance, _Instance, EdgeKind]]:
    """Yield what instances depend on, each with the instance and how."""
    work = [ProcessKey(name, cluster, time) for kind, name, cluster, time in instances if kind is Kind.PROCESS]
    for key, states in read_states(connection, context.timeline, work, context.as_of).items():
        for state in states:
            for each in state.expected or () if not state.edge.optional else ():
                yield (Kind.FEED, *state.edge.feed_key, each), (Kind.PROCESS, *key), EdgeKind.READ
    for kind, name, cluster, time in instances:
        record = context.plan.feeds.get((name, cluster)) if kind is Kind.FEED else None
        for _, writer in find_writers(context.timeline, connection, record, time) if record is not None else ():
            yield (Kind.PROCESS, *writer), (kind, name, cluster, time), EdgeKind.MADE
