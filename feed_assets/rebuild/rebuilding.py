"""Rebuild a state that was lost, or restored from an old backup, from what lies on storage.

Feed instances, their events and the relations of replicas come from storage and manifests. A process instance counts as
SUCCEEDED if the manifests of all its outputs name it. So nothing is run again. Holds come from their traces beside the
data. What the record knows stays as it is.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from feed_assets.clock import open_clock
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.context.restores import record_rebuild
from feed_assets.definitions.verbs.context import open_entity_context
from feed_assets.definitions.verbs.settling import settle_releases
from feed_assets.log.events import EventLog
from feed_assets.log.removals.records import Hold
from feed_assets.plan.edges import Key
from feed_assets.rebuild.feeds import OnProgress, RebuiltFeed, rebuild_feed
from feed_assets.rebuild.processes import RebuiltProcess, rebuild_process
from feed_assets.rebuild.surveying import FoundInstance, find_finished
from feed_assets.retention.rules.hold_traces import HoldTraces, UnsettledStore
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from feed_assets.storage.errors import StorageError

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
                feeds.append(rebuild_feed(context, record, written, threads, on_progress, dry_run=dry_run))
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
