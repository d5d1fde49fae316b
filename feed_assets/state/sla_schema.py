"""Tables of deadlines: what has missed them, and pauses that move them.

They belong to the same schema as all other tables.
"""

from sqlalchemy import BigInteger, Column, Index, PrimaryKeyConstraint, Table, text

from feed_assets.state.column_types import Choice, Text, UtcDateTime
from feed_assets.state.schema import metadata
from feed_assets.state.sla_records import Recovery, SlaLevel

# Queries repeat these conditions literally, as for the other tables.
IS_OPEN = text("recovered_at IS NULL")
IS_UNSHOWN = text("shown_at IS NULL")

sla_misses = Table(
    "fa_sla",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
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
    PrimaryKeyConstraint("kind", "name", "cluster", "nominal_time", "level", "episode", name="fa_sla_pk"),
    Index("fa_sla_by_time", "nominal_time"),
    sqlite_with_rowid=False,
)
Index(
    "fa_sla_open",
    sla_misses.c.cluster,
    sla_misses.c.name,
    sla_misses.c.nominal_time,
    sqlite_where=IS_OPEN,
    postgresql_where=IS_OPEN,
)
Index("fa_sla_unshown", sla_misses.c.cluster, sqlite_where=IS_UNSHOWN, postgresql_where=IS_UNSHOWN)

sla_pauses = Table(
    "fa_sla_pauses",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("begun_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("process", "cluster", "begun_at", name="fa_sla_pauses_pk"),
    sqlite_with_rowid=False,
)

sla_watches = Table(
    "fa_sla_watches",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("level", Choice(SlaLevel), nullable=False),
    Column("look_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("kind", "name", "cluster", "nominal_time", "level", name="fa_sla_watches_pk"),
    Index("fa_sla_watches_due", "cluster", "look_at"),
    sqlite_with_rowid=False,
)
