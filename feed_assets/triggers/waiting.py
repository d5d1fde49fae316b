"""What a process that takes what comes waits for, in sentences: for lists, for `why`, and for the sensor's tick; the
batches that ticks would cut by triggers that do not apply yet: with their decisions, writing nothing; and the list of
batches, a page at a time.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, TextClause, and_, exists, func, or_, select

from feed_assets.access.rights import reads
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.entities.triggers import OnPause
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import Schedules, state_without_row
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ROWS, ProcessInstances, has_status
from feed_assets.log.instances.tables import process_instances
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.pages import PAGES, Page
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.sql.rows import KEY_ROWS, TableStore, count_rows, key_rows, render_rows
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import decide_batch, decide_following, find_routed, is_followed, pending_of
from feed_assets.triggers.cuts import Cut
from feed_assets.triggers.decide_firing import Fire, Pending, decide_fire, describe_lacking, render_lacking
from feed_assets.triggers.input_windows import check_gate
from feed_assets.triggers.queries import BatchQuery
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import PendingEvents, TriggerInputs
from feed_assets.triggers.queue.records import InputKey, Mark, QueueAction, QueueChange, RangeUse, TriggerState
from feed_assets.triggers.queue.store import QueueEnds, Triggers
from feed_assets.triggers.queue.tables import batches, queue_changes

_NAMED_AT_MOST = 3
_ON_PAUSE = {
    OnPause.QUEUE: "what comes is queued",
    OnPause.DROP: "what comes is passed over",
    OnPause.LATEST: "of what comes, the newest instance is queued",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The queue of a process on a cluster: how many events are pending, what its condition lacks, and what else keeps
    it from running or lets it run.
    """

    process: str
    cluster: str
    pending: int
    lacks: str
    waits: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The condition and everything else in one sentence."""
        return "; ".join((self.lacks, *self.waits))

    @property
    def headline(self) -> str:
        """The process and the number of its pending events."""
        return f"process {self.process} on {self.cluster} has {counted(self.pending, 'pending event')}"


def describe_queues(
    context: OperationContext, connection: Connection, records: Collection[ProcessRecord]
) -> list[tuple[Queue, Mapping[InputKey, Mark]]]:
    """Return the queues of processes that take what comes, in the given order, each with the marks of its inputs."""
    consumers = [EntityKey(*record.key) for record in records]
    marks = TriggerInputs(connection).of(consumers)
    states = Triggers(connection).of(consumers)
    busy, failed = Batches(connection).under_way(consumers), Batches(connection).failed(consumers)
    newest = ProcessInstances(connection).get_many([ProcessKey(*key, time) for key, (_, time) in failed.items()])
    newest_of = {EntityKey(*row.key[:2]): row for row in newest.values()}
    aside, last = QueueChanges(connection).set_aside(consumers), EventLog(connection).last_seq()
    schedules = Schedules(connection).of_many(Kind.PROCESS.value, {record.process for record in records})
    events = {
        cluster: PendingEvents(
            connection, find_routed(connection, cluster), [each for each in consumers if each.cluster == cluster]
        )
        for cluster in {record.cluster for record in records}
    }
    found: list[tuple[Queue, Mapping[InputKey, Mark]]] = []
    for record, consumer in zip(records, consumers, strict=True):
        assert record.trigger is not None
        mine, under_way = marks.get(consumer, {}), busy.get(consumer, 0)
        pending = pending_of(record, mine, events[record.cluster], context.as_of)
        scheduled = schedules.get((Kind.PROCESS.value, *record.key))
        schedule = scheduled.state if scheduled else state_without_row(connection)
        ahead = sum(events[record.cluster].count_ahead(each.mark, last) for each in pending.values())
        waits = [f"{ahead} not routed yet: the next tick does it"] if ahead else []
        waits += _iter_waits(record, pending, states.get(consumer), schedule, under_way, context.as_of)
        waits += _iter_lacking(context, connection, record) if under_way >= record.parallel else ()
        waits += _iter_failed(newest_of.get(consumer), failed.get(consumer, (0,))[0])
        waits += _iter_aside(aside.get(consumer, ()))
        queue = Queue(
            process=record.process,
            cluster=record.cluster,
            pending=sum(each.mark.pending for each in pending.values()),
            lacks=render_lacking(record.trigger, pending),
            waits=tuple(waits),
        )
        found.append((queue, mine))
    return found


def describe_oldest_queue(context: OperationContext, connection: Connection, cluster: str) -> Queue | None:
    """Return the queue of a cluster with the oldest pending event; None if nothing is pending.

    Only one queue is described, however many there are.
    """
    consumer = TriggerInputs(connection).oldest_pending(cluster)
    record = None if consumer is None else context.plan.processes.get(consumer)
    if record is None or record.trigger is None:
        return None
    ((queue, _),) = describe_queues(context, connection, [record])
    return queue


def _iter_waits(
    record: ProcessRecord,
    pending: Mapping[str, Pending],
    state: TriggerState | None,
    schedule: ScheduleState,
    under_way: int,
    as_of: datetime,
) -> Iterator[str]:
    """Yield what keeps the next batch from being cut, or lets it be cut."""
    trigger = record.trigger
    assert trigger is not None
    if schedule is not ScheduleState.SCHEDULED:
        yield f"it is {schedule.value.lower()}: no batch is cut, and {_ON_PAUSE[trigger.on_pause]}"
    if state is None or not is_followed(record, state):
        yield "the next tick begins to follow its trigger"
        return
    if record.sequence.start > as_of:
        yield f"its validity begins at {render_datetime(record.sequence.start)}"
        return
    if record.sequence.end is not None and record.sequence.end <= as_of:
        yield f"its validity ended at {render_datetime(record.sequence.end)}"
        return
    decision = decide_fire(record, pending, state, as_of)
    if under_way >= record.parallel:
        yield f"{under_way} of {record.parallel} batches under way: none is cut before one ends"
    elif decision.fire is not None and schedule is ScheduleState.SCHEDULED:
        whoever = "whoever works elsewhere may take" if record.is_elsewhere else "the next tick cuts"
        yield f"{whoever} a batch{_BECAUSE[decision.fire]}"
    if decision.quiet_at is not None:
        yield f"it waits for silence until {render_datetime(decision.quiet_at)}"
    if trigger.or_every is not None and state.next_at is not None:
        yield f"a batch is cut at {render_datetime(state.next_at)} in any case"
    if trigger.and_every is not None and state.next_at is not None and decision.fire is None:
        yield f"no batch is cut before {render_datetime(state.next_at)}"
    if state.by_at is not None:
        yield f"what is pending at {render_datetime(state.by_at)} is taken in any case"


def _iter_lacking(context: OperationContext, connection: Connection, record: ProcessRecord) -> Iterator[str]:
    """Yield what the batches lack that have not ended, and do not run."""
    instances = ProcessInstances(connection)
    failed = instances.with_status(ProcessInstanceStatus.FAILED, *record.key, limit=1)
    for row in (*instances.unended(*record.key), *failed):
        active = context.timeline.find_or_declared(connection, record.key, row.nominal_time)
        if active is not None and row.status is not ProcessInstanceStatus.RUNNING:
            _, closed = check_gate(connection, active.plan, active.record, row, context.as_of)
            if closed:
                yield f"batch {render_datetime(row.nominal_time)} waits: {describe_lacking(closed)}"


def _iter_failed(newest: ProcessInstance | None, failed: int) -> Iterator[str]:
    """Yield the newest batch that has failed, and how many more there are."""
    if newest is not None:
        reason = f" ({newest.reason})" if newest.reason else ""
        older = f", and {failed - 1:,} before it" if failed > 1 else ""
        yield f"batch {render_datetime(newest.nominal_time)} is {newest.status.value}{reason}{older}"


def _iter_aside(changes: Sequence[QueueChange]) -> Iterator[str]:
    """Yield the newest events that were held or dropped, and how many more there are."""
    for change in changes[-_NAMED_AT_MOST:]:
        yield f"event {change.event} at {change.input} is {change.render()}"
    if len(changes) > _NAMED_AT_MOST:
        yield f"{len(changes) - _NAMED_AT_MOST} older ones were held or dropped"


_BECAUSE = {
    Fire.CONDITION: "",
    Fire.EVERY: ", since its time has come",
    Fire.BY: " of what is pending, since its time has come",
}


FORESEEN_AT_MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenBatches:
    """The batches that a consumer would cut of what is pending: how many, or at least how many if there `are_more`.

    `pending` is how many events there are at each input, and `first` what the first batch would take. It waits until
    one of the `busy` batches under way has ended, if there are any.
    """

    record: ProcessRecord
    pending: Mapping[str, int]
    first: Cut
    batches: int
    are_more: bool
    busy: int


def foresee_batches(
    connection: Connection, records: Collection[ProcessRecord], as_of: datetime
) -> dict[EntityKey, ForeseenBatches]:
    """Return the batches that would be cut if these were the declarations; consumers without any are left out."""
    consumers = [EntityKey(*record.key) for record in records]
    last = EventLog(connection).last_seq()
    states, known = Triggers(connection).of(consumers), TriggerInputs(connection).of(consumers)
    under_way = Batches(connection).under_way(consumers)
    events = PendingEvents(connection, last, consumers)
    found = {}
    for record, consumer in zip(records, consumers, strict=True):
        state = states.get(consumer)
        following = decide_following(record, state, known.get(consumer, {}), events, last, as_of)
        times = state if state is not None and is_followed(record, state) else following.state
        marks = {mark.key: mark for mark in (*following.added, *following.kept)}  # once everything is routed
        cuts = list(islice(_iter_cuts(record, times, marks, events, as_of), FORESEEN_AT_MOST))
        if not cuts:
            continue
        busy = under_way.get(consumer, 0)
        found[consumer] = ForeseenBatches(
            record=record,
            pending={key.input: mark.pending for key, mark in marks.items()},
            first=cuts[0],
            batches=len(cuts),
            are_more=cuts[-1].leaves_any and (len(cuts) == FORESEEN_AT_MOST or _has_freed(cuts[-1])),
            busy=busy if busy >= record.parallel else 0,
        )
    return found


def _iter_cuts(
    record: ProcessRecord,
    state: TriggerState,
    marks: Mapping[InputKey, Mark],
    events: PendingEvents,
    as_of: datetime,
) -> Iterator[Cut]:
    """Yield the batches that would be cut one after another, as if each ended at once."""
    if record.trigger is None or not is_followed(record, state):
        return
    while True:
        state, cut = decide_batch(record, state, marks, 0, events, as_of)
        if cut is None:
            return
        yield cut
        if not cut.leaves_any or _has_freed(cut):
            return
        marks = {**marks, **{share.mark.key: share.mark for share in cut.shares}}


def _has_freed(cut: Cut) -> bool:
    """Return whether a batch takes events that were free again: in the record they are so still, for the next one."""
    return any(share.freed for share in cut.shares)


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

    def find(self, query: BatchQuery, consumers: Collection[EntityKey]) -> tuple[list[ProcessInstance], int]:
        """Return a page of the batches of some consumers, newest first, and how many there are in all (see
        `count_rows`).
        """
        if not consumers:
            return [], 0
        given, (wanted, is_one) = {KEY_ROWS: render_rows(consumers)}, self._choose(query)
        counted = select(_P.nominal_time).join_from(wanted, process_instances, is_one)
        total = count_rows(self._connection, counted, query.offset + query.results, given)
        statement = select(*ROWS.columns).join_from(wanted, process_instances, is_one)
        statement = statement.order_by(_P.nominal_time.desc(), _P.process, _P.cluster)
        return ROWS.find(self._connection, statement.limit(query.results).offset(query.offset), given), total

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
        is_its = (_P.process == wanted.c.process, _P.cluster == wanted.c.cluster)
        conditions: list[ColumnElement[bool] | TextClause] = [*is_its]
        if query.start is not None:
            conditions.append(_P.nominal_time >= query.start)
        if query.end is not None:
            conditions.append(_P.nominal_time < query.end)
        if query.states:
            conditions += has_status(query.states)
        if query.feeds:
            conditions.append(or_(_has_range(query.feeds), _is_freed(query.feeds)))
        return wanted, and_(*conditions)


def _has_range(feeds: Collection[str]) -> ColumnElement[bool]:
    is_its = [_B[name] == _P[name] for name in ProcessKey._fields]
    return exists().where(*is_its, _B.use == RangeUse.TAKEN, _B.feed.in_(sorted(feeds))).correlate(process_instances)


def _is_freed(feeds: Collection[str]) -> ColumnElement[bool]:
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
        rows, total = pages.find(query, consumers)
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
        found = (record for cluster in clusters for record in context.plan.triggered_on(cluster))
        return [record for record in found if reads(Kind.PROCESS, record.key[0])]
    records = list(context.processes_of(query.process, query.cluster))
    if all(record.trigger is None for record in records):
        raise InstanceQueryError(
            subject=f"process {query.process!r}",
            reason="it has a frequency, and makes no batches",
            next_step="List its instances, or choose a process with a trigger.",
        )
    return records
