"""Record instances that come as they come, each with the event that brings it; files of an inbox at a free second."""

from datetime import datetime

from sqlalchemy import Connection

from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import FeedInstanceStatus, NewFeedEvent
from feed_assets.plan.records import FeedRecord

SEARCHED_AT_ONCE = 64
"""Seconds in which a free one is searched with one question."""


def record_arrival(connection: Connection, event: NewFeedEvent, place: int | None = None) -> int:
    """Record an instance that is available by an event; return the number of the event."""
    (seq,) = EventLog(connection).append([event])
    FeedInstances(connection).put([event.row(FeedInstanceStatus.AVAILABLE, seq, place=place)])
    return seq


def find_free_time(connection: Connection, record: FeedRecord, at: datetime) -> datetime:
    """Return the first time at or after a moment that is no instance yet."""
    sequence, instances = record.sequence, FeedInstances(connection)
    first = sequence.index(sequence.at(sequence.index_at_or_before(at)))
    while True:
        span = range(first, first + SEARCHED_AT_ONCE)
        taken = {
            row.nominal_time for row in instances.find_between(*record.key, sequence.at(first), sequence.at(span[-1]))
        }
        times = [sequence.at(index) for index in span if sequence.at(index) not in taken]
        owners = FeedPlaces(connection).find_owners([(record, time) for time in times])
        for time in times:
            if (*record.key, time) not in owners:
                return time
        first = span.stop
