"""Empty the trash: purge the content that sweeps removed once its time in the trash is over."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.locations.overlaps import Places
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import AT_WORK, ChunkHead, ChunkState, ItemOutcome, Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.masking import get_logger
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.clock_witness import DAILY, load_known_times
from feed_assets.retention.rules.eligibility import decide_clock
from feed_assets.retention.rules.hold_traces import HoldTraces
from feed_assets.retention.rules.locations import store_addresses
from feed_assets.retention.sweeps.removal_records import find_evictions
from feed_assets.retention.sweeps.sweep_context import SweepContext
from feed_assets.retention.sweeps.undoing import REMOVED_OUTCOMES
from feed_assets.storage.errors import StorageError
from feed_assets.storage.records import Purged

SWEEPS_AT_ONCE = 1_000

_logger = get_logger(__name__)

_ORPHANED = "no feed or cluster is declared there any more; declare one, or remove the trash by hand"

_ENDED = frozenset({SweepState.DONE, SweepState.UNDONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedSweep:
    """The result of purging one sweep's trash; `obstacle` says why the trash is still there, if it is."""

    sweep: Sweep
    files: int
    obstacle: str | None = None


def find_purgeable(
    context: SweepContext, cluster: str, as_of: datetime, *, at_once: bool = False, only: Collection[str] | None = None
) -> list[Sweep]:
    """Return the sweeps whose time in the trash is over, the longest overdue first.

    With `at_once`, all with a trash; also those at work, which `purge_sweeps` names as obstacles.

    `only` restricts them to these ids, if given.

    Raises:
        SweepRefusedError: the clock is implausible, so it is unknown which sweeps are due.
    """
    if not at_once:
        _require_clock(context, cluster, as_of)
    with context.database.read() as connection:
        sweeps = Sweeps(connection)
        if at_once:
            ended = [each for each in sweeps.with_state(cluster, _ENDED) if each.purge_at and not each.purged_at]
            found = [*ended, *sweeps.with_state(cluster, AT_WORK)]
        else:
            found = sweeps.to_purge(cluster, as_of, SWEEPS_AT_ONCE)
    return [sweep for sweep in found if only is None or sweep.sweep_id in only]


def purge_sweeps(
    context: SweepContext, cluster: str, sweeps: Sequence[Sweep], *, dry_run: bool = False
) -> list[PurgedSweep]:
    """Purge the trash of sweeps, also the remains of an interrupted purge.

    The trash of held instances stays.
    """
    done, traces = [], context.hold_traces(dry_run=dry_run)
    for sweep in sweeps:
        held = _find_hold(context, sweep, traces)
        if sweep.state in AT_WORK:
            at_work = f"it is {sweep.state.value}; end that first"
            done.append(PurgedSweep(sweep=sweep, files=0, obstacle=at_work))
        elif held is not None:
            done.append(PurgedSweep(sweep=sweep, files=0, obstacle=held))
        elif dry_run:
            done.append(PurgedSweep(sweep=sweep, files=sum(count.files for count in sweep.counts)))
        elif _claim(context, sweep):
            done.append(_purge(context, cluster, sweep))
    if not dry_run:
        _finish_interrupted(context, cluster)
    return done


def _require_clock(context: SweepContext, cluster: str, as_of: datetime) -> None:
    with context.database.read() as connection:
        seen = load_known_times(connection, cluster)
    for obstacle in decide_clock(DAILY, as_of, seen):
        raise SweepRefusedError(
            sweep=f"purge of {cluster}",
            reason=obstacle.sentence.rstrip("."),
            next_step="Correct the clock; if it is right, name the sweeps to purge, and give --now.",
        )


def _find_hold(context: SweepContext, sweep: Sweep, traces: HoldTraces) -> str | None:
    """Return why the trash of a sweep stays: a hold covers something that has not been restored, or may do so."""
    as_of = context.clock.now()
    try:
        traces.settle(context.feeds_of(sweep))
    except StorageError as exc:
        return str(exc)
    with context.database.read() as connection:
        holds = Holds(connection)
        for head in SweepChunks(connection, sweep.sweep_id).heads():
            found = holds.find_for(head.feed, sweep.cluster, head.first, head.last, as_of)
            times = _find_removed_times(connection, head) if found else ()
            for hold in found:
                if any(hold.covers(head.feed, sweep.cluster, time) for time in times):
                    return f"hold '{hold.name}' of {hold.author} is on feed '{head.feed}': {hold.reason}"
    return None


