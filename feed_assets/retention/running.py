"""`retention run`, `approve` and `cancel`: commands on planned sweeps."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from feed_assets.command_lines import command_line
from feed_assets.context.operation import OperationContext, note
from feed_assets.errors import FeedAssetsError
from feed_assets.json_form import Hidden, ShownError, shown
from feed_assets.log.removals.records import Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import name_holder
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.clock_witness import note_clock
from feed_assets.retention.sweeps.sweep_context import SweepContext
from feed_assets.retention.sweeps.sweeping import require_runnable, run_sweep
from feed_assets.sql.errors import StateError

OnProgress = Callable[[str, int, int], None]
"""Called with the id of a sweep, and the numbers of settled and of all its paths."""

_RUNNABLE = frozenset({SweepState.PLANNED, SweepState.RUNNING})


def sweep_context_of(context: OperationContext, *, author: str) -> SweepContext:
    """Return the context of a command that works on sweeps."""
    return SweepContext(
        database=context.database,
        stores=context.stores,
        timeline=context.timeline,
        clock=context.clock,
        real_clock=context.real_clock,
        holder=name_holder(),
        origin=f"retention:{author}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRuns:
    """The sweeps of a run in their current state.

    `refused` has the reasons of those that cannot run now, and of those that a storage kept from their end; `waiting`
    what was planned with them and waits.
    """

    sweeps: tuple[Sweep, ...]
    refused: tuple[ShownError[FeedAssetsError], ...] = ()
    dry_run: bool = False
    waiting: Hidden[tuple[str, ...]] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Which sweeps wait or are refused, and what is to be said of the others."""
        shared = [sweep.sweep_id for sweep in self.sweeps if sweep.state is SweepState.RUNNING and not self.dry_run]
        return (
            *self.waiting,
            *(note for sweep in self.sweeps for note in sweep.notes),
            "" if self.sweeps or self.refused else "no sweep waits to run",
            *(f"feed-assets: {refused}" for refused in self.refused),
            *(f"other workers hold a part of {each}; repeat the command when they have finished" for each in shared),
        )

    has_failed = property(lambda self: not self.is_complete)

    @shown
    def is_complete(self) -> bool:
        """Whether every sweep is complete, and storage refused nothing; in a dry run, whether no sweep is refused."""
        if self.refused:
            return False
        return self.dry_run or all(
            sweep.state is SweepState.DONE and not any(count.failed for count in sweep.counts) for sweep in self.sweeps
        )


def find_runnable(
    context: OperationContext, clusters: Collection[str] = (), feeds: Collection[str] = ()
) -> list[Sweep]:
    """Find the waiting and the interrupted sweeps, oldest plan first; only of some clusters and feeds if given.

    Raises:
        InstanceQueryError: there is no such cluster.
    """
    context.require_clusters(clusters)
    with context.database.read() as connection:
        found = [
            sweep
            for cluster in sorted(clusters or context.plan.clusters)
            for sweep in Sweeps(connection).with_state(cluster, _RUNNABLE)
        ]
    return [sweep for sweep in found if not feeds or {count.feed for count in sweep.counts} & set(feeds)]


def run_sweeps(
    context: OperationContext,
    sweeps: Sequence[Sweep],
    *,
    author: str,
    dry_run: bool = False,
    waiting: tuple[str, ...] = (),
    progress: OnProgress | None = None,
) -> SweepRuns:
    """Run sweeps, one after another, or continue interrupted ones. A sweep that is refused, or fails because of a
    storage, does not stop the others; a repeat continues it. With `dry_run`, only the refusals are determined.

    Raises:
        SweepDamagedError: a sweep differs from its plan.
    """
    sweep_context = sweep_context_of(context, author=author)
    done: list[Sweep] = []
    refused: list[FeedAssetsError] = []
    for sweep in sweeps:
        try:
            require_runnable(sweep_context, sweep)
            if dry_run:
                done.append(sweep)
                continue
            note(context, author, "retention run", sweep)
            done.append(
                run_sweep(sweep_context, sweep.sweep_id, progress=progress and partial(progress, sweep.sweep_id))
            )
        except StateError:
            raise
        except FeedAssetsError as exc:
            refused.append(exc)
    return SweepRuns(sweeps=tuple(done), refused=tuple(refused), dry_run=dry_run, waiting=waiting)


def approve_sweep(context: OperationContext, sweep: Sweep, *, author: str, dry_run: bool = False) -> Sweep:
    """Approve a sweep that exceeds a limit, or that asks because of the clock; the approval confirms the clock.

    Raises:
        SweepRefusedError: the sweep does not ask for approval.
    """
    approved = replace(sweep, state=SweepState.PLANNED, approved_by=author, approved_at=context.as_of)
    _require_state(sweep, {SweepState.ASKING}, "so it needs no approval")
    if dry_run:
        return approved
    with context.database.begin() as connection:
        is_changed = Sweeps(connection).transition(
            sweep.sweep_id,
            {SweepState.ASKING},
            state=SweepState.PLANNED,
            approved_by=author,
            approved_at=context.as_of,
        )
        if is_changed:
            note_clock(connection, sweep.cluster, context.as_of)
    return _after(context, sweep, author, "retention approve", is_changed=is_changed)


def cancel_sweep(context: OperationContext, sweep: Sweep, *, author: str, dry_run: bool = False) -> Sweep:
    """Cancel a sweep that has not begun.

    Raises:
        SweepRefusedError: the sweep has begun, or has ended.
    """
    unstarted = {SweepState.PLANNED, SweepState.ASKING}
    next_step = "Undo it." if sweep.state is SweepState.RUNNING else ""
    _require_state(sweep, unstarted, "so it cannot be cancelled", next_step)
    if dry_run:
        return replace(sweep, state=SweepState.CANCELLED)
    with context.database.begin() as connection:
        is_changed = Sweeps(connection).transition(
            sweep.sweep_id, unstarted, state=SweepState.CANCELLED, ended_at=context.as_of, note=f"cancelled by {author}"
        )
    return _after(context, sweep, author, "retention cancel", is_changed=is_changed)


def _require_state(sweep: Sweep, allowed: Collection[SweepState], reason: str, next_step: str = "") -> None:
    if sweep.state not in allowed:
        raise SweepRefusedError(
            sweep=sweep.sweep_id,
            reason=f"it is {sweep.state.value}, {reason}",
            next_step=next_step or f"Show it: {command_line('retention', 'show', sweep.sweep_id)}",
        )


def _after(context: OperationContext, sweep: Sweep, author: str, action: str, *, is_changed: bool) -> Sweep:
    if is_changed:
        note(context, author, action, sweep)
    with context.database.read() as connection:
        found = Sweeps(connection).find(sweep.sweep_id)
    assert found is not None
    if not is_changed:
        _require_state(found, (), "because another command was faster")
    return found
