"""Prove that each event that was routed to a consumer is in one batch, pending, passed over, or dropped by somebody."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from feed_assets.json_form import Hidden, shows
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessKey
from feed_assets.plan.records import Plan
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import is_followed
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.records import EventRange, InputKey, Mark, QueueChange, RangeUse
from feed_assets.triggers.queue.store import Triggers
from feed_assets.triggers.queue_starts import input_key
from feed_assets.triggers.routing import find_routed


@shows("key", "process, cluster, input")
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFault:
    """Events of an input's queue that are in no place, in two, or not where the record says."""

    key: Hidden[InputKey]
    message: str


def verify_queues(connection: Connection, plan: Plan, cluster: str) -> list[QueueFault]:
    """Return the faults of all queues of a cluster, by consumer; it counts the whole log of their feeds."""
    consumers = [EntityKey(*record.key) for record in plan.triggered_on(cluster)]
    marks, states = TriggerInputs(connection).of(consumers), Triggers(connection).of(consumers)
    routed = find_routed(connection, cluster)
    events = PendingEvents(connection, routed, consumers)
    faults: list[QueueFault] = []
    for record in plan.triggered_on(cluster):
        consumer = EntityKey(*record.key)
        own = marks.get(consumer, {})
        ranges: dict[InputKey, list[EventRange]] = defaultdict(list)
        for each in Batches(connection).ranges(consumer):
            ranges[each.key].append(each)
        changes = QueueChanges(connection).of(consumer)
        faults += _missing_batches(connection, consumer, ranges, changes)
        inputs = record.trigger.inputs if record.trigger and is_followed(record, states.get(consumer)) else ()
        untils = {input_key(record, each): each.until for each in inputs}
        for key, mark in own.items():
            taken = ranges.pop(key, [])
            faults += (QueueFault(key=key, message=text) for text in _gaps(mark, taken, routed))
            faults += (QueueFault(key=key, message=text) for text in _miscounted(connection, taken))
            if key in untils and (found := events.measure(mark, untils[key])) != mark:
                message = f"its mark says that {mark.pending} events are pending, but there are {found.pending}"
                faults.append(QueueFault(key=key, message=message))
        for key in ranges:
            faults.append(
                QueueFault(key=key, message="batches have taken its events, but its place in the log is gone")
            )
    return faults


def _gaps(mark: Mark, ranges: Sequence[EventRange], routed: int) -> Iterator[str]:
    place = mark.start_seq
    for each in ranges:
        if each.after_seq > place:
            yield f"events {place + 1} to {each.after_seq} are in no batch and were not passed over"
        elif each.after_seq < place:
            yield f"events {each.after_seq + 1} to {place} are in two batches"
        place = each.to_seq
    if place < mark.taken_seq:
        yield f"events {place + 1} to {mark.taken_seq} are in no batch and were not passed over"
    elif place > mark.taken_seq:
        yield f"events {mark.taken_seq + 1} to {place} are in a batch, and pending"
    if mark.taken_seq > max(routed, mark.start_seq):
        yield f"events up to {mark.taken_seq} are taken, but only those up to {routed} were routed"


def _miscounted(connection: Connection, ranges: Sequence[EventRange]) -> Iterator[str]:
    for each in ranges:
        found = Batches(connection).count(each)
        if found != each.count:
            use = "passed over" if each.use is RangeUse.PASSED else "taken"
            yield f"{each.count} events from {each.after_seq + 1} to {each.to_seq} were {use}, but there are {found}"


def _missing_batches(
    connection: Connection,
    consumer: EntityKey,
    ranges: dict[InputKey, list[EventRange]],
    changes: Sequence[QueueChange],
) -> Iterator[QueueFault]:
    named = {(each.key, each.batch) for found in ranges.values() for each in found if each.batch is not None}
    for change in changes:
        if change.nominal_time is not None:
            key = InputKey(change.process, change.cluster, change.input, "", "")
            named.add((key, ProcessKey(*consumer, change.nominal_time)))
    known = ProcessInstances(connection).get_progress({batch for _, batch in named if batch is not None})
    for key, batch in sorted(named):
        if batch is not None and batch not in known:
            yield QueueFault(
                key=key, message=f"its events are in batch {render_datetime(batch.nominal_time)}, which is gone"
            )
