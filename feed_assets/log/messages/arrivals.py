"""Tell who asks for it what has come: instances of feeds, and batches that were cut of them."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import ArrivalPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.plan.edges import Key


def tell_arrived(
    connection: Connection, kind: Kind, arrived: Iterable[tuple[str, str, datetime, object]], now: datetime
) -> None:
    """Write a message for each entity of what has come: name, cluster, nominal time, and what no other arrival has.

    The first of an entity names its message, so that a repeat adds none. Takes the lock of the log.
    """
    by_entity: dict[Key, list[tuple[datetime, object]]] = defaultdict(list)
    for name, cluster, nominal_time, mark in arrived:
        by_entity[name, cluster].append((nominal_time, mark))
    messages = []
    for (name, cluster), found in by_entity.items():
        at = [nominal_time for nominal_time, _ in found]
        payload = ArrivalPayload(kind=kind, entity=name, cluster=cluster, count=len(at), oldest=min(at), newest=max(at))
        key = f"arrival/{kind.value}/{name}/{cluster}/{found[0][1]}"
        messages.append(OutboxMessage(recorded_at=now, payload=payload, idempotency_key=key))
    Outbox(connection).append_many(messages)
