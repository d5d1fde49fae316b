"""Run a sweep: check that it may begin, run all of its chunks, and end it.

A sweep begins once, and resumes after each interruption. Several workers may run its chunks at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from feed_assets.command_lines import command_line
from feed_assets.instances.arrival.stored_data import require_unswept
from feed_assets.instances.attempts.displacement import UNDECLARED_TRASH_LIFETIME
from feed_assets.log.leases import Leases
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import ChunkState, FeedCount, ItemOutcome, Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.records import Plan
from feed_assets.retention.errors import FeedsUnsweptError, SweepRefusedError
from feed_assets.retention.sweeps.chunk_removal import ChunkWorker
from feed_assets.retention.sweeps.movers import DriverMover, Mover
from feed_assets.retention.sweeps.sweep_context import Progress, SweepContext, lease_holder, require_sweep
from feed_assets.retention.sweeps.undoing import end_restores
from feed_assets.sql.errors import StateError
from feed_assets.storage.errors import StorageError
from feed_assets.timing.dates import render_datetime


def find_waiting(connection: Connection, cluster: str) -> list[Sweep]:
    """Return a cluster's sweeps that are approved or interrupted, in the order of planning."""
    found = Sweeps(connection).with_state(cluster, {SweepState.PLANNED, SweepState.RUNNING})
    return [sweep for sweep in found if sweep.state is SweepState.RUNNING or sweep.approved_by is not None]


def run_sweep(
    context: SweepContext, sweep_id: str, *, mover: Mover | None = None, progress: Progress | None = None
) -> Sweep:
    """Run a sweep, or resume it, and return its state: DONE, or RUNNING.

    It is RUNNING if other workers still work on some of its chunks.

    Args:
        context: the context of the worker.
        sweep_id: the sweep.
        mover: moves the paths; this process if None.
        progress: called after each chunk.

    Raises:
        SweepRefusedError: it cannot run: it needs approval, has ended, or another sweep of one of its feeds is running.
        SweepDamagedError: it differs from the plan.
        StorageError: the filesystem failed for one feed; the next run continues.
        FeedsUnsweptError: the same for several feeds.
    """
    begun = begin_sweep(context, sweep_id)
    sweep_chunks(context, begun, mover=mover, progress=progress)
    return end_sweep(context, sweep_id)


def begin_sweep(context: SweepContext, sweep_id: str) -> tuple[Sweep, bool]:
    """Make sure that a sweep may run, and record that it does; return it, and whether it had begun before. Raises as
    `run_sweep` does.
    """
    now = context.clock.now()
    with context.database.begin() as connection:
        sweeps = Sweeps(connection)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state is SweepState.RUNNING:
            return sweep, True
        _require_runnable(sweeps, sweep, now)
        SweepChunks(connection, sweep_id).require_intact(sweep)
        sweeps.transition(sweep_id, {SweepState.PLANNED}, state=SweepState.RUNNING, started_at=now)
        return require_sweep(sweeps, sweep_id), False


def require_runnable(context: SweepContext, sweep: Sweep) -> None:
    """Make sure that a sweep could run now; the sweep need not be stored.

    Raises:
        SweepRefusedError: it could not.
    """
    with context.database.read() as connection:
        if sweep.state is not SweepState.RUNNING:
            _require_runnable(Sweeps(connection), sweep, context.clock.now())


def sweep_chunks(
    context: SweepContext, begun: tuple[Sweep, bool], *, mover: Mover | None = None, progress: Progress | None = None
) -> None:
    """Run the free chunks of a begun sweep until none is left. Several workers may do so at once.

    The chunks of a feed that fails stay open; those of the other feeds are run.
    """
    (sweep, is_resumed), mover = begun, mover or DriverMover(context.stores)
    claims = context.claims(sweep.sweep_id)
    worker = ChunkWorker(context=context, sweep=sweep, is_resumed=is_resumed, mover=mover)
    with context.database.read() as connection:
        left = SweepChunks(connection, sweep.sweep_id).heads(state=ChunkState.OPEN)
    settled = sweep.paths - sum(head.count for head in left)
    failures = _find_unsettled(context, sweep)
    width = mover.width
    try:
        while chunks := claims.take_many(ChunkState.OPEN, width, without=failures):
            try:
                worker.run(chunks)
            except (StateError, SQLAlchemyError, SweepRefusedError):
                raise
            except Exception as exc:  # noqa: BLE001 - raised again when the other feeds are done
                if width == 1:
                    failures[chunks[0].feed] = exc
                width = 1  # to find the feed that fails
                worker = ChunkWorker(context=context, sweep=sweep, is_resumed=True, mover=mover)
                continue
            settled += sum(chunk.count for chunk in chunks)
            if progress is not None:
                progress(settled, sweep.paths)
        if worker.is_resumed:
            failures |= end_restores(context, sweep)
    finally:
        claims.release()
    if len(failures) > 1:
        raise FeedsUnsweptError(sweep=sweep.sweep_id, failures=failures)
    for failure in failures.values():
        raise failure


