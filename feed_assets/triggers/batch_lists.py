"""`batch list`: the batches of processes that take what comes, a page at a time."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_, select

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.log.instances.process_instances import ROWS
from feed_assets.log.instances.tables import process_instances
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.pages import PAGES, Page
from feed_assets.plan.records import ProcessRecord
from feed_assets.sql.rows import KEY_ROWS, TableStore, key_rows, render_rows
from feed_assets.triggers.queries import BatchQuery
from feed_assets.triggers.queue.records import QueueAction, RangeUse
from feed_assets.triggers.queue.store import QueueEnds
from feed_assets.triggers.queue.tables import batches, queue_changes

_B = batches.c
_C = queue_changes.c
_E = feed_events.c
_P = process_instances.c
_FREED = (_C.action == QueueAction.ADD, _C.nominal_time.is_not(None))


@dataclass(frozen=True, slots=True)
class TakenCount:
    """How many events of a feed a batch has taken at an input."""

    input: str
    feed: str
    events: int


class BatchPages(TableStore):
    """The batches as one transaction sees them."""

    def find(self, query: BatchQuery, consumers: Collection[EntityKey]) -> list[ProcessInstance]:
        """Return a page of the batches of some consumers, newest first."""
        wanted, is_one = self._choose(query)
        statement = select(*ROWS.columns).join_from(wanted, process_instances, is_one)
        statement = statement.order_by(_P.nominal_time.desc(), _P.process, _P.cluster)
        statement = statement.limit(query.results).offset(query.offset)
        return ROWS.find(self._connection, statement, {KEY_ROWS: render_rows(consumers)})

    def count(self, query: BatchQuery, consumers: Collection[EntityKey]) -> int:
        """Return how many there are in all."""
        wanted, is_one = self._choose(query)
        statement = select(func.count()).join_from(wanted, process_instances, is_one)
        return self._connection.scalar(statement, {KEY_ROWS: render_rows(consumers)}) or 0

    def taken(self, keys: Collection[ProcessKey]) -> Mapping[ProcessKey, list[TakenCount]]:
        """Return how many events each batch has taken, by input; those without events are left out."""
        found: dict[ProcessKey, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
        if not keys:
            return {}
        wanted = key_rows(self._dialect, ProcessKey._fields)
        of_batch = and_(*(_B[name] == wanted.c[name] for name in ProcessKey._fields))
        ranges = select(_B.process, _B.cluster, _B.nominal_time, _B.input, _B.feed, func.sum(_B["count"]))
        ranges = ranges.join_from(wanted, batches, of_batch).where(_B.use == RangeUse.TAKEN)
        of_change = and_(*(_C[name] == wanted.c[name] for name in ProcessKey._fields))
        freed = select(_C.process, _C.cluster, _C.nominal_time, _C.input, _E.feed, func.count())
        freed = freed.join_from(wanted, queue_changes, of_change).join(feed_events, _C.event == _E.seq).where(*_FREED)
        for statement in (ranges, freed):
            columns = list(statement.selected_columns)[:5]
            rows = self._connection.execute(statement.group_by(*columns), {KEY_ROWS: render_rows(keys)})
            for process, cluster, time, name, feed, count in rows:
                found[ProcessKey(process, cluster, time)][name, feed] += int(count)
        return {
            key: [TakenCount(*name, events) for name, events in sorted(counts.items())] for key, counts in found.items()
        }

    def _choose(self, query: BatchQuery) -> tuple[Any, ColumnElement[bool]]:
        wanted = key_rows(self._dialect, ("process", "cluster"))
        conditions = [_P.process == wanted.c.process, _P.cluster == wanted.c.cluster]
        if query.start is not None:
            conditions.append(_P.nominal_time >= query.start)
        if query.end is not None:
            conditions.append(_P.nominal_time < query.end)
        if query.states:
            conditions.append(_P.status.in_(sorted(query.states)))
        if query.feeds:
            conditions.append(or_(_has_range(query.feeds), _has_freed(query.feeds)))
        return wanted, and_(*conditions)


def _has_range(feeds: Collection[str]) -> ColumnElement[bool]:
    is_its = [_B[name] == _P[name] for name in ProcessKey._fields]
    return exists().where(*is_its, _B.use == RangeUse.TAKEN, _B.feed.in_(sorted(feeds))).correlate(process_instances)


def _has_freed(feeds: Collection[str]) -> ColumnElement[bool]:
    is_its = [_C[name] == _P[name] for name in ProcessKey._fields]
    is_of = (*is_its, *_FREED, _C.event == _E.seq, _E.feed.in_(sorted(feeds)))
    return exists().where(*is_of).correlate(process_instances)


@shows("row", "process, cluster, batch=nominal_time, status, attempt, run_id, started_at, ended_at, reason")
@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBatch:
    """A batch: how far it is, and what it has taken; no `inputs` are known if its queue has ended since."""

    row: Hidden[ProcessInstance]
    inputs: tuple[TakenCount, ...] | None

    @shown
    def events(self) -> int | None:
        """How many events it has taken in all."""
        return None if self.inputs is None else sum(each.events for each in self.inputs)

    @property
    def taken(self) -> str:
        """What it has taken, for people: `orders 3`."""
        shares = self.inputs
        return "gone with the queue" if shares is None else ", ".join(f"{each.input} {each.events}" for each in shares)


def list_batches(context: OperationContext, query: BatchQuery) -> Page[ListedBatch]:
    """Return a page of batches.

    Raises:
        EntityNotFoundError: there is no such process, or no such feed.
        InstanceQueryError: a cluster is unknown, or the process makes no batches or is not on the cluster.
    """
    context.require_clusters([query.cluster] if query.cluster else ())
    consumers = [EntityKey(*record.key) for record in _records(context, query)]
    with context.read() as connection:
        pages = BatchPages(connection)
        rows = pages.find(query, consumers) if consumers else []
        total = pages.count(query, consumers) if consumers else 0
        taken = pages.taken([row.key for row in rows])
        ends = {key: QueueEnds(connection).find(key) for key in {EntityKey(*row.key[:2]) for row in rows}}

    for feed in () if rows else query.feeds:
        context.clusters_of(Kind.FEED, feed)

    def shares(row: ProcessInstance) -> tuple[TakenCount, ...] | None:
        end = ends[EntityKey(*row.key[:2])]
        if end is not None and row.materialized_at is not None and row.materialized_at <= end:
            return None
        return tuple(taken.get(row.key, ()))

    listed = tuple(ListedBatch(row=row, inputs=shares(row)) for row in rows)
    return Page(items=listed, total=total, offset=query.offset, what="batches", more=PAGES)


def _records(context: OperationContext, query: BatchQuery) -> list[ProcessRecord]:
    if query.process is None:
        clusters = context.plan.clusters if query.cluster is None else [query.cluster]
        return [record for cluster in clusters for record in context.plan.triggered_on(cluster)]
    records = list(context.processes_of(query.process, query.cluster))
    if all(record.trigger is None for record in records):
        raise InstanceQueryError(
            subject=f"process {query.process!r}",
            reason="it has a frequency, and makes no batches",
            next_step="List its instances, or choose a process with a trigger.",
        )
    return records
