"""Instances in a stretch of time for people who look: a page of them in some order, and how many have which status."""

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, func, select

from feed_assets.state.process_instances import from_row
from feed_assets.state.process_statements import COLUMNS
from feed_assets.state.records import (
    FeedInstanceStatus,
    ProcessInstance,
    ProcessInstanceStatus,
)
from feed_assets.state.schema import feed_instances, process_instances

_T = process_instances.c
_F = feed_instances.c


class PageOrder(StrEnum):
    """By what the instances of a page are ordered."""

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


class InstancePages:
    """The instances as one transaction sees them; `start <= nominal time < stop` throughout."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

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
        """The first `limit` instances with a row, in an order; those without a start or end time come last.

        Args:
            process: whose instances.
            cluster: on which cluster.
            start: the earliest nominal time.
            stop: the nominal time before which they are.
            limit: how many at most.
            statuses: only with one of these.
            started_after: only begun later than this.
            order: by what; equal ones are ordered by nominal time.
            descending: the greatest first, else the smallest.
        """
        statement = select(*COLUMNS).where(*_is_of(process, cluster, start, stop))
        if statuses is not None:
            statement = statement.where(_T.status.in_(sorted(status.value for status in statuses)))
        if started_after is not None:
            statement = statement.where(_T.started_at > started_after)
        columns = [_ORDERED_BY[order], *([] if order is PageOrder.NOMINAL_TIME else [_T.nominal_time])]
        turned = [column.desc() if descending else column.asc() for column in columns]
        if order is not PageOrder.NOMINAL_TIME:
            turned.insert(0, columns[0].is_(None).asc())
        return [from_row(row) for row in self._connection.execute(statement.order_by(*turned).limit(limit))]

    def process_counts(
        self, process: str, cluster: str, start: datetime, stop: datetime
    ) -> dict[ProcessInstanceStatus, int]:
        """How many instances have each status; a status that none has is left out."""
        statement = select(_T.status, func.count()).where(*_is_of(process, cluster, start, stop)).group_by(_T.status)
        return {ProcessInstanceStatus(status): count for status, count in self._connection.execute(statement)}

    def feed_counts(self, feed: str, cluster: str, start: datetime, stop: datetime) -> dict[FeedInstanceStatus, int]:
        """How many instances that have a row have each status; a status that none has is left out."""
        is_of = (_F.feed == feed, _F.cluster == cluster, _F.nominal_time >= start, _F.nominal_time < stop)
        statement = select(_F.status, func.count()).where(*is_of).group_by(_F.status)
        return {FeedInstanceStatus(status): count for status, count in self._connection.execute(statement)}


def _is_of(process: str, cluster: str, start: datetime, stop: datetime) -> Sequence[ColumnElement[bool]]:
    return (_T.process == process, _T.cluster == cluster, _T.nominal_time >= start, _T.nominal_time < stop)
