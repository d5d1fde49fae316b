"""Tables of deadlines: what has missed them, and pauses that move them.

They belong to the same schema as all other tables.
"""

from sqlalchemy import BigInteger, Column, Index, text

from feed_assets.alerts.deadlines.records import Recovery
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.sql.column_types import Choice, Text, UtcDateTime
from feed_assets.sql.names import NAMES_BY_KIND, NAMES_PROCESS
from feed_assets.sql.tables import define_table, index_where

# Queries repeat these conditions literally, as for the other tables.
IS_OPEN = text("recovered_at IS NULL")
IS_UNSHOWN = text("shown_at IS NULL")

sla_misses = define_table(
    "fa_sla",
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False, info=NAMES_BY_KIND),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("level", Choice(SlaLevel), nullable=False),
    Column("episode", BigInteger, nullable=False),
    Column("due_at", UtcDateTime, nullable=False),
    Column("missed_at", UtcDateTime, nullable=False),
    Column("told_at", UtcDateTime),
    Column("recovered_at", UtcDateTime),
    Column("recovered_by", Choice(Recovery)),
    Column("acknowledged_at", UtcDateTime),
    Column("acknowledged_by", Text),
    Column("shown_at", UtcDateTime),
    Index("fa_sla_by_time", "nominal_time"),
    index_where("fa_sla_open", IS_OPEN, "cluster", "name", "nominal_time"),
    index_where("fa_sla_unshown", IS_UNSHOWN, "cluster"),
    key=("kind", "name", "cluster", "nominal_time", "level", "episode"),
)

sla_pauses = define_table(
    "fa_sla_pauses",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("begun_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime, nullable=False),
    key=("process", "cluster", "begun_at"),
)
