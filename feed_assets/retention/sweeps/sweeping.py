"""Run a sweep: check that it may begin, run all of its chunks, and end it.

A sweep begins once, and resumes after each interruption. Several workers may run its chunks at once. A chunk is moved
to the trash or archive first and then recorded, in one transaction. After an interrupted run, paths may be in the trash
without a record; the next run records them. So nothing is lost without a tree in the trash, and nothing stays in the
trash without an event.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from feed_assets.command_lines import command_line
from feed_assets.entities.common import Kind, LocationKind
from feed_assets.errors import FeedAssetsError, describe_error
from feed_assets.instances.arrival.stored_data import require_unswept
from feed_assets.instances.attempts.displacement import UNDECLARED_TRASH_LIFETIME
from feed_assets.instances.leasing import Leased
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import (
    ChunkState,
    FeedCount,
    ItemOutcome,
    ItemResult,
    Sweep,
    SweepChunk,
    SweepItem,
    SweepState,
)
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import FeedRecord, Plan, RetainedLocation
from feed_assets.registration.registering import unregister
from feed_assets.retention.errors import FeedsUnsweptError, SweepRefusedError
from feed_assets.retention.rules.former_places import Neighbours
from feed_assets.retention.rules.hold_traces import HoldTraces
from feed_assets.retention.rules.locations import archive_path, base_below_root, find_location
from feed_assets.retention.rules.protections import (
    Protection,
    ProtectionKind,
    ProtectionQuery,
    find_all_protections,
    find_at_work_now,
    lease_keys,
)
from feed_assets.retention.rules.schedule import digest_policy
from feed_assets.retention.sweeps.movers import Mover, MoveTask
from feed_assets.retention.sweeps.removal_records import Removal, record_evicted
from feed_assets.retention.sweeps.sweep_context import Progress, SweepContext, lease_holder, require_sweep
from feed_assets.retention.sweeps.undoing import Restoration, end_restores
from feed_assets.sql.database import lock_for_lineage, lock_log
from feed_assets.sql.errors import StateError
from feed_assets.storage.errors import StorageError
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
            for each in prepared:
                self._unregister(each)
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

    def _unregister(self, prepared: _Prepared) -> None:
        """Drop what is about to be removed from the table of a catalog; keep it if the catalog is away."""
        declared = self.context.feed(prepared.chunk.feed, self.sweep.cluster)
        is_registered = declared is not None and declared.registration is not None
        if not is_registered or declared is None or prepared.record is None or not prepared.removal.is_data:
            return
        times = [item.nominal_time for item in prepared.todo]
        try:
            if times:
                unregister(self.context, declared, prepared.record, times)
        except FeedAssetsError as exc:
            reason = f"its registration could not be dropped: {describe_error(exc)}"
            prepared.results |= dict.fromkeys(prepared.todo, ItemResult(ItemOutcome.REFUSED, reason))
            prepared.todo = []

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
        query = ProtectionQuery(as_of=as_of, real_now=context.real_now, holder=lease_holder(chunk.sweep_id))
        is_former = chunk.place is not None
        obstacle = Neighbours(context).find_obstacle(record) if is_former else None
        kept = find_all_protections(context, record, times, query)
        with context.database.read() as connection:
            rows = FeedInstances(connection).get_many([FeedKey(*record.key, time) for time in times])
            count = record.retention.keep_newest if record.retention else 0
            newest = set(FeedInstances(connection).latest_available(*record.key, as_of, count) if count else ())
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

    def _record(self, prepared: _Prepared, unrecorded: Sequence[SweepItem]) -> None:
        chunk, removal, results = prepared.chunk, prepared.removal, prepared.results
        gone = [item for item in chunk.items if prepared.is_gone(item)]
        measures = prepared.store.measure([item.path for item in unrecorded]) if unrecorded else []
        replaced = [item for item, measure in zip(unrecorded, measures, strict=True) if measure.exists]
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
        done = next(context.claims(chunk.sweep_id).each(ChunkState.DONE, chunk.number - 1), None) if busy else None
        if done is None or done.number != chunk.number:
            return
        reasons = {
            item: _keep(Protection(ProtectionKind.READER, busy[item.nominal_time])).reason or ""
            for item in chunk.items
            if item.nominal_time in busy and prepared.is_gone(item)
        }
        removal = replace(prepared.removal, chunk=done)
        restoration = Restoration(
            context=context, record=record, removal=removal, store=prepared.store, is_resumed=False
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


def find_waiting(connection: Connection, cluster: str) -> list[Sweep]:
    """Return a cluster's sweeps that are approved or interrupted, in the order of planning."""
    found = Sweeps(connection).with_state(cluster, {SweepState.PLANNED, SweepState.RUNNING})
    return [sweep for sweep in found if sweep.state is SweepState.RUNNING or sweep.approved_by is not None]


