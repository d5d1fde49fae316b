"""Find when earlier instances came, could begin, began and succeeded: what forecasts count."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import and_, func, select

from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.log.instances.tables import feed_instances, process_instances
from feed_assets.log.records import ARRIVING, FeedInstanceStatus, FeedKey, ProcessInstanceStatus, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, TableStore, key_rows, render_rows, select_keyed, select_keys

_E = feed_events.c
_F = feed_instances.c
_P = process_instances.c


class Course(NamedTuple):
    """When an instance of a process was created, became ready, first began and first succeeded; None if it has not.

    `ready_at` is None too if a later attempt has overwritten it.
    """

    status: ProcessInstanceStatus
    created_at: datetime | None
    ready_at: datetime | None
    started_at: datetime | None
    succeeded_at: datetime | None


class Courses(TableStore):
    """The courses of instances as one transaction sees them."""

    def first_event_at(self, feed: str, cluster: str) -> datetime | None:
        """Return when the first event of a feed on a cluster was recorded; None without any."""
        is_of_feed = (_E.feed == feed, _E.cluster == cluster)
        return self._connection.scalar(select(_E.recorded_at).where(*is_of_feed).order_by(_E.seq).limit(1))

    def arrivals(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, datetime]:
        """Return when instances of feeds first came, whatever became of them; left out if they never did.

        One that came without data came when that was recorded.
        """
        if not keys:
            return {}
        parameters = {KEY_ROWS: render_rows(keys)}
        wanted = key_rows(self._dialect, FeedKey._fields)
        is_it = and_(*(_E[name] == wanted.c[name] for name in FeedKey._fields), _E.kind.in_(sorted(ARRIVING)))
        key = (_E.feed, _E.cluster, _E.nominal_time)
        came = select(*key, func.min(_E.recorded_at)).join_from(wanted, feed_events, is_it).group_by(*key)
        found = {FeedKey(*each): at for *each, at in self._connection.execute(came, parameters)}
        columns = (_F.feed, _F.cluster, _F.nominal_time, _F.updated_at)
        empty = select_keyed(self._dialect, feed_instances, FeedKey._fields, columns)
        for *each, at in self._connection.execute(empty.where(_F.status == FeedInstanceStatus.EMPTY), parameters):
            found.setdefault(FeedKey(*each), at)
        return found

    def of_processes(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, Course]:
        """Return the courses of instances of processes; those that were never created are left out."""
        if not keys:
            return {}
        attempted = SlaMisses(self._connection).starts(keys)
        columns = (_P.process, _P.cluster, _P.nominal_time, _P.status, _P.materialized_at, _P.ready_at)
        found = {}
        rows = select_keys(self._connection, process_instances, ProcessKey._fields, columns, keys)
        for process, cluster, time, status, created_at, ready_at in rows:
            each = ProcessKey(process, cluster, time)
            started_at, succeeded_at = attempted.get(each, (None, None))
            is_first = ready_at is not None and (started_at is None or ready_at <= started_at)
            found[each] = Course(status, created_at, ready_at if is_first else None, started_at, succeeded_at)
        return found
