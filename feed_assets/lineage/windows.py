"""Who read and wrote which data in a window of time: CDAP's lineage, breadth-first over what attempts have touched.

A level leads from data to the programs that touched them, and on to all that these touched. Visited data and programs
are not visited again, so cycles end.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection

from feed_assets.catalog.column_sets import ColumnSets
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import source_of
from feed_assets.errors import WrongUsageError
from feed_assets.lineage.records import Edge, EdgeKind, LineageGraph, Node, NodeKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import ActiveAttempt, Attempts
from feed_assets.log.records import COLUMNS, ProcessKey
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.queue.batches import Batches

_SECOND = timedelta(seconds=1)


class Access(StrEnum):
    """What a program does with data."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True, order=True)
class Touching:
    """Data or a program on a cluster: a feed, a process or a flow. Or a place without one that nobody declares."""

    kind: str
    name: str
    cluster: str

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.kind} {self.name}" + (f" on {self.cluster}" if self.cluster else "")


class DataAccess(NamedTuple):
    """That an attempt has touched data at a time; `run` is None for one without a run."""

    data: Touching
    program: Touching
    access: Access
    run: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What a program did with data in a window: by how many attempts, in which runs, and when first and last."""

    data: Touching
    program: Touching
    access: Access
    attempts: int
    runs: tuple[str, ...]
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLineage:
    """What is connected with a feed or process by what was active from `start` to before `end`, nearest first.

    `unknown_outputs` counts what attempts have written and whose events were cleaned up.
    """

    kind: Kind
    name: str
    start: datetime
    end: datetime
    relations: tuple[Relation, ...]
    unknown_outputs: int = 0

    @property
    def text(self) -> tuple[str, ...]:
        """A line for each data, and below it one for each program and what it did with them."""
        by_data: dict[Touching, list[Relation]] = defaultdict(list)
        for each in self.relations:
            by_data[each.data].append(each)
        return tuple(
            line
            for data, relations in by_data.items()
            for line in (data.label, *map(_describe, sorted(relations, key=lambda each: (each.access, each.program))))
        )

    @property
    def graph(self) -> LineageGraph:
        """The same without times: what has read and made what."""
        nodes = dict.fromkeys(node for each in self.relations for node in (each.data, each.program))
        return LineageGraph(
            starts=tuple(each.label for each in nodes if (each.kind, each.name) == (self.kind, self.name)),
            nodes=tuple(
                Node(id=each.label, kind=NodeKind(each.kind), name=each.name, cluster=each.cluster) for each in nodes
            ),
            edges=tuple(
                Edge(source=each.data.label, target=each.program.label, kind=EdgeKind.READ)
                if each.access is Access.READ
                else Edge(source=each.program.label, target=each.data.label, kind=EdgeKind.MADE)
                for each in self.relations
            ),
        )

    @property
    def dot(self) -> str:
        """The graph in the language of Graphviz."""
        return self.graph.dot

    @property
    def svg(self) -> str:
        """The graph as a picture."""
        return self.graph.svg

    @property
    def cdap(self) -> Mapping[str, Any]:
        """CDAP's document, collapsed by run and access: times in seconds, clusters as namespaces."""
        by_pair: dict[tuple[str, str], list[Relation]] = defaultdict(list)
        data, programs = {}, {}
        for each in self.relations:
            (namespace, name), (of, program) = ((one.cluster, one.name) for one in (each.data, each.program))
            pair = f"dataset.{namespace}.{name}", f"workflow.{of}.{program}.{program}"
            by_pair[pair].append(each)
            data[pair[0]] = {"entityId": {"namespace": namespace, "dataset": name, "entity": "DATASET"}}
            entity = {"namespace": of, "application": program, "version": "-SNAPSHOT", "type": "Workflow"}
            programs[pair[1]] = {"entityId": {**entity, "program": program, "entity": "PROGRAM"}}
        relations = [
            {
                "data": one,
                "program": other,
                "accesses": sorted({each.access.value for each in found}),
                "runs": sorted({run for each in found for run in each.runs}),
                "components": [],
            }
            for (one, other), found in by_pair.items()
        ]
        span = {"start": int(self.start.timestamp()), "end": int(self.end.timestamp())}
        return {**span, "relations": relations, "programs": programs, "data": data}

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known any more."""
        if not self.unknown_outputs:
            return ()
        return (f"{self.unknown_outputs:,} outputs are missing here: their events of long ago were cleaned up",)

    @property
    def summary(self) -> str:
        """What is said if there is nothing."""
        span = f"{render_datetime(self.start)} to before {render_datetime(self.end)}"
        return "" if self.relations else f"nothing has touched {self.kind.value} {self.name!r} from {span}"


def _describe(each: Relation) -> str:
    verb = "read" if each.access is Access.READ else "written"
    count = f"{each.attempts} attempt{'' if each.attempts == 1 else 's'}"
    if each.first_at == each.last_at:
        span = f"at {render_datetime(each.first_at)}"
    else:
        span = f"from {render_datetime(each.first_at)} to {render_datetime(each.last_at)}"
    return f"  {verb} by {each.program.label}: {count} {span}"


def gather_relations(accesses: Iterable[DataAccess]) -> list[Relation]:
    """Gather accesses to relations: one for each program and what it did with each data."""
    found: dict[tuple[Touching, Touching, Access], list[DataAccess]] = defaultdict(list)
    for each in accesses:
        found[each[:3]].append(each)
    return [
        Relation(
            data=data,
            program=program,
            access=access,
            attempts=len(rows),
            runs=tuple(sorted({each.run for each in rows if each.run is not None})),
            first_at=min(each.at for each in rows),
            last_at=max(each.at for each in rows),
        )
        for (data, program, access), rows in sorted(found.items())
    ]


def walk_relations(
    relations: Iterable[Relation], roots: Collection[Touching], levels: int, *, up: bool = False, down: bool = False
) -> tuple[Relation, ...]:
    """Return the relations on the way from data or programs through some levels, nearest first: those that lead to what
    they were made of (`up`) or to what was made of them (`down`), by default all. From a program, the first level is
    its own data.
    """
    towards = {Access.WRITE: up or not down, Access.READ: down or not up}
    onwards = {Access.READ: up or not down, Access.WRITE: down or not up}
    of_data: dict[Touching, list[Relation]] = defaultdict(list)
    of_program: dict[Touching, list[Relation]] = defaultdict(list)
    for each in relations:
        of_data[each.data].append(each)
        of_program[each.program].append(each)
    found: dict[Relation, None] = {}
    seen: set[Touching] = set()
    data = {each for each in roots if each.kind != Kind.PROCESS}
    programs = set(roots) - data
    for _ in range(levels):
        seen |= data
        touched = [each for one in sorted(data) for each in of_data[one] if towards[each.access]]
        programs = (programs | {each.program for each in touched}) - seen
        if not programs:
            break
        seen |= programs
        after = [each for one in sorted(programs) for each in of_program[one] if onwards[each.access]]
        found |= dict.fromkeys([*touched, *after])
        data, programs = {each.data for each in after} - seen, set()
    return tuple(found)


def find_window_lineage(
    context: OperationContext,
    name: str,
    *,
    kind: Kind | None = None,
    clusters: Sequence[str] = (),
    start: datetime | None,
    end: datetime | None = None,
    levels: int = 10,
    up: bool = False,
    down: bool = False,
) -> WindowLineage:
    """Return what is connected with a feed, process or flow by the attempts that were active from `start` to before
    `end`, by default up to this second: those that began before the end, and had not ended before the start. One that
    is suspended has not ended. The name of what was deleted will do.

    Raises:
        WrongUsageError: there is no start, it is after the end, or there are no levels.
        EntityNotFoundError: nothing of this name was ever declared.
        InstanceQueryError: a cluster never was.
    """
    end = context.as_of.replace(microsecond=0) + _SECOND if end is None else end
    if start is None:
        raise WrongUsageError("Give --start, too: the window is from --start to before --end.")
    if start > end:
        raise WrongUsageError(
            f"--start {render_datetime(start)} is after --end {render_datetime(end)}; give an earlier --start."
        )
    if levels < 1:
        raise WrongUsageError(f"--levels {levels} is below 1; a level leads from data to programs and to their data.")
    with context.read() as connection:
        kinds = context.kinds_ever(connection, name, kind)
        asked = context.clusters_ever(connection, clusters)
        active = Attempts(connection).active(context.clusters_ever(connection), start, end)
        accesses, unknown = _read_accesses(connection, active)
    relations, found = gather_relations(accesses), tuple[Relation, ...]()
    for of_kind in kinds:
        roots = [Touching(of_kind.value, name, cluster) for cluster in asked]
        if found := walk_relations(relations, roots, levels, up=up, down=down):
            break
    return WindowLineage(
        kind=of_kind,
        name=name,
        start=start,
        end=end,
        relations=found,
        unknown_outputs=unknown,
    )


def _read_accesses(connection: Connection, active: Sequence[ActiveAttempt]) -> tuple[list[DataAccess], int]:
    """Return what attempts have read and written, and how many outputs are not in the log any more."""
    events = EventLog(connection).of_numbers(seq for each in active for seq in each.outputs)
    named = {seq: str(event.payload[COLUMNS]) for seq, event in events.items() if COLUMNS in event.payload}
    sets = ColumnSets(connection).find(named.values())
    taken: dict[ProcessKey, set[Touching]] = defaultdict(set)
    for one in Batches(connection).taken_by([ProcessKey(*each[:3]) for each in active]):
        taken[one.batch].add(Touching(Kind.FEED.value, one.event.feed, one.event.cluster))
    found, unknown = [], 0
    for each in active:
        program = Touching(Kind.PROCESS.value, each.process, each.cluster)
        source = source_of(each.process) or each.cluster
        beyond = (sets[named[seq]].beyond for seq in each.outputs if named.get(seq) in sets)
        data = {Touching(Kind.FEED.value, feed, source) for feed in filter(None, each.feeds)}
        data |= taken[ProcessKey(*each[:3])]
        data |= {Touching(NodeKind.PLACE.value, name, "") for name in chain.from_iterable(beyond)}
        found += [DataAccess(one, program, Access.READ, each.run_id, each.started_at) for one in sorted(data)]
        known = [events[seq] for seq in each.outputs if seq in events]
        unknown += len(each.outputs) - len(known)
        for event in known:
            written = Touching(Kind.FEED.value, event.feed, event.cluster)
            found.append(DataAccess(written, program, Access.WRITE, each.run_id, event.recorded_at))
    return found, unknown
