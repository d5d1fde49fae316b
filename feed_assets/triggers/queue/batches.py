"""Store which ranges of the log the batches of each consumer have taken, and list their events.

The log and the ranges do not change, so a batch has the same events whenever they are asked for.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Subquery, TextClause, and_, exists, func, or_, select, union, union_all, update

from feed_assets.log.events import EVENT_ROWS, EventLog
from feed_assets.log.instances.process_instances import has_status
from feed_assets.log.instances.tables import HAS_FAILED, HAS_NOT_SUCCEEDED, process_instances
from feed_assets.log.records import EntityKey, FeedEvent, FeedKey, ProcessInstanceStatus, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, key_rows, render_rows
from feed_assets.timing.dates import NEVER
from feed_assets.triggers.queue.inputs import in_range, is_counted, is_free, is_of, is_unchanged
from feed_assets.triggers.queue.records import EventRange, InputKey, Mark, QueueAction, RangeUse
from feed_assets.triggers.queue.tables import batches, queue_changes, trigger_inputs

_B = batches.c
_C = queue_changes.c
_E = feed_events.c
_P = process_instances.c
_ROWS = RowMapper(batches, EventRange)
_EVENTS = EVENT_ROWS
_MARKS = RowMapper(trigger_inputs, Mark)
_UNDER_WAY = sorted(
    [
        ProcessInstanceStatus.WAITING,
        ProcessInstanceStatus.READY,
        ProcessInstanceStatus.RUNNING,
        ProcessInstanceStatus.SUSPENDED,
    ]
)
_SINGLY = {RangeUse.TAKEN: QueueAction.ADD, RangeUse.PASSED: QueueAction.PASS}
_UNPROCESSED = sorted(set(ProcessInstanceStatus) - {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED})


class BatchEvents(NamedTuple):
    """The events that a batch has of one input, in the order of the log."""

    input: str
    feed: str
    feed_cluster: str
    events: tuple[FeedEvent, ...]


class TakenEvent(NamedTuple):
    """An event that a batch has taken for an input."""

    batch: ProcessKey
    input: str
    event: FeedEvent


class Batches(TableStore):
    """The batches as one transaction sees them."""

    def add(self, ranges: Iterable[EventRange]) -> None:
        """Insert ranges of the log that were taken or passed over."""
        _ROWS.insert(self._connection, ranges)

    def events_of(self, batch: ProcessKey, use: RangeUse = RangeUse.TAKEN) -> list[BatchEvents]:
        """Return the events of a batch by input, or those that it has passed over; inputs without any are left out."""
        return self._events_of(EntityKey(batch.process, batch.cluster), batch.nominal_time, use)

    def passed_while_suspended(self, consumer: EntityKey) -> list[BatchEvents]:
        """Return the events by input that were passed over because they came while a consumer was suspended."""
        return self._events_of(consumer, None, RangeUse.PASSED)

    def _events_of(self, consumer: EntityKey, nominal_time: datetime | None, use: RangeUse) -> list[BatchEvents]:
        is_its = (_B.process == consumer.entity, _B.cluster == consumer.cluster, _B.nominal_time == nominal_time)
        ranges = _ROWS.find(self._connection, _ROWS.select.where(*is_its, _B.use == use))
        found: dict[tuple[str, str, str], list[FeedEvent]] = defaultdict(list)
        for each in ranges:
            statement = _EVENTS.select.where(in_range(each, each.after_seq, each.to_seq)).order_by(_E.seq)
            found[each.input, each.feed, each.feed_cluster] += _EVENTS.find(self._connection, statement)
        singly = and_(_C.process == consumer.entity, _C.cluster == consumer.cluster, _C.nominal_time == nominal_time)
        statement = select(_C.input, *_EVENTS.columns).join_from(queue_changes, feed_events, _C.event == _E.seq)
        for name, *row in self._connection.execute(statement.where(singly, _C.action == _SINGLY[use])):
            event = _EVENTS.load(row)
            found[name, event.feed, event.cluster].append(event)
        return [
            BatchEvents(*key, tuple(sorted(events, key=lambda event: event.seq)))
            for key, events in sorted(found.items())
        ]

    def count(self, each: EventRange) -> int:
        """Return how many events are in a range by the log."""
        is_in = in_range(each, each.after_seq, each.to_seq)
        return self._connection.scalar(select(func.count()).where(is_in)) or 0

    def pending(self, mark: Mark, upto: int, limit: int | None = None) -> list[FeedEvent]:
        """Return the pending events of an input, in order."""
        free = select(_C.event).where(is_of(mark), is_free())
        is_freed = and_(_E.feed == mark.feed, _E.cluster == mark.feed_cluster, _E.seq.in_(free))
        statement = _EVENTS.select.where(or_(in_range(mark, mark.taken_seq, upto), is_freed)).order_by(_E.seq)
        return _EVENTS.find(self._connection, statement.limit(limit))

    def ranges(self, consumer: EntityKey, *, batch: datetime | None = None) -> list[EventRange]:
        """Return the ranges of a consumer, of one batch if given, in the order of the log."""
        is_its = [_B.process == consumer.entity, _B.cluster == consumer.cluster]
        if batch is not None:
            is_its.append(_B.nominal_time == batch)
        return _ROWS.find(self._connection, _ROWS.select.where(*is_its).order_by(_B.input, _B.feed, _B.to_seq))

    def has_any(self) -> bool:
        """Return whether a batch has ever taken anything."""
        found = union_all(*(select(table.c.process).limit(1).subquery().select() for table in (batches, queue_changes)))
        return self._connection.execute(found).first() is not None

    def takers(self, instances: Collection[FeedKey]) -> list[TakenEvent]:
        """Return the events of some feed instances that batches have taken, in one statement."""
        wanted = key_rows(self._dialect, FeedKey._fields)
        is_its = (_E.feed == wanted.c.feed, _E.cluster == wanted.c.cluster, _E.nominal_time == wanted.c.nominal_time)
        return self._find_taken(wanted, and_(*is_its), and_(*is_its), instances)

    def taken_by(self, consumers: Collection[ProcessKey]) -> list[TakenEvent]:
        """Return the events that some batches have taken, in one statement; of other instances nothing is read."""
        inputs = trigger_inputs.c
        known = {(*row,) for row in self._connection.execute(select(inputs.process, inputs.cluster).distinct())}
        if not (asked := [each for each in consumers if each[:2] in known]):
            return []
        wanted = key_rows(self._dialect, ProcessKey._fields)
        together, singly = (and_(*(table[name] == wanted.c[name] for name in ProcessKey._fields)) for table in (_B, _C))
        return self._find_taken(wanted, together, singly, asked)

    def _find_taken(
        self,
        wanted: Subquery,
        together: ColumnElement[bool],
        singly: ColumnElement[bool],
        keys: Collection[tuple[str, str, datetime]],
    ) -> list[TakenEvent]:
        of_feed = (_B.feed == _E.feed, _B.feed_cluster == _E.cluster, _B.after_seq < _E.seq, _B.to_seq >= _E.seq)
        is_taken = (_B.use == RangeUse.TAKEN, _B.nominal_time.is_not(None), is_counted(counts_unchanged=True))
        of_input = (_C.process == _B.process, _C.cluster == _B.cluster, _C.input == _B.input, _C.event == _E.seq)
        counts = (or_(_B.counts_unchanged, ~is_unchanged()), ~exists().where(*of_input).correlate(batches, feed_events))
        is_freed = (_C.event == _E.seq, _C.action == QueueAction.ADD, _C.nominal_time.is_not(None))
        columns = (*(_B[name] for name in ProcessKey._fields), _B.input, _E.seq)
        in_ranges = select(*columns).select_from(wanted).where(together, *of_feed, *is_taken, *counts)
        columns = (*(_C[name] for name in ProcessKey._fields), _C.input, _E.seq)
        alone = select(*columns).select_from(wanted).where(singly, *is_freed)
        found = sorted(self._connection.execute(union(in_ranges, alone), {KEY_ROWS: render_rows(keys)}))
        of_numbers = EventLog(self._connection).of_numbers({row[-1] for row in found}) if found else {}
        return [TakenEvent(ProcessKey(*row[:3]), row[3], of_numbers[row[4]]) for row in found]

    def find_range(self, key: InputKey, event: int) -> EventRange | None:
        """Return the range of an input that an event is in; None if it is in none."""
        is_its = [_B[name] == value for name, value in zip(InputKey._fields, key, strict=True)]
        statement = _ROWS.select.where(*is_its, _B.to_seq >= event).order_by(_B.to_seq).limit(1)
        found = _ROWS.find_one(self._connection, statement)
        return found if found is not None and found.after_seq < event else None

    def shrink(self, key: InputKey, event: int) -> None:
        """Count one event less in the range that it is in: something was decided about it singly."""
        is_it = [_B[name] == value for name, value in zip(InputKey._fields, key, strict=True)]
        statement = update(batches).where(*is_it, _B.after_seq < event, _B.to_seq >= event)
        self._connection.execute(statement.values(count=_B["count"] - 1))

    def under_way(self, consumers: Collection[EntityKey]) -> dict[EntityKey, int]:
        """Return how many batches of each consumer have not ended, or will be tried again; those without are left
        out.
        """
        retried = and_(HAS_FAILED, or_(_P.retry_at.is_(None), _P.retry_at < NEVER))
        found = self._count(consumers, or_(_P.status.in_(_UNDER_WAY), retried))
        return {consumer: count for consumer, (count, _) in found.items()}

    def failed(self, consumers: Collection[EntityKey]) -> dict[EntityKey, tuple[int, datetime]]:
        """Return how many batches of each consumer have failed, and the time of the newest; others are left out."""
        return self._count(consumers, HAS_FAILED)

    def _count(
        self, consumers: Collection[EntityKey], condition: ColumnElement[bool] | TextClause
    ) -> dict[EntityKey, tuple[int, datetime]]:
        if not consumers:
            return {}
        wanted = key_rows(self._dialect, ("process", "cluster"))
        is_its = and_(_P.process == wanted.c.process, _P.cluster == wanted.c.cluster)
        statement = select(_P.process, _P.cluster, func.count(), func.max(_P.nominal_time))
        statement = statement.join_from(wanted, process_instances, is_its).where(condition, HAS_NOT_SUCCEEDED)
        statement = statement.group_by(_P.process, _P.cluster)
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(consumers)})
        return {EntityKey(process, cluster): (count, newest) for process, cluster, count, newest in found}

    def queued(self, feed: str, feed_cluster: str, waiting: Collection[EntityKey]) -> dict[FeedKey, EntityKey]:
        """Return the instances of a feed with events that a batch has taken and not processed, or that are pending for
        one of the consumers `waiting`; each with a consumer.
        """
        last = self._connection.scalar(select(func.max(_E.seq))) or 0
        found: dict[FeedKey, EntityKey] = {}
        is_mark = (trigger_inputs.c.feed == feed, trigger_inputs.c.feed_cluster == feed_cluster)
        marks = _MARKS.find(self._connection, _MARKS.select.where(*is_mark))
        for mark in marks:
            if mark.key.consumer in waiting:
                found |= {event.key: mark.key.consumer for event in self.pending(mark, last)}
        for consumer in sorted({mark.key.consumer for mark in marks}):
            for batch in self._open_batches(consumer, feed, feed_cluster):
                for taken in self.events_of(batch):
                    its = (each for each in taken.events if (each.feed, each.cluster) == (feed, feed_cluster))
                    found |= {event.key: consumer for event in its}
        return found

    def _open_batches(self, consumer: EntityKey, feed: str, feed_cluster: str) -> set[ProcessKey]:
        """Return the batches of a consumer that it has not processed, with a range of a feed, or single events."""
        is_open = (_P.process == consumer.entity, _P.cluster == consumer.cluster, *has_status(_UNPROCESSED))
        found: set[ProcessKey] = set()
        for table, is_of_feed in ((batches, (_B.feed == feed, _B.feed_cluster == feed_cluster)), (queue_changes, ())):
            of_batch = and_(*(table.c[name] == _P[name] for name in ProcessKey._fields), *is_of_feed)
            keys = select(*(_P[name] for name in ProcessKey._fields)).join_from(process_instances, table, of_batch)
            found |= {ProcessKey(*row) for row in self._connection.execute(keys.where(*is_open).distinct())}
        return found
