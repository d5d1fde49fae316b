"""`triage`: the graph of an unhealthy instance's dependencies, upstream to the first healthy ones."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sqlalchemy import Connection

from feed_assets.context.consolidation import Consolidated
from feed_assets.context.operation import OperationContext
from feed_assets.context.subjects import Subject
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.lifecycles import find_single
from feed_assets.instances.lists.neighbours import iter_writers
from feed_assets.json_form import NominalTime
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.input_windows import input_states_many

PRODUCES = "produces"
CONSUMED_BY = "consumed by"
MOST_VERTICES = 2_000
UNSCHEDULED = "UNSCHEDULED"

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
