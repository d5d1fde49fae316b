"""Store the status of each feed instance on each cluster.

No query scans all instances: each has an index, or concerns one feed on one cluster.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy import and_, select

from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.tables import feed_instances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, FeedKey, FeedSpan
from feed_assets.sql.database import lock_log
from feed_assets.sql.rows import (
    KEY_ROWS,
    POSITION,
    RowMapper,
    TableStore,
    delete_keys,
    key_rows,
    render_rows,
    select_keys,
)

_T = feed_instances.c
_ROWS = RowMapper(feed_instances, FeedInstance)
_IS_AVAILABLE = _T.status == FeedInstanceStatus.AVAILABLE
SETTLED = frozenset({FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EVICTED})


class FeedInstances(TableStore):
    """The feed instances as one transaction sees them. An instance without a row has never been seen."""

    def get(self, feed: str, cluster: str, nominal_time: datetime) -> FeedInstance | None:
        """Return one instance; None if it has no row."""
        is_it = (_T.feed == feed, _T.cluster == cluster, _T.nominal_time == nominal_time)
        return _ROWS.find_one(self._connection, _ROWS.select.where(*is_it))

    def get_many(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, FeedInstance]:
        """Return the instances that have a row, in one statement."""
        return {each.key: each for each in _ROWS.of_keys(self._connection, FeedKey._fields, keys)}

    def find_between(
        self,
        feed: str,
        cluster: str,
        first: datetime,
        last: datetime,
        *,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[FeedInstance]:
        """Return the instances with a row from `first` to `last`, both inclusive, oldest first; the first `limit`."""
        is_between = (_T.feed == feed, _T.cluster == cluster, _T.nominal_time.between(first, last))
        order = _T.nominal_time.desc() if newest_first else _T.nominal_time
        return _ROWS.find(self._connection, _ROWS.select.where(*is_between).order_by(order).limit(limit))

    def available_times(self, feed: str, cluster: str, first: datetime, last: datetime) -> list[datetime]:
        """Return the nominal times of AVAILABLE instances from `first` to `last`, both inclusive, oldest first."""
        statement = (
            select(_T.nominal_time)
            .where(_T.feed == feed, _T.cluster == cluster, _T.nominal_time.between(first, last), _IS_AVAILABLE)
            .order_by(_T.nominal_time)
        )
        return list(self._connection.scalars(statement))

    def available_times_many(
        self, spans: Sequence[tuple[str, str, datetime, datetime]]
    ) -> dict[FeedSpan, list[datetime]]:
        """Return `available_times` of many spans in one statement; every span is a key of the result."""
        times: dict[FeedSpan, list[datetime]] = {FeedSpan(*span): [] for span in spans}
        if not times:
            return {}
        lists = list(times.values())
        wanted = key_rows(self._dialect, FeedSpan._fields)
        is_wanted = and_(
            _T.feed == wanted.c.feed,
            _T.cluster == wanted.c.cluster,
            _T.nominal_time.between(wanted.c.first, wanted.c.last),
        )
        statement = select(wanted.c[POSITION], _T.nominal_time).join_from(wanted, feed_instances, is_wanted)
        found = self._connection.execute(statement.where(_IS_AVAILABLE), {KEY_ROWS: render_rows(times)})
        for position, nominal_time in found:
            lists[position].append(nominal_time)
        for entries in lists:
            entries.sort()
        return times

    def latest_available(self, feed: str, cluster: str, not_after: datetime, count: int) -> list[datetime]:
        """Return the nominal times of the newest `count` AVAILABLE instances that are not after a time, newest
        first.
        """
        statement = (
            select(_T.nominal_time)
            .where(_T.feed == feed, _T.cluster == cluster, _T.nominal_time <= not_after, _IS_AVAILABLE)
            .order_by(_T.nominal_time.desc())
            .limit(count)
        )
        return list(self._connection.scalars(statement))

    def put(self, rows: Iterable[FeedInstance]) -> None:
        """Insert or replace rows. Of two rows of one instance the last counts.

        Removes the planned polls of instances that become AVAILABLE or EVICTED.
        """
        last_of_key = {row.key: row for row in rows}
        if last_of_key:
            lock_log(self._connection)
            _ROWS.put(self._connection, last_of_key.values())
            ArrivalPolls(self._connection).remove(key for key, row in last_of_key.items() if row.status in SETTLED)

    def remove(self, keys: Iterable[FeedKey]) -> None:
        """Remove the rows of instances: they have never been seen then."""
        delete_keys(self._connection, feed_instances, FeedKey._fields, keys)

    def find_settled(self, keys: Collection[tuple[str, str, datetime]]) -> set[FeedKey]:
        """Return the instances that are AVAILABLE or EVICTED, which a poll must not change.

        In a write transaction only: it keeps other transactions from changing this until it ends.
        """
        lock_log(self._connection)
        columns, is_settled = (_T.feed, _T.cluster, _T.nominal_time), _T.status.in_(sorted(SETTLED))
        found = select_keys(self._connection, feed_instances, FeedKey._fields, columns, keys, is_settled)
        return {FeedKey(*row) for row in found}
