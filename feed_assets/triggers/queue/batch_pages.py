"""List batches: instances of processes that take what comes, and how many events each has taken."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_, select

from feed_assets.log.instances.process_instances import ROWS
from feed_assets.log.instances.tables import process_instances
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, TableStore, key_rows, render_rows
from feed_assets.triggers.queue.records import QueueAction, RangeUse
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFilter:
    """Which batches are listed: of these consumers, from `start` on and before `end`; in one of the `statuses`, and
    with events of one of the `feeds`, if there are any.
    """

    consumers: Collection[EntityKey]
    start: datetime | None = None
    end: datetime | None = None
    statuses: Collection[ProcessInstanceStatus] = ()
    feeds: Collection[str] = ()


class BatchPages(TableStore):
    """The batches as one transaction sees them."""

    def find(self, chosen: BatchFilter, limit: int, offset: int) -> list[ProcessInstance]:
        """Return a page of batches, newest first."""
        if not chosen.consumers:
            return []
        wanted, is_one = self._choose(chosen)
        statement = select(*ROWS.columns).join_from(wanted, process_instances, is_one)
        statement = statement.order_by(_P.nominal_time.desc(), _P.process, _P.cluster).limit(limit).offset(offset)
        return ROWS.find(self._connection, statement, {KEY_ROWS: render_rows(chosen.consumers)})

    def count(self, chosen: BatchFilter) -> int:
        """Return how many batches there are."""
        if not chosen.consumers:
            return 0
        wanted, is_one = self._choose(chosen)
        statement = select(func.count()).join_from(wanted, process_instances, is_one)
        return self._connection.scalar(statement, {KEY_ROWS: render_rows(chosen.consumers)}) or 0

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

    def _choose(self, chosen: BatchFilter) -> tuple[Any, ColumnElement[bool]]:
        wanted = key_rows(self._dialect, ("process", "cluster"))
        conditions = [_P.process == wanted.c.process, _P.cluster == wanted.c.cluster]
        if chosen.start is not None:
            conditions.append(_P.nominal_time >= chosen.start)
        if chosen.end is not None:
            conditions.append(_P.nominal_time < chosen.end)
        if chosen.statuses:
            conditions.append(_P.status.in_(sorted(chosen.statuses)))
        if chosen.feeds:
            conditions.append(or_(_has_range(chosen.feeds), _has_freed(chosen.feeds)))
        return wanted, and_(*conditions)


def _has_range(feeds: Collection[str]) -> ColumnElement[bool]:
    is_its = [_B[name] == _P[name] for name in ProcessKey._fields]
    return exists().where(*is_its, _B.use == RangeUse.TAKEN, _B.feed.in_(sorted(feeds))).correlate(process_instances)


def _has_freed(feeds: Collection[str]) -> ColumnElement[bool]:
    is_its = [_C[name] == _P[name] for name in ProcessKey._fields]
    is_of = (*is_its, *_FREED, _C.event == _E.seq, _E.feed.in_(sorted(feeds)))
    return exists().where(*is_of).correlate(process_instances)
