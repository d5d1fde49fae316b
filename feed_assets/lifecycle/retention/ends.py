"""What a sweep comes to in the end: how many paths of which feed went, and until when the trash is kept."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.plan.records import Plan
from feed_assets.state.sweep_records import FeedCount, ItemOutcome, Sweep, SweepChunk, SweepState
from feed_assets.state.sweeps import Sweeps
from feed_assets.timing.frequency import Frequency, Unit

TRASH_OF_NOBODY = Frequency(unit=Unit.DAYS, count=7)
"""How long the trash of a feed is kept that is not declared any more."""

_FAILED = frozenset({ItemOutcome.REFUSED})


def require_sweep(sweeps: Sweeps, sweep_id: str) -> Sweep:
    """A sweep.

    Raises:
        SweepRefusedError: there is none of this id.
    """
    sweep = sweeps.find(sweep_id)
    if sweep is None:
        raise SweepRefusedError(sweep=sweep_id, reason="it does not exist", next_step="List the sweeps there are.")
    return sweep


def require_running(sweeps: Sweeps, sweep_id: str) -> None:
    """Make sure that a sweep that is worked on is still to be.

    Raises:
        SweepRefusedError: somebody is undoing it, or has ended it.
    """
    sweep = require_sweep(sweeps, sweep_id)
    if sweep.state is not SweepState.RUNNING:
        raise SweepRefusedError(
            sweep=sweep_id,
            reason=f"it became {sweep.state.value} while it was worked on",
            next_step="What was moved of it is in its trash.",
        )


def count_results(sweep: Sweep, chunks: Iterable[SweepChunk]) -> tuple[FeedCount, ...]:
    """What became of the paths of each feed."""
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
    """Until when the trash of a sweep is kept: as long as the longest of its feeds say; None if nothing is in it."""
    times = []
    for count in counts:
        record = plan.feeds.get((count.feed, cluster))
        policy = record.retention if record else None
        if count.evicted:
            times.append(ended_at + (policy.trash if policy else TRASH_OF_NOBODY).as_duration())
    return max(times, default=None)
