"""Undo a sweep: restore all or some of the removed paths, from the trash or the archive, with their former rows, chunk
by chunk, except where newer data exist. A former version is published again, whatever version there is.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain

from sqlalchemy import Connection

from feed_assets.errors import Fault
from feed_assets.instances.arrival.polling import arrival_of, decide_poll_result
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.instances.attempts.displacement import OutputPlace
from feed_assets.instances.late.quality_checks import hold_back
from feed_assets.instances.leasing import Leased
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import ArrivalPoll, FeedEvent, FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import (
    WHILE_A_VERSION,
    ChunkState,
    Hold,
    ItemOutcome,
    ItemResult,
    Sweep,
    SweepChanges,
    SweepChunk,
    SweepItem,
    SweepState,
)
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.registration.registering import try_register
from feed_assets.retention.errors import FeedsUnrestoredError, SweepRefusedError
from feed_assets.retention.rules.hold_traces import UnsettledStore
from feed_assets.retention.rules.locations import find_declared_location, find_store
from feed_assets.retention.rules.protections import lease_keys
from feed_assets.retention.sweeps.removal_records import Removal, find_evictions, past_row, record_restored
from feed_assets.retention.sweeps.sweep_context import Progress, SweepContext, lease_holder, require_sweep
from feed_assets.sql.database import lock_for_lineage
from feed_assets.storage.errors import InstanceNotFoundError, ManifestError, StorageError
from feed_assets.storage.manifests import parse_manifest, read_entry
from feed_assets.storage.paths import MANIFEST_NAME
from feed_assets.storage.port import InstanceStore, StorePath
from feed_assets.storage.records import Manifest, Moved, Outcome, StagingPlace
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.archiving import copy_exactly

_OUTCOME = {
    Outcome.MOVED: ItemOutcome.RESTORED,
    Outcome.ALREADY: ItemOutcome.RESTORED,
    Outcome.OCCUPIED: ItemOutcome.OCCUPIED,
    Outcome.CHANGED: ItemOutcome.OCCUPIED,
    Outcome.LOST: ItemOutcome.LOST,
    Outcome.VANISHED: ItemOutcome.LOST,
    Outcome.REFUSED: ItemOutcome.EVICTED,
}

REMOVED_OUTCOMES = frozenset({ItemOutcome.EVICTED, ItemOutcome.OCCUPIED, ItemOutcome.LOST})
"""Outcomes of items that were removed and are not back; an item that could not be restored stays EVICTED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The restoration of items of one chunk to their store.

    `is_resumed` says that an earlier attempt may have restored some of them without recording it.
    """

    context: SweepContext
    record: FeedRecord | None
    removal: Removal
    store: InstanceStore
    is_resumed: bool

    @property
    def chunk(self) -> SweepChunk:
        """The chunk."""
        return self.removal.chunk

    def find_removed(self, selected: AbstractSet[SweepItem]) -> list[SweepItem]:
        """Return the selected items that were removed, and those that interrupted work may have restored."""
        chunk, trash = self.chunk, self.store.trash()
        away = [item for item, result in chunk.results.items() if result.outcome in REMOVED_OUTCOMES]
        if chunk.results and not self.is_resumed:
            return [item for item in away if item in selected]
        unsure = [item for item in away if item not in selected] if chunk.results else chunk.items
        removed = trash.settle(chunk.sweep_id, [item.path for item in unsure])
        if not chunk.results:
            return [item for item in chunk.items if item in selected and item.path in removed]
        unsure = [item for item in unsure if item.path not in removed]
        measures = self.store.measure([item.path for item in unsure])
        back = {item for item, measure in zip(unsure, measures, strict=True) if measure.exists}
        return [item for item in away if item in selected or item in back]

    def restore(
        self, leased: Leased, items: Sequence[SweepItem], *, kept_reasons: Mapping[SweepItem, str] | None = None
    ) -> dict[SweepItem, ItemResult]:
        """Restore items of the chunk, and record it; return the results of all its items.

        With `kept_reasons` the items count as KEPT, for the reasons given there; else as RESTORED.
        """
        tokens = leased.tokens
        with self.context.database.read() as connection:
            rows = FeedInstances(connection).get_many(self.removal.keys(items))
            events = find_evictions(connection, self.chunk, self.removal.cluster, items)
        refused = {item: reason for item in items if (reason := self._refusal(item, tokens, rows, events.get(item)))}
        move = partial(self._publish, leased) if self.removal.is_version else self._move
        moved = move([item for item in items if item not in refused], events)
        back = {item: answer for item, answer in moved.items() if _OUTCOME[answer.outcome] is ItemOutcome.RESTORED}
        not_removed = ItemResult(ItemOutcome.KEPT, "it was not removed")
        results = {item: self.chunk.results.get(item, not_removed) for item in self.chunk.items}
        for item in items:
            if item in refused:
                results[item] = ItemResult(ItemOutcome.OCCUPIED, refused[item])
            elif item in back and kept_reasons is not None:
                results[item] = ItemResult(ItemOutcome.KEPT, kept_reasons[item])
            else:
                answer = moved[item]
                results[item] = ItemResult(_OUTCOME[answer.outcome], answer.reason, answer.bytes, answer.files)
        self._register([item.nominal_time for item in back])
        former = self._past_rows([item for item in back if item in events], events, rows, tokens)
        is_away = kept_reasons is not None or any(each.outcome in REMOVED_OUTCOMES for each in results.values())
        self._record(former, events, results, ChunkState.DONE if is_away else ChunkState.UNDONE)
        return results

    def _register(self, times: Sequence[datetime]) -> None:
        if self.record is not None and self.removal.is_data:
            declared = self.context.feed(self.chunk.feed, self.removal.cluster)
            try_register(self.context, declared, self.record, times)

    def _refusal(
        self,
        item: SweepItem,
        tokens: Mapping[datetime, int],
        rows: Mapping[FeedKey, FeedInstance],
        event: FeedEvent | None,
    ) -> str | None:
        """Return why an item cannot be restored, as far as the record shows."""
        if self.removal.is_leased and item.nominal_time not in tokens:
            return "a writer holds its lease now"
        row = rows.get(FeedKey(self.chunk.feed, self.removal.cluster, item.nominal_time))
        if event is None or not self.removal.is_data or row is None or row.event_seq == event.seq:
            return None
        if row.status is FeedInstanceStatus.EVICTED:
            return "a later sweep has removed a newer one; undo that one, or leave it"
        return f"a newer one has been {row.status.value} since {row.updated_at.isoformat(timespec='seconds')}"

    def _move(self, items: Sequence[SweepItem], events: Mapping[SweepItem, FeedEvent]) -> dict[SweepItem, Moved]:
        flag = self.record.flag if self.record and self.removal.is_data else None
        answers = self.store.trash().restore(self.chunk.sweep_id, [item.path for item in items])
        moved = dict(zip(items, answers, strict=True))
        for item, answer in moved.items():
            archive = events[item].payload.get("archive") if item in events else None
            if answer.outcome is Outcome.LOST and isinstance(archive, Mapping):
                url, origin_path = str(archive["store"]), str(archive["path"])
                origin = find_store(self.context, self.removal.cluster, url)
                if origin is not None:  # the archive keeps its copy
                    archived, place = (
                        StorePath(store=origin, path=origin_path),
                        StorePath(store=self.store, path=item.path),
                    )
                    back = copy_exactly(archived, place, self.context.real_clock, flag=flag)
                    moved[item] = answer if back.outcome is Outcome.VANISHED else back
        lost = [item for item, answer in moved.items() if answer.outcome is Outcome.LOST]
        return moved | (self._find_back(lost, events) if self.is_resumed else {})

    def _publish(
        self, leased: Leased, items: Sequence[SweepItem], events: Mapping[SweepItem, FeedEvent]
    ) -> dict[SweepItem, Moved]:
        """Publish former versions again, from the trash; the present one goes there before."""
        return {item: self._publish_one(leased, item, events) for item in items}

    def _publish_one(self, leased: Leased, item: SweepItem, events: Mapping[SweepItem, FeedEvent]) -> Moved:
        record, event = self.record, events.get(item)
        if record is None or event is None or record.path(item.nominal_time) != item.path:
            return Moved(path=item.path, outcome=Outcome.REFUSED, reason="its feed is not declared there any more")
        staging = self.store.stage(item.path, f"undo-{self.chunk.sweep_id}")
        try:
            manifest = self._fetch(item, staging, record.flag)
            if manifest.digest != event.manifest_digest:
                return Moved(path=item.path, outcome=Outcome.LOST, reason="another version is in the trash")
            clearing = OutputPlace.of(self.context, self.removal.origin, record, item.nominal_time, {}).clearing
            self.store.publish(staging, flag=record.flag, guard=leased.check, extra=manifest.extra, clearing=clearing)
        except InstanceNotFoundError:
            return Moved(path=item.path, outcome=Outcome.LOST, reason="it is not in the trash")
        finally:
            self.store.discard(staging)
        return Moved(path=item.path, outcome=Outcome.MOVED, bytes=manifest.bytes, files=manifest.files)

    def _fetch(self, item: SweepItem, staging: StagingPlace, flag: str | None) -> Manifest:
        """Copy the files of a version into a staging; return its manifest. Raises `StorageError` if they are others."""
        checksums: dict[str, str] = {}
        with self.store.trash().reading(self.chunk.sweep_id, item.path) as (names, chunks):
            text = b"".join(chunks(MANIFEST_NAME))
            for name in sorted({*names} - {MANIFEST_NAME, flag}):
                target = staging.local_path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as stream:
                    checksums[name] = read_entry(name, chunks(name), stream).checksum
        manifest = parse_manifest(text, store=self.store.root_url, path=item.path)
        for entry in manifest.entries:
            if checksums.get(entry.path) != entry.checksum:
                reason = f"in the trash, {entry.path!r} is not what was published"
                raise ManifestError(store=self.store.root_url, path=item.path, reason=reason)
        return manifest

    def _find_back(self, lost: Sequence[SweepItem], events: Mapping[SweepItem, FeedEvent]) -> dict[SweepItem, Moved]:
        """Return the lost items that an interrupted attempt has restored already.

        The item is missing in the trash, and its path has the size of the removed content, by the plan or by the
        record.
        """
        paths = [item.path for item in lost]
        flag = self.record.flag if self.record else None
        measures, looks = self.store.measure(paths), self.store.look(paths, flag)
        found = {}
        for item, measure, look in zip(lost, measures, looks, strict=True):
            event = events.get(item)
            went = {(item.bytes, item.files), *([(event.bytes, event.files)] if event else [])}
            if measure.exists and went & {(measure.bytes, measure.files), (look.bytes, look.files), (None, None)}:
                found[item] = Moved(path=item.path, outcome=Outcome.MOVED, bytes=measure.bytes, files=measure.files)
        return found

    def _past_rows(
        self,
        items: Iterable[SweepItem],
        events: Mapping[SweepItem, FeedEvent],
        present: Mapping[FeedKey, FeedInstance],
        tokens: Mapping[datetime, int],
    ) -> dict[SweepItem, FeedInstance | None]:
        """Return the former rows of restored items; for instances without one, a row from their present content."""
        if not self.removal.is_leased:
            return dict.fromkeys(items)
        rows = {
            item: past_row(event, present.get(event.key), tokens.get(item.nominal_time, 0))
            for item in items
            if (event := events[item])
        }
        unknown = [item for item, row in rows.items() if row is None]
        return rows | (self._seen(unknown) if unknown else {})

    def _seen(self, items: Sequence[SweepItem]) -> dict[SweepItem, FeedInstance | None]:
        record = self.record
        if record is None:
            return dict.fromkeys(items)
        looks = self.store.look([item.path for item in items], record.flag)
        as_of = self.context.clock.now()
        return {
            item: decide_poll_result(Candidate(record=record, nominal_time=item.nominal_time), look, as_of).row
            for item, look in zip(items, looks, strict=True)
        }

    def _hold_back(
        self,
        connection: Connection,
        rows: Mapping[SweepItem, FeedInstance | None],
        events: Mapping[SweepItem, FeedEvent],
    ) -> Mapping[SweepItem, FeedInstance | None]:
        """Return the rows of restored items; what the record has never had is judged as what arrives is. Those that are
        not available are polled again.
        """
        record, now = self.record, self.context.clock.now()
        if record is not None and record.is_external:
            back = (row for row in rows.values() if row is not None and row.status is FeedInstanceStatus.PARTIAL)
            _poll_again(connection, [row.key for row in back], now)
        there = ((events[item], row) for item, row in rows.items() if row is not None and row.available_at)
        new = [row for event, row in there if past_row(event, None, 0) is None]
        if record is None or not new:
            return rows
        arriving = [(record, row, arrival_of(row, record.path(row.nominal_time), self.removal.origin)) for row in new]
        held = hold_back(connection, arriving)
        _poll_again(connection, held, now)
        return {item: None if row is None else held.get(row.key, row) for item, row in rows.items()}

    def _record(
        self,
        rows: Mapping[SweepItem, FeedInstance | None],
        events: Mapping[SweepItem, FeedEvent],
        results: Mapping[SweepItem, ItemResult],
        state: ChunkState,
    ) -> None:
        with self.context.database.begin() as connection:
            record_restored(
                connection, self.removal, self._hold_back(connection, rows, events), self.context.clock.now()
            )
            SweepChunks(connection, self.chunk.sweep_id).finish(self.chunk, self.context.holder, state, results)


def _poll_again(connection: Connection, keys: Iterable[FeedKey], now: datetime) -> None:
    ArrivalPolls(connection).put(ArrivalPoll(*key, found="", polled_at=now, next_poll_at=now) for key in keys)


UNDOABLE = frozenset({SweepState.RUNNING, SweepState.DONE, SweepState.UNDOING, SweepState.UNDONE, SweepState.PURGED})
_WORKED_ON = (ChunkState.DONE, ChunkState.OPEN)


@shows("result", "outcome, reason")
@dataclass(frozen=True, slots=True)
class UnrestoredPath:
    """A path that could not be restored, and the reason."""

    path: str
    result: Hidden[ItemResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    """The effects of an undo, and the holds that protect restored instances from the next sweep (see `HoldChange`).
    `restored` paths of `feeds` are restored, or would be. `is_shared`: other workers lease a part of the sweep.
    """

    sweep: Sweep
    restored: int
    left: tuple[UnrestoredPath, ...] = ()
    is_shared: bool = False
    holds: tuple[Hold, ...] = ()
    unsettled: tuple[UnsettledStore, ...] = ()
    dry_run: bool = False
    feeds: Hidden[tuple[str, ...]] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was restored, and which stores do not know of the holds."""
        return (self.render_summary(), *(each.sentence for each in self.unsettled))

    has_failed = property(lambda self: not self.is_complete)

    @property
    def shown_columns(self) -> str:
        """The columns of what could not be restored; none without that."""
        return "path, outcome, reason" if self.left else ""

    @shown
    def is_complete(self) -> bool:
        """Whether everything requested is restored."""
        return not self.is_shared and not self.left

    def render_summary(self) -> str:
        """Return one line: the numbers of restored and unrestored paths, and the end of the hold."""
        would = "would restore" if self.dry_run else "restored"
        text = f"undo of {self.sweep.sweep_id}: {would} {counted(self.restored, 'path')}"
        text += f" of {', '.join(self.feeds)}" if self.restored else ""
        if self.left:
            text += f", could not restore {len(self.left):,}"
        if self.is_shared:
            text += "; other workers hold the rest, repeat the command when they have finished"
        if ends := [hold.expires_at for hold in self.holds if hold.expires_at is not None]:
            text += f"; held until {render_datetime(max(ends))} by {self.holds[0].name!r}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSelection:
    """The parts of a sweep to restore: some feeds, and some nominal times; None for all."""

    feeds: frozenset[str] | None = None
    times: frozenset[datetime] | None = None

    @property
    def is_all(self) -> bool:
        """Whether this is the whole sweep."""
        return self.feeds is None and self.times is None

    def select(self, chunk: SweepChunk) -> list[SweepItem]:
        """Return a chunk's items to restore."""
        if self.feeds is not None and chunk.feed not in self.feeds:
            return []
        return [item for item in chunk.items if self.times is None or item.nominal_time in self.times]


