"""Which columns a column came of, and which came of it: a walk from set to set, of those that were recorded when feeds
were last made. Copies have the columns of their sources.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import chain, product
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.catalog.column_sets import NOT_TOLD, ColumnSet, ColumnSets, FeedColumn
from feed_assets.catalog.descriptions import COLUMN
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.content.column_lineage import DECLARED
from feed_assets.entities.content.columns import has_path, iter_columns
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.flow_names import source_of
from feed_assets.errors import Fault, find_similar
from feed_assets.lineage.records import MORE_LEVELS, Edge, EdgeKind, LineageGraph, Node, NodeKind
from feed_assets.log.events import EventLog
from feed_assets.log.records import COLUMNS, FeedEvent, FeedEventKind, FeedKey
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.timing.dates import render_datetime

ALL = "*"
"""Stands for all columns of a feed: what decides which rows are there decides each of them."""

_MAKING = (FeedEventKind.PRODUCED, FeedEventKind.REPLICATED)


class Column(NamedTuple):
    """A column of a feed on a cluster."""

    feed: str
    cluster: str
    name: str

    @property
    def id(self) -> str:
        return "/".join((COLUMN, *self))

    def covers(self, name: str) -> bool:
        """Return whether it is the column of a name, as Spark compares them, or one is a field in the other."""
        one, other = f"{self.name.lower()}.", f"{name.lower()}."
        return self.name == ALL or one.startswith(other) or other.startswith(one)


class Step(NamedTuple):
    """That a column came of another one, and by which expression, if it is more than the column."""

    source: Column
    target: Column
    kind: EdgeKind
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Made:
    """How an instance of a feed was made: by a process of these columns, or by a flow as a copy of a cluster's."""

    process: str
    columns: ColumnSet
    source: str | None
    nominal_time: datetime

    def find(self, column: Column) -> list[str]:
        """Return the names of its columns that a column covers."""
        names = self.columns.columns if column.name == ALL else self._names.get(_root(column.name), ())
        return [name for name in names if column.covers(name)]

    def find_read(self, column: Column) -> Iterator[tuple[str, FeedColumn]]:
        """Yield what was read that a column covers, each with the name of what came of it."""
        feed, name = column.feed, column.name
        keys = self._read if name == ALL else [(feed, _root(name))]
        for found in chain.from_iterable(self._read.get(key, ()) for key in keys if key[0] == feed):
            if column.covers(found[1].column):
                yield found

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.columns.columns:
            found[_root(name)].append(name)
        return found

    @cached_property
    def _read(self) -> dict[tuple[str, str], list[tuple[str, FeedColumn]]]:
        found: dict[tuple[str, str], list[tuple[str, FeedColumn]]] = defaultdict(list)
        for name, sources in {**self.columns.columns, ALL: self.columns.indirect}.items():
            for each in sources:
                found[each.feed, _root(each.column)].append((name, each))
        return found


def _root(name: str) -> str:
    return name.lower().partition(".")[0]


