"""Rebuild a state that was lost, or restored from an old backup, from what lies on storage.

Feed instances, their events and the relations of replicas come from storage and manifests. A process instance counts as
SUCCEEDED if the manifests of all its outputs name it. So nothing is run again. Holds come from their traces beside the
data. What the record knows stays as it is.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.clock import open_clock
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.context.restores import record_rebuild
from feed_assets.definitions.verbs.context import open_entity_context
from feed_assets.definitions.verbs.settling import settle_releases
from feed_assets.instances.arrival.arrival_notices import look_for_vanished
from feed_assets.instances.arrival.polling import decide_poll_result, record_poll_results
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.instances.inbox.inbox_files import cursor_of
from feed_assets.instances.inbox.ingest import record_taken
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.log.removals.records import Hold
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.rebuild.processes import RebuiltProcess, rebuild_process
from feed_assets.rebuild.surveying import (
    PROCESS,
    FoundInstance,
    find_finished,
    find_nominal_times,
    iter_found,
    move_watermark,
)
from feed_assets.retention.rules.hold_traces import HoldTraces, UnsettledStore
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from feed_assets.storage.errors import StorageError
from feed_assets.timing.dates import NEVER

ORIGIN = "rebuild"

OnProgress = Callable[[str, int, int], None]
"""Receives a name, the number of instances looked at, and their total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltFeed:
    """A feed on a cluster: the complete instances on storage, how many of them are new to the record, and how many have
    no manifest although a process writes the feed; these are left out.

    `vanished` are gone, although the record had them. `begins_anew` says that nothing shows what its inbox has had.
    `damaged` says of each manifest that cannot be read why; its instance is left out, too. `problem` is why storage
    could not be read.
    """

    feed: str
    cluster: str
    complete: int = 0
    recorded: int = 0
    unknown: int = 0
    vanished: int = 0
    begins_anew: bool = False
    damaged: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of its storage could be read."""
        return self.problem is None and not self.damaged


def _rebuild_feed(
    context: OperationContext,
    record: FeedRecord,
    written: dict[datetime, FoundInstance],
    threads: ThreadPoolExecutor,
    on_progress: OnProgress,
    *,
    dry_run: bool,
) -> RebuiltFeed:
    """Record the complete instances on storage; `written` receives those that a process wrote.

    Raises:
        StorageError: the storage cannot be read.
    """
    times = find_nominal_times(context.stores, record, context.as_of)
    name = f"{record.feed} on {record.cluster}"
    looked = recorded = unknown = delivered = 0
    complete: set[datetime] = set()
    damaged: list[str] = []
    for count, batch in iter_found(context.stores, record, times, threads):
        faults = [each.fault for each in batch if each.fault is not None]
        known = [each for each in batch if each.fault is None and (record.is_external or each.publication is not None)]
        with context.database.read() as connection:
            new = _find_new(connection, record, known)
        if new and not dry_run:
            with context.database.begin() as connection:
                _record_instances(connection, context, record, _find_new(connection, record, known))
        if not record.is_external:
            written.update({each.nominal_time: each for each in known})
        looked += count
        complete.update(each.nominal_time for each in batch)
        recorded, unknown = recorded + len(new), unknown + len(batch) - len(known) - len(faults)
        damaged += faults
        delivered += sum(each.delivered is not None for each in batch)
        on_progress(name, looked, len(times))
    if record.is_external and recorded and not dry_run:
        move_watermark(context, record, times[0])
    with context.database.read() as connection:
        is_begun = record.inbox is None or Cursors(connection).get(cursor_of(record)) is not None
        standing = FeedInstances(connection).available_times(*record.key, record.sequence.start, NEVER)
    absent = [Candidate(record=record, nominal_time=time) for time in standing if time not in complete]
    return RebuiltFeed(
        feed=record.feed,
        cluster=record.cluster,
        complete=len(complete),
        recorded=recorded,
        unknown=unknown,
        begins_anew=not is_begun and not delivered,
        damaged=tuple(damaged),
        vanished=look_for_vanished(context, absent, ORIGIN, dry_run=dry_run),
    )


def _find_new(connection: Connection, record: FeedRecord, found: Sequence[FoundInstance]) -> list[FoundInstance]:
    """Return the instances that the record lacks, or knows with an older publication. Evicted ones are no news."""
    keys = [FeedKey(*record.key, each.nominal_time) for each in found]
    rows = FeedInstances(connection).get_many(keys)
    return [each for key, each in zip(keys, found, strict=True) if not _is_known(rows.get(key), each)]


def _is_known(row: FeedInstance | None, found: FoundInstance) -> bool:
    if row is None or row.status not in (FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EVICTED):
        return False
    is_same = found.publication is None or row.manifest_digest == found.publication.digest
    return is_same or row.status is FeedInstanceStatus.EVICTED


def _record_instances(
    connection: Connection, context: OperationContext, record: FeedRecord, new: Sequence[FoundInstance]
) -> None:
    if record.is_external:
        last = EventLog(connection).last_seq()
        new = [
            each
            for each in new
            if each.delivered is None
            or record_taken(connection, record, each.nominal_time, each.delivered, context.as_of) <= last
        ]
        candidates = [Candidate(record=record, nominal_time=each.nominal_time) for each in new]
        results = [
            decide_poll_result(candidate, each.look, context.as_of)
            for candidate, each in zip(candidates, new, strict=True)
        ]
        record_poll_results(connection, results)
        return
    log = EventLog(connection)
    made = [_events(context, record, each) for each in new]
    seqs = [log.append(events)[-1] for events in made]
    status = FeedInstanceStatus.AVAILABLE
    rows = (events[-1].row(status, seq, place=record.place) for events, seq in zip(made, seqs, strict=True))
    FeedInstances(connection).put(rows)


def _events(context: OperationContext, record: FeedRecord, found: FoundInstance) -> list[NewFeedEvent]:
    """Return an event for each flow that has copied to an instance, or one for the process that made it."""
    assert found.publication is not None
    content = found.publication
    made = NewFeedEvent(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=found.nominal_time,
        kind=FeedEventKind.PRODUCED,
        origin=ORIGIN,
        manifest_digest=content.digest,
        bytes=content.bytes,
        files=content.files,
        payload={"path": found.look.path, "process": content.extra.get(PROCESS, "")},
        recorded_at=context.as_of,
    )
    copies = []
    for edge in record.outputs_of:
        replica = found.find_replica(context.plan.processes[edge.process_key])
        if replica is not None:
            figures = {
                "source": replica.url,
                "source_digest": replica.digest,
                "copied_bytes": content.bytes,
                "copied_files": content.files,
            }
            payload = {"path": found.look.path, "process": edge.process, "copy": figures}
            copies.append(replace(made, kind=FeedEventKind.REPLICATED, payload=payload))
    return copies or [made]


_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was recorded from storage, or would be."""

    feeds: tuple[RebuiltFeed, ...]
    processes: tuple[RebuiltProcess, ...]
    holds: tuple[Hold, ...]
    unsettled: tuple[UnsettledStore, ...]
    dry_run: bool

    @property
    def is_empty(self) -> bool:
        """Whether the record has everything already."""
        feeds, processes = self.feeds, self.processes
        is_news = any(each.recorded or each.vanished for each in feeds) or any(each.recorded for each in processes)
        return not (is_news or self.holds)

    @property
    def is_complete(self) -> bool:
        """Whether the storage of all feeds could be read, with all manifests and traces of holds."""
        return not self.unsettled and all(each.is_whole for each in self.feeds)


