"""Who did what and when: one row for each command that changes something, append-only."""

from sqlalchemy import Connection, func, insert, select

from feed_assets.state.database import lock_definitions
from feed_assets.state.definition_records import AuditEntry
from feed_assets.state.schema import audit

_T = audit.c


class Audit:
    """The audit as one transaction sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, entry: AuditEntry) -> int:
        """Add an entry; returns its number."""
        lock_definitions(self._connection)
        seq = (self._connection.scalar(select(func.max(_T.seq))) or 0) + 1
        row = {
            "seq": seq,
            "recorded_at": entry.recorded_at,
            "author": entry.author,
            "action": entry.action,
            "target": entry.target,
            "details": entry.details,
        }
        self._connection.execute(insert(audit), row)
        return seq

    def newest(self, limit: int) -> list[AuditEntry]:
        """The newest entries, newest first."""
        statement = select(_T.seq, _T.recorded_at, _T.author, _T.action, _T.target, _T.details)
        return [
            AuditEntry(seq=seq, recorded_at=recorded_at, author=author, action=action, target=target, details=details)
            for seq, recorded_at, author, action, target, details in self._connection.execute(
                statement.order_by(_T.seq.desc()).limit(limit)
            )
        ]
