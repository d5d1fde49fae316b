"""Rebuild a state that was lost, or restored from an old backup, from what lies on storage.

Feed instances, their events and the relations of replicas come from storage and manifests. A process instance counts as
SUCCEEDED if the manifests of all its outputs name it. So nothing is run again. Holds come from their traces beside the
data. What the record knows stays as it is.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.clock import open_clock
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.context.safe_mode import record_rebuild
from feed_assets.definitions.verbs.context import open_entity_context
from feed_assets.definitions.verbs.schedules import settle_releases
from feed_assets.engines.port import STRETCH
from feed_assets.entities.common import Kind
from feed_assets.entities.content.event_messages import MARKING
from feed_assets.entities.triggers import StartFrom
from feed_assets.instances.arrival.polling import decide_poll_result, record_poll_results
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.instances.arrival.stored_data import find_standing, record_vanished
from feed_assets.instances.attempts.attempt_inputs import freeze_inputs, plan_late_check
from feed_assets.instances.attempts.attempts import begin_attempt, end_attempt
from feed_assets.instances.attempts.made_from import TakenEvent
from feed_assets.instances.inbox.inbox_files import cursor_of
from feed_assets.instances.inbox.taken import record_taken
from feed_assets.instances.late.quality_checks import QualityChecks, let_in
from feed_assets.json_form import NominalTime
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    CONTENT,
    PROCESS_TIME,
    Cause,
    EntityKey,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    NewFeedEvent,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.removals.records import Hold
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import Key, TriggerRecord
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.rebuild.surveying import (
    PROCESS,
    FoundInstance,
    find_finished,
    iter_found,
    move_watermark,
)
from feed_assets.retention.rules.hold_traces import HoldTraces, UnsettledStore
from feed_assets.settings import Settings
from feed_assets.sql.database import Database, lock_for_lineage, lock_queues
from feed_assets.storage.errors import StorageError
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.triggers.apply_triggers import find_routed, input_key
from feed_assets.triggers.input_windows import input_states
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import PendingEvents, TriggerInputs
from feed_assets.triggers.queue.records import InputKey, Mark, QueueAction, QueueChange
from feed_assets.triggers.queue.store import Triggers

_BATCH = 500
_MOMENT = timedelta(microseconds=1)
_AT_WORK_OR_DONE = frozenset({ProcessInstanceStatus.RUNNING, ProcessInstanceStatus.SUCCEEDED})
_NEVER_RUN = frozenset({ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY})
_Batches = Mapping[datetime, Sequence[TakenEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltProcess:
    """A process or flow on a cluster: its instances whose outputs are on storage, and how many become SUCCEEDED.

    Instances before `begins_at` are not created again; None if that does not change. `begins_anew` says that nothing
    shows what its batches have taken.
    """

    process: str
    cluster: str
    finished: int
    recorded: int
    begins_at: NominalTime | None = None
    begins_anew: bool = False


def _rebuild_process(
    context: OperationContext,
    process: ProcessRecord,
    finished: Mapping[datetime, FoundInstance],
    before: int,
    *,
    dry_run: bool,
) -> RebuiltProcess:
    """Record the finished instances, each with its run, unless the record knows that attempt, and with the events of
    batches; `before` is the last event of the log before the rebuild.
    """
    times = sorted(finished)
    begins_at = times[0] if times else None if process.outputs else process.sequence.ceil(context.as_of)
    is_later = begins_at is not None and _begins_later(context, process, begins_at)
    recorded, runs = 0, {time: found.run_id for time, found in finished.items()}
    has_taken = any(found.taken for found in finished.values())
    with context.database.read() as connection:
        is_followed = bool(Triggers(connection).of([EntityKey(*process.key)]))
    step = _BATCH if process.trigger is None else max(1, len(times))
    for start in range(0, max(len(times), process.trigger is not None), step):
        batch = times[start : start + step]
        with (context.database.read if dry_run else context.database.begin)() as connection:
            if not dry_run:
                lock_for_lineage(connection)
            new = _find_unfinished(connection, process, batch, runs)
            if not dry_run:
                batches = {time: finished[time].taken for time in new}
                _let_in_taken(connection, context, process, batches)
                restore_queues(connection, process, batches, before, context.as_of)
                _record_finished(connection, context, process, new, runs)
        recorded += len(new)
    if not dry_run:
        _skip_finished(context, process, finished, begins_at if is_later else None)
    return RebuiltProcess(
        process=process.process,
        cluster=process.cluster,
        finished=len(times),
        recorded=recorded,
        begins_at=begins_at if is_later else None,
        begins_anew=process.trigger is not None and not is_followed and not has_taken,
    )


def _let_in_taken(connection: Connection, context: OperationContext, process: ProcessRecord, batches: _Batches) -> None:
    """Let in what batches have taken and is held back: its rows were judged before the state was lost."""
    inputs = {each.name: input_key(process, each) for each in process.trigger.inputs} if process.trigger else {}
    listed = (each for taken in batches.values() for each in taken if each.input in inputs)
    taken = {_instance(inputs[each.input], each): each for each in listed}
    checks = QualityChecks(connection).of_instances(taken)
    rows = FeedInstances(connection).get_many(checks)
    for key, row in rows.items():
        check = checks[key]
        if row.status is FeedInstanceStatus.PARTIAL and _is_same(check.content, taken[key].digest):
            let_in(connection, context.plan.feeds[key[:2]], row, check, context.as_of)


def _find_unfinished(
    connection: Connection, process: ProcessRecord, times: Sequence[datetime], runs: Mapping[datetime, str | None]
) -> list[datetime]:
    """Return the instances that never ran by the record, those that run by it in the run that wrote them, and those
    that were written by a run that it does not know, or takes for failed: a restored record does not know how a run
    ended.
    """
    keys = [ProcessKey(*process.key, time) for time in times]
    rows, attempts = ProcessInstances(connection).get_many(keys), Attempts(connection).of_many(keys)

    def is_open(time: datetime) -> bool:
        key, run = ProcessKey(*process.key, time), runs[time]
        row = rows.get(key)
        if row is None or (row.attempt == 0 and row.status in _NEVER_RUN):
            return True
        if row.status is ProcessInstanceStatus.RUNNING and row.run_id == run:
            return True
        if run is None:
            return False
        ends = [attempt.status for attempt in attempts.get(key, ()) if attempt.run_id == run]
        return not ends or (row.status not in _AT_WORK_OR_DONE and ProcessInstanceStatus.SUCCEEDED not in ends)

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
        row = rows.get(key)
        is_at_work = row is not None and row.status is ProcessInstanceStatus.RUNNING and row.run_id == runs[time]
        if not is_at_work:
            active = context.timeline.find_or_declared(connection, process.key, time)
            release = active.release if active else None
            begin_attempt(connection, process, time, runs[time], now, release, Cause.REBUILT)
            freeze_inputs(connection, key, states[time], {}, now)
            instances.transition(key, {ProcessInstanceStatus.RUNNING}, request_key=None, updated_at=now)
        cause = None if is_at_work else Cause.REBUILT
        end_attempt(connection, key, ProcessInstanceStatus.SUCCEEDED, None, now, cause)
        plan_late_check(connection, context.plan, process, time, now)


def _begins_later(context: OperationContext, process: ProcessRecord, begins_at: datetime) -> bool:
    """Return whether a process would create instances before a time of which the record knows none."""
    with context.database.read() as connection:
        standing = Watermarks(connection).get(WatermarkKind.PROCESS, *process.key)
        first = process.sequence.at(0)
        earlier = ProcessInstances(connection).find_between(*process.key, first, begins_at)
    return standing is not None and bool(standing.ahead) and standing.ahead[0][0] < begins_at and not earlier


def _skip_finished(
    context: OperationContext, process: ProcessRecord, finished: Collection[datetime], begins_at: datetime | None
) -> None:
    """Let the creation of instances begin at a time, if given, and after the finished instances that follow."""
    with context.database.read() as connection:
        standing = Watermarks(connection).get(WatermarkKind.PROCESS, *process.key)
    if standing is None or not standing.ahead:
        return
    following: datetime | None = begins_at or standing.ahead[0][0]
    while following is not None and following in finished:
        following = process.sequence.ceil(following + _MOMENT)
    move_watermark(context, process, following)


def restore_queues(
    connection: Connection, process: ProcessRecord, batches: _Batches, before: int, as_of: datetime
) -> None:
    """Give batches the events that they have taken, and begin the queues of a lost state, in the transaction that
    records the batches; `before` is the last event of the log before the rebuild.

    The log of a lost state has other numbers in another order, so batches take their events singly. A queue that began
    at a moment begins with the first event that a batch has taken; without any, one from `now` begins now.
    """
    trigger, consumer = process.trigger, EntityKey(*process.key)
    if trigger is None:
        return
    lock_queues(connection)
    changes, inputs = QueueChanges(connection), TriggerInputs(connection)
    keys = {each.name: input_key(process, each) for each in trigger.inputs}
    changes.put(list(_iter_taken(connection, consumer, keys, batches, as_of)))
    taken = [(each.input, each.event) for each in changes.of(consumer) if each.nominal_time is not None]
    known, last = inputs.of([consumer]).get(consumer, {}), EventLog(connection).last_seq()
    for name, key in keys.items():
        first = min((event for of, event in taken if of == name), default=None)
        start = _decide_start(trigger, known.get(key), first, before, last)
        if start is not None:
            counting = trigger.counts_unchanged
            inputs.add([Mark(**key._asdict(), counts_unchanged=counting, start_seq=start, taken_seq=start)])
    events = PendingEvents(connection, find_routed(connection, process.cluster), [consumer])
    marks = inputs.of([consumer]).get(consumer, {})
    found = ((marks.get(keys[each.name]), each.until) for each in trigger.inputs)
    inputs.put([events.measure(mark, until) for mark, until in found if mark is not None])


def _decide_start(trigger: TriggerRecord, mark: Mark | None, first: int | None, before: int, last: int) -> int | None:
    """Return behind which event a queue begins; None if it has begun, or the first tick finds it."""
    is_now = trigger.start is StartFrom.NOW
    if mark is not None and not (is_now and mark.start_seq == mark.taken_seq == before):
        return None
    if first is None:
        return last if is_now else None
    return 0 if trigger.start is StartFrom.EARLIEST else first - 1


def _iter_taken(
    connection: Connection, consumer: EntityKey, keys: Mapping[str, InputKey], batches: _Batches, as_of: datetime
) -> Iterator[QueueChange]:
    """Yield that a batch has an event, for each that no other batch has; the newest batch goes first."""
    newest = ((time, each) for time in sorted(batches, reverse=True) for each in batches[time])
    wanted = [(time, keys[each.input], each) for time, each in newest if each.input in keys]
    log = EventLog(connection).for_instances([_instance(key, each) for _, key, each in wanted])
    marks = TriggerInputs(connection).of([consumer]).get(consumer, {})
    changes = QueueChanges(connection).of(consumer)
    taken = {(change.input, change.event) for change in changes if change.nominal_time is not None}
    for time, key, each in wanted:
        past = (one for one in reversed(log.get(_instance(key, each), ())) if one.kind in CONTENT)
        event = next((one for one in past if _is_same(one.manifest_digest, each.digest)), None)
        if event is None or (key.input, event.seq) in taken or _is_behind(marks.get(key), event.seq):
            continue
        taken.add((key.input, event.seq))
        yield QueueChange(
            process=key.process,
            cluster=key.cluster,
            input=key.input,
            event=event.seq,
            action=QueueAction.ADD,
            author="feed-assets",
            reason="its batch lies on storage",
            at=as_of,
            nominal_time=time,
        )


def _is_behind(mark: Mark | None, event: int) -> bool:
    """Return whether an event is in a range of the log that was taken or passed over."""
    return mark is not None and mark.start_seq < event <= mark.taken_seq


def _instance(key: InputKey, taken: TakenEvent) -> FeedKey:
    return FeedKey(key.feed, key.feed_cluster, taken.nominal_time)


def _is_same(found: str | None, taken: str | None) -> bool:
    """Return whether a digest is that of what a batch has taken; digests of two kinds cannot be compared."""
    kinds = {(digest or "").partition(":")[0] for digest in (found, taken)}
    return len(kinds) > 1 or found == taken


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
    standing = find_standing(context.stores.get(record.store), record, before=None)
    times = [time for time in standing if time <= context.as_of or not record.is_external]
    name = f"{record.feed} on {record.cluster}"
    looked = recorded = unknown = delivered = 0
    complete: set[datetime] = set()
    damaged: list[str] = []
    for count, batch in iter_found(context.stores, record, times, threads):
        faults = [each.fault for each in batch if each.fault is not None]
        known = [each for each in batch if each.fault is None and (record.is_external or each.publication is not None)]
        with (context.database.read if dry_run else context.database.begin)() as connection:
            new = _find_new(connection, record, known)
            if new and not dry_run:
                _record_instances(connection, context, record, new)
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
        known_times = FeedInstances(connection).available_times(*record.key, record.sequence.start, NEVER)
    absent = [Candidate(record=record, nominal_time=time) for time in known_times if time not in complete]
    return RebuiltFeed(
        feed=record.feed,
        cluster=record.cluster,
        complete=len(complete),
        recorded=recorded,
        unknown=unknown,
        begins_anew=not is_begun and not delivered,
        damaged=tuple(damaged),
        vanished=len(record_vanished(context, absent, ORIGIN, dry_run=dry_run)),
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
    FeedPlaces(connection).put([record])  # before the first tick of a new state
    if record.is_external:
        last = EventLog(connection).last_seq()
        new = [
            each
            for each in new
            if each.delivered is None
            or record_taken(connection, record, each.nominal_time, each.delivered, context.as_of, each.look) <= last
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
    told = {PROCESS_TIME: render_datetime(found.made_by)} if found.made_by is not None else {}
    told |= {STRETCH: content.extra[STRETCH]} if STRETCH in content.extra else {}
    made = NewFeedEvent(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=found.nominal_time,
        kind=FeedEventKind.PRODUCED,
        origin=ORIGIN,
        manifest_digest=content.digest,
        bytes=content.bytes,
        files=content.files,
        payload={"path": found.look.path, "process": content.extra.get(PROCESS, ""), **told},
        recorded_at=context.as_of,
        marking=content.extra.get(MARKING),
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
    traces = HoldTraces(context=context, as_of=context.as_of, dry_run=dry_run)
    traces.settle_reachable()
    with context.database.read() as connection:
        before = EventLog(connection).last_seq()
        former: dict[str, list[str]] = defaultdict(list)
        for each in Definitions(connection).renames():
            if each.kind == Kind.PROCESS:
                former[each.name].append(each.former)
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
        _rebuild_process(
            context,
            process,
            find_finished(context.plan, process, found, former.get(process.process, ())),
            before,
            dry_run=dry_run,
        )
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