def run_sweep(
    context: SweepContext, sweep_id: str, *, mover: Mover | None = None, progress: Progress | None = None
) -> Sweep:
    """Run a sweep, or resume it, and return its state: DONE, or RUNNING.

    It is RUNNING if other workers still work on some of its chunks.

    Args:
        context: the context of the worker.
        sweep_id: the sweep.
        mover: moves the paths; this process if None.
        progress: called after each chunk.

    Raises:
        SweepRefusedError: it cannot run: it needs approval, has ended, or another sweep of one of its feeds is running.
        SweepDamagedError: it differs from the plan.
        StorageError: the filesystem failed for one feed; the next run continues.
        FeedsUnsweptError: the same for several feeds.
    """
    begun = begin_sweep(context, sweep_id)
    sweep_chunks(context, begun, mover=mover, progress=progress)
    return end_sweep(context, sweep_id)


def begin_sweep(context: SweepContext, sweep_id: str) -> tuple[Sweep, bool]:
    """Make sure that a sweep may run, and record that it does; return it, and whether it had begun before. Raises as
    `run_sweep` does.
    """
    now = context.clock.now()
    with context.database.begin() as connection:
        lock_for_lineage(connection)
        sweeps = Sweeps(connection)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state is SweepState.RUNNING:
            return sweep, True
        _require_runnable(sweeps, sweep, now)
        SweepChunks(connection, sweep_id).require_intact(sweep)
        sweeps.transition(sweep_id, {SweepState.PLANNED}, state=SweepState.RUNNING, started_at=now)
        return require_sweep(sweeps, sweep_id), False


def require_runnable(context: SweepContext, sweep: Sweep) -> None:
    """Make sure that a sweep could run now; the sweep need not be stored.

    Raises:
        SweepRefusedError: it could not.
    """
    with context.database.read() as connection:
        if sweep.state is not SweepState.RUNNING:
            _require_runnable(Sweeps(connection), sweep, context.clock.now())


def sweep_chunks(
    context: SweepContext, begun: tuple[Sweep, bool], *, mover: Mover | None = None, progress: Progress | None = None
) -> None:
    """Run the free chunks of a begun sweep until none is left. Several workers may do so at once.

    The chunks of a feed that fails stay open; those of the other feeds are run.
    """
    (sweep, is_resumed), mover = begun, mover or Mover(context.stores)
    claims = context.claims(sweep.sweep_id)
    worker = ChunkWorker(context=context, sweep=sweep, is_resumed=is_resumed, mover=mover)
    with context.database.read() as connection:
        left = SweepChunks(connection, sweep.sweep_id).heads(state=ChunkState.OPEN)
    settled = sweep.paths - sum(head.count for head in left)
    failures = _find_unsettled(context, sweep)
    width = mover.width
    try:
        while chunks := claims.take_many(ChunkState.OPEN, width, without=failures):
            try:
                worker.run(chunks)
            except (StateError, SQLAlchemyError, SweepRefusedError):
                raise
            except Exception as exc:  # noqa: BLE001 - raised again when the other feeds are done
                if width == 1:
                    failures[chunks[0].feed] = exc
                width = 1  # to find the feed that fails
                worker = ChunkWorker(context=context, sweep=sweep, is_resumed=True, mover=mover)
                continue
            settled += sum(chunk.count for chunk in chunks)
            if progress is not None:
                progress(settled, sweep.paths)
        if worker.is_resumed:
            failures |= end_restores(context, sweep)
    finally:
        claims.release()
    if len(failures) > 1:
        raise FeedsUnsweptError(sweep=sweep.sweep_id, failures=failures)
    for failure in failures.values():
        raise failure


