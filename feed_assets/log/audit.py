"""Store who did what and when: one row for each command that changes something, never changed."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import takewhile

from sqlalchemy import ColumnElement, delete, func, insert, or_, select

from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.tables import audit
from feed_assets.sql.database import lock_definitions
from feed_assets.sql.rows import RowMapper, TableStore, count_rows

_T = audit.c
_ROWS = RowMapper(audit, AuditEntry)


class Audit(TableStore):
    """The audit as one transaction sees it."""

    def append(self, entry: AuditEntry) -> int:
        """Add an entry; return its number."""
        return self.append_many([entry])

    def append_many(self, entries: Sequence[AuditEntry]) -> int:
        """Add entries, in the given order; return the number of the newest."""
        lock_definitions(self._connection)
        last: int = self._connection.scalar(select(func.max(_T.seq))) or 0
        if entries:
            rows = [_ROWS.values(entry) | {"seq": seq} for seq, entry in enumerate(entries, last + 1)]
            self._connection.execute(insert(audit), rows)
        return last + len(entries)

    def newest(self, limit: int, without: Collection[str] = ()) -> list[AuditEntry]:
        """Return the newest entries, newest first, but for those about some targets."""
        return _ROWS.find(
            self._connection, _ROWS.select.where(*_is_other(without)).order_by(_T.seq.desc()).limit(limit)
        )

    def count(self, end: int, without: Collection[str] = ()) -> int:
        """Return how many entries there are (see `count_rows`)."""
        return count_rows(self._connection, select(_T.seq).where(*_is_other(without)), end)

    def find_old(self, before: datetime, as_of: datetime, limit: int) -> list[int]:
        """Return at most `limit` numbers from the beginning, of entries that are older than `before`; never the newest,
        so that numbers are not used again. Those that were recorded after `as_of`, by a wrong clock, are passed over.
        """
        statement = select(_T.seq, _T.recorded_at).where(_T.recorded_at <= as_of).order_by(_T.seq).limit(limit + 1)
        oldest = self._connection.execute(statement).all()[:-1]
        return [row.seq for row in takewhile(lambda row: row.recorded_at < before, oldest)]

    def remove_old(self, before: datetime, as_of: datetime, limit: int) -> int:
        """Remove what `find_old` finds; return how many."""
        found = self.find_old(before, as_of, limit)
        if found:
            self._connection.execute(delete(audit).where(_T.seq <= found[-1], _T.recorded_at < before))
        return len(found)


def _is_other(targets: Collection[str]) -> list[ColumnElement[bool]]:
    return [or_(_T.target.is_(None), _T.target.not_in(sorted(targets)))] if targets else []