def find_column_lineage(
    context: OperationContext, feed: Subject, column: str, *, up: bool, down: bool, levels: int, as_of: datetime | None
) -> LineageGraph:
    """Return what a column of a feed came of and what came of it, or one of both; each level is a step between feeds.

    Raises:
        EntityNotFoundError: the feed has other columns.
        InstanceQueryError: nothing on record has made the instance that is asked for, or there never was a cluster.
    """
    ways = [way for way in (True, False) if up is down or way is up]
    walks: list[_Walk] = []
    starts: dict[str, None] = {}
    remarks: dict[str, None] = {}
    with context.read() as connection:
        context.clusters_ever(connection, feed.clusters)
        for upwards, cluster in product(ways, feed.asked):
            key = context.feed_on(feed.name, cluster).key
            walk = _Walk(context.plan, connection, as_of or context.as_of)
            if feed.nominal_time is not None and not walk.begin_with(key, feed.instance, upwards=upwards):
                continue
            known = walk.known(key)
            asked = {name.lower(): name for name in known}.get(column.lower(), column)
            if not walk.may_have(Column(*key, asked), known):
                near = tuple(find_similar(asked, known, n=3, cutoff=0))
                raise EntityNotFoundError(kind=COLUMN, name=f"{feed.name}.{asked}", suggestions=near)
            if as_of is not None and walk.is_made(key) and walk.made(key) is None:
                remarks[f"nothing of feed {key[0]!r} on {key[1]!r} was made until {render_datetime(as_of)}"] = None
            began = [Column(*key, name) for name in ((*known, ALL) if asked == ALL else [asked])]
            walk.listed = frozenset(began if known and asked == ALL else ())
            starts |= dict.fromkeys(each.id for each in began)
            walk.follow(began, levels, upwards=upwards)
            walks.append(walk)
    if not walks:
        subject, reason = f"feed {feed.name!r} at {render_datetime(feed.instance)}", "no production of it is on record"
        raise InstanceQueryError(
            subject=subject, reason=reason, next_step="Name another instance.", fault=Fault.MISSING
        )
    is_whole = all(walk.is_whole for walk in walks)
    return LineageGraph(
        starts=tuple(starts),
        nodes=tuple({node.id: node for walk in walks for node in walk.nodes.values()}.values()),
        edges=tuple(dict.fromkeys(edge for walk in walks for edge in walk.edges)),
        is_whole=is_whole,
        remarks=(*remarks, *(() if is_whole else (MORE_LEVELS.format(levels),))),
        up=True in ways,
        down=False in ways,
    )


