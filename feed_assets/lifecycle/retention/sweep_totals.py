"""Total the results of a sweep: the number of removed paths of each feed, and the lifetime of the trash."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.instances.displacement import UNDECLARED_TRASH_LIFETIME
from feed_assets.plan.records import Plan
from feed_assets.state.sweep_records import FeedCount, ItemOutcome, Sweep, SweepChunk, SweepState
from feed_assets.state.sweeps import Sweeps

_FAILED = frozenset({ItemOutcome.REFUSED})


def require_sweep(sweeps: Sweeps, sweep_id: str) -> Sweep:
    """Return a sweep.

    Raises:
        SweepRefusedError: there is none with this id.
    """
    sweep = sweeps.find(sweep_id)
    if sweep is None:
        raise SweepRefusedError(
            sweep=sweep_id, reason="it does not exist", next_step="`feed-assets retention list` lists the sweeps."
        )
    return sweep


def require_running(sweeps: Sweeps, sweep_id: str) -> None:
    """Make sure that a sweep is still running.

    Raises:
        SweepRefusedError: it is being undone, or has ended.
    """
    sweep = require_sweep(sweeps, sweep_id)
    if sweep.state is not SweepState.RUNNING:
        raise SweepRefusedError(
            sweep=sweep_id,
            reason=f"it became {sweep.state.value} during the work",
            next_step="The paths moved so far are in its trash.",
        )


def count_results(sweep: Sweep, chunks: Iterable[SweepChunk]) -> tuple[FeedCount, ...]:
    """Count the results of each feed's paths."""
    counts = {count.feed: replace(count, evicted=0, kept=0, failed=0) for count in sweep.counts}
    for chunk in chunks:
        count = counts.get(chunk.feed, FeedCount(feed=chunk.feed))
        evicted = sum(each.outcome is ItemOutcome.EVICTED for each in chunk.results)
        failed = sum(each.outcome in _FAILED for each in chunk.results)
        counts[chunk.feed] = replace(
            count,
            evicted=count.evicted + evicted,
            failed=count.failed + failed,
            kept=count.kept + len(chunk.results) - evicted - failed,
        )
    return tuple(counts[feed] for feed in sorted(counts))


def find_purge_time(plan: Plan, cluster: str, counts: Iterable[FeedCount], ended_at: datetime) -> datetime | None:
    """Return when the trash of a sweep is purged, by the longest lifetime of its feeds; None if it is empty."""
    times = []
    for count in counts:
        record = plan.feeds.get((count.feed, cluster))
        policy = record.retention if record else None
        if count.evicted:
            times.append(ended_at + (policy.trash if policy else UNDECLARED_TRASH_LIFETIME).as_duration())
    return max(times, default=None)