def _find_unsettled(context: SweepContext, sweep: Sweep) -> dict[str, Exception]:
    """Return the feeds of a sweep whose traces of holds cannot be read, so that it is unknown what these protect, and
    those whose newest instance is gone.
    """
    traces, failures = context.hold_traces(), dict[str, Exception]()
    for record in context.feeds_of(sweep):
        try:
            traces.settle([record])
            require_unswept(context, record)
        except StorageError as exc:
            failures[record.feed] = exc
    return failures


def end_sweep(context: SweepContext, sweep_id: str) -> Sweep:
    """End a running sweep if it has no open chunks left; return the sweep."""
    now = context.clock.now()
    with context.database.begin() as connection:
        lock_for_lineage(connection)
        sweeps, chunks = Sweeps(connection), SweepChunks(connection, sweep_id)
        sweep = require_sweep(sweeps, sweep_id)
        if sweep.state is not SweepState.RUNNING or chunks.heads(state=ChunkState.OPEN):
            return sweep
        counts = _with_outcomes(sweep, chunks.count_outcomes())
        Leases(context.database).release_all(connection, lease_holder(sweep_id))
        sweeps.transition(
            sweep_id,
            {SweepState.RUNNING},
            state=SweepState.DONE,
            counts=counts,
            ended_at=now,
            purge_at=_find_purge_time(context.plan, sweep.cluster, counts, now),
        )
        return require_sweep(sweeps, sweep_id)


def _with_outcomes(sweep: Sweep, outcomes: Mapping[tuple[str, ItemOutcome | None], int]) -> tuple[FeedCount, ...]:
    """Return the counts of a sweep with what became of each feed's paths."""
    counts = []
    for count in sweep.counts:
        of_feed = {outcome: number for (feed, outcome), number in outcomes.items() if outcome and feed == count.feed}
        evicted, failed = of_feed.pop(ItemOutcome.EVICTED, 0), of_feed.pop(ItemOutcome.REFUSED, 0)
        counts.append(replace(count, evicted=evicted, kept=sum(of_feed.values()), failed=failed))
    return tuple(counts)


def _find_purge_time(plan: Plan, cluster: str, counts: Iterable[FeedCount], ended_at: datetime) -> datetime | None:
    """Return when the trash of a sweep is purged, by the longest lifetime of its feeds; None if it is empty."""
    times = []
    for count in counts:
        record = plan.feeds.get((count.feed, cluster))
        policy = record.retention if record else None
        if count.evicted:
            times.append(ended_at + (policy.trash if policy else UNDECLARED_TRASH_LIFETIME).as_duration())
    return max(times, default=None)


def _require_runnable(sweeps: Sweeps, sweep: Sweep, now: datetime) -> None:
    def refuse(reason: str, next_step: str) -> SweepRefusedError:
        return SweepRefusedError(sweep=sweep.sweep_id, reason=reason, next_step=next_step)

    if sweep.state is SweepState.ASKING:
        why = "; ".join(obstacle.sentence.rstrip(".") for obstacle in sweep.obstacles)
        shown = command_line("retention", "show", sweep.sweep_id)
        raise refuse(f"it waits for approval: {why}", f"Approve or cancel it. To see what it would remove: {shown}")
    if sweep.state is not SweepState.PLANNED:
        raise refuse(f"it is {sweep.state.value}", "Plan again.")
    if now < (planned_for := max(sweep.as_of, sweep.created_at)):
        stands = f"the clock stands at {render_datetime(now)}"
        later = f"but the sweep was planned for a later time: {render_datetime(planned_for)}"
        raise refuse(f"{stands}, {later}", "Correct the clock, or plan again.")
    feeds = {count.feed for count in sweep.counts}
    for other in sweeps.with_state(sweep.cluster, {SweepState.RUNNING, SweepState.UNDOING}):
        shared = sorted(feeds & {count.feed for count in other.counts})
        if shared:
            state = f"sweep {other.sweep_id}, also of feed '{shared[0]}', is {other.state.value}"
            raise refuse(state, "Wait until that one has ended.")
