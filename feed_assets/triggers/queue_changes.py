"""Change the queue of a consumer by hand: drop an event, hold it back, or let it be taken."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from feed_assets.log.records import EntityKey
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.trigger_records import TriggerInput
from feed_assets.sql.locks import lock_queues
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.errors import QueueChangeError
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.records import Mark, QueueAction, QueueChange, RangeUse
from feed_assets.triggers.queue.store import Triggers
from feed_assets.triggers.queue_starts import input_key
from feed_assets.triggers.routing import find_routed


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


def require_changeable(
    connection: Connection, record: ProcessRecord, each: TriggerInput, event: int, action: QueueAction
) -> EventPlace:
    """Return where an event is in the queue of an input, if this may be decided about it there.

    Raises:
        QueueChangeError: it may not: a batch has it, or it is so already.
    """
    consumer = EntityKey(*record.key)
    mark = TriggerInputs(connection).of([consumer]).get(consumer, {}).get(input_key(record, each))
    place = EventPlace(place=QueuePosition.AHEAD)
    if mark is not None:
        place = find_place(connection, mark, event, find_routed(connection, record.cluster))
    if mark is None or place.place not in _CHANGEABLE[action]:
        raise QueueChangeError(process=record.process, event=event, place=place.render(), action=action.value.lower())
    return place


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
    place = require_changeable(connection, record, each, event, action)
    consumer, changes = EntityKey(*record.key), QueueChanges(connection)
    mark = TriggerInputs(connection).of([consumer])[consumer][input_key(record, each)]
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
    events = PendingEvents(connection, find_routed(connection, record.cluster), [consumer])
    TriggerInputs(connection).put([events.measure(mark, each.until)])
    Triggers(connection).wake([consumer], as_of)
    return place
