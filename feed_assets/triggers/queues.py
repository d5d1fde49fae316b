"""`queue` and `batch`: what waits for a process that takes what comes, and what each batch has taken; a person's
changes (drop an event, hold it back, let it be taken); and proof that each routed event is in one place.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import ChangeContext, OperationContext, Subject, note_target
from feed_assets.errors import Fault
from feed_assets.json_form import Hidden, shows
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, FeedEvent, ProcessInstance, ProcessKey
from feed_assets.pages import Page
from feed_assets.plan.edges import TriggerInput, TriggerRecord
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.sql.database import lock_queues
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import find_routed, input_key, is_followed, pending_of
from feed_assets.triggers.decide_firing import decide_fire
from feed_assets.triggers.errors import QueueChangeError
from feed_assets.triggers.queries import EventChoice
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import PendingEvents, TriggerInputs
from feed_assets.triggers.queue.records import (
    EventRange,
    InputKey,
    Mark,
    QueueAction,
    QueueChange,
    RangeUse,
    TriggerState,
)
from feed_assets.triggers.queue.store import Triggers
from feed_assets.triggers.waiting import Queue, describe_queues


class QueuePosition(StrEnum):
    """Where an event is in the queue of an input."""

    AHEAD = "not routed yet"
    PENDING = "pending"
    HELD = "held"
    DROPPED = "dropped"
    TAKEN = "taken"
    PASSED = "passed over"
    BEFORE = "from before the trigger"


_OF_ACTION = {
    QueueAction.ADD: QueuePosition.PENDING,
    QueueAction.DROP: QueuePosition.DROPPED,
    QueueAction.HOLD: QueuePosition.HELD,
    QueueAction.PASS: QueuePosition.PASSED,
}
_CHANGEABLE = {
    QueueAction.ADD: frozenset({QueuePosition.HELD, QueuePosition.DROPPED, QueuePosition.PASSED, QueuePosition.BEFORE}),
    QueueAction.DROP: frozenset({QueuePosition.AHEAD, QueuePosition.PENDING, QueuePosition.HELD}),
    QueueAction.HOLD: frozenset({QueuePosition.AHEAD, QueuePosition.PENDING}),
    QueueAction.PASS: frozenset[QueuePosition](),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlace:
    """Where an event is in the queue of an input, and the batch that took it or passed it over."""

    place: QueuePosition
    nominal_time: datetime | None = None

    def render(self) -> str:
        """Return the place in words: `taken by 2026-01-01T06:00:04Z`."""
        by = "" if self.nominal_time is None else f" by {render_datetime(self.nominal_time)}"
        return f"{self.place}{by}"


def find_place(connection: Connection, mark: Mark, event: int, routed: int) -> EventPlace:
    """Return where an event of the feed of an input is in its queue; `routed` is the last event that was routed."""
    change = QueueChanges(connection).find(mark.key, event)
    if change is not None:
        is_taken = change.action is QueueAction.ADD and change.nominal_time is not None
        return EventPlace(
            place=QueuePosition.TAKEN if is_taken else _OF_ACTION[change.action], nominal_time=change.nominal_time
        )
    if event > routed:
        return EventPlace(place=QueuePosition.AHEAD)
    if event > mark.taken_seq:
        return EventPlace(place=QueuePosition.PENDING)
    found = Batches(connection).find_range(mark.key, event)
    if found is None:
        return EventPlace(place=QueuePosition.BEFORE)
    place = QueuePosition.TAKEN if found.use is RangeUse.TAKEN else QueuePosition.PASSED
    return EventPlace(place=place, nominal_time=found.nominal_time)


def change_queue(
    connection: Connection,
    record: ProcessRecord,
    each: TriggerInput,
    event: int,
    action: QueueAction,
    author: str,
    reason: str,
    as_of: datetime,
) -> EventPlace:
    """Decide about one event of an input; return where it was.

    Raises:
        QueueChangeError: it is where this cannot be decided: a batch has it, or it is so already.
    """
    lock_queues(connection)
    consumer, routed = EntityKey(*record.key), find_routed(connection, record.cluster)
    mark = TriggerInputs(connection).of([consumer]).get(consumer, {}).get(input_key(record, each))
    place = EventPlace(place=QueuePosition.AHEAD) if mark is None else find_place(connection, mark, event, routed)
    if mark is None or place.place not in _CHANGEABLE[action]:
        raise QueueChangeError(process=record.process, event=event, place=place.render(), action=action.value.lower())
    changes = QueueChanges(connection)
    if place.place is QueuePosition.PASSED and changes.find(mark.key, event) is None:
        Batches(connection).shrink(mark.key, event)
    change = QueueChange(
        process=record.process,
        cluster=record.cluster,
        input=each.name,
        event=event,
        action=action,
        author=author,
        reason=reason,
        at=as_of,
    )
    changes.put([change])
    TriggerInputs(connection).put([PendingEvents(connection, routed, [consumer]).measure(mark, each.until)])
    Triggers(connection).wake([consumer], as_of)
    return place


@shows("key", "process, cluster, input")
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFault:
    """Events of an input's queue that are in no place, in two, or not where the record says."""

    key: Hidden[InputKey]
    message: str


