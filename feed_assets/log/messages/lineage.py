"""Tell lineage: messages about attempts, sweeps and data without a run, written in the transaction of what they tell,
and only if a receiver gets them.

A message names what has happened; what there is to say of it is read from the record when it leaves. Of an attempt or
sweep there is one message about its begin and one about its end, whoever records them: the keys see to that. All take
the lock of the log.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind, LocationKind
from feed_assets.entities.flow_names import declared_by
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import Happening, LineagePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.records import Attempt, FeedEventKind, NewFeedEvent, ProcessInstanceStatus
from feed_assets.sql.locks import tells_lineage

_ENDS = {
    ProcessInstanceStatus.SUCCEEDED: Happening.COMPLETE,
    ProcessInstanceStatus.KILLED: Happening.ABORT,
}
"""What the end of an attempt is; any other is a failure."""
_OF_RUNS = frozenset({FeedEventKind.PRODUCED, FeedEventKind.REPLICATED, FeedEventKind.EVICTED})
"""The events that the run tells that has caused them."""


def tell_attempts(connection: Connection, attempts: Iterable[Attempt]) -> None:
    """Write the messages about attempts that have begun, or have ended."""
    if not tells_lineage(connection):
        return
    messages = []
    for each in attempts:
        kind, entity = declared_by(each.process)
        payload = LineagePayload(
            happening=_ENDS.get(each.status, Happening.FAIL) if each.ended_at is not None else Happening.START,
            kind=kind,
            entity=entity,
            cluster=each.cluster,
            nominal_time=each.nominal_time,
            begun_at=each.started_at,
            process=each.process,
            attempt=each.attempt,
            run_id=each.run_id,
            reason=each.reason,
        )
        name = f"{each.process}/{each.cluster}/{each.nominal_time.isoformat()}/{each.attempt}"
        messages.append(_message(payload, f"{name}/{each.started_at.isoformat()}", each.ended_at or each.started_at))
    Outbox(connection).append_many(messages)


def tell_sweep(
    connection: Connection,
    happening: Happening,
    sweep: str,
    cluster: str,
    feeds: Iterable[str],
    begun_at: datetime,
    at: datetime,
) -> None:
    """Write the messages about begin or end of a sweep, one for each of its feeds."""
    messages = []
    for feed in feeds:
        payload = LineagePayload(
            happening=happening, kind=Kind.FEED, entity=feed, cluster=cluster, begun_at=begun_at, sweep=sweep
        )
        messages.append(_message(payload, f"sweep/{sweep}/{feed}", at))
    Outbox(connection).append_many(messages)


def tell_data(connection: Connection, events: Sequence[NewFeedEvent], first: int) -> None:
    """Write the messages about new events of data that no run has caused; their numbers begin with `first`."""
    if not tells_lineage(connection):
        return
    messages = []
    for seq, each in enumerate(events, first):
        if each.kind in _OF_RUNS or each.payload.get("kind", LocationKind.DATA) != LocationKind.DATA:
            continue
        payload = LineagePayload(
            happening=Happening.DATA,
            kind=Kind.FEED,
            entity=each.feed,
            cluster=each.cluster,
            nominal_time=each.nominal_time,
            event=seq,
        )
        messages.append(_message(payload, f"event/{seq}", each.recorded_at))
    Outbox(connection).append_many(messages)


def _message(payload: LineagePayload, name: str, at: datetime) -> OutboxMessage:
    step = "begin" if payload.happening is Happening.START else "end"
    return OutboxMessage(recorded_at=at, payload=payload, idempotency_key=f"lineage/{name}/{step}")
