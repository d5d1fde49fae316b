"""Messages, ways and clocks for the tests of this package."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from feed_assets.alerts.delivery.receivers import Receiver, apply_receivers
from feed_assets.alerts.delivery.rounds import RoundResult, deliver
from feed_assets.clock import Clock, TimeBudget
from feed_assets.entities.common import Kind
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import InstanceEnd, InstanceOperation, InstancePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.receivers import Channel
from feed_assets.sql.database import Database

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class SetClock(Clock):
    """A clock that a test sets."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def advance(self, **by: float) -> None:
        self.at += timedelta(**by)


def instance(entity: str = "daily", n: int = 0, **fields: Any) -> InstancePayload:
    given: dict[str, Any] = {
        "cluster": "primary",
        "entity_name": entity,
        "entity_type": Kind.PROCESS,
        "nominal_time": NOW + timedelta(hours=n),
        "operation": InstanceOperation.GENERATE,
        "feed_names": "counts",
        "feed_instance_paths": f"file:///data/counts/{n}",
        "workflow_id": "r1",
        "run_id": "1",
        "status": InstanceEnd.SUCCEEDED,
        "time_stamp": NOW,
    }
    return InstancePayload(**given | fields)


def message(entity: str = "daily", n: int = 0, **fields: Any) -> OutboxMessage:
    return OutboxMessage(
        recorded_at=NOW, payload=instance(entity, n, **fields), idempotency_key=f"instance/{entity}/{n}", seq=0
    )


def tell(database: Database, *messages: OutboxMessage) -> None:
    with database.begin() as connection:
        Outbox(connection).append_many(messages)


def webhook(url: str, name: str = "ops", **fields: Any) -> Receiver:
    return Receiver(name=name, channel=Channel.WEBHOOK, address=url, **fields)


def begin(database: Database, *ways: Receiver, clock: Clock) -> None:
    apply_receivers(database, {way.name: way for way in ways}, clock.now())


def deliver_on(database: Database, way: Receiver, clock: Clock, **more: Any) -> RoundResult:
    return deliver(database, way, clock, TimeBudget.ample(), "a test", **more)