def rebuild_state(
    settings: Settings,
    database: Database,
    *,
    author: str,
    dry_run: bool = False,
    on_progress: OnProgress = lambda *_: None,
) -> Rebuilt:
    """Record the definitions, and what lies on storage and is not in the record; repeating it changes nothing.

    See `rebuild_instances`. A restored state stays held if the storage of a feed cannot be read.

    Raises:
        DefinitionsError: the definitions cannot be read.
    """
    if dry_run:
        return rebuild_instances(open_context(settings, database), dry_run=True, on_progress=on_progress)
    entities = open_entity_context(settings, database, author=author, now=open_clock(settings).now())
    entities.record()
    settle_releases(entities)
    rebuilt = rebuild_instances(open_context(settings, database), on_progress=on_progress)
    if all(each.is_whole for each in rebuilt.feeds):  # what is not read, a restored state would do again
        with database.begin() as connection:
            record_rebuild(connection)
    if not rebuilt.is_empty:
        feeds, processes = (sum(each.recorded for each in found) for found in (rebuilt.feeds, rebuilt.processes))
        figures = {"feed_instances": feeds, "process_instances": processes, "holds": len(rebuilt.holds)}
        figures["vanished"] = sum(each.vanished for each in rebuilt.feeds)
        entities.audit("state rebuild", None, **figures)
    return rebuilt


def rebuild_instances(
    context: OperationContext, *, dry_run: bool = False, on_progress: OnProgress = lambda *_: None
) -> Rebuilt:
    """Record the instances and holds that are on storage and not in the record.

    The definitions must have been recorded. Feeds whose storage cannot be read are named; nothing of them is recorded.
    A process without outputs leaves no trace; if the record has none of its instances, only those from now on are
    created.
    """
    found: dict[Key, dict[datetime, FoundInstance]] = {}
    feeds = []
    traces = HoldTraces(
        database=context.database, stores=context.stores, plan=context.plan, as_of=context.as_of, dry_run=dry_run
    )
    traces.settle_reachable()
    with context.database.read() as connection:
        before = EventLog(connection).last_seq()
    with ThreadPoolExecutor(_THREADS) as threads:
        for record in sorted(context.plan.feeds.values(), key=lambda each: (not each.is_external, each.key)):
            written = found[record.key] = {}
            if not record.has_data:
                continue
            try:
                feeds.append(_rebuild_feed(context, record, written, threads, on_progress, dry_run=dry_run))
            except StorageError as exc:
                feeds.append(RebuiltFeed(feed=record.feed, cluster=record.cluster, problem=str(exc)))
    unread = {(each.feed, each.cluster) for each in feeds if each.problem is not None}
    processes = [
        rebuild_process(context, process, find_finished(context.plan, process, found), before, dry_run=dry_run)
        for process in sorted(context.plan.processes.values(), key=lambda each: each.key)
        if not unread.intersection(edge.feed_key for edge in process.outputs)
    ]
    return Rebuilt(
        feeds=tuple(feeds),
        processes=tuple(processes),
        holds=tuple(traces.lost),
        unsettled=tuple(traces.unsettled),
        dry_run=dry_run,
    )
