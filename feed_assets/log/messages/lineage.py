"""Tell lineage: messages about attempts, sweeps and data without a run, only if a receiver gets them.

A message names what has happened; what there is to say of it is read from the record when it leaves. Of an attempt or
sweep one tells the begin and one the end, whoever records them: the keys see to that. All take the lock of the log.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from feed_assets.entities.common import Kind, LocationKind
from feed_assets.entities.flow_names import declared_by
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import Happening, LineagePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import Attempt, FeedEventKind, NewFeedEvent, ProcessInstanceStatus
from feed_assets.sql.database import tells_lineage

_ENDS = {ProcessInstanceStatus.SUCCEEDED: Happening.COMPLETE, ProcessInstanceStatus.KILLED: Happening.ABORT}
_OF_RUNS = frozenset({FeedEventKind.PRODUCED, FeedEventKind.REPLICATED, FeedEventKind.EVICTED})  # those tell them
_UNTOLD = _OF_RUNS | {FeedEventKind.HELD}
_SAME = ("cluster", "nominal_time", "process", "attempt", "run_id", "reason")


def tell(connection: Connection, at: datetime, payloads: Mapping[str, LineagePayload]) -> None:
    """Write messages, each about something with a name that nothing else has."""
    messages = []
    for name, payload in payloads.items():
        key = f"lineage/{name}/{'begin' if payload.happening is Happening.START else 'end'}"
        messages.append(OutboxMessage(recorded_at=at, payload=payload, idempotency_key=key))
    Outbox(connection).append_many(messages)


def tell_attempt(connection: Connection, attempt: Attempt) -> None:
    """Write the message about an attempt that has begun, or has ended."""
    if not tells_lineage(connection):
        return
    kind, entity = declared_by(attempt.process)
    happening = _ENDS.get(attempt.status, Happening.FAIL) if attempt.ended_at is not None else Happening.START
    same: dict[str, Any] = {name: getattr(attempt, name) for name in _SAME}
    payload = LineagePayload(happening=happening, kind=kind, entity=entity, begun_at=attempt.started_at, **same)
    times = f"{attempt.nominal_time.isoformat()}/{attempt.attempt}/{attempt.started_at.isoformat()}"
    name = f"{attempt.process}/{attempt.cluster}/{times}"
    tell(connection, attempt.ended_at or attempt.started_at, {name: payload})


def tell_data(connection: Connection, events: Iterable[NewFeedEvent], first: int) -> None:
    """Write the messages about new events of data that no run has caused; their numbers begin with `first`."""
    payloads: dict[datetime, dict[str, LineagePayload]] = {}
    for seq, each in enumerate(events, first) if tells_lineage(connection) else ():
        if each.kind not in _UNTOLD and each.payload.get("kind", LocationKind.DATA) == LocationKind.DATA:
            place: dict[str, Any] = {"cluster": each.cluster, "nominal_time": each.nominal_time, "event": seq}
            payload = LineagePayload(happening=Happening.DATA, kind=Kind.FEED, entity=each.feed, **place)
            payloads.setdefault(each.recorded_at, {})[f"event/{seq}"] = payload
    for at, found in payloads.items():
        tell(connection, at, found)
