"""Store who did what and when: one row for each command that changes something, append-only."""

from collections.abc import Sequence

from sqlalchemy import func, insert, select

from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.tables import audit
from feed_assets.sql.locks import lock_definitions
from feed_assets.sql.rows import RowMapper, TableStore

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

    def newest(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        return _ROWS.find(self._connection, _ROWS.select.order_by(_T.seq.desc()).limit(limit))

    def count(self) -> int:
        """Return how many entries there are."""
        return self._connection.scalar(select(func.count()).select_from(audit)) or 0
