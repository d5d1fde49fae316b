"""Store the deadlines that are watched because a miss is told before it happens, and when each is looked at next.

A deadline has a row from the nominal time of its instance until the instance comes, the warning is told, or it is
missed.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import or_

from feed_assets.alerts.deadlines.tables import sla_watches
from feed_assets.entities.common import Kind
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import is_process_scheduled
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys

_T = sla_watches.c


class WatchKey(NamedTuple):
    """A watched deadline of an instance of a feed or process on a cluster."""

    kind: str
    name: str
    cluster: str
    nominal_time: datetime
    level: SlaLevel


class SlaWatch(NamedTuple):
    """A watched deadline, and when it is looked at next."""

    kind: str
    name: str
    cluster: str
    nominal_time: datetime
    level: SlaLevel
    look_at: datetime

    @property
    def key(self) -> WatchKey:
        """The deadline."""
        return WatchKey(*self[:-1])


_ROWS = RowMapper(sla_watches, SlaWatch)


class SlaWatches(TableStore):
    """The watched deadlines as one transaction sees them."""

    def due(
        self, cluster: str, as_of: datetime, limit: int, *, without_row: ScheduleState = ScheduleState.SCHEDULED
    ) -> list[SlaWatch]:
        """Return the deadlines of a cluster that are to be looked at, the longest waiting first; those of processes
        only while these are scheduled. `without_row` is the state of a process that has no schedule.
        """
        is_active = or_(_T.kind != Kind.PROCESS, is_process_scheduled(_T.name, _T.cluster, without_row))
        statement = _ROWS.select.where(_T.cluster == cluster, _T.look_at <= as_of, is_active)
        order = (_T.look_at, _T.kind, _T.name, _T.nominal_time, _T.level)
        return _ROWS.find(self._connection, statement.order_by(*order).limit(limit))

    def put(self, watches: Iterable[SlaWatch]) -> None:
        """Watch deadlines, or change when they are looked at."""
        _ROWS.put(self._connection, sorted(watches))

    def remove(self, keys: Iterable[WatchKey]) -> None:
        """Watch deadlines no longer; those that are not watched are ignored."""
        delete_keys(self._connection, sla_watches, WatchKey._fields, keys)
