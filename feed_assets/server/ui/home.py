"""The first page: what needs somebody now, and what is new."""

from dataclasses import replace
from datetime import timedelta

from feed_assets.context.heartbeat import find_silence
from feed_assets.server.ui.addresses import question_address
from feed_assets.server.ui.records import Asked, View
from feed_assets.server.ui.tables import Table, ask_table
from feed_assets.timing.dates import render_datetime

_FEW = 10
_LATE_SINCE = timedelta(days=30)


def show_home(asked: Asked) -> View:
    """Show whether ticks come, what failed, is missing, waits, is late or was evicted, and what has changed."""
    since = render_datetime(asked.now - _LATE_SINCE)
    questions: dict[str, tuple[str, dict[str, object]]] = {
        "Failed": ("instance search", {"status": ["FAILED", "TIMEDOUT", "KILLED"], "num_results": _FEW}),
        "Missing": ("instance search", {"kind": ["feed"], "status": ["MISSING", "PARTIAL"], "num_results": _FEW}),
        "Never came": ("entity unseen", {}),
        "Waiting": ("instance search", {"status": ["WAITING", "READY"], "num_results": _FEW}),
        "Running": ("instance search", {"status": ["RUNNING"], "num_results": _FEW}),
        "Late": ("sla alerts", {"start": since}),
        "Queues": ("queue list", {}),
        "Sweeps": ("retention list", {"limit": _FEW}),
        "Changes": ("admin audit show", {"limit": _FEW}),
    }
    found: dict[str, tuple[Table, str]] = {
        title: (_shorten(ask_table(asked, name, given)), question_address(name, given))
        for title, (name, given) in questions.items()
    }
    silence = find_silence(asked.context, asked.context.plan.clusters)
    return View(template="home.html", title="Today", parts={"found": found, "silence": silence})


def _shorten(found: Table) -> Table:
    """Return the first rows of a table, and how many more there are."""
    if not (more := len(found.rows) - _FEW) > 0:
        return found
    return replace(found, rows=found.rows[:_FEW], notes=[*found.notes, f"… and {more:,} more"])
