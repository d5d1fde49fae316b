"""`retention run`, `approve`, `cancel`, `undo` and `purge`: what people do with sweeps that were planned."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from feed_assets.clock import Clock
from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.clock_witness import note_clock
from feed_assets.lifecycle.retention.holders import name_holder
from feed_assets.lifecycle.retention.sweeping import require_runnable, run_sweep
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.operations.retention.auditing import note
from feed_assets.operations.retention.reading import require_clusters, sweep_to_json
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.operations.scene import Scene
from feed_assets.state.sweep_records import Sweep, SweepState
from feed_assets.state.sweeps import Sweeps

VERSION = 1

OnProgress = Callable[[Sweep, int, int], None]
"""Called with a sweep, how many of its paths are settled, and how many there are."""

_RUNNABLE = frozenset({SweepState.PLANNED, SweepState.RUNNING})


def site_of(scene: Scene, clock: Clock, wall: Clock, *, author: str) -> Worksite:
    """What a command works on sweeps with; `clock` is the time of the data, which goes on while it works."""
    return Worksite(
        database=scene.database,
        stores=scene.stores,
        governance=scene.governance,
        clock=clock,
        wall=wall,
        holder=name_holder(),
        origin=f"retention:{author}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The sweeps that were run, as they stand now; `refused` has those that cannot be run now, with the reasons."""

    sweeps: tuple[Sweep, ...]
    refused: tuple[SweepRefusedError, ...] = ()
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether each has come to its end, and storage refused nothing; a dry run is where none is refused."""
        if self.refused:
            return False
        return self.is_dry_run or all(
            sweep.state is SweepState.DONE and not any(count.failed for count in sweep.counts) for sweep in self.sweeps
        )

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "dry_run": self.is_dry_run,
            "sweeps": [sweep_to_json(sweep) for sweep in self.sweeps],
            "refused": [{"sweep": error.sweep, "reason": error.reason} for error in self.refused],
        }


def find_runnable(scene: Scene, clusters: Collection[str] = (), feeds: Collection[str] = ()) -> list[Sweep]:
    """The sweeps that wait to be run, or broke off, the one planned first first; only of some clusters and feeds if
    given.

    Raises:
        InstanceQueryError: there is no such cluster.
    """
    require_clusters(scene, clusters)
    with scene.database.read() as connection:
        found = [
            sweep
            for cluster in sorted(clusters or scene.plan.clusters)
            for sweep in Sweeps(connection).with_state(cluster, _RUNNABLE)
        ]
    return [sweep for sweep in found if not feeds or {count.feed for count in sweep.counts} & set(feeds)]


def run_sweeps(
    scene: Scene,
    site: Worksite,
    sweeps: Sequence[Sweep],
    *,
    author: str,
    dry_run: bool = False,
    progress: OnProgress | None = None,
) -> Ran:
    """Run sweeps, one after another, or go on with those that broke off. One that is not to be run keeps no other from
    it; with `dry_run` it is only found out which those are.

    Raises:
        SafeModeError: safe mode is on.
        SweepDamagedError: one is not what was planned.
        StorageError: the filesystem refused; a repeat goes on.
    """
    require_mode(scene.database, Operation.RETENTION_RUN)
    done, refused = [], []
    for sweep in sweeps:
        try:
            require_runnable(site, sweep)
            if dry_run:
                done.append(sweep)
                continue
            note(scene, author, "retention run", sweep)
            done.append(run_sweep(site, sweep.sweep_id, progress=_bound(progress, sweep)))
        except SweepRefusedError as exc:
            refused.append(exc)
    return Ran(sweeps=tuple(done), refused=tuple(refused), is_dry_run=dry_run)


def _bound(progress: OnProgress | None, sweep: Sweep) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda settled, total: progress(sweep, settled, total)


def approve_sweep(scene: Scene, sweep: Sweep, *, author: str, dry_run: bool = False) -> Sweep:
    """Let a sweep run that asks because it exceeds a limit, or because of the clock, which is believed by that.

    Raises:
        SafeModeError: safe mode is on.
        SweepRefusedError: it does not ask.
    """
    require_mode(scene.database, Operation.RETENTION_APPROVE)
    approved = replace(sweep, state=SweepState.PLANNED, approved_by=author, approved_at=scene.as_of)
    _require_state(sweep, {SweepState.ASKING}, "so there is nothing to approve")
    if dry_run:
        return approved
    with scene.database.begin() as connection:
        is_changed = Sweeps(connection).transition(
            sweep.sweep_id,
            {SweepState.ASKING},
            state=SweepState.PLANNED,
            approved_by=author,
            approved_at=scene.as_of,
        )
        if is_changed:
            note_clock(connection, sweep.cluster, scene.as_of)
    return _after(scene, sweep, author, "retention approve", is_changed=is_changed)


def cancel_sweep(scene: Scene, sweep: Sweep, *, author: str, dry_run: bool = False) -> Sweep:
    """Let a sweep that has not begun never run.

    Raises:
        SweepRefusedError: it has begun, or has ended.
    """
    unbegun = {SweepState.PLANNED, SweepState.ASKING}
    next_step = "Undo it." if sweep.state is SweepState.RUNNING else ""
    _require_state(sweep, unbegun, "so it cannot be cancelled", next_step)
    if dry_run:
        return replace(sweep, state=SweepState.CANCELLED)
    with scene.database.begin() as connection:
        is_changed = Sweeps(connection).transition(
            sweep.sweep_id, unbegun, state=SweepState.CANCELLED, ended_at=scene.as_of, note=f"cancelled by {author}"
        )
    return _after(scene, sweep, author, "retention cancel", is_changed=is_changed)


def _require_state(sweep: Sweep, wanted: Collection[SweepState], reason: str, next_step: str = "") -> None:
    if sweep.state not in wanted:
        raise SweepRefusedError(
            sweep=sweep.sweep_id,
            reason=f"it is {sweep.state.value}, {reason}",
            next_step=next_step or f"Look at it with `feed-assets retention show {sweep.sweep_id}`.",
        )


def _after(scene: Scene, sweep: Sweep, author: str, action: str, *, is_changed: bool) -> Sweep:
    if is_changed:
        note(scene, author, action, sweep)
    with scene.database.read() as connection:
        found = Sweeps(connection).find(sweep.sweep_id)
    assert found is not None
    if not is_changed:
        _require_state(found, (), "because somebody else was faster")
    return found
