"""Up to when the arrivals of a cluster have been looked for: deadlines are judged as of that time.

Without it, the first look after a stop of the daemon would call everything late that arrived meanwhile.
"""

from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.log.cursors import Cursors
from feed_assets.sql.database import Database

NOTED_EVERY = timedelta(seconds=15)
BEHIND = timedelta(minutes=10)
LONGEST_WAIT = timedelta(minutes=10)
"""Real time after which deadlines are judged although nobody looks for arrivals: that is news, too."""


def note_looked(database: Database, cluster: str, as_of: datetime) -> None:
    """Record that everything that had arrived by a time was found; at the end of a tick, a row each `NOTED_EVERY`."""
    with database.read() as connection:
        looked_at = _find(connection, _looked(cluster))
    if looked_at is None or not looked_at <= as_of < looked_at + NOTED_EVERY:
        with database.begin() as connection:
            Cursors(connection).put(_looked(cluster), as_of.isoformat())


def find_present(database: Database, cluster: str, as_of: datetime, real_now: datetime) -> datetime:
    """Return the time as of which deadlines of a cluster are judged: at most `as_of`.

    If arrivals have not been looked for up to then, it is the time up to which they were. It is `as_of` nevertheless
    once nobody has looked for them for the `LONGEST_WAIT`.
    """
    with database.read() as connection:
        found = Cursors(connection).get_many((_looked(cluster), _waiting(cluster)))
    looked = found.get(_looked(cluster))
    looked_at = None if looked is None else datetime.fromisoformat(looked)
    if looked_at is not None and as_of - looked_at < BEHIND:
        return min(as_of, looked_at)
    last, _, since = found.get(_waiting(cluster), "").rpartition(" ")
    if last != (looked or "") or not since:
        with database.begin() as connection:
            Cursors(connection).put(_waiting(cluster), f"{looked or ''} {real_now.isoformat()}")
    elif real_now - datetime.fromisoformat(since) > LONGEST_WAIT:
        return as_of
    return min(as_of, looked_at) if looked_at is not None else datetime.min.replace(tzinfo=as_of.tzinfo)


def _find(connection: Connection, name: str) -> datetime | None:
    text = Cursors(connection).get(name)
    return None if text is None else datetime.fromisoformat(text)


def _looked(cluster: str) -> str:
    return f"sla/looked/{cluster}"


def _waiting(cluster: str) -> str:
    return f"sla/waiting/{cluster}"
