"""Tables of messages for other programs: the outbox, the ways out, and deliveries that are not done.

They belong to the same schema as all other tables.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, text

from feed_assets.receivers import MessageLevel, Topic
from feed_assets.state.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.state.schema import define_table, index_where, metadata

# Queries repeat these conditions literally, as for the other tables.
IS_OPEN = text("next_at IS NOT NULL")
IS_DEAD = text("dead_at IS NOT NULL")

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

ways_out = define_table(
    "fa_ways_out",
    Column("name", Text, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("down_since", UtcDateTime),
    Column("next_at", UtcDateTime),
    Column("error", Text),
    Column("holder", Text),
    Column("held_until", UtcDateTime),
    key=("name",),
)

deliveries = define_table(
    "fa_deliveries",
    Column("way", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("entity", Text, nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("next_at", UtcDateTime),
    Column("dead_at", UtcDateTime),
    Column("error", Text),
    index_where("fa_deliveries_open", IS_OPEN, "way", "seq"),
    index_where("fa_deliveries_dead", IS_DEAD, "way", "seq"),
    key=("seq", "way"),
)
