"""Record instances that come as they come, each with the event that brings it: signals, and files of an inbox at a free
second.

A signal is news without data, such as an approval, or a materialization of somebody's asset. It is an event of the
instance of its second, or of what else the frequency of its feed is.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import MESSAGE, FeedEventKind, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.plan.records import FeedRecord
from feed_assets.sql.locks import lock_log

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal of a feed without data, at a moment. The second of two with the same `key` does nothing."""

    record: FeedRecord
    at: datetime
    origin: str
    payload: Mapping[str, object] = field(default_factory=dict)
    marking: str | None = None
    key: str | None = None

    @property
    def instance(self) -> FeedKey:
        """The instance of which it is an event.

        Raises:
            InstanceError: it is outside the validity.
        """
        sequence = self.record.sequence
        time = sequence.at(sequence.index_at_or_before(self.at))
        sequence.index(time)
        return FeedKey(*self.record.key, time)


def record_signals(connection: Connection, signals: Sequence[Signal], as_of: datetime) -> list[FeedKey]:
    """Record signals in their order; return their instances. Those of known keys are left out."""
    lock_log(connection)  # so that no two programs find the same key free
    log = EventLog(connection)
    recorded: list[FeedKey] = []
    for signal in signals:
        if signal.key is not None and log.find_key(signal.key) is not None:
            continue
        digest = content_digest(signal.payload)
        event = NewFeedEvent(
            **signal.instance._asdict(),
            kind=FeedEventKind.SIGNALLED,
            origin=signal.origin,
            manifest_digest=digest,
            payload={MESSAGE: signal.payload} if signal.payload else {},
            marking=signal.marking,
            recorded_at=as_of,
            idempotency_key=signal.key,
        )
        record_arrival(connection, event)
        recorded.append(signal.instance)
    return recorded


def content_digest(payload: Mapping[str, object]) -> str:
    """Return the digest of what a signal says.

    >>> content_digest({"by": "ann"}) == content_digest({"by": "bob"})
    False
    """
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return "signal:" + hashlib.sha256(text.encode()).hexdigest()[:32]