@dataclass(slots=True)
class _Walk:
    """What was found until a time; how the data of each feed were made is asked once."""

    plan: Plan
    connection: Connection
    until: datetime
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[Edge, None] = field(default_factory=dict)
    is_whole: bool = True
    listed: frozenset[Column] = frozenset()
    """All columns of a feed, of which what decides the rows is told once."""
    _made: dict[Key, Made | None] = field(default_factory=dict)

    def begin_with(self, key: Key, nominal_time: datetime, *, upwards: bool) -> bool:
        """Ask for the data of an instance, and upwards for what others were then; return whether they are on record."""
        events = EventLog(self.connection).for_instances([(*key, nominal_time)]).get(FeedKey(*key, nominal_time), [])
        found = [each for each in events if each.kind in _MAKING and each.recorded_at <= self.until]
        if found:
            self._made[key] = self._load(found[-1])
            self.until = found[-1].recorded_at if upwards else self.until
        return bool(found)

    def made(self, key: Key) -> Made | None:
        """Return how the newest data of a feed were made; None if they came from outside."""
        if key not in self._made:
            event = EventLog(self.connection).newest(*key, _MAKING, until=self.until) if self.is_made(key) else None
            self._made[key] = None if event is None else self._load(event)
        return self._made[key]

    def is_made(self, key: Key) -> bool:
        """Return whether a feed does not come from outside only: then its many arrivals would be read."""
        record = self.plan.feeds.get(key)
        return record is None or not record.is_external

    def may_have(self, column: Column, known: list[str]) -> bool:
        """Return whether a feed may have a column, or a field in one, as far as its columns are known."""
        record = self.plan.feeds.get(column[:2])
        if record is not None and record.columns is not None and column.name != ALL:
            return has_path(record.columns, column.name)
        return not known or any(map(column.covers, known))

    def _load(self, event: FeedEvent) -> Made:
        process, digest = (str(event.payload.get(name)) for name in ("process", COLUMNS))
        unknown = ColumnSet(unknown=NOT_TOLD if event.kind is FeedEventKind.PRODUCED else None)
        found = ColumnSets(self.connection).find([digest]).get(digest, unknown)
        return Made(process=process, columns=found, source=source_of(process), nominal_time=event.nominal_time)

    def known(self, key: Key) -> list[str]:
        """Return the columns of a feed that are declared, or else on record; none if they are not known."""
        record, made = self.plan.feeds.get(key), self.made(key)
        if record is not None and record.columns is not None:
            return [each.path for each in iter_columns(record.columns)]
        if made is not None:
            return sorted(made.columns.columns)
        sets = [found.columns for _, found in self._readers(key)]
        read = [source for each in sets for sources in (*each.columns.values(), each.indirect) for source in sources]
        return sorted({each.column for each in read if each.feed == key[0]})

    def follow(self, began: Iterable[Column], levels: int, *, upwards: bool) -> None:
        """Add what is above or below some columns."""
        frontier = list(dict.fromkeys(began))
        seen = set(frontier)
        for each in frontier:
            self._add(each)
        for level in range(levels + 1):
            steps = [step for each in frontier for step in (self._origins(each) if upwards else self._readings(each))]
            if level == levels or not steps:
                self.is_whole = not steps
                return
            for step in steps:
                self._connect(step)
            found = dict.fromkeys(step.source if upwards else step.target for step in steps)
            frontier = [each for each in found if each not in seen]
            seen.update(frontier)

    def _origins(self, column: Column) -> Iterator[Step]:
        """Yield the steps to what a column came of."""
        made = self.made(column[:2])
        if made is not None and made.source is not None:
            yield Step(column._replace(cluster=made.source), column, EdgeKind.COPIED)
        elif made is not None:
            own, rows = made.columns.columns, made.columns.indirect
            read = [*chain.from_iterable(own[name] for name in made.find(column)), *rows]
            if column in self.listed:
                read = [*rows] if column.name == ALL else read[: len(read) - len(rows)]
            for each in read:
                yield _step(Column(each.feed, column.cluster, each.column), column, each)

    def _readers(self, key: Key) -> Iterator[tuple[Key, Made]]:
        """Yield the feeds whose newest data readers of a feed have made: by the edges of the plan."""
        record = self.plan.feeds.get(key)
        for edge in record.inputs_of if record is not None else ():
            for output in self.plan.processes[edge.process_key].outputs:
                made = self.made(output.feed_key)
                if made is not None and made.process == edge.process:
                    yield output.feed_key, made

    def _readings(self, column: Column) -> Iterator[Step]:
        """Yield the steps to what came of a column."""
        for key, made in self._readers(column[:2]):
            if made.source is not None:
                yield Step(column, Column(*key, column.name), EdgeKind.COPIED)
            if made.columns.unknown is not None:
                yield Step(column, Column(*key, ALL), EdgeKind.READ)
            for name, each in made.find_read(column):
                yield _step(column, Column(*key, name), each)

    def _add(self, column: Column) -> str:
        if column.id not in self.nodes:
            name, made = f"{column.feed}.{column.name}", self.made(column[:2])
            is_told = made is None or (column.name != ALL and bool(made.find(column)))
            found = ColumnSet() if made is None else made.columns
            remarks = [f"what it is made of is unknown: {found.unknown}"] if found.unknown and not is_told else []
            remarks += [f"its work has also read {each}" for each in found.beyond]
            self.nodes[column.id] = Node(
                id=column.id,
                kind=NodeKind.COLUMN,
                name=name,
                cluster=column.cluster,
                nominal_time=None if made is None else made.nominal_time,
                remarks=tuple(remarks),
            )
        return column.id

    def _connect(self, step: Step) -> None:
        """Add a step, through its expression."""
        source, target = self._add(step.source), self._add(step.target)
        if step.text:
            between = f"expression/{target}/{step.text}"
            self.nodes.setdefault(between, Node(id=between, kind=NodeKind.EXPRESSION, name=step.text))
            self.edges[Edge(source=source, target=between, kind=step.kind)] = None
            source = between
        self.edges[Edge(source=source, target=target, kind=step.kind)] = None


def _step(source: Column, target: Column, read: FeedColumn) -> Step:
    if read.text == DECLARED:
        return Step(source, target, EdgeKind.DECLARED)
    return Step(source, target, EdgeKind(read.kind), read.text)
