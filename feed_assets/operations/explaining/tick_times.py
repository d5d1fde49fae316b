"""When ticks begin: without them nothing is polled, made ready or requested, and who asks why must hear that first."""

from collections.abc import Collection
from datetime import datetime, timedelta

from feed_assets.operations.context import OperationContext
from feed_assets.plan.rendering import render_length
from feed_assets.state.cursors import Cursors
from feed_assets.state.database import Database
from feed_assets.timing.dates import render_datetime

NOTED_EVERY = timedelta(seconds=15)
SILENT_AFTER = timedelta(minutes=2)
"""Longer than the longest tick that Dagster waits for, and the pause behind it."""
_TICK = "tick/"


def note_tick(database: Database, cluster: str, real_now: datetime) -> None:
    """Record that a tick of a cluster begins: one read, and a row each `NOTED_EVERY`."""
    with database.read() as connection:
        noted = Cursors(connection).get(f"{_TICK}{cluster}")
    if noted is None or not timedelta(0) <= real_now - datetime.fromisoformat(noted) < NOTED_EVERY:
        with database.begin() as connection:
            Cursors(connection).put(f"{_TICK}{cluster}", real_now.isoformat())


def find_silence(context: OperationContext, clusters: Collection[str]) -> str | None:
    """Return as a sentence that no tick has begun on some of the clusters for `SILENT_AFTER`, since when, and what to
    start; None if ticks come.
    """
    with context.database.read() as connection:
        texts = Cursors(connection).get_many([f"{_TICK}{cluster}" for cluster in clusters])
    found = {name.removeprefix(_TICK): datetime.fromisoformat(text) for name, text in texts.items()}
    silent = sorted(each for each in clusters if each not in found or context.real_now - found[each] > SILENT_AFTER)
    if not silent:
        return None
    last = max((found[each] for each in silent if each in found), default=None)
    since = "has ever come"
    if last is not None:
        since = f"has come for {render_length(context.real_now - last)}, since {render_datetime(last)}"
    return (
        f"no tick of cluster {', '.join(silent)} {since}: nothing is polled, made ready or requested. Start Dagster "
        f"(`dg dev`, or `dagster-daemon run`); if it runs, see there what its arrival sensor says."
    )
