"""Tables of messages for other programs: the outbox, the receivers, and deliveries that are not done.

They belong to the same schema as all other tables.
"""

from sqlalchemy import BigInteger, Column, text

from feed_assets.sql.column_types import Text, UtcDateTime
from feed_assets.sql.names import NAMES_BY_KIND
from feed_assets.sql.tables import define_table, index_where

# Queries repeat these conditions literally, as for the other tables.
IS_OPEN = text("next_at IS NOT NULL")
IS_DEAD = text("dead_at IS NOT NULL")


receiver_states = define_table(
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
    Column("entity", Text, nullable=False, info=NAMES_BY_KIND),
    Column("since", UtcDateTime, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("next_at", UtcDateTime),
    Column("dead_at", UtcDateTime),
    Column("error", Text),
    index_where("fa_deliveries_open", IS_OPEN, "way", "seq"),
    index_where("fa_deliveries_dead", IS_DEAD, "way", "seq"),
    key=("seq", "way"),
)
