"""For which instances of a process nothing was begun yet: what a changed definition may still take back."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select

from feed_assets.state.records import ProcessInstanceStatus
from feed_assets.state.schema import process_instances

_T = process_instances.c
_IS_UNBEGUN = and_(
    or_(_T.status == ProcessInstanceStatus.WAITING.value, _T.status == ProcessInstanceStatus.READY.value),
    _T.request_key.is_(None),
    _T.attempt == 0,
)
_FORGET = delete(process_instances).where(
    _T.process == bindparam("of_process"),
    _T.cluster == bindparam("on_cluster"),
    _T.nominal_time == bindparam("at"),
    _IS_UNBEGUN,
)


class Beginnings:
    """The instances of a process on a cluster as one transaction sees them, by whether anything was begun for them:
    a run asked for, an attempt, an end.
    """

    def __init__(self, connection: Connection, process: str, cluster: str) -> None:
        self._connection = connection
        self._key = (process, cluster)
        self._is_of_it = and_(_T.process == process, _T.cluster == cluster)

    def has_begun(self) -> bool:
        """Whether anything was begun for any instance."""
        statement = select(_T.nominal_time).where(self._is_of_it, ~_IS_UNBEGUN).limit(1)
        return self._connection.execute(statement).first() is not None

    def unbegun(self, start: datetime | None = None, stop: datetime | None = None) -> list[datetime]:
        """Nominal times with `start <= time < stop` of the instances that nothing was begun for, oldest first."""
        statement = select(_T.nominal_time).where(self._is_of_it, _IS_UNBEGUN)
        if start is not None:
            statement = statement.where(_T.nominal_time >= start)
        if stop is not None:
            statement = statement.where(_T.nominal_time < stop)
        return list(self._connection.scalars(statement.order_by(_T.nominal_time)))

    def has_waiting(self, start: datetime, stop: datetime) -> bool:
        """Whether an instance with `start <= time < stop` waits."""
        is_waiting = _T.status == ProcessInstanceStatus.WAITING.value
        statement = select(_T.nominal_time).where(self._is_of_it, is_waiting, _T.nominal_time >= start)
        return self._connection.execute(statement.where(_T.nominal_time < stop).limit(1)).first() is not None

    def newest_time(self) -> datetime | None:
        """The newest nominal time that has come into being."""
        newest: datetime | None = self._connection.scalar(select(func.max(_T.nominal_time)).where(self._is_of_it))
        return newest

    def forget(self, times: Iterable[datetime]) -> None:
        """Remove instances that nothing was begun for, as if they had never come into being; others stay."""
        process, cluster = self._key
        rows = [{"of_process": process, "on_cluster": cluster, "at": time} for time in times]
        if rows:
            self._connection.execute(_FORGET, rows)
