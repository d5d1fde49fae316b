"""The table of the schedule of retention."""

from sqlalchemy import (
    Column,
    Index,
)

from feed_assets.sql.column_types import Text, UtcDateTime
from feed_assets.sql.tables import define_table

retention_schedule = define_table(
    "fa_retention_schedule",
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("next_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime),
    Column("policy_digest", Text, nullable=False),
    Index("fa_retention_schedule_due", "cluster", "next_at"),
    key=("feed", "cluster"),
)
