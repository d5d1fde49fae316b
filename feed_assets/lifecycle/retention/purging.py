"""Emptying the trash: what sweeps took away is removed for good once it was kept for its time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.clock_witness import load_clock_seen
from feed_assets.lifecycle.retention.evictions import event_key
from feed_assets.lifecycle.retention.limits import decide_clock
from feed_assets.lifecycle.retention.locations import store_addresses
from feed_assets.lifecycle.retention.restoring import AWAY
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.state.event_log import EventLog
from feed_assets.state.holds import Holds
from feed_assets.state.records import FeedEventKind
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ChunkHead, ChunkState, ItemOutcome, Sweep, SweepState
from feed_assets.state.sweeps import Sweeps
from feed_assets.storage.records import Purged
from feed_assets.timing.frequency import Frequency, Unit

SWEEPS_AT_ONCE = 1_000

_NOBODYS = "no feed or cluster lies there any more; declare one that does, or remove it by hand"
_DAILY = Frequency(unit=Unit.DAYS, count=1)

_ENDED = frozenset({SweepState.DONE, SweepState.UNDONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedSweep:
    """What a purge did to the trash of one sweep; `obstacle` says why it is still there, if it is."""

    sweep: Sweep
    files: int
    obstacle: str | None = None


def find_purgeable(
    site: Worksite, cluster: str, as_of: datetime, *, at_once: bool = False, only: Collection[str] | None = None
) -> list[Sweep]:
    """The sweeps whose trash is over its time, the longest overdue first; with `at_once` all that have a trash.

    `only` of these ids, if given.

    Raises:
        SweepRefusedError: the clock cannot be right, so nobody knows what is over its time.
    """
    if not at_once:
        _require_clock(site, cluster, as_of)
    with site.database.read() as connection:
        sweeps = Sweeps(connection)
        if at_once:
            found = [each for each in sweeps.with_state(cluster, _ENDED) if each.purge_at and not each.purged_at]
        else:
            found = sweeps.to_purge(cluster, as_of, SWEEPS_AT_ONCE)
    return [sweep for sweep in found if only is None or sweep.sweep_id in only]


def purge_sweeps(site: Worksite, cluster: str, sweeps: Sequence[Sweep], *, dry_run: bool = False) -> list[PurgedSweep]:
    """Remove the trash of sweeps for good; what a purge that broke off has left goes, too.

    The trash of instances that somebody holds stays.
    """
    done = []
    for sweep in sweeps:
        held = _hold_on(site, sweep)
        if held is not None:
            done.append(PurgedSweep(sweep=sweep, files=0, obstacle=held))
        elif dry_run:
            done.append(PurgedSweep(sweep=sweep, files=sum(count.files for count in sweep.counts)))
        elif _claim(site, sweep):
            done.append(_purge(site, cluster, sweep))
    if not dry_run:
        _finish_broken_off(site, cluster)
    return done


def _require_clock(site: Worksite, cluster: str, as_of: datetime) -> None:
    with site.database.read() as connection:
        seen = load_clock_seen(connection, cluster)
    for obstacle in decide_clock(_DAILY, as_of, seen):
        raise SweepRefusedError(
            sweep=f"purge of {cluster}",
            reason=obstacle.sentence.rstrip("."),
            next_step="Correct the clock; if it is right, name the sweeps to purge, and give --now.",
        )


def _hold_on(site: Worksite, sweep: Sweep) -> str | None:
    """Why the trash of a sweep stays, by a hold on anything that is not back."""
    as_of = site.clock.now()
    with site.database.read() as connection:
        holds = Holds(connection)
        for head in SweepChunks(connection, sweep.sweep_id).heads():
            found = holds.find_for(head.feed, sweep.cluster, head.first, head.last, as_of)
            times = _times_away(connection, head) if found else ()
            for hold in found:
                if any(hold.covers(head.feed, sweep.cluster, time) for time in times):
                    return f"hold '{hold.name}' of {hold.author} is on feed '{head.feed}': {hold.reason}"
    return None


def _times_away(connection: Connection, head: ChunkHead) -> set[datetime]:
    """The nominal times of a chunk of which the trash may have something."""
    if head.state is ChunkState.UNDONE:
        return set()
    chunk = SweepChunks(connection, head.sweep_id).get(head.number)
    places = [place for place in range(chunk.count) if not chunk.results or chunk.results[place].outcome in AWAY]
    return {chunk.items[place].nominal_time for place in places}


def _claim(site: Worksite, sweep: Sweep) -> bool:
    """Let nobody undo the sweep any more; whether it is still to be purged."""
    with site.database.begin() as connection:
        return Sweeps(connection).transition(
            sweep.sweep_id, _ENDED, state=SweepState.PURGED, purged_at=site.clock.now()
        )


def _purge(site: Worksite, cluster: str, sweep: Sweep) -> PurgedSweep:
    answers = _purge_everywhere(site, cluster, sweep)
    obstacle = next((answer.obstacle for answer in answers if not answer.is_complete), None)
    with site.database.begin() as connection:
        sweeps = Sweeps(connection)
        if obstacle is not None:
            sweeps.transition(sweep.sweep_id, {SweepState.PURGED}, state=sweep.state, purged_at=None, note=obstacle)
        found = sweeps.find(sweep.sweep_id) or sweep
    return PurgedSweep(sweep=found, files=sum(answer.files for answer in answers), obstacle=obstacle)


def _purge_everywhere(site: Worksite, cluster: str, sweep: Sweep) -> list[Purged]:
    """Empty the trash of a sweep in every store that has one; where no feed or cluster lies any more it stays."""
    stores = {store.root_url: store for store in map(site.stores.get, store_addresses(site.plan, cluster))}
    answers = [store.trash().purge(sweep.sweep_id) for store in stores.values()]
    for url in sorted(_urls_of(site, sweep) - stores.keys()):
        answers.append(
            Purged(sweep=sweep.sweep_id, files=0, is_complete=False, obstacle=f"its trash at {url} stays: {_NOBODYS}")
        )
    return answers


def _urls_of(site: Worksite, sweep: Sweep) -> set[str]:
    """The stores from which a sweep took something, by the log; one look for each chunk."""
    found: set[str] = set()
    with site.database.read() as connection:
        for chunk in SweepChunks(connection, sweep.sweep_id).iter_all():
            gone = [place for place, result in enumerate(chunk.results) if result.outcome is ItemOutcome.EVICTED][:1]
            keys = [event_key(chunk, FeedEventKind.EVICTED, chunk.items[place]) for place in gone]
            events = [EventLog(connection).find_key(key) for key in keys]
            found.update(str(event.payload["store"]) for event in events if event is not None)
    return found


def _finish_broken_off(site: Worksite, cluster: str) -> None:
    """Remove what is left in the trash of sweeps that count as purged."""
    for address in store_addresses(site.plan, cluster):
        trash = site.stores.get(address).trash()
        ids = trash.sweeps()
        if not ids:
            continue
        with site.database.read() as connection:
            found = Sweeps(connection).find_many(ids)
        for sweep_id, sweep in found.items():
            if sweep.state is SweepState.PURGED:
                trash.purge(sweep_id)
