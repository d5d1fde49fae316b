"""`retention undo` and `purge`: sweeps brought back, and their trash emptied."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.ends import TRASH_OF_NOBODY
from feed_assets.lifecycle.retention.purging import PurgedSweep, find_purgeable, purge_sweeps
from feed_assets.lifecycle.retention.restoring import AWAY
from feed_assets.lifecycle.retention.sweeping import Progress
from feed_assets.lifecycle.retention.undoing import UNDOABLE, Undone, Wanted, undo_sweep
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.operations.retention.auditing import note
from feed_assets.operations.retention.holding import hold_undone
from feed_assets.operations.retention.reading import require_clusters, sweep_to_json
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.operations.scene import Scene
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import Hold, Sweep, SweepState
from feed_assets.timing.dates import render_datetime

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtBack:
    """What an undo came to, and the holds that keep the next sweep from what is back."""

    undone: Undone
    holds: tuple[Hold, ...]
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all that was asked for is back."""
        return self.undone.is_complete and not self.undone.left

    def render_summary(self) -> str:
        """One line: how much is back, how much not, and until when it is held."""
        would = "would bring back" if self.is_dry_run else "brought back"
        text = f"undo of {self.undone.sweep.sweep_id}: {would} {self.undone.restored:,} paths"
        if self.undone.left:
            text += f", could not bring back {len(self.undone.left):,}"
        if not self.undone.is_complete:
            text += "; others work on the rest of it, give the command again when they have ended"
        if self.holds and self.holds[0].expires_at is not None:
            text += f"; held until {render_datetime(self.holds[0].expires_at)} by {self.holds[0].name!r}"
        return text

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "dry_run": self.is_dry_run,
            "sweep": sweep_to_json(self.undone.sweep),
            "restored": self.undone.restored,
            "left": [
                {"path": path, "outcome": result.outcome.value, "reason": result.reason}
                for path, result in self.undone.left
            ],
            "complete": self.is_complete,
            "hold": self.holds[0].name if self.holds else None,
        }


def bring_back(
    scene: Scene,
    site: Worksite,
    sweep: Sweep,
    *,
    author: str,
    feeds: Collection[str] = (),
    times: Collection[datetime] = (),
    with_hold: bool = True,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> BroughtBack:
    """Undo a sweep, or what it took of some feeds or at some nominal times.

    What comes back is still expired, so unless told otherwise it is held for as long as the trash would have kept it.

    Raises:
        SafeModeError: safe mode is on.
        SweepRefusedError: it has taken nothing away, or did not take anything of one of the feeds.
        StorageError: the filesystem refused; a repeat goes on.
    """
    require_mode(scene.database, Operation.RETENTION_UNDO)
    unknown = sorted(set(feeds) - {count.feed for count in sweep.counts})
    if unknown:
        raise SweepRefusedError(
            sweep=sweep.sweep_id,
            reason=f"it is not about feed {unknown[0]!r}",
            next_step=f"It is about {', '.join(sorted(count.feed for count in sweep.counts))}.",
        )
    wanted = Wanted(feeds=frozenset(feeds) or None, times=frozenset(times) or None)
    if dry_run:
        return _foreseen(scene, sweep, wanted)
    holds: list[Hold] = []
    if with_hold and sweep.state in UNDOABLE - {SweepState.UNDONE}:
        holds = hold_undone(scene, sweep, feeds or None, times or None, author, _held_until(scene, sweep))
    undone = undo_sweep(site, sweep.sweep_id, wanted, progress=progress)
    note(scene, author, "retention undo", sweep, restored=undone.restored, left=len(undone.left))
    return BroughtBack(undone=undone, holds=tuple(holds))


def _held_until(scene: Scene, sweep: Sweep) -> datetime:
    records = [scene.plan.feeds.get((count.feed, sweep.cluster)) for count in sweep.counts]
    kept = [record.retention.trash for record in records if record is not None and record.retention is not None]
    return scene.as_of + max((each.as_duration() for each in kept), default=TRASH_OF_NOBODY.as_duration())


def _foreseen(scene: Scene, sweep: Sweep, wanted: Wanted) -> BroughtBack:
    count = 0
    with scene.database.read() as connection:
        for chunk in SweepChunks(connection, sweep.sweep_id).iter_all():
            count += sum(bool(chunk.results) and chunk.results[place].outcome in AWAY for place in wanted.places(chunk))
    undone = Undone(sweep=sweep, restored=count, left=(), is_complete=True)
    return BroughtBack(undone=undone, holds=(), is_dry_run=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """What a purge did to the trash of each sweep that was due."""

    purged: tuple[PurgedSweep, ...]
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing was in the way."""
        return all(each.obstacle is None for each in self.purged)

    def render_summary(self) -> str:
        """One line: how many sweeps, how much of them, and how many had to stay."""
        done = [each for each in self.purged if each.obstacle is None]
        would = "would purge" if self.is_dry_run else "purged"
        text = f"{would} {len(done):,} sweeps, {sum(each.files for each in done):,} files"
        stay = len(self.purged) - len(done)
        return f"{text}; {stay:,} had to stay" if stay else text

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "dry_run": self.is_dry_run,
            "purged": [
                {"sweep": each.sweep.sweep_id, "files": each.files, "obstacle": each.obstacle} for each in self.purged
            ],
        }


def empty_trash(
    scene: Scene,
    site: Worksite,
    *,
    author: str,
    clusters: Collection[str] = (),
    only: Collection[Sweep] = (),
    at_once: bool = False,
    dry_run: bool = False,
) -> Emptied:
    """Remove for good what sweeps took away and was kept for its time; with `at_once` whatever its time.

    Raises:
        SafeModeError: safe mode is on.
        InstanceQueryError: there is no such cluster.
        SweepRefusedError: the clock cannot be right, so nobody knows what is over its time.
        StorageError: the filesystem refused; a repeat goes on.
    """
    require_mode(scene.database, Operation.RETENTION_PURGE)
    require_clusters(scene, clusters)
    ids = {sweep.sweep_id for sweep in only}
    named = {sweep.cluster for sweep in only}
    purged: list[PurgedSweep] = []
    for cluster in sorted(named or clusters or scene.plan.clusters):
        found = find_purgeable(site, cluster, scene.as_of, at_once=at_once, only=ids or None)
        done = purge_sweeps(site, cluster, found, dry_run=dry_run)
        purged += done
        for each in done if not dry_run else ():
            note(scene, author, "retention purge", each.sweep, files=each.files, obstacle=each.obstacle)
    return Emptied(purged=tuple(purged), is_dry_run=dry_run)
