"""When ticks begin on a cluster: without them nothing is polled, made ready or requested, and who asks must hear that
first.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.access.rights import reads
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.log.cursors import Cursors
from feed_assets.plan.rendering import render_length
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime

NOTED_EVERY = timedelta(seconds=15)
SILENT_AFTER = timedelta(minutes=2)
"""Longer than the longest tick that Dagster waits for, and the pause behind it."""
_TICK = "tick/"


def note_tick(database: Database, cluster: str, real_now: datetime) -> None:
    """Record that a tick of a cluster begins."""
    note_time(database, f"{_TICK}{cluster}", real_now)


def note_time(database: Database, name: str, moment: datetime) -> None:
    """Record a time under a name: one read, and a row each `NOTED_EVERY`."""
    with database.read() as connection:
        noted = Cursors(connection).get(name)
    if noted is None or not timedelta(0) <= moment - datetime.fromisoformat(noted) < NOTED_EVERY:
        with database.begin() as connection:
            Cursors(connection).put(name, moment.isoformat())


def find_ticks(connection: Connection, clusters: Collection[str]) -> dict[str, datetime]:
    """Return when the last tick of each of some clusters began, in real time; without those that have had none."""
    texts = Cursors(connection).get_many([f"{_TICK}{cluster}" for cluster in clusters])
    return {name.removeprefix(_TICK): datetime.fromisoformat(text) for name, text in texts.items()}


def find_silence(context: OperationContext, clusters: Collection[str]) -> str | None:
    """Return as a sentence that no tick has begun on some of the clusters for `SILENT_AFTER`, since when, and what to
    start; None if ticks come.
    """
    with context.database.read() as connection:
        found = find_ticks(connection, clusters)
    read = (each for each in clusters if reads(Kind.CLUSTER, each))
    silent = sorted(each for each in read if each not in found or context.real_now - found[each] > SILENT_AFTER)
    if not silent:
        return None
    last = max((found[each] for each in silent if each in found), default=None)
    since = "has ever come"
    if last is not None:
        since = f"has come for {render_length(context.real_now - last)}, since {render_datetime(last)}"
    return (
        f"no tick of cluster {', '.join(silent)} {since}: nothing is polled, made ready or requested. Start Dagster "
        f"(`dagster dev`, or `dagster-daemon run`); if it runs, see there what its arrival sensor says."
    )
