"""Running a sweep: who may begin it, all of its chunks one after another, and how it ends.

A sweep can be begun once, and gone on with as often as it breaks off; several workers may work on its chunks at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.clock import TimeBudget
from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.claims import lease_holder, released
from feed_assets.lifecycle.retention.ends import count_results, find_purge_time, require_sweep
from feed_assets.lifecycle.retention.evicting import ChunkDone, ChunkWorker
from feed_assets.lifecycle.retention.movers import DriverMover, Mover
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.state.leases import Leases
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ChunkState, Sweep, SweepState
from feed_assets.state.sweeps import Sweeps
from feed_assets.timing.dates import render_datetime

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many paths of a sweep are settled, and how many there are."""

OnChunk: TypeAlias = Callable[[ChunkDone], None]
"""Told of a chunk when it is recorded: what is gone, and what was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A sweep that may be worked on; `is_resumed` if somebody has begun before."""

    sweep: Sweep
    is_resumed: bool


def find_waiting(connection: Connection, cluster: str) -> list[Sweep]:
    """The sweeps of a cluster that somebody has approved, or that broke off, the one planned first first."""
    found = Sweeps(connection).with_state(cluster, {SweepState.PLANNED, SweepState.RUNNING})
    return [sweep for sweep in found if sweep.state is SweepState.RUNNING or sweep.approved_by is not None]


def run_sweep(
    site: Worksite,
    sweep_id: str,
    *,
    mover: Mover | None = None,
    on_chunk: OnChunk = lambda _: None,
    budget: TimeBudget | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Run a sweep, or go on with one that broke off, and return it as it stands then: DONE, or RUNNING where the budget
    is spent or others still work on a part of it.

    Args:
        site: what is worked with.
        sweep_id: which.
        mover: who moves the paths; this process if None.
        on_chunk: told of each chunk when it is recorded.
        budget: how long to work.
        progress: told after each chunk.

    Raises:
        SweepRefusedError: it is not to be run: it asks, has ended, or another sweep of one of its feeds is running.
        SweepDamagedError: it is not what was planned.
        StorageError: the filesystem refused; the next run goes on where this one stopped.
    """
    begun = begin_sweep(site, sweep_id)
    sweep_chunks(site, begun, mover=mover, on_chunk=on_chunk, budget=budget, progress=progress)
    return end_sweep(site, sweep_id)


def begin_sweep(site: Worksite, sweep_id: str) -> Begun:
    """Make sure that a sweep may run, and note that it does. Raises as `run_sweep`."""
    now = site.clock.now()
    with site.database.begin() as connection:
        sweeps = Sweeps(connection)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state is SweepState.RUNNING:
            return Begun(sweep=sweep, is_resumed=True)
        _require_runnable(sweeps, sweep, now)
        SweepChunks(connection, sweep_id).require_intact(sweep)
        sweeps.transition(sweep_id, {SweepState.PLANNED}, state=SweepState.RUNNING, started_at=now)
        return Begun(sweep=require_sweep(sweeps, sweep_id), is_resumed=False)


def require_runnable(site: Worksite, sweep: Sweep) -> None:
    """Make sure that a sweep could be run now, also one that is not stored.

    Raises:
        SweepRefusedError: it could not.
    """
    with site.database.read() as connection:
        if sweep.state is not SweepState.RUNNING:
            _require_runnable(Sweeps(connection), sweep, site.clock.now())


def sweep_chunks(
    site: Worksite,
    begun: Begun,
    *,
    mover: Mover | None = None,
    on_chunk: OnChunk = lambda _: None,
    budget: TimeBudget | None = None,
    progress: Progress | None = None,
) -> None:
    """Work on the chunks of a begun sweep until none can be had or the budget is spent. Several workers may at once."""
    sweep, mover = begun.sweep, mover or DriverMover(site.stores)
    claims = site.claims(sweep.sweep_id)
    worker = ChunkWorker(site=site, sweep=sweep, is_resumed=begun.is_resumed, mover=mover)
    settled = sweep.paths - sum(head.count for head in claims.left(ChunkState.OPEN)) if progress else 0
    with released(claims):
        while not (budget and budget.is_spent) and (chunks := claims.take_many(ChunkState.OPEN, mover.width)):
            for done in worker.run(chunks):
                on_chunk(done)
                settled += done.chunk.count
            if progress is not None:
                progress(settled, sweep.paths)


def end_sweep(site: Worksite, sweep_id: str) -> Sweep:
    """Note that a running sweep has ended, if nothing of it is left; returns it as it stands."""
    now = site.clock.now()
    with site.database.begin() as connection:
        sweeps, chunks = Sweeps(connection), SweepChunks(connection, sweep_id)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state is not SweepState.RUNNING or chunks.heads(state=ChunkState.OPEN):
            return sweep
        counts = count_results(sweep, chunks.iter_all())
        Leases(site.database).release_all(connection, lease_holder(sweep_id))
        sweeps.transition(
            sweep_id,
            {SweepState.RUNNING},
            state=SweepState.DONE,
            counts=counts,
            ended_at=now,
            purge_at=find_purge_time(site.plan, sweep.cluster, counts, now),
        )
        return require_sweep(sweeps, sweep_id)


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
            return f"it waits for approval: {why}", "Look at it, and approve or cancel it."
        case _:
            return f"it is {sweep.state.value}", "Plan anew."
    if now < max(sweep.as_of, sweep.created_at):
        return (
            f"the clock stands at {render_datetime(now)}, and it was planned for a later time: "
            f"{render_datetime(max(sweep.as_of, sweep.created_at))}",
            "Correct the clock, or plan anew.",
        )
    feeds = {count.feed for count in sweep.counts}
    for other in sweeps.with_state(sweep.cluster, {SweepState.RUNNING, SweepState.UNDOING}):
        shared = sorted(feeds & {count.feed for count in other.counts})
        if shared:
            return (
                f"sweep {other.sweep_id}, of feed '{shared[0]}' too, is {other.state.value}",
                "Let that one end first.",
            )
    return None
