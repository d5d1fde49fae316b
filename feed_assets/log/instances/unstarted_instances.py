"""Find the unstarted instances of a process: those that a changed definition may remove."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select

from feed_assets.log.instances.tables import process_instances
from feed_assets.log.records import ProcessInstanceStatus

_T = process_instances.c
_IS_UNSTARTED = and_(
    # OR instead of IN: IN does not work in an executemany statement.
    or_(_T.status == ProcessInstanceStatus.WAITING, _T.status == ProcessInstanceStatus.READY),
    _T.request_key.is_(None),
    _T.attempt == 0,
)


class UnstartedInstances:
    """The instances of a process on a cluster as one transaction sees them, split into started and unstarted.

    An instance is started if a run was requested, an attempt was made, or it has ended.
    """

    def __init__(self, connection: Connection, process: str, cluster: str) -> None:
        self._connection = connection
        self._is_of_process = and_(_T.process == process, _T.cluster == cluster)

    def has_begun(self) -> bool:
        """Return whether any instance is started."""
        statement = select(_T.nominal_time).where(self._is_of_process, ~_IS_UNSTARTED).limit(1)
        return self._connection.execute(statement).first() is not None

    def times(self, start: datetime | None = None, stop: datetime | None = None) -> list[datetime]:
        """Return the nominal times of unstarted instances with `start <= time < stop`, oldest first."""
        statement = select(_T.nominal_time).where(self._is_of_process, _IS_UNSTARTED)
        if start is not None:
            statement = statement.where(_T.nominal_time >= start)
        if stop is not None:
            statement = statement.where(_T.nominal_time < stop)
        return list(self._connection.scalars(statement.order_by(_T.nominal_time)))

    def has_waiting(self, start: datetime, stop: datetime) -> bool:
        """Return whether an instance with `start <= time < stop` is WAITING."""
        is_waiting = _T.status == ProcessInstanceStatus.WAITING
        statement = select(_T.nominal_time).where(self._is_of_process, is_waiting, _T.nominal_time >= start)
        return self._connection.execute(statement.where(_T.nominal_time < stop).limit(1)).first() is not None

    def newest_time(self) -> datetime | None:
        """Return the newest nominal time of the created instances."""
        newest: datetime | None = self._connection.scalar(select(func.max(_T.nominal_time)).where(self._is_of_process))
        return newest

    def forget(self, times: Iterable[datetime]) -> None:
        """Remove unstarted instances, as if they had never been created; started ones stay."""
        rows = [{"at": time} for time in times]
        if rows:
            is_it = (self._is_of_process, _T.nominal_time == bindparam("at"), _IS_UNSTARTED)
            self._connection.execute(delete(process_instances).where(*is_it), rows)
