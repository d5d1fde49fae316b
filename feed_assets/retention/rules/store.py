"""Store when the retention of each feed is due next on each cluster."""

from collections.abc import Collection, Iterable
from datetime import datetime

from sqlalchemy import (
    Column,
    Index,
)

from feed_assets.log.removals.records import ScheduledRetention
from feed_assets.sql.column_types import Text, UtcDateTime
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys
from feed_assets.sql.tables import define_table

retention_schedule = define_table(
    "fa_retention_schedule",
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("next_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime),
    Column("policy_digest", Text, nullable=False),
    Index("fa_retention_schedule_due", "cluster", "next_at"),
    key=("feed", "cluster"),
)


_T = retention_schedule.c
_ROWS = RowMapper(retention_schedule, ScheduledRetention)
_KEY = ("feed", "cluster")


class RetentionSchedule(TableStore):
    """The schedule as one transaction sees it. A feed without an entry has not been scheduled for retention yet."""

    def due(self, cluster: str, as_of: datetime, limit: int) -> list[ScheduledRetention]:
        """Return the entries due at `as_of`, the longest waiting first."""
        is_due = (_T.cluster == cluster, _T.next_at <= as_of)
        statement = _ROWS.select.where(*is_due).order_by(_T.next_at, _T.feed).limit(limit)
        return _ROWS.find(self._connection, statement)

    def of_cluster(self, cluster: str) -> dict[str, ScheduledRetention]:
        """Return all entries of a cluster, by feed."""
        return {entry.feed: entry for entry in _ROWS.find(self._connection, _ROWS.select.where(_T.cluster == cluster))}

    def find_many(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], ScheduledRetention]:
        """Return the entries of the (feed, cluster) keys that have one, in one statement."""
        return {entry.key: entry for entry in _ROWS.of_keys(self._connection, _KEY, keys)}

    def put(self, entries: Iterable[ScheduledRetention]) -> None:
        """Write entries; replace existing ones."""
        _ROWS.put(self._connection, sorted(entries, key=lambda entry: entry.key))

    def remove(self, keys: Iterable[tuple[str, str]]) -> None:
        """Remove the entries of (feed, cluster) keys; keys without one are ignored."""
        delete_keys(self._connection, retention_schedule, _KEY, keys)
