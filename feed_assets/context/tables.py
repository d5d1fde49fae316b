"""The table of what fails again and again in ticks."""

from sqlalchemy import (
    BigInteger,
    Column,
)

from feed_assets.context.tick_records import TickStep
from feed_assets.sql.column_types import Choice, Text, UtcDateTime
from feed_assets.sql.tables import define_table

tick_failures = define_table(
    "fa_tick_failures",
    Column("cluster", Text, nullable=False),
    Column("step", Choice(TickStep), nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("next_try_at", UtcDateTime, nullable=False),
    Column("failures", BigInteger, nullable=False),
    key=("cluster", "step", "subject"),
)
