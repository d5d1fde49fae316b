"""Run the chunks of a sweep: take leases, check protections, move to the trash or archive, and record the results.

A chunk is moved first and then recorded, in one transaction. After an interrupted run, paths may be in the trash
without a record; the next run records them. So nothing is lost without a tree in the trash, and nothing stays in the
trash without an event.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from feed_assets.command_lines import command_line
from feed_assets.entities.common import Kind, LocationKind
from feed_assets.instances.leasing import Leased
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import (
    ChunkState,
    ItemOutcome,
    ItemResult,
    Sweep,
    SweepChunk,
    SweepItem,
    SweepState,
)
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.records import EntityFacts, FeedRecord, RetainedLocation
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.former_places import Neighbours
from feed_assets.retention.rules.hold_traces import HoldTraces
from feed_assets.retention.rules.locations import archive_path, base_below_root, find_location
from feed_assets.retention.rules.policies import digest_policy
from feed_assets.retention.rules.protections import (
    Protection,
    ProtectionKind,
    find_at_work_now,
    find_protections,
    find_replica_protections,
    lease_keys,
)
from feed_assets.retention.sweeps.movers import Mover, MoveTask
from feed_assets.retention.sweeps.removal_records import Removal, record_evicted
from feed_assets.retention.sweeps.restoring import Restoration
from feed_assets.retention.sweeps.sweep_context import SweepContext, require_sweep
from feed_assets.sql.locks import lock_log
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Moved, Outcome
from feed_assets.timing.dates import render_datetime

_OUTCOME = {
    Outcome.MOVED: ItemOutcome.EVICTED,
    Outcome.ALREADY: ItemOutcome.EVICTED,
    Outcome.VANISHED: ItemOutcome.VANISHED,
    Outcome.CHANGED: ItemOutcome.CHANGED,
    Outcome.REFUSED: ItemOutcome.REFUSED,
    Outcome.OCCUPIED: ItemOutcome.REFUSED,
    Outcome.LOST: ItemOutcome.REFUSED,
}
_WRITTEN_SINCE = "its files have changed since the sweep was planned"
_OTHER_POLICY = "the retention of the feed has changed since the sweep was planned; plan again"


@dataclass(slots=True, kw_only=True)
class _Prepared:
    """A chunk whose leases are held.

    `removed` has the paths that an interrupted run has removed unrecorded. `results` has only the protected items at
    first, and all items at the end; `todo` has the items to move.
    """

    chunk: SweepChunk
    record: FeedRecord | None
    location: RetainedLocation | None
    store: InstanceStore
    leased: Leased
    removal: Removal
    removed: frozenset[str]
    results: dict[SweepItem, ItemResult]
    todo: list[SweepItem]

    def is_gone(self, item: SweepItem) -> bool:
        """Return whether an item was removed."""
        return self.results[item].outcome is ItemOutcome.EVICTED


@dataclass(slots=True, kw_only=True)
class ChunkWorker:
    """Runs chunks of one sweep, as many at once as its mover can use."""

    context: SweepContext
    sweep: Sweep
    is_resumed: bool
    mover: Mover
    _traces: HoldTraces = field(init=False)
    _described: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._traces = self.context.hold_traces()

    def run(self, chunks: Sequence[SweepChunk]) -> None:
        """Run claimed chunks: move the items of all chunks together, then record each chunk."""
        with ExitStack() as stack:
            prepared = [self._prepare(stack, chunk) for chunk in chunks]
            tasks = [self._task(each) for each in prepared]
            moving = [(each, task) for each, task in zip(prepared, tasks, strict=True) if task is not None]
            for each, _ in moving:
                self._describe(each.store)
            answers = self.mover.put([task for _, task in moving])
            for (each, _), moved in zip(moving, answers, strict=True):
                each.results |= {item: _result(answer) for item, answer in zip(each.todo, moved, strict=True)}
                self._remove_parents(each)
            for each in prepared:
                self._finish(each)

    def _prepare(self, stack: ExitStack, chunk: SweepChunk) -> _Prepared:
        """Take the leases of a chunk's instances, and find the items that are protected, also by lost holds.

        What an interrupted run has begun to move is settled first: its own marks are no changes of the instances.
        """
        context, cluster = self.context, self.sweep.cluster
        record = context.feed_of(chunk, cluster)
        self._traces.settle([] if record is None else [record])
        location = find_location(record, chunk.kind)
        address = location.store if location else context.plan.clusters[cluster].store
        store = context.stores.get(address)
        times = sorted({item.nominal_time for item in chunk.items})
        removal = self._removal(chunk, store, record)
        leased = stack.enter_context(context.claims(chunk.sweep_id).leased(chunk, cluster))
        if removal.is_data:
            leased.acquire_free(lease_keys(chunk.feed, cluster, times))
        paths = [item.path for item in chunk.items]
        removed = store.trash().settle(chunk.sweep_id, paths) if self.is_resumed else frozenset[str]()
        if record is None or location is None or self._is_other_policy(chunk.feed):
            results = dict.fromkeys(chunk.items, _keep(Protection(ProtectionKind.POLICY, _OTHER_POLICY)))
        else:
            results = self._protected(chunk, record, store, leased)
        return _Prepared(
            chunk=chunk,
            record=record,
            location=location,
            store=store,
            leased=leased,
            removal=removal,
            removed=removed,
            results=results,
            todo=[item for item in chunk.items if item not in results],
        )

    def _task(self, prepared: _Prepared) -> MoveTask | None:
        """Return the task that moves the paths of a chunk; None if there are none to move."""
        record, location, removal = prepared.record, prepared.location, prepared.removal
        if not prepared.todo or record is None or location is None:
            return None
        paths = tuple(item.path for item in prepared.todo)
        archive = record.retention.archive[0] if record.retention and record.retention.archive else None
        archived = removal.archived
        return MoveTask(
            address=location.store,
            sweep=self.sweep.sweep_id,
            paths=paths,
            flag=record.flag if removal.is_data else None,
            archive=archive if archived is not None else None,
            to_paths=() if archived is None else tuple(archived[path] for path in paths),
        )

    def _remove_parents(self, prepared: _Prepared) -> None:
        """Remove folders that are empty now, below the part of the location before its first variable."""
        if prepared.location is not None:
            gone = [item.path for item in prepared.todo if prepared.is_gone(item)]
            prepared.store.trash().remove_empty_parents(base_below_root(prepared.location), gone)

    def _finish(self, prepared: _Prepared) -> None:
        """Record the results of a chunk, and restore the items that a process instance reads by now."""
        unrecorded = [
            item for item in prepared.chunk.items if item.path in prepared.removed and not prepared.is_gone(item)
        ]
        took = ItemResult(ItemOutcome.EVICTED, "an earlier run of the sweep removed it")
        prepared.results |= dict.fromkeys(unrecorded, took)
        self._record(prepared, unrecorded)
        self._restore_for_readers(prepared)

    def _is_other_policy(self, feed: str) -> bool:
        record = self.context.feed(feed, self.sweep.cluster)
        planned = next((count.policy for count in self.sweep.counts if count.feed == feed), None)
        return record is None or planned != digest_policy(record)

    def _removal(self, chunk: SweepChunk, store: InstanceStore, record: FeedRecord | None) -> Removal:
        facts = self.context.plan.facts.get((Kind.FEED.value, chunk.feed)) or EntityFacts()
        removal = Removal(
            chunk=chunk,
            cluster=self.sweep.cluster,
            store=store.root_url,
            origin=self.context.origin,
            facts=facts,
        )
        if record is None or not removal.is_data:
            return removal
        targets = {item.path: archive_path(record, item.nominal_time) for item in chunk.items}
        archived = {path: target[1] for path, target in targets.items() if target is not None}
        address = next((target[0] for target in targets.values() if target is not None), None)
        if address is None:
            return removal
        return replace(removal, archive=self.context.stores.get(address).root_url, archived=archived)

    def _protected(
        self, chunk: SweepChunk, record: FeedRecord, store: InstanceStore, leased: Leased
    ) -> dict[SweepItem, ItemResult]:
        """Return the items that are protected now that the leases are held."""
        context, as_of = self.context, self.context.clock.now()
        times = sorted({item.nominal_time for item in chunk.items})
        query = context.protection_query(chunk.sweep_id, as_of)
        is_former = chunk.place is not None
        obstacle = Neighbours(context.database, context.timeline).find_obstacle(record) if is_former else None
        with context.database.read() as connection:
            kept = find_protections(connection, context.timeline, record, times, query)
            rows = FeedInstances(connection).get_many([FeedKey(*record.key, time) for time in times])
            count = record.retention.keep_newest if record.retention else 0
            newest = set(FeedInstances(connection).latest_available(*record.key, as_of, count) if count else ())
        unprotected = [time for time in times if time not in kept]
        kept |= find_replica_protections(context.database, context.stores, context.timeline, record, unprotected, query)
        fingerprinted = [item for item in chunk.items if item.fingerprint]
        measures = store.measure([item.path for item in fingerprinted])
        written = {
            item
            for item, measure in zip(fingerprinted, measures, strict=True)
            if measure.fingerprint not in ("", item.fingerprint)
        }
        tokens = leased.tokens
        found: dict[SweepItem, ItemResult] = {}
        for item in chunk.items:
            time = item.nominal_time
            if time in kept:
                found[item] = _keep(*kept[time])
            elif chunk.kind == LocationKind.DATA and time not in tokens:
                found[item] = _keep(Protection(ProtectionKind.LEASE, "its lease was held a moment ago"))
            elif time in newest:
                found[item] = _keep(Protection(ProtectionKind.NEWEST, f"it is among the {count} newest"))
            elif obstacle is not None:
                found[item] = _keep(Protection(ProtectionKind.PLACE, obstacle))
            elif self._has_changed(rows.get(FeedKey(*record.key, time)), chunk):
                found[item] = ItemResult(ItemOutcome.CHANGED, "its record has changed since the sweep was planned")
            elif item in written or (is_former and not item.fingerprint):
                found[item] = ItemResult(ItemOutcome.CHANGED, _WRITTEN_SINCE)
        return found

    def _has_changed(self, row: FeedInstance | None, chunk: SweepChunk) -> bool:
        """Return whether an instance has an event that is newer than the plan, or is not at the former place any more.

        Eviction of the data does not count for the other kinds of location: they may be removed afterwards.
        """
        if chunk.place is not None and (row is None or row.place != chunk.place):
            return True
        if row is None or row.event_seq is None or row.event_seq <= self.sweep.log_seq:
            return False
        return chunk.kind == LocationKind.DATA or row.status is not FeedInstanceStatus.EVICTED

    def _describe(self, store: InstanceStore) -> None:
        """Write the description of the sweep into the trash before anything is moved there."""
        if store.root_url in self._described:
            return
        sweep = self.sweep
        document = {
            "version": 1,
            "sweep": sweep.sweep_id,
            "cluster": sweep.cluster,
            "store": store.root_url,
            "author": sweep.author,
            "planned_at": render_datetime(sweep.created_at),
            "as_of": render_datetime(sweep.as_of),
            "instances": sweep.instances,
            "paths": sweep.paths,
            "feeds": sorted(count.feed for count in sweep.counts),
            "undo": command_line("retention", "undo", sweep.sweep_id),
        }
        store.trash().describe(sweep.sweep_id, document)
        self._described.add(store.root_url)

    def _find_existing(self, items: Sequence[SweepItem], store: InstanceStore) -> frozenset[SweepItem]:
        """Return the items whose paths exist (again)."""
        measures = store.measure([item.path for item in items]) if items else []
        return frozenset(item for item, measure in zip(items, measures, strict=True) if measure.exists)

    def _record(self, prepared: _Prepared, unrecorded: Sequence[SweepItem]) -> None:
        chunk, removal, results = prepared.chunk, prepared.removal, prepared.results
        gone = [item for item in chunk.items if prepared.is_gone(item)]
        replaced = self._find_existing(unrecorded, prepared.store)
        with self.context.database.begin() as connection:
            lock_log(connection)
            _require_running(Sweeps(connection), chunk.sweep_id)
            record_evicted(connection, removal, gone, prepared.leased.tokens, self.context.clock.now(), replaced)
            chunks = SweepChunks(connection, chunk.sweep_id)
            chunks.finish(chunk, self.context.holder, ChunkState.DONE, results)

    def _restore_for_readers(self, prepared: _Prepared) -> None:
        """Restore items with readers that began after the protections were checked.

        These process instances began before the record said EVICTED; otherwise they would not have begun. So every
        reader either sees the eviction, or is found here.
        """
        chunk, record, context = prepared.chunk, prepared.record, self.context
        gone = {item.nominal_time for item in chunk.items if prepared.is_gone(item)}
        if record is None or not gone or not prepared.removal.is_data:
            return
        with context.database.read() as connection:
            busy = find_at_work_now(connection, context.timeline, record, gone, context.clock.now())
        done = context.claims(chunk.sweep_id).take(ChunkState.DONE, after=chunk.number - 1) if busy else None
        if done is None or done.number != chunk.number:
            return
        reasons = {
            item: _keep(Protection(ProtectionKind.READER, busy[item.nominal_time])).reason or ""
            for item in chunk.items
            if item.nominal_time in busy and prepared.is_gone(item)
        }
        restoration = Restoration(
            context=context,
            sweep=self.sweep,
            chunk=done,
            removal=replace(prepared.removal, chunk=done),
            store=prepared.store,
            is_resumed=False,
        )
        restoration.restore(prepared.leased, list(reasons), kept_reasons=reasons)


def _require_running(sweeps: Sweeps, sweep_id: str) -> None:
    sweep = require_sweep(sweeps, sweep_id)
    if sweep.state is not SweepState.RUNNING:
        raise SweepRefusedError(
            sweep=sweep_id,
            reason=f"it became {sweep.state.value} during the work",
            next_step="The paths moved so far are in its trash.",
        )


def _keep(*kept: Protection) -> ItemResult:
    return ItemResult(ItemOutcome.KEPT, "; ".join(f"{each.kind.value}: {each.reason}" for each in kept))


def _result(answer: Moved) -> ItemResult:
    outcome = _OUTCOME[answer.outcome]
    reason = None if outcome is ItemOutcome.EVICTED else answer.reason
    return ItemResult(outcome, reason, answer.bytes, answer.files)