def verify_queues(connection: Connection, plan: Plan, cluster: str, as_of: datetime) -> list[QueueFault]:
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
        if inputs and _is_forgotten(record, states[consumer], own, events, as_of):
            message = "enough has come for a batch, but no tick will look at it"
            faults.append(QueueFault(key=input_key(record, inputs[0]), message=message))
    return faults


def _is_forgotten(
    record: ProcessRecord, state: TriggerState, marks: Mapping[InputKey, Mark], events: PendingEvents, as_of: datetime
) -> bool:
    if record.trigger is None or record.is_elsewhere or state.wake_at is not None:
        return False
    return decide_fire(record, pending_of(record, marks, events, as_of), state, as_of).fire is not None


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


LISTED_AT_MOST = 1_000
"""Pending events of an input that a list shows."""


@shows(
    "row",
    "event=seq, feed, nominal_time, kind, marking, payload=message, origin, recorded_at, digest=manifest_digest",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedEvent:
    """An event of the log in the queue of an input, or in a batch; `payload` and `marking` are what it says. If it was
    held or dropped, `decided` says by whom and why.
    """

    row: Hidden[FeedEvent]
    input: str
    decided: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedEvents:
    """Events in the order of the log; `set_aside` are those among them that were held or dropped."""

    events: tuple[QueuedEvent, ...]
    set_aside: tuple[QueuedEvent, ...]

    @property
    def all_events(self) -> tuple[QueuedEvent, ...]:
        """All of them, in the order of the log."""
        return _in_order(*self.events, *self.set_aside)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContent(QueuedEvents):
    """A queue, and its pending events."""

    queue: Queue

    @property
    def summary(self) -> str:
        """How many are pending, and what the condition lacks."""
        return f"{self.queue.pending} pending; {self.queue.sentence}"


@shows("row", "process, cluster, nominal_time, status")
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContent(QueuedEvents):
    """A batch: its instance's status and the events that it has taken."""

    row: Hidden[ProcessInstance]

    @property
    def summary(self) -> str:
        """Its status, and how many it has taken."""
        return f"{self.row.status.value}, {counted(len(self.events), 'event')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedEvent:
    """An event about which somebody has decided, where it was, and what was decided."""

    process: str
    cluster: str
    input: str
    event: int
    was: str
    action: str
    dry_run: bool

    @property
    def sentence(self) -> str:
        """The decision for people."""
        done = f"{'would be ' if self.dry_run else ''}{QueueAction(self.action.upper()).done}"
        return f"event {self.event} at input {self.input!r} of {self.process!r}: was {self.was}, {done}"


@shows("mark", "process, cluster, input, taken=taken_seq, pending, first=first_seq, since=first_at")
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConsumer:
    """An input that takes a feed's events: up to which event it has taken them, how many are pending since when,
    how many are not routed yet, and how many were held or dropped.
    """

    mark: Hidden[Mark]
    not_routed: int
    held: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProof(Page[QueueFault]):
    """What is wrong in the queues; the proof has failed if anything is."""

    @property
    def summary(self) -> str:
        """That nothing is wrong."""
        return "" if self.items else "every event is in its place"

    @property
    def has_failed(self) -> bool:
        """Whether something is wrong."""
        return bool(self.items)


def list_queues(context: OperationContext) -> list[Queue]:
    """Return the queues of all processes that take what comes, by name."""
    records = [record for cluster in context.plan.clusters for record in context.plan.triggered_on(cluster)]
    with context.read() as connection:
        described = describe_queues(context, connection, sorted(records, key=lambda each: each.key))
    return [queue for queue, _ in described]


def find_queues(context: OperationContext, process: Subject) -> list[Queue]:
    """Return the queues of a process on some of its clusters; without any, on all.

    Raises:
        InstanceQueryError: it takes nothing that comes, or is not on the cluster.
    """
    records = [_find(context, process.name, cluster)[0] for cluster in process.asked]
    with context.read() as connection:
        return [queue for queue, _ in describe_queues(context, connection, records)]


def show_queue(context: OperationContext, process: str, cluster: str | None = None) -> QueueContent:
    """Return the queue of a process with its pending events.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: it takes nothing that comes, or is on several clusters and none is named.
    """
    record, trigger = _find(context, process, cluster)
    with context.read() as connection:
        ((queue, marks),) = describe_queues(context, connection, [record])
        routed = find_routed(connection, record.cluster)
        events = [
            QueuedEvent(row=event, input=each.name)
            for each in trigger.inputs
            if (mark := marks.get(input_key(record, each))) is not None
            for event in Batches(connection).pending(mark, routed, LISTED_AT_MOST)
        ]
        aside = _find_aside(connection, EntityKey(*record.key))
    return QueueContent(queue=queue, events=_in_order(*events), set_aside=aside)


def show_batch(context: OperationContext, subject: Subject) -> BatchContent:
    """Return the events that a batch has taken.

    Raises:
        InstanceQueryError: the process makes no batches, or has none of this time.
    """
    record, _ = _find(context, subject.name, next(iter(subject.clusters), None))
    key = ProcessKey(*record.key, subject.instance)
    with context.read() as connection:
        row = ProcessInstances(connection).get(*key)
        if row is None:
            raise InstanceQueryError(
                subject=f"process {record.process!r}",
                reason="no batch has this time",
                next_step="Name a batch by its time to the second, as lists of instances show it.",
                fault=Fault.MISSING,
            )
        events = [
            QueuedEvent(row=event, input=taken.input)
            for taken in Batches(connection).events_of(key)
            for event in taken.events
        ]
        consumer = EntityKey(*record.key)
        aside = _find_aside(connection, consumer, Batches(connection).ranges(consumer, batch=subject.instance))
    return BatchContent(row=row, events=_in_order(*events), set_aside=aside)


def _find_aside(
    connection: Connection, consumer: EntityKey, ranges: Collection[EventRange] | None = None
) -> tuple[QueuedEvent, ...]:
    """Return the newest events that were held or dropped; only those in some ranges, if these are given."""
    found = QueueChanges(connection).set_aside([consumer]).get(consumer, [])
    if ranges is not None:
        found = [
            change
            for change in found
            if any(each.input == change.input and each.after_seq < change.event <= each.to_seq for each in ranges)
        ]
    found = found[-LISTED_AT_MOST:]
    events = EventLog(connection).of_numbers(change.event for change in found)
    return tuple(QueuedEvent(row=events[each.event], input=each.input, decided=each.render()) for each in found)


def list_consumers(context: OperationContext, feed: str, cluster: str | None = None) -> list[QueueConsumer]:
    """Return who takes the events of a feed, and how far each has come, by process.

    Raises:
        EntityNotFoundError: there is no such feed.
    """
    keys = [record.key for record in context.feeds_of(feed, cluster)]
    with context.read() as connection:
        last = EventLog(connection).last_seq()
        found = []
        for key in keys:
            takers = {input_key(record, each) for record, each in context.plan.triggers_of(key)}
            marks = [mark for mark in TriggerInputs(connection).of_feed(*key) if mark.key in takers]
            consumers = [mark.key.consumer for mark in marks]
            aside = QueueChanges(connection).set_aside(consumers)
            events = PendingEvents(connection, find_routed(connection, key[1]), consumers)
            found += [
                _consumer(mark, aside.get(mark.key.consumer, []), events.count_ahead(mark, last)) for mark in marks
            ]
    return found


def _consumer(mark: Mark, aside: Collection[QueueChange], ahead: int) -> QueueConsumer:
    counts = Counter(change.action for change in aside if change.input == mark.input)
    return QueueConsumer(mark=mark, not_routed=ahead, held=counts[QueueAction.HOLD], dropped=counts[QueueAction.DROP])


def change_event(context: ChangeContext, choice: EventChoice, action: QueueAction) -> list[ChangedEvent]:
    """Decide about events in the queue of each input that takes them: drop them, hold them, or let them be taken; about
    all of them, or none.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: no input of the process takes one of them.
        QueueChangeError: a batch has one of them, or it is so already; nothing was changed.
    """
    process, reason = choice.process, choice.reason
    record, trigger = _find(context, process, choice.cluster)
    with context.database.begin() as connection:
        places = [
            (event, each, change_queue(connection, record, each, event, action, context.author, reason, context.as_of))
            for event in dict.fromkeys(choice.events)
            for each in _inputs_of(connection, record, trigger, event)
        ]
        if context.dry_run:
            connection.rollback()
    if not context.dry_run:
        verb, numbers = f"queue {action.value.lower()}", ", ".join(map(str, choice.events))
        target = f"event{'s' * (len(choice.events) > 1)} {numbers} of process {process!r}"
        note_target(context, verb, target, cluster=record.cluster, reason=reason)
    return [
        ChangedEvent(
            process=process,
            cluster=record.cluster,
            input=each.name,
            event=event,
            was=place.render(),
            action=action.value.lower(),
            dry_run=context.dry_run,
        )
        for event, each, place in places
    ]


def _in_order(*events: QueuedEvent) -> tuple[QueuedEvent, ...]:
    return tuple(sorted(events, key=lambda each: each.row.seq))


def prove_queues(context: OperationContext) -> QueueProof:
    """Count the log of all queues again; return what is in no place, in two, or not where the record says."""
    with context.read() as connection:
        clusters = sorted(context.plan.clusters)
        found = (
            each for cluster in clusters for each in verify_queues(connection, context.plan, cluster, context.as_of)
        )
        return QueueProof.of(found)


def _find(context: OperationContext, process: str, cluster: str | None) -> tuple[ProcessRecord, TriggerRecord]:
    record = context.only_process(process, cluster)
    if record.trigger is None:
        raise InstanceQueryError(
            subject=f"process {process!r}",
            reason="it has a frequency, and takes nothing as it comes",
            next_step="Name one of its instances, or choose a process with a trigger.",
        )
    return record, record.trigger


def _inputs_of(connection: Connection, record: ProcessRecord, trigger: TriggerRecord, event: int) -> list[TriggerInput]:
    found = next(iter(EventLog(connection).read(event - 1, 1)), None)
    if found is not None and found.seq == event:
        inputs = [each for each in trigger.inputs if (each.feed, each.feed_cluster) == (found.feed, found.cluster)]
        if inputs:
            return inputs
    raise InstanceQueryError(
        subject=f"process {record.process!r}",
        reason=f"it takes no event {event}",
        next_step="Choose an event of a feed that its trigger names.",
        fault=Fault.MISSING,
    )
