"""Record signals: news without data, such as an approval, or a materialization of somebody's asset.

Each is an instance of its own, at the second in which it comes. If that second is taken, it is the next free one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.lifecycle.arrival.recording import find_free_time, record_arrival
from feed_assets.plan.records import FeedRecord
from feed_assets.state.event_log import EventLog
from feed_assets.state.locks import lock_log
from feed_assets.state.records import MESSAGE, FeedEventKind, FeedKey, NewFeedEvent


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
    log = EventLog(connection)
    recorded: list[FeedKey] = []
    for signal in signals:
        if signal.key is not None and log.find_key(signal.key) is not None:
            continue
        record = signal.record
        time = signal.at if signal.is_exact else find_free_time(connection, record, signal.at)
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
        record_arrival(connection, event)
        recorded.append(FeedKey(*record.key, time))
    return recorded


def content_digest(payload: Mapping[str, object]) -> str:
    """Return the digest of what a signal says.

    >>> content_digest({"by": "ann"}) == content_digest({"by": "bob"})
    False
    """
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return "signal:" + hashlib.sha256(text.encode()).hexdigest()[:32]