EVERYTHING = RestoreSelection()
_NOTHING = RestoreSelection(feeds=frozenset())


def require_undoable(context: SweepContext, sweep: Sweep, selection: RestoreSelection = EVERYTHING) -> None:
    """Make sure that what is selected of a sweep can be found and restored; change nothing.

    Raises:
        SweepRefusedError: its cluster or its storage is not declared any more, its paths went by the clean-up, or it
            has nothing at one of the times.
        StorageError: the storage of all feeds fails.
    """
    if sweep.cluster not in context.plan.clusters:
        raise SweepRefusedError(
            sweep=sweep.sweep_id,
            reason=f"its cluster '{sweep.cluster}' is not declared any more, so its storage is unknown",
            next_step="Declare the cluster again as before and repeat, or move the directories back by hand.",
        )
    with context.database.read() as connection:
        heads = SweepChunks(connection, sweep.sweep_id).heads()
    if len(heads) < sweep.chunks and sweep.purged_at and not any(count.is_archived for count in sweep.counts):
        raise SweepRefusedError(
            sweep=sweep.sweep_id,
            reason="its trash was emptied, and its paths went from the state after `cleanup.history`",
            next_step="Nothing of it can be restored. Produce the data again.",
        )
    with context.database.read() as connection:
        chunks = SweepChunks(connection, sweep.sweep_id)
        for time in sorted(selection.times or ()):
            _require_known(chunks, sweep, selection, time)
        samples = [chunks.get(number) for number in {(head.feed, head.kind): head.number for head in heads}.values()]
    wanted = [chunk for chunk in samples if selection.feeds is None or chunk.feed in selection.feeds]
    failures = []
    for chunk in wanted:
        try:
            _find_restoration(context, sweep.cluster, chunk, is_resumed=False)
        except StorageError as exc:
            failures.append(exc)
    if failures and len(failures) == len(wanted):
        raise failures[0]


