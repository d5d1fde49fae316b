"""Query instances in a span of time for people: a page of them in some order, and counts by status."""

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, ColumnElement, func, select

from feed_assets.log.instances.process_instances import ROWS
from feed_assets.log.instances.tables import feed_instances, process_instances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstance, ProcessInstanceStatus
from feed_assets.sql.rows import TableStore

_T = process_instances.c
_F = feed_instances.c


class PageOrder(StrEnum):
    """The order of the instances of a page."""

    NOMINAL_TIME = "nominalTime"
    STATUS = "status"
    STARTED_AT = "startTime"
    ENDED_AT = "endTime"


_ORDERED_BY: dict[PageOrder, Column[Any]] = {
    PageOrder.NOMINAL_TIME: _T.nominal_time,
    PageOrder.STATUS: _T.status,
    PageOrder.STARTED_AT: _T.started_at,
    PageOrder.ENDED_AT: _T.ended_at,
}


class InstancePages(TableStore):
    """The instances as one transaction sees them; `start <= nominal time < stop` throughout."""

    def of_process(
        self,
        process: str,
        cluster: str,
        start: datetime,
        stop: datetime,
        limit: int,
        *,
        statuses: Collection[ProcessInstanceStatus] | None = None,
        started_after: datetime | None = None,
        order: PageOrder = PageOrder.NOMINAL_TIME,
        descending: bool = True,
    ) -> list[ProcessInstance]:
        """Return the first `limit` instances with a row, in an order; those without a start or end time come last.

        Args:
            process: whose instances.
            cluster: on which cluster.
            start: the earliest nominal time.
            stop: the end of the nominal times, exclusive.
            limit: the greatest number of instances.
            statuses: only instances with one of these.
            started_after: only instances started later than this.
            order: the order; equal instances are ordered by nominal time.
            descending: the greatest first, else the smallest.
        """
        statement = ROWS.select.where(*_is_of(process, cluster, start, stop))
        if statuses is not None:
            statement = statement.where(_T.status.in_(sorted(statuses)))
        if started_after is not None:
            statement = statement.where(_T.started_at > started_after)
        columns = [_ORDERED_BY[order], *([] if order is PageOrder.NOMINAL_TIME else [_T.nominal_time])]
        turned = [column.desc() if descending else column.asc() for column in columns]
        if order is not PageOrder.NOMINAL_TIME:
            turned.insert(0, columns[0].is_(None).asc())
        return ROWS.find(self._connection, statement.order_by(*turned).limit(limit))

    def process_counts(
        self, process: str, cluster: str, start: datetime, stop: datetime, *, started_after: datetime | None = None
    ) -> dict[ProcessInstanceStatus, int]:
        """Return how many instances have each status; a status without instances is left out."""
        statement = select(_T.status, func.count()).where(*_is_of(process, cluster, start, stop)).group_by(_T.status)
        if started_after is not None:
            statement = statement.where(_T.started_at > started_after)
        return dict(self._connection.execute(statement).all())

    def feed_counts(
        self, feed: str, cluster: str, start: datetime, stop: datetime, *, available_after: datetime | None = None
    ) -> dict[FeedInstanceStatus, int]:
        """Return how many instances with a row have each status; a status without instances is left out."""
        is_of = (_F.feed == feed, _F.cluster == cluster, _F.nominal_time >= start, _F.nominal_time < stop)
        statement = select(_F.status, func.count()).where(*is_of).group_by(_F.status)
        if available_after is not None:
            statement = statement.where(_F.available_at > available_after)
        return dict(self._connection.execute(statement).all())


def _is_of(process: str, cluster: str, start: datetime, stop: datetime) -> Sequence[ColumnElement[bool]]:
    return (_T.process == process, _T.cluster == cluster, _T.nominal_time >= start, _T.nominal_time < stop)
