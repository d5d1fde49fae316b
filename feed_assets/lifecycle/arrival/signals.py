"""Record signals: news without data, such as an approval, or a materialization of somebody's asset.

Each is an instance of its own, at the second in which it comes. If that second is taken, it is the next free one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.plan.records import FeedRecord
from feed_assets.state.database import lock_log
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.records import (
    MESSAGE,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    NewFeedEvent,
)

SEARCHED_AT_ONCE = 64
"""Seconds in which a free one is searched with one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal of a feed without data. The second of two with the same `key` does nothing.

    `at` is its time, exact if `is_exact`: then it is the instance's time, also if that has had a signal before.
    """

    record: FeedRecord
    at: datetime
    origin: str
    payload: Mapping[str, object] = field(default_factory=dict)
    marking: str | None = None
    key: str | None = None
    is_exact: bool = False


def record_signals(connection: Connection, signals: Sequence[Signal], as_of: datetime) -> list[FeedKey]:
    """Record signals in their order; return their instances. Those of known keys are left out."""
    lock_log(connection)  # so that no two programs find the same second free
    log, instances = EventLog(connection), FeedInstances(connection)
    recorded: list[FeedKey] = []
    for signal in signals:
        if signal.key is not None and log.find_key(signal.key) is not None:
            continue
        record = signal.record
        time = signal.at if signal.is_exact else find_free_time(instances, record, signal.at)
        digest = content_digest(signal.payload)
        event = NewFeedEvent(
            feed=record.feed,
            cluster=record.cluster,
            nominal_time=time,
            kind=FeedEventKind.SIGNALLED,
            origin=signal.origin,
            manifest_digest=digest,
            payload={MESSAGE: signal.payload} if signal.payload else {},
            marking=signal.marking,
            recorded_at=as_of,
            idempotency_key=signal.key,
        )
        (seq,) = log.append([event])
        row = FeedInstance(
            feed=record.feed,
            cluster=record.cluster,
            nominal_time=time,
            status=FeedInstanceStatus.AVAILABLE,
            manifest_digest=digest,
            available_at=as_of,
            event_seq=seq,
            updated_at=as_of,
        )
        instances.put([row])
        recorded.append(row.key)
    return recorded


def content_digest(payload: Mapping[str, object]) -> str:
    """Return the digest of what a signal says.

    >>> content_digest({"by": "ann"}) == content_digest({"by": "bob"})
    False
    """
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return "signal:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def find_free_time(instances: FeedInstances, record: FeedRecord, at: datetime) -> datetime:
    """Return the first time at or after a moment that is no instance yet."""
    sequence = record.sequence
    first = sequence.index(sequence.at(sequence.index_at_or_before(at)))
    while True:
        span = range(first, first + SEARCHED_AT_ONCE)
        taken = {
            row.nominal_time for row in instances.find_between(*record.key, sequence.at(first), sequence.at(span[-1]))
        }
        for index in span:
            if sequence.at(index) not in taken:
                return sequence.at(index)
        first = span.stop