def _require_known(chunks: SweepChunks, sweep: Sweep, selection: RestoreSelection, time: datetime) -> None:
    """Raise unless the sweep has a path at a nominal time; the error names the nearest ones before and after."""
    nearest = chunks.find_nearest(time, selection.feeds)
    if time in nearest:
        return
    near = " and ".join(render_datetime(each) for each in nearest if each is not None)
    raise SweepRefusedError(
        sweep=sweep.sweep_id,
        reason=f"it has no instance {render_datetime(time)}",
        next_step=f"The nearest that it has: {near}." if near else "It has no instances.",
        fault=Fault.MISSING,
    )


def undo_sweep(
    context: SweepContext, sweep_id: str, selection: RestoreSelection = EVERYTHING, *, progress: Progress | None = None
) -> UndoResult:
    """Restore the paths that a sweep removed, with the former states of its instances; replace nothing that exists.

    Restored paths stay restored: a repeat continues where an earlier undo stopped, and does nothing if all is restored.
    A sweep that was interrupted can be undone too, but only as a whole. Archived data are restored from the archive
    once the trash is purged. Feeds whose storage fails stay removed; the others are restored.

    Raises:
        SweepRefusedError: it has not removed anything, must be resumed first, or cannot be found (see
            `require_undoable`).
        StorageError: the storage of all feeds fails; nothing is begun.
        FeedsUnrestoredError: the storage of some feeds failed; a repeat continues.
    """
    sweep, is_resumed = _begin(context, sweep_id, selection)
    claims = context.claims(sweep_id)
    restored, settled = 0, 0
    left: list[UnrestoredPath] = []
    handled: set[int] = set()
    failures: dict[str, Exception] = {}
    claims.release_dead()
    try:
        for chunk in chain.from_iterable(map(claims.each, _WORKED_ON)):
            if chunk.feed in failures:
                continue
            try:
                back, away = _restore_chunk(context, sweep, chunk, selection, is_resumed=is_resumed)
            except StorageError as exc:
                failures[chunk.feed] = exc
                continue
            handled.add(chunk.number)
            restored += back
            left += away
            settled += chunk.count
            if progress is not None:
                progress(settled, sweep.paths)
    finally:
        claims.release()
    if failures:
        raise FeedsUnrestoredError(sweep=sweep_id, restored=restored, failures=failures)
    with context.database.read() as connection:
        heads = SweepChunks(connection, sweep_id).heads()
    is_shared = any(head.number not in handled for head in heads if head.state in _WORKED_ON)
    ended = sweep if is_shared else _end(context, sweep)
    return UndoResult(sweep=ended, restored=restored, left=tuple(left), is_shared=is_shared)


