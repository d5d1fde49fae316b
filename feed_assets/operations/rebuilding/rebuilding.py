"""Rebuild a state that was lost, or restored from an old backup, from what lies on storage.

Feed instances, their events and the relations of replicas come from storage and manifests. A process instance counts as
SUCCEEDED if the manifests of all its outputs name it. So nothing is run again. What the record knows stays as it is.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.clock import open_clock
from feed_assets.json_form import NominalTime
from feed_assets.lifecycle.arrival.polling import decide_poll_result, record_poll_results
from feed_assets.lifecycle.arrival.store_polls import Candidate
from feed_assets.lifecycle.input_windows import input_states
from feed_assets.lifecycle.instances.attempt_inputs import frozen_inputs, plan_late_check
from feed_assets.lifecycle.instances.attempts import begin_attempt, end_attempt
from feed_assets.operations.context import OperationContext, open_context
from feed_assets.operations.entities.context import open_entity_context
from feed_assets.operations.entities.settling import settle_releases
from feed_assets.operations.rebuilding.surveying import (
    PROCESS,
    FoundInstance,
    find_finished,
    find_nominal_times,
    iter_found,
)
from feed_assets.plan.records import FeedRecord, Key, ProcessRecord
from feed_assets.settings import Settings
from feed_assets.state.causes import Cause
from feed_assets.state.database import Database
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    NewFeedEvent,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.state.watermarks import Watermarks
from feed_assets.storage.errors import StorageError

ORIGIN = "rebuild"

OnProgress = Callable[[str, int, int], None]
"""Receives a name, the number of instances looked at, and their total."""

_THREADS = 8
_BATCH = 500
_MOMENT = timedelta(microseconds=1)
_NEVER_RUN = frozenset({ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY})


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltFeed:
    """A feed on a cluster: the complete instances on storage, how many of them are new to the record, and how many have
    no manifest although a process writes the feed; these are left out. `problem` is why storage could not be read.
    """

    feed: str
    cluster: str
    complete: int = 0
    recorded: int = 0
    unknown: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltProcess:
    """A process or flow on a cluster: its instances whose outputs are on storage, and how many become SUCCEEDED.

    Instances before `begins_at` are not created again; None if that does not change.
    """

    process: str
    cluster: str
    finished: int
    recorded: int
    begins_at: NominalTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was recorded from storage, or would be."""

    feeds: tuple[RebuiltFeed, ...]
    processes: tuple[RebuiltProcess, ...]
    dry_run: bool

    @property
    def is_empty(self) -> bool:
        """Whether the record has everything already."""
        return not (any(each.recorded for each in self.feeds) or any(each.recorded for each in self.processes))

    @property
    def problems(self) -> tuple[RebuiltFeed, ...]:
        """The feeds whose storage could not be read."""
        return tuple(each for each in self.feeds if each.problem is not None)


def rebuild_state(
    settings: Settings,
    database: Database,
    *,
    author: str,
    dry_run: bool = False,
    on_progress: OnProgress = lambda *_: None,
) -> Rebuilt:
    """Record the definitions, and what lies on storage and is not in the record; repeating it changes nothing.

    See `rebuild_instances`.

    Raises:
        DefinitionsError: the definitions cannot be read.
    """
    if dry_run:
        return rebuild_instances(open_context(settings, database), dry_run=True, on_progress=on_progress)
    entities = open_entity_context(settings, database, author=author, now=open_clock(settings).now())
    entities.record()
    settle_releases(entities)
    rebuilt = rebuild_instances(open_context(settings, database), on_progress=on_progress)
    if not rebuilt.is_empty:
        feeds, processes = (sum(each.recorded for each in found) for found in (rebuilt.feeds, rebuilt.processes))
        entities.audit("state rebuild", None, feed_instances=feeds, process_instances=processes)
    return rebuilt


