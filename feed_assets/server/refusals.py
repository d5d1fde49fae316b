"""Who is refused as somebody that he is not stands in the audit: at most so many a minute, as anybody may try."""

from collections import deque
from datetime import datetime, timedelta
from threading import Lock

from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.sql.database import Database

MOST = 30
"""Entries in a minute; each refusal with 401 or 403 is a line in the log, too."""
UNKNOWN = "unknown"
"""The author of what somebody tries of whom nothing is proven."""


class Refusals:
    """Writes refusals of one server into the audit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted = deque[datetime](maxlen=MOST)
        self._lock = Lock()

    def note(self, now: datetime, action: str, client: str, reason: str, author: str = UNKNOWN) -> None:
        """Write that somebody was refused.

        Raises:
            StateError: it cannot be written.
        """
        with self._lock:
            if len(self._noted) == MOST and now - self._noted[0] < timedelta(minutes=1):
                return
            self._noted.append(now)
        details = {"from": client, "refused": reason}
        with self._database.begin() as connection:
            Audit(connection).append(AuditEntry(recorded_at=now, author=author, action=action, details=details))
