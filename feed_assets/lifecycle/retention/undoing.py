"""Undoing a sweep: what it took away comes back, all or some, chunk by chunk, as far as nothing newer is there."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.claims import Grip, lease_holder, released
from feed_assets.lifecycle.retention.ends import require_sweep
from feed_assets.lifecycle.retention.evictions import Removal, find_evictions
from feed_assets.lifecycle.retention.keepers import lease_keys
from feed_assets.lifecycle.retention.locations import find_place, find_store
from feed_assets.lifecycle.retention.restoring import AWAY, Restoration
from feed_assets.lifecycle.retention.sweeping import Progress
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.state.leases import Leases
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ChunkState, ItemOutcome, ItemResult, Sweep, SweepChunk, SweepState
from feed_assets.state.sweeps import Sweeps
from feed_assets.storage.port import InstanceStore

UNDOABLE = frozenset({SweepState.RUNNING, SweepState.DONE, SweepState.UNDOING, SweepState.UNDONE, SweepState.PURGED})
_WORKED_ON = (ChunkState.DONE, ChunkState.OPEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undo came to: `restored` paths are back; `left` has those that are not, with the reasons.

    `is_complete` says that no part of the sweep was in other hands.
    """

    sweep: Sweep
    restored: int
    left: tuple[tuple[str, ItemResult], ...]
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of a sweep is to come back: of some feeds, and at some nominal times; None for all."""

    feeds: frozenset[str] | None = None
    times: frozenset[datetime] | None = None

    @property
    def is_all(self) -> bool:
        """Whether it is the whole sweep."""
        return self.feeds is None and self.times is None

    def places(self, chunk: SweepChunk) -> list[int]:
        """The items of a chunk that are wanted, by their places."""
        if self.feeds is not None and chunk.feed not in self.feeds:
            return []
        return [
            place for place, item in enumerate(chunk.items) if self.times is None or item.nominal_time in self.times
        ]


EVERYTHING = Wanted()


def undo_sweep(
    site: Worksite, sweep_id: str, wanted: Wanted = EVERYTHING, *, progress: Progress | None = None
) -> Undone:
    """Bring back what a sweep took away, with the states its instances had; nothing that stands there is replaced.

    What is back stays back, so a repeat goes on where an earlier undo stopped, and finds nothing to do after the last.
    A sweep that broke off can be undone as a whole. What was archived comes from the archive once the trash is purged.

    Raises:
        SweepRefusedError: it has not taken anything away, or is still to be gone on with.
        StorageError: the filesystem refused; a repeat goes on.
    """
    sweep, is_resumed = _begin(site, sweep_id, wanted)
    worker = _Worker(site=site, sweep=sweep, wanted=wanted, is_resumed=is_resumed)
    claims = site.claims(sweep_id)
    restored, settled = 0, 0
    left: list[tuple[str, ItemResult]] = []
    looked_at: set[int] = set()
    claims.release_dead()
    with released(claims):
        for state in _WORKED_ON:
            after = -1
            while (chunk := claims.take(state, after)) is not None:
                after = chunk.number
                looked_at.add(after)
                back, away = worker.restore(chunk)
                restored += back
                left += away
                settled += chunk.count
                if progress is not None:
                    progress(settled, sweep.paths)
    is_complete = all(head.number in looked_at for head in claims.left(*_WORKED_ON))
    ended = _end(site, sweep) if is_complete else sweep
    return Undone(sweep=ended, restored=restored, left=tuple(left), is_complete=is_complete)


def _begin(site: Worksite, sweep_id: str, wanted: Wanted) -> tuple[Sweep, bool]:
    now = site.clock.now()
    with site.database.begin() as connection:
        sweeps = Sweeps(connection)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state not in UNDOABLE:
            raise SweepRefusedError(
                sweep=sweep_id,
                reason=f"it is {sweep.state.value}, so it has taken nothing away",
                next_step="Cancel it if it is not to run.",
            )
        if sweep.state is SweepState.RUNNING and not wanted.is_all:
            raise SweepRefusedError(
                sweep=sweep_id,
                reason="it has not ended, so only all of it can be undone",
                next_step="Run it to its end first, or undo it as a whole.",
            )
        SweepChunks(connection, sweep_id).require_intact(sweep)
        sweeps.transition(
            sweep_id, {sweep.state}, state=SweepState.UNDOING, ended_at=sweep.ended_at or now, note=_note(sweep)
        )
        return require_sweep(sweeps, sweep_id), sweep.state is SweepState.UNDOING


def _end(site: Worksite, sweep: Sweep) -> Sweep:
    """UNDONE if all is back; what it was before if something is still away; UNDOING where chunks were never run."""
    with site.database.begin() as connection:
        sweeps, chunks = Sweeps(connection), SweepChunks(connection, sweep.sweep_id)
        states = {head.state for head in chunks.heads()}
        now = site.clock.now()
        if ChunkState.OPEN in states:
            return require_sweep(sweeps, sweep.sweep_id)
        Leases(site.database).release_all(connection, lease_holder(sweep.sweep_id))
        if states <= {ChunkState.UNDONE}:
            sweeps.transition(sweep.sweep_id, {SweepState.UNDOING}, state=SweepState.UNDONE, undone_at=now)
        else:
            before = SweepState.PURGED if sweep.purged_at else SweepState.DONE
            sweeps.transition(sweep.sweep_id, {SweepState.UNDOING}, state=before)
        return require_sweep(sweeps, sweep.sweep_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """Brings chunks of one sweep back, one after another."""

    site: Worksite
    sweep: Sweep
    wanted: Wanted
    is_resumed: bool
    _trashed: dict[str, frozenset[str]] = field(default_factory=dict)

    def restore(self, chunk: SweepChunk) -> tuple[int, list[tuple[str, ItemResult]]]:
        """Bring back what is wanted of a chunk that is ours: how much, and what could not be.

        What an undo that broke off has put back is recorded with it, wanted now or not.
        """
        wanted = set(self.wanted.places(chunk))
        if not wanted and not self.is_resumed:
            return 0, []
        removal, store = self._origin(chunk)
        places = self._places_away(chunk, store, wanted)
        if not places and not wanted:
            return 0, []
        restoration = Restoration(
            site=self.site, sweep=self.sweep, chunk=chunk, removal=removal, store=store, is_resumed=self.is_resumed
        )
        times = sorted({chunk.items[place].nominal_time for place in places})
        keys = lease_keys(chunk.feed, self.sweep.cluster, times) if removal.is_data else ()
        with Grip(self.site.claims(chunk.sweep_id), chunk, keys) as grip:
            results = restoration.restore(grip, places)
        back = [place for place in places if results[place].outcome is ItemOutcome.RESTORED]
        away = [place for place in places if place in wanted and results[place].outcome in AWAY]
        return len(back), [(chunk.items[place].path, results[place]) for place in away]

    def _places_away(self, chunk: SweepChunk, store: InstanceStore, wanted: set[int]) -> list[int]:
        """The wanted items that went, and those that an undo that broke off may have put back."""
        if chunk.results and not self.is_resumed:
            return [place for place in sorted(wanted) if chunk.results[place].outcome in AWAY]
        if store.root_url not in self._trashed:
            self._trashed[store.root_url] = frozenset(store.trash().contents(chunk.sweep_id))
        in_trash = {place for place, item in enumerate(chunk.items) if item.path in self._trashed[store.root_url]}
        if not chunk.results:
            return sorted(wanted & in_trash)
        away = {place for place, result in enumerate(chunk.results) if result.outcome in AWAY}
        unsure = sorted(away - wanted - in_trash)
        measures = store.measure([chunk.items[place].path for place in unsure])
        back = {place for place, measure in zip(unsure, measures, strict=True) if measure.exists}
        return sorted(away & wanted | back)

    def _origin(self, chunk: SweepChunk) -> tuple[Removal, InstanceStore]:
        """Where the items of a chunk were: in the store that their events name, else where the feed has its place."""
        site, cluster = self.site, self.sweep.cluster
        place = find_place(site.feed(chunk.feed, cluster), chunk.kind)
        store = site.stores.get(place.store if place else site.plan.clusters[cluster].store)
        removal = Removal(chunk=chunk, cluster=cluster, store=store.root_url, origin=site.origin)
        with site.database.read() as connection:
            events = find_evictions(connection, removal, chunk.items)
        url = next((str(event.payload["store"]) for event in events.values() if "store" in event.payload), None)
        if url is None or url == store.root_url:
            return removal, store
        found = find_store(site.plan, site.stores, cluster, url)
        if found is None:
            raise SweepRefusedError(
                sweep=chunk.sweep_id,
                reason=f"feed '{chunk.feed}' is in the trash of {url}, and nothing that is declared leads there",
                next_step="Declare the feed again as it was, or move the trees back by hand.",
            )
        return replace(removal, store=found.root_url), found


def _note(sweep: Sweep) -> str | None:
    return "it was undone before it had ended" if sweep.state is SweepState.RUNNING else sweep.note
