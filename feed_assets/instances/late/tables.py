"""The table of looks for late data."""

from sqlalchemy import (
    BigInteger,
    Column,
    text,
)

from feed_assets.sql.column_types import Entries, Text, UtcDateTime
from feed_assets.sql.tables import define_table, index_where

IS_DUE_SOMETIME = text("due_at IS NOT NULL")

late_checks = define_table(
    "fa_late_checks",
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime),
    Column("cut_off_at", UtcDateTime, nullable=False),
    Column("checks", BigInteger, nullable=False),
    Column("changed", Entries("inputs", str, str)),
    index_where("fa_late_checks_due", IS_DUE_SOMETIME, "cluster", "due_at"),
    key=("kind", "name", "cluster", "nominal_time"),
)