def rebuild_instances(
    context: OperationContext, *, dry_run: bool = False, on_progress: OnProgress = lambda *_: None
) -> Rebuilt:
    """Record the instances that lie on storage and are not in the record.

    The definitions must have been recorded. Feeds whose storage cannot be read are named; nothing of them is recorded.
    A process without outputs leaves no trace; if the record has none of its instances, only those from now on are
    created.
    """
    found: dict[Key, dict[datetime, FoundInstance]] = {}
    feeds = []
    with ThreadPoolExecutor(_THREADS) as threads:
        for record in sorted(context.plan.feeds.values(), key=lambda each: (not each.is_external, each.key)):
            written = found[record.key] = {}
            try:
                feeds.append(_rebuild_feed(context, record, written, threads, on_progress, dry_run=dry_run))
            except StorageError as exc:
                feeds.append(RebuiltFeed(feed=record.feed, cluster=record.cluster, problem=str(exc)))
    unread = {(each.feed, each.cluster) for each in feeds if each.problem is not None}
    processes = [
        _rebuild_process(context, process, find_finished(context.plan, process, found), dry_run=dry_run)
        for process in sorted(context.plan.processes.values(), key=lambda each: each.key)
        if not unread.intersection(edge.feed_key for edge in process.outputs)
    ]
    return Rebuilt(feeds=tuple(feeds), processes=tuple(processes), dry_run=dry_run)


def _rebuild_feed(
    context: OperationContext,
    record: FeedRecord,
    written: dict[datetime, FoundInstance],
    threads: ThreadPoolExecutor,
    on_progress: OnProgress,
    *,
    dry_run: bool,
) -> RebuiltFeed:
    times = find_nominal_times(context.stores, record, context.as_of)
    name = f"{record.feed} on {record.cluster}"
    looked = complete = recorded = unknown = 0
    for count, batch in iter_found(context.stores, record, times, threads):
        known = [each for each in batch if record.is_external or each.publication is not None]
        with context.database.read() as connection:
            new = _find_new(connection, record, known)
        if new and not dry_run:
            with context.database.begin() as connection:
                _record_instances(connection, context, record, _find_new(connection, record, known))
        if not record.is_external:
            written.update({each.nominal_time: each for each in known})
        looked, complete = looked + count, complete + len(batch)
        recorded, unknown = recorded + len(new), unknown + len(batch) - len(known)
        on_progress(name, looked, len(times))
    if record.is_external and recorded and not dry_run:
        _move_watermark(context, WatermarkKind.FEED, record.key, times[0])
    return RebuiltFeed(feed=record.feed, cluster=record.cluster, complete=complete, recorded=recorded, unknown=unknown)


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
        candidates = [Candidate(record=record, nominal_time=each.nominal_time) for each in new]
        results = [
            decide_poll_result(candidate, each.look, context.as_of)
            for candidate, each in zip(candidates, new, strict=True)
        ]
        record_poll_results(connection, results)
        return
    log = EventLog(connection)
    seqs = [log.append(_events(context, record, each))[-1] for each in new]
    rows = [_row(context, record, each, seq) for each, seq in zip(new, seqs, strict=True)]
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


def _row(context: OperationContext, record: FeedRecord, found: FoundInstance, seq: int) -> FeedInstance:
    assert found.publication is not None
    return FeedInstance(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=found.nominal_time,
        status=FeedInstanceStatus.AVAILABLE,
        manifest_digest=found.publication.digest,
        bytes=found.publication.bytes,
        files=found.publication.files,
        available_at=context.as_of,
        event_seq=seq,
        updated_at=context.as_of,
    )


def _rebuild_process(
    context: OperationContext, process: ProcessRecord, finished: Mapping[datetime, str | None], *, dry_run: bool
) -> RebuiltProcess:
    times = sorted(finished)
    begins_at = times[0] if times else None if process.outputs else process.sequence.ceil(context.as_of)
    is_later = begins_at is not None and _begins_later(context, process, begins_at)
    recorded = 0
    for start in range(0, len(times), _BATCH):
        batch = times[start : start + _BATCH]
        with context.database.read() as connection:
            new = _find_unfinished(connection, process, batch, finished)
        if new and not dry_run:
            with context.database.begin() as connection:
                unfinished = _find_unfinished(connection, process, batch, finished)
                _record_finished(connection, context, process, unfinished, finished)
        recorded += len(new)
    if not dry_run:
        _skip_finished(context, process, finished, begins_at if is_later else None)
    return RebuiltProcess(
        process=process.process,
        cluster=process.cluster,
        finished=len(times),
        recorded=recorded,
        begins_at=begins_at if is_later else None,
    )


