"""Emptying the trash: what sweeps took away is removed for good once it was kept for its time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.lifecycle.retention.locations import store_addresses
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.state.holds import Holds
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import Sweep, SweepState
from feed_assets.state.sweeps import Sweeps
from feed_assets.storage.trash_port import Purged

SWEEPS_AT_ONCE = 1_000

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
    """
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


def _hold_on(site: Worksite, sweep: Sweep) -> str | None:
    """Why the trash of a sweep stays, by a hold on anything in it."""
    as_of = site.clock.now()
    with site.database.read() as connection:
        holds = Holds(connection)
        for head in SweepChunks(connection, sweep.sweep_id).heads():
            for hold in holds.find_for(head.feed, sweep.cluster, head.first, head.last, as_of):
                return f"hold '{hold.name}' of {hold.author} is on feed '{head.feed}': {hold.reason}"
    return None


def _claim(site: Worksite, sweep: Sweep) -> bool:
    """Let nobody undo the sweep any more; whether it is still to be purged."""
    with site.database.begin() as connection:
        return Sweeps(connection).transition(
            sweep.sweep_id, _ENDED, state=SweepState.PURGED, purged_at=site.clock.now()
        )


def _purge(site: Worksite, cluster: str, sweep: Sweep) -> PurgedSweep:
    answers = _purge_everywhere(site, cluster, sweep.sweep_id)
    obstacle = next((answer.obstacle for answer in answers if not answer.is_complete), None)
    with site.database.begin() as connection:
        sweeps = Sweeps(connection)
        if obstacle is not None:
            sweeps.transition(sweep.sweep_id, {SweepState.PURGED}, state=sweep.state, purged_at=None, note=obstacle)
        found = sweeps.find(sweep.sweep_id) or sweep
    return PurgedSweep(sweep=found, files=sum(answer.files for answer in answers), obstacle=obstacle)


def _purge_everywhere(site: Worksite, cluster: str, sweep_id: str) -> list[Purged]:
    addresses = store_addresses(site.plan, cluster)
    return [site.stores.get(address).trash().purge(sweep_id) for address in addresses]


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
