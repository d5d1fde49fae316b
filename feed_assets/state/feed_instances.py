"""Where each instance of each feed stands on each cluster.

No question scans all instances: each has an index, or asks about one feed on one cluster.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select

from feed_assets.state.database import lock_log
from feed_assets.state.keyed import KEY_ROWS, POSITION, key_rows, render_rows
from feed_assets.state.looks import Looks
from feed_assets.state.records import FeedInstance, FeedInstanceStatus, FeedKey, FeedSpan
from feed_assets.state.schema import feed_instances
from feed_assets.state.upserts import build_upsert

_STATUS = {status.value: status for status in FeedInstanceStatus}
_T = feed_instances.c
_COLUMNS = (
    _T.feed,
    _T.cluster,
    _T.nominal_time,
    _T.status,
    _T.updated_at,
    _T.manifest_digest,
    _T.bytes,
    _T.files,
    _T.available_at,
    _T.event_seq,
    _T.fence,
)
_IS_AVAILABLE = _T.status == FeedInstanceStatus.AVAILABLE.value
_SETTLED = (FeedInstanceStatus.AVAILABLE.value, FeedInstanceStatus.EVICTED.value)
_IS_SETTLED = _T.status.in_(_SETTLED)


class FeedInstances:
    """The feed instances as one transaction sees them. An instance without a row has never been seen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = connection.dialect.name

    def get(self, feed: str, cluster: str, nominal_time: datetime) -> FeedInstance | None:
        """One instance; None if it has no row."""
        statement = select(*_COLUMNS).where(_T.feed == feed, _T.cluster == cluster, _T.nominal_time == nominal_time)
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else _from_row(row)

    def get_many(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, FeedInstance]:
        """Those of the instances that have a row, in one statement."""
        if not keys:
            return {}
        found = self._connection.execute(_select_many(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {instance.key: instance for instance in map(_from_row, found)}

    def find_between(self, feed: str, cluster: str, first: datetime, last: datetime) -> list[FeedInstance]:
        """The instances with a row from `first` to `last`, both inclusive, oldest first."""
        statement = (
            select(*_COLUMNS)
            .where(_T.feed == feed, _T.cluster == cluster, _T.nominal_time.between(first, last))
            .order_by(_T.nominal_time)
        )
        return [_from_row(row) for row in self._connection.execute(statement)]

    def available_times(self, feed: str, cluster: str, first: datetime, last: datetime) -> list[datetime]:
        """Nominal times of the AVAILABLE instances from `first` to `last`, both inclusive, oldest first."""
        statement = (
            select(_T.nominal_time)
            .where(_T.feed == feed, _T.cluster == cluster, _T.nominal_time.between(first, last), _IS_AVAILABLE)
            .order_by(_T.nominal_time)
        )
        return list(self._connection.scalars(statement))

    def available_times_many(
        self, spans: Sequence[tuple[str, str, datetime, datetime]]
    ) -> dict[FeedSpan, list[datetime]]:
        """`available_times` of many spans in one statement; every span is a key of the result."""
        times: dict[FeedSpan, list[datetime]] = {FeedSpan(*span): [] for span in spans}
        if not times:
            return {}
        lists = list(times.values())
        found = self._connection.execute(_select_available(self._dialect), {KEY_ROWS: render_rows(times)})
        for position, nominal_time in found:
            lists[position].append(nominal_time)
        for entries in lists:
            entries.sort()
        return times

    def latest_available(self, feed: str, cluster: str, not_after: datetime, count: int) -> list[datetime]:
        """Nominal times of the newest `count` AVAILABLE instances that are not after a time, newest first."""
        statement = (
            select(_T.nominal_time)
            .where(_T.feed == feed, _T.cluster == cluster, _T.nominal_time <= not_after, _IS_AVAILABLE)
            .order_by(_T.nominal_time.desc())
            .limit(count)
        )
        return list(self._connection.scalars(statement))

    def put(self, rows: Iterable[FeedInstance]) -> None:
        """Insert rows, or replace those there are. Of two rows of one instance the last counts.

        Instances that are AVAILABLE or EVICTED now are looked at no more.
        """
        last_of_key = {(row.feed, row.cluster, row.nominal_time): _to_row(row) for row in rows}
        if last_of_key:
            lock_log(self._connection)
            self._connection.execute(build_upsert(self._dialect, feed_instances), list(last_of_key.values()))
            Looks(self._connection).remove([key for key, row in last_of_key.items() if row["status"] in _SETTLED])

    def find_settled(self, keys: Collection[tuple[str, str, datetime]]) -> set[FeedKey]:
        """Those of the instances that are AVAILABLE or EVICTED, which somebody who has only looked must not change.

        In a write transaction only: no other becomes so until it ends.
        """
        if not keys:
            return set()
        lock_log(self._connection)
        found = self._connection.execute(_select_settled(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {FeedKey(*row) for row in found}

    def counts(self, feed: str, cluster: str) -> dict[FeedInstanceStatus, int]:
        """How many instances of a feed have each status; a status that none has is left out."""
        statement = select(_T.status, func.count()).where(_T.feed == feed, _T.cluster == cluster).group_by(_T.status)
        return {_STATUS[status]: count for status, count in self._connection.execute(statement)}


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    return _select_wanted(dialect, *_COLUMNS)


@lru_cache
def _select_settled(dialect: str) -> Select[Any]:
    return _select_wanted(dialect, _T.feed, _T.cluster, _T.nominal_time).where(_IS_SETTLED)


def _select_wanted(dialect: str, *columns: ColumnElement[Any]) -> Select[Any]:
    wanted = key_rows(dialect, FeedKey._fields)
    is_wanted = and_(_T.feed == wanted.c.feed, _T.cluster == wanted.c.cluster, _T.nominal_time == wanted.c.nominal_time)
    return select(*columns).join_from(wanted, feed_instances, is_wanted)


@lru_cache
def _select_available(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, FeedSpan._fields)
    is_wanted = and_(
        _T.feed == wanted.c.feed,
        _T.cluster == wanted.c.cluster,
        _T.nominal_time.between(wanted.c.first, wanted.c.last),
    )
    return select(wanted.c[POSITION], _T.nominal_time).join_from(wanted, feed_instances, is_wanted).where(_IS_AVAILABLE)


def _to_row(instance: FeedInstance) -> dict[str, object]:
    return {
        "feed": instance.feed,
        "cluster": instance.cluster,
        "nominal_time": instance.nominal_time,
        "status": instance.status.value,
        "updated_at": instance.updated_at,
        "manifest_digest": instance.manifest_digest,
        "bytes": instance.bytes,
        "files": instance.files,
        "available_at": instance.available_at,
        "event_seq": instance.event_seq,
        "fence": instance.fence,
    }


def _from_row(row: Sequence[Any]) -> FeedInstance:
    feed, cluster, nominal_time, status, updated_at, digest, size, files, available_at, seq, fence = row
    return FeedInstance(
        feed=feed,
        cluster=cluster,
        nominal_time=nominal_time,
        status=_STATUS[status],
        updated_at=updated_at,
        manifest_digest=digest,
        bytes=size,
        files=files,
        available_at=available_at,
        event_seq=seq,
        fence=fence,
    )
