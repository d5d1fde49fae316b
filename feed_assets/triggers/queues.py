"""`queue` and `batch`: what waits for a process that takes what comes, what each batch has taken, and proof of both."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, note_target
from feed_assets.context.subjects import Subject
from feed_assets.json_form import Hidden, shows
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, FeedEvent, ProcessInstance, ProcessKey
from feed_assets.operation import Page
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.plan.trigger_records import TriggerInput, TriggerRecord
from feed_assets.triggers.queries import EventChoice
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.records import EventRange, Mark, QueueAction, QueueChange
from feed_assets.triggers.queue_changes import change_queue, require_changeable
from feed_assets.triggers.queue_starts import input_key
from feed_assets.triggers.routing import find_routed
from feed_assets.triggers.verification import QueueFault, verify_queues
from feed_assets.triggers.waiting import Queue, describe_queues

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


def change_event(
    context: OperationContext, choice: EventChoice, action: QueueAction, *, author: str, dry_run: bool = False
) -> list[ChangedEvent]:
    """Decide about an event in the queue of each input that takes it: drop it, hold it, or let it be taken.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: no input of the process takes the event.
        QueueChangeError: a batch has it, or it is so already; nothing was changed.
    """
    process, event, reason = choice.process, choice.event, choice.reason
    record, trigger = _find(context, process, choice.cluster)
    with context.database.begin() as connection:
        inputs = _inputs_of(connection, record, trigger, event)
        places = [
            require_changeable(connection, record, each, event, action)
            if dry_run
            else change_queue(connection, record, each, event, action, author, reason, context.as_of)
            for each in inputs
        ]
    if not dry_run:
        verb = f"queue {action.value.lower()}"
        note_target(
            context, author, verb, f"event {event} of process {process!r}", cluster=record.cluster, reason=reason
        )
    return [
        ChangedEvent(
            process=process,
            cluster=record.cluster,
            input=each.name,
            event=event,
            was=place.render(),
            action=action.value.lower(),
            dry_run=dry_run,
        )
        for each, place in zip(inputs, places, strict=True)
    ]


def _in_order(*events: QueuedEvent) -> tuple[QueuedEvent, ...]:
    return tuple(sorted(events, key=lambda each: each.row.seq))


def prove_queues(context: OperationContext) -> QueueProof:
    """Count the log of all queues again; return what is in no place, in two, or not where the record says."""
    with context.read() as connection:
        clusters = sorted(context.plan.clusters)
        found = (each for cluster in clusters for each in verify_queues(connection, context.plan, cluster))
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
    )
