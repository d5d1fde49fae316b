"""The table of messages that wait to be sent."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table

from feed_assets.receivers import MessageLevel, Topic
from feed_assets.sql.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.sql.tables import metadata

outbox = Table(
    "fa_outbox",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("topic", Choice(Topic), nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("payload", Payload),
    Column("idempotency_key", Text, nullable=False),
    Column("user_topic", Text),
    Column("level", Choice(MessageLevel)),
    Column("kind", Text),
    Column("entity", Text),
    Index("fa_outbox_by_key", "idempotency_key", unique=True),
    Index("fa_outbox_by_topic", "topic", "seq"),
)
