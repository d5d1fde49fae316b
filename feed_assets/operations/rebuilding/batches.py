"""Record which events the batches on storage have taken, and where the queues of a lost state begin.

The log of a lost state has other numbers in another order, so batches take their events singly.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.triggers import StartFrom
from feed_assets.lifecycle.instances.made_from import TakenEvent
from feed_assets.lifecycle.releases.queue_starts import input_key
from feed_assets.lifecycle.triggers.routing import find_routed
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.trigger_records import TriggerRecord
from feed_assets.state.event_log import EventLog
from feed_assets.state.locks import lock_queues
from feed_assets.state.pending_events import PendingEvents
from feed_assets.state.queue_changes import QueueChanges
from feed_assets.state.queue_records import InputKey, Mark, QueueAction, QueueChange
from feed_assets.state.records import CONTENT, EntityKey, FeedEvent, FeedKey
from feed_assets.state.trigger_inputs import TriggerInputs

_Batches = Mapping[datetime, Sequence[TakenEvent]]


def restore_queues(
    connection: Connection, process: ProcessRecord, batches: _Batches, before: int, as_of: datetime
) -> None:
    """Give batches the events that they have taken, and begin the queues of a lost state, in the transaction that
    records the batches; `before` is the last event of the log before the rebuild.

    A queue that began at a moment begins with the first event that a batch has taken; without any, one from `now`
    begins now.
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
