"""Store when to poll storage next for instances of external feeds that have not arrived yet.

This small table is separate from the instances, so that polling costs the same however long the history is.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, select, update

from feed_assets.log.instances.tables import HAS_OBSTACLE, arrival_polls
from feed_assets.log.records import ArrivalPoll, FeedKey, LackingFeed, ObstructedFeed
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys, has_key, key_parameters

_T = arrival_polls.c
_ROWS = RowMapper(arrival_polls, ArrivalPoll)


class ArrivalPolls(TableStore):
    """The planned polls as one transaction sees them; instances that have arrived or were evicted have none."""

    def due(self, cluster: str, as_of: datetime, limit: int) -> list[ArrivalPoll]:
        """Return the due polls, the longest waiting first. Of more than `limit`, the first half are those that became
        due last, so that they do not wait for a long past.
        """
        statement = _ROWS.select.where(_T.cluster == cluster, _T.next_poll_at <= as_of)
        order = (_T.next_poll_at, _T.feed, _T.nominal_time)
        found = _ROWS.find(self._connection, statement.order_by(*order).limit(limit + 1))
        if len(found) <= limit:
            return found
        newest = _ROWS.find(self._connection, statement.order_by(_T.next_poll_at.desc()).limit(limit // 2))
        return [*newest, *found[: limit - len(newest)]]

    def find_many(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, ArrivalPoll]:
        """Return the polls of several instances in one statement; instances without one are left out."""
        return {poll.key: poll for poll in _ROWS.of_keys(self._connection, FeedKey._fields, keys)}

    def put(self, planned: Iterable[ArrivalPoll]) -> None:
        """Plan polls; replace existing ones."""
        _ROWS.put(self._connection, sorted(planned))

    def move(self, planned: Iterable[ArrivalPoll]) -> None:
        """Put off planned polls; ignore polls that were removed meanwhile, because the instance was found."""
        parameters = [
            key_parameters(FeedKey._fields, poll.key) | {"seen_at": poll.polled_at, "next_at": poll.next_poll_at}
            for poll in sorted(planned)
        ]
        if parameters:
            moved = update(arrival_polls).where(has_key(arrival_polls, FeedKey._fields))
            moved = moved.values(polled_at=bindparam("seen_at"), next_poll_at=bindparam("next_at"))
            self._connection.execute(moved, parameters)

    def try_obstructed(self, cluster: str) -> None:
        """Let the instances of a cluster that could not be polled be due."""
        kept = update(arrival_polls).where(HAS_OBSTACLE, _T.cluster == cluster)
        self._connection.execute(kept.values(next_poll_at=_T.polled_at))

    def obstructed(self) -> list[ObstructedFeed]:
        """Return the feeds of all clusters with instances that could not be polled, without those that are polled again
        at once; ordered by cluster and feed.
        """
        oldest = func.min(_T.nominal_time, type_=_T.nominal_time.type)
        statement = select(_T.feed, _T.cluster, func.count(), oldest, func.min(_T.obstacle))
        statement = statement.where(HAS_OBSTACLE, _T.next_poll_at > _T.polled_at)
        statement = statement.group_by(_T.cluster, _T.feed).order_by(_T.cluster, _T.feed)
        return [ObstructedFeed(*row) for row in self._connection.execute(statement)]

    def lacking(self, keys: Collection[tuple[str, str]]) -> list[LackingFeed]:
        """Return which of some (feed, cluster) have instances that were polled and not found."""
        oldest = func.min(_T.nominal_time, type_=_T.nominal_time.type)
        statement = select(_T.feed, _T.cluster, func.count(), oldest)
        statement = statement.where(_T.feed.in_(sorted({feed for feed, _ in keys})), _T.found != "")
        statement = statement.where(_T.obstacle.is_(None)).group_by(_T.cluster, _T.feed)
        found = self._connection.execute(statement.order_by(_T.cluster, _T.feed))
        return [LackingFeed(*row) for row in found if (row.feed, row.cluster) in keys]

    def forget(self, keys: Iterable[tuple[str, str]]) -> None:
        """Remove all polls of feeds, by (feed, cluster)."""
        delete_keys(self._connection, arrival_polls, ("feed", "cluster"), keys)

    def remove(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Remove the polls of instances, by (feed, cluster, nominal time)."""
        delete_keys(self._connection, arrival_polls, FeedKey._fields, keys)