def _find_unsettled(context: SweepContext, sweep: Sweep) -> dict[str, Exception]:
    """Return the feeds of a sweep whose traces of holds cannot be read, so that it is unknown what these protect, and
    those whose newest instance is gone.
    """
    traces, failures = context.hold_traces(), dict[str, Exception]()
    for record in context.feeds_of(sweep):
        try:
            traces.settle([record])
            require_unswept(context.database, context.stores, record, context.clock.now())
        except StorageError as exc:
            failures[record.feed] = exc
    return failures


def end_sweep(context: SweepContext, sweep_id: str) -> Sweep:
    """End a running sweep if it has no open chunks left; return the sweep."""
    now = context.clock.now()
    with context.database.begin() as connection:
        sweeps, chunks = Sweeps(connection), SweepChunks(connection, sweep_id)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state is not SweepState.RUNNING or chunks.heads(state=ChunkState.OPEN):
            return sweep
        counts = _with_outcomes(sweep, chunks.count_outcomes())
        Leases(context.database).release_all(connection, lease_holder(sweep_id))
        sweeps.transition(
            sweep_id,
            {SweepState.RUNNING},
            state=SweepState.DONE,
            counts=counts,
            ended_at=now,
            purge_at=_find_purge_time(context.plan, sweep.cluster, counts, now),
        )
        return require_sweep(sweeps, sweep_id)


def _with_outcomes(sweep: Sweep, outcomes: Mapping[tuple[str, ItemOutcome | None], int]) -> tuple[FeedCount, ...]:
    """Return the counts of a sweep with what became of each feed's paths."""
    counts = []
    for count in sweep.counts:
        of_feed = {outcome: number for (feed, outcome), number in outcomes.items() if outcome and feed == count.feed}
        evicted, failed = of_feed.pop(ItemOutcome.EVICTED, 0), of_feed.pop(ItemOutcome.REFUSED, 0)
        counts.append(replace(count, evicted=evicted, kept=sum(of_feed.values()), failed=failed))
    return tuple(counts)


def _find_purge_time(plan: Plan, cluster: str, counts: Iterable[FeedCount], ended_at: datetime) -> datetime | None:
    """Return when the trash of a sweep is purged, by the longest lifetime of its feeds; None if it is empty."""
    times = []
    for count in counts:
        record = plan.feeds.get((count.feed, cluster))
        policy = record.retention if record else None
        if count.evicted:
            times.append(ended_at + (policy.trash if policy else UNDECLARED_TRASH_LIFETIME).as_duration())
    return max(times, default=None)


def _require_runnable(sweeps: Sweeps, sweep: Sweep, now: datetime) -> None:
    reason = _reason_not_to_begin(sweeps, sweep, now)
    if reason is not None:
        raise SweepRefusedError(sweep=sweep.sweep_id, reason=reason[0], next_step=reason[1])


def _reason_not_to_begin(sweeps: Sweeps, sweep: Sweep, now: datetime) -> tuple[str, str] | None:
    match sweep.state:
        case SweepState.PLANNED:
            pass
        case SweepState.ASKING:
            why = "; ".join(obstacle.sentence.rstrip(".") for obstacle in sweep.obstacles)
            shown = command_line("retention", "show", sweep.sweep_id)
            return f"it waits for approval: {why}", f"Approve or cancel it. To see what it would remove: {shown}"
        case _:
            return f"it is {sweep.state.value}", "Plan again."
    if now < max(sweep.as_of, sweep.created_at):
        return (
            f"the clock stands at {render_datetime(now)}, but the sweep was planned for a later time: "
            f"{render_datetime(max(sweep.as_of, sweep.created_at))}",
            "Correct the clock, or plan again.",
        )
    feeds = {count.feed for count in sweep.counts}
    for other in sweeps.with_state(sweep.cluster, {SweepState.RUNNING, SweepState.UNDOING}):
        shared = sorted(feeds & {count.feed for count in other.counts})
        if shared:
            return (
                f"sweep {other.sweep_id}, also of feed '{shared[0]}', is {other.state.value}",
                "Wait until that one has ended.",
            )
    return None
