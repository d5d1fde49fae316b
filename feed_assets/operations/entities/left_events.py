"""Find what a change leaves behind in queues: events that nobody takes then, and a `from` that begins nothing."""

from collections import Counter
from collections.abc import Collection, Iterator

from sqlalchemy import Connection

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey, Issue, Severity, SourceMap
from feed_assets.plan.differences import find_running
from feed_assets.plan.trigger_records import compile_trigger
from feed_assets.state.event_log import EventLog
from feed_assets.state.pending_events import PendingEvents
from feed_assets.state.queue_changes import QueueChanges
from feed_assets.state.queue_records import InputKey, Mark, QueueAction
from feed_assets.state.trigger_inputs import TriggerInputs
from feed_assets.timing.dates import render_datetime

LEFT_EVENTS = "left-events"
TRIGGER_BEGUN = "trigger-begun"


def find_left_events(
    connection: Connection, before: Bundle, after: Bundle, sources: SourceMap, keys: Collection[EntityKey]
) -> Iterator[Issue]:
    """Yield a warning for each queue of processes among `keys` whose events nobody takes any more, and for each trigger
    that has begun and begins elsewhere now.
    """
    for key in sorted(keys):
        old, new = (bundle.find_process(key[1]) if key[0] == Kind.PROCESS else None for bundle in (before, after))
        marks = TriggerInputs(connection).of_process(key[1]) if old is not None else []
        if old is None or not marks:
            continue
        left = _inputs(before, key[1]) - _inputs(after, key[1])
        found = [
            (LEFT_EVENTS, *each) for each in describe_left(connection, [mark for mark in marks if mark.key in left])
        ]
        if new is not None and old.trigger and new.trigger and old.trigger.from_ != new.trigger.from_:
            message = "a changed trigger.from has no effect: the trigger has begun, and goes on from its place"
            found.append((TRIGGER_BEGUN, message, "To begin anew, delete the process and submit it again."))
        for code, message, remedy in found:
            source = sources.locate(key) if new is not None else None
            warning = Severity.WARNING
            yield Issue(severity=warning, code=code, entity=old.label, message=message, remedy=remedy, source=source)


def _inputs(bundle: Bundle, name: str) -> set[InputKey]:
    """Return the inputs whose events a process takes, on all its clusters."""
    process = bundle.find_process(name)
    found: set[InputKey] = set()
    for cluster in process.clusters if process is not None else ():
        running = find_running(bundle, name, cluster)
        trigger = compile_trigger(bundle, running, cluster) if running is not None else None
        for each in trigger.inputs if trigger is not None else ():
            found.add(InputKey(name, cluster, each.name, each.feed, each.feed_cluster))
    return found


def describe_left(connection: Connection, marks: Collection[Mark]) -> Iterator[tuple[str, str]]:
    """Yield how many events of queues nobody takes any more, for each cluster, and the way to take them."""
    consumers = {mark.key.consumer for mark in marks}
    events = PendingEvents(connection, EventLog(connection).last_seq(), consumers)
    aside = QueueChanges(connection).set_aside(consumers)
    for consumer in sorted(consumers):
        mine = [events.measure(mark, None) for mark in marks if mark.key.consumer == consumer]
        inputs = {mark.input for mark in mine}
        decided = Counter(change.action for change in aside.get(consumer, ()) if change.input in inputs)
        pending = sum(mark.pending for mark in mine)
        counts = ((pending, "pending"), (decided[QueueAction.HOLD], "held"), (decided[QueueAction.DROP], "dropped"))
        if shown := [f"{count} {what}" for count, what in counts if count]:
            first = min((mark.first_at for mark in mine if mark.first_at is not None), default=None)
            start = "earliest" if first is None else render_datetime(first.replace(second=0, microsecond=0))
            message = f"events on {consumer.cluster} that nobody takes any more: {', '.join(shown)}"
            yield message, f"A process that is to take them begins with trigger: {{from: {start}}}."