def _find_unfinished(
    connection: Connection, process: ProcessRecord, times: Sequence[datetime], runs: Mapping[datetime, str | None]
) -> list[datetime]:
    """Return the instances without a recorded attempt, and those that run by the record in the run that wrote them."""
    rows = ProcessInstances(connection).get_many([ProcessKey(*process.key, time) for time in times])

    def is_open(time: datetime) -> bool:
        row = rows.get(ProcessKey(*process.key, time))
        if row is None or (row.attempt == 0 and row.status in _NEVER_RUN):
            return True
        return row.status is ProcessInstanceStatus.RUNNING and row.run_id == runs[time]

    return [time for time in times if is_open(time)]


def _record_finished(
    connection: Connection,
    context: OperationContext,
    process: ProcessRecord,
    times: Sequence[datetime],
    runs: Mapping[datetime, str | None],
) -> None:
    """Record instances as SUCCEEDED, with the inputs that are there now."""
    now, instances = context.as_of, ProcessInstances(connection)
    states = input_states(connection, context.plan, process, times, now)
    rows = instances.get_many([ProcessKey(*process.key, time) for time in times])
    for time in times:
        key = ProcessKey(*process.key, time)
        cause = None
        if key not in rows or rows[key].status is not ProcessInstanceStatus.RUNNING:
            cause = Cause.REBUILT
            active = context.timeline.find_or_declared(connection, process.key, time)
            release = active.release if active else None
            begin_attempt(connection, process, time, runs[time], now, release, cause)
            frozen = frozen_inputs(connection, states[time], {})
            instances.transition(key, {ProcessInstanceStatus.RUNNING}, request_key=None, inputs=frozen, updated_at=now)
        end_attempt(connection, key, ProcessInstanceStatus.SUCCEEDED, None, now)
        if cause is not None:
            instances.transition(key, {ProcessInstanceStatus.SUCCEEDED}, cause=cause, updated_at=now)
        plan_late_check(connection, context.plan, process, time, now)


def _begins_later(context: OperationContext, process: ProcessRecord, begins_at: datetime) -> bool:
    """Return whether a process would create instances before a time of which the record knows none."""
    with context.database.read() as connection:
        standing = Watermarks(connection).get(WatermarkKind.PROCESS, *process.key)
        first = process.sequence.at(0)
        earlier = ProcessInstances(connection).find_between(*process.key, first, begins_at)
    return standing is not None and standing.next_time is not None and standing.next_time < begins_at and not earlier


def _skip_finished(
    context: OperationContext, process: ProcessRecord, finished: Collection[datetime], begins_at: datetime | None
) -> None:
    """Let the creation of instances begin at a time, if given, and after the finished instances that follow."""
    with context.database.read() as connection:
        standing = Watermarks(connection).get(WatermarkKind.PROCESS, *process.key)
    following = begins_at or (standing.next_time if standing is not None else None)
    while following is not None and following in finished:
        following = process.sequence.ceil(following + _MOMENT)
    if following is not None:
        _move_watermark(context, WatermarkKind.PROCESS, process.key, following)


def _move_watermark(context: OperationContext, kind: WatermarkKind, key: Key, to: datetime) -> None:
    """Let the creation or the polls of instances begin at a time, unless they have gone further."""
    sequence = context.plan.feeds[key].sequence if kind is WatermarkKind.FEED else context.plan.processes[key].sequence
    with context.database.begin() as connection:
        watermarks = Watermarks(connection)
        standing = watermarks.get(kind, *key)
        if standing is not None and standing.next_time is not None and standing.next_time < to:
            watermarks.put([replace(standing, next_index=sequence.index(to), next_time=to)])