def end_restores(context: SweepContext, sweep: Sweep) -> dict[str, Exception]:
    """End what an interrupted run has begun to restore for readers, and record it; return what failed, by feed."""
    failures = dict[str, Exception]()
    for chunk in context.claims(sweep.sweep_id).each(ChunkState.DONE):
        try:
            _restore_chunk(context, sweep, chunk, _NOTHING, is_resumed=True)
        except StorageError as exc:
            failures[chunk.feed] = exc
    return failures


def _begin(context: SweepContext, sweep_id: str, selection: RestoreSelection) -> tuple[Sweep, bool]:
    now = context.clock.now()
    with context.database.read() as connection:
        sweep = require_sweep(Sweeps(connection), sweep_id)
    if sweep.state in UNDOABLE:
        require_undoable(context, sweep, selection)
    with context.database.begin() as connection:
        lock_for_lineage(connection)
        sweeps = Sweeps(connection)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state not in UNDOABLE:
            raise SweepRefusedError(
                sweep=sweep_id,
                reason=f"it is {sweep.state.value}, so it has removed nothing",
                next_step="Cancel it to prevent it from running.",
            )
        if sweep.state is SweepState.RUNNING and not selection.is_all:
            raise SweepRefusedError(
                sweep=sweep_id,
                reason="it has not ended, so it can only be undone as a whole",
                next_step="Finish it first, or undo it as a whole.",
            )
        SweepChunks(connection, sweep_id).require_intact(sweep)
        note = "it was undone before it had ended" if sweep.state is SweepState.RUNNING else sweep.note
        ended_at = sweep.ended_at or now
        sweeps.transition(sweep_id, {sweep.state}, state=SweepState.UNDOING, ended_at=ended_at, note=note)
        return require_sweep(sweeps, sweep_id), sweep.state is SweepState.UNDOING