def _find_removed_times(connection: Connection, head: ChunkHead) -> set[datetime]:
    """Return the nominal times of the chunk's items that may be in the trash."""
    if head.state is ChunkState.UNDONE:
        return set()
    chunk = SweepChunks(connection, head.sweep_id).get(head.number)
    return {
        item.nominal_time
        for item in chunk.items
        if not chunk.results or chunk.results[item].outcome in REMOVED_OUTCOMES
    }


def _claim(context: SweepContext, sweep: Sweep) -> bool:
    """Prevent an undo of the sweep; return whether it is still to be purged."""
    with context.database.begin() as connection:
        return Sweeps(connection).transition(
            sweep.sweep_id, _ENDED, state=SweepState.PURGED, purged_at=context.clock.now()
        )


def _purge(context: SweepContext, cluster: str, sweep: Sweep) -> PurgedSweep:
    answers = _purge_everywhere(context, cluster, sweep)
    obstacle = next((answer.obstacle for answer in answers if not answer.is_complete), None)
    with context.database.begin() as connection:
        sweeps = Sweeps(connection)
        if obstacle is not None:
            sweeps.transition(sweep.sweep_id, {SweepState.PURGED}, state=sweep.state, purged_at=None, note=obstacle)
        found = sweeps.find(sweep.sweep_id) or sweep
    return PurgedSweep(sweep=found, files=sum(answer.files for answer in answers), obstacle=obstacle)


def _purge_everywhere(context: SweepContext, cluster: str, sweep: Sweep) -> list[Purged]:
    """Empty a sweep's trash in every store that has one; it stays where no feed or cluster is declared now."""
    places = Places()
    addresses = {places.canonical(address.url): address for address in store_addresses(context, cluster)}
    urls = {places.canonical(url) for url in _urls_of(context, sweep)}
    found = {url: _purge_store(context, address, sweep, url in urls) for url, address in addresses.items()}
    answers = [answer for url, answer in found.items() if answer.is_complete or answer.files or url in urls]
    for url in sorted(urls - addresses.keys()):
        answers.append(
            Purged(sweep=sweep.sweep_id, files=0, is_complete=False, obstacle=f"its trash at {url} stays: {_ORPHANED}")
        )
    return answers


def _purge_store(context: SweepContext, address: StoreAddress, sweep: Sweep, must_be_there: bool) -> Purged:
    """Empty a sweep's trash in a store; where it must be and is not, the storage is probably not mounted."""
    sweep_id = sweep.sweep_id
    try:
        store = context.stores.get(address)
        trash = store.trash()
        was_there = not must_be_there or trash.find_description(sweep_id) is not None or sweep_id in trash.sweeps()
    except StorageError as exc:
        return Purged(sweep=sweep_id, files=0, is_complete=False, obstacle=str(exc))
    answer = trash.purge(sweep_id)
    if was_there or not answer.is_complete:
        return answer
    place = f"{store.root_url}/.feed-assets/trash/{sweep_id}"
    obstacle = f"its trash is not at {place}; mount the storage, or make that again if somebody has removed it"
    return Purged(sweep=sweep_id, files=0, is_complete=False, obstacle=obstacle)


def _urls_of(context: SweepContext, sweep: Sweep) -> set[str]:
    """Return the stores from which a sweep removed something, by the event log; one query for each chunk."""
    found: set[str] = set()
    with context.database.read() as connection:
        chunks = SweepChunks(connection, sweep.sweep_id)
        samples = chunks.find_samples(ItemOutcome.EVICTED)
        for chunk in chunks.heads():
            events = find_evictions(connection, chunk, sweep.cluster, samples.get(chunk.number, ()))
            found |= {str(event.payload["store"]) for event in events.values()}
    return found


def _finish_interrupted(context: SweepContext, cluster: str) -> None:
    """Remove the remains in the trash of sweeps that count as purged, except of a storage that refuses."""
    for address in store_addresses(context, cluster):
        try:
            trash = context.stores.get(address).trash()
            ids = trash.sweeps()
            if not ids:
                continue
            with context.database.read() as connection:
                found = Sweeps(connection).find_many(ids)
            for sweep_id, sweep in found.items():
                if sweep.state is SweepState.PURGED:
                    trash.purge(sweep_id)
        except StorageError as exc:
            _logger.warning("what is left of purged sweeps stays: %s", exc)
