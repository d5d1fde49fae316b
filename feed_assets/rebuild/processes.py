"""Record the instances of a process whose outputs on storage name it as SUCCEEDED, so that they do not run again."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext
from feed_assets.entities.triggers import StartFrom
from feed_assets.instances.attempts.attempt_inputs import freeze_inputs, plan_late_check
from feed_assets.instances.attempts.attempts import begin_attempt, end_attempt
from feed_assets.instances.attempts.made_from import TakenEvent
from feed_assets.json_form import NominalTime
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    CONTENT,
    Cause,
    EntityKey,
    FeedEvent,
    FeedKey,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.trigger_records import TriggerRecord
from feed_assets.rebuild.surveying import FoundInstance, move_watermark
from feed_assets.sql.locks import lock_queues
from feed_assets.triggers.input_windows import input_states
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.records import InputKey, Mark, QueueAction, QueueChange
from feed_assets.triggers.queue.store import Triggers
from feed_assets.triggers.queue_starts import input_key
from feed_assets.triggers.routing import find_routed

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


def rebuild_process(
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
        with context.database.read() as connection:
            new = _find_unfinished(connection, process, batch, runs)
        if (new or process.trigger is not None) and not dry_run:
            with context.database.begin() as connection:
                unfinished = _find_unfinished(connection, process, batch, runs)
                batches = {time: finished[time].taken for time in unfinished}
                restore_queues(connection, process, batches, before, context.as_of)
                _record_finished(connection, context, process, unfinished, runs)
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
    return standing is not None and standing.next_time is not None and standing.next_time < begins_at and not earlier


def _skip_finished(
    context: OperationContext, process: ProcessRecord, finished: Collection[datetime], begins_at: datetime | None
) -> None:
    """Let the creation of instances begin at a time, if given, and after the finished instances that follow."""
    with context.database.read() as connection:
        standing = Watermarks(connection).get(WatermarkKind.PROCESS, *process.key)
    if standing is None or standing.next_time is None:
        return
    following: datetime | None = begins_at or standing.next_time
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
        event = next((one for one in reversed(log.get(_instance(key, each), ())) if _is_same(one, each)), None)
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


def _is_same(event: FeedEvent, taken: TakenEvent) -> bool:
    """Return whether an event brings what a batch has taken; digests of two kinds cannot be compared."""
    kinds = {(digest or "").partition(":")[0] for digest in (event.manifest_digest, taken.digest)}
    return event.kind in CONTENT and (len(kinds) > 1 or event.manifest_digest == taken.digest)