def _end(context: SweepContext, sweep: Sweep) -> Sweep:
    """Set the state of a sweep after an undo: UNDONE if everything is restored, else its former state.

    It stays UNDOING if chunks never ran.
    """
    with context.database.begin() as connection:
        sweeps, chunks = Sweeps(connection), SweepChunks(connection, sweep.sweep_id)
        states = {head.state for head in chunks.heads()}
        now = context.clock.now()
        if ChunkState.OPEN in states:
            return require_sweep(sweeps, sweep.sweep_id)
        Leases(context.database).release_all(connection, lease_holder(sweep.sweep_id))
        if states <= {ChunkState.UNDONE}:
            purge_at = now if sweep.purge_at == WHILE_A_VERSION else sweep.purge_at
            changes: SweepChanges = {"state": SweepState.UNDONE, "undone_at": now, "purge_at": purge_at}
            sweeps.transition(sweep.sweep_id, {SweepState.UNDOING}, **changes)
        else:
            before = SweepState.PURGED if sweep.purged_at else SweepState.DONE
            sweeps.transition(sweep.sweep_id, {SweepState.UNDOING}, state=before)
        return require_sweep(sweeps, sweep.sweep_id)


def _restore_chunk(
    context: SweepContext, sweep: Sweep, chunk: SweepChunk, selection: RestoreSelection, *, is_resumed: bool
) -> tuple[int, list[UnrestoredPath]]:
    """Restore the selected items of a claimed chunk; return the number restored, and the items still removed.

    Also records the items that interrupted work has restored, whether selected now or not.
    """
    selected = set(selection.select(chunk))
    if not selected and not is_resumed:
        return 0, []
    restoration = _find_restoration(context, sweep.cluster, chunk, is_resumed=is_resumed)
    items = restoration.find_removed(selected)
    if not items and not selected:
        return 0, []
    with context.claims(chunk.sweep_id).leased(chunk, sweep.cluster) as leased:
        if restoration.removal.is_leased:
            leased.acquire_free(lease_keys(chunk.feed, sweep.cluster, {item.nominal_time for item in items}))
        results = restoration.restore(leased, items)
    back = [item for item in items if results[item].outcome is ItemOutcome.RESTORED]
    away = [item for item in items if item in selected and results[item].outcome in REMOVED_OUTCOMES]
    return len(back), [UnrestoredPath(item.path, results[item]) for item in away]


def _find_restoration(context: SweepContext, cluster: str, chunk: SweepChunk, *, is_resumed: bool) -> Restoration:
    """Return how to restore a chunk's items: to the store that their events name, else that of the feed's location."""
    record = context.feed_of(chunk, cluster)
    location = find_declared_location(record, chunk.kind)
    store = context.stores.get(location.store if location else context.plan.clusters[cluster].store)
    with context.database.read() as connection:
        events = find_evictions(connection, chunk, cluster, chunk.items)
    url = next((str(event.payload["store"]) for event in events.values() if "store" in event.payload), store.root_url)
    origin = store if url == store.root_url else find_store(context, cluster, url)
    if origin is None:
        raise SweepRefusedError(
            sweep=chunk.sweep_id,
            reason=f"feed '{chunk.feed}' is in the trash of {url}, where no feed is declared any more",
            next_step="Declare the feed again as before, or move the directories back by hand.",
        )
    removal = Removal(chunk=chunk, cluster=cluster, store=origin.root_url, origin=context.origin)
    return Restoration(context=context, record=record, removal=removal, store=origin, is_resumed=is_resumed)
