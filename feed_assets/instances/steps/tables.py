"""The table of steps."""

from sqlalchemy import (
    BigInteger,
    Column,
)

from feed_assets.instances.steps.records import StepStatus
from feed_assets.sql.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.sql.tables import define_table

steps = define_table(
    "fa_steps",
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("step", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("status", Choice(StepStatus), nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("reason", Text),
    Column("basis", Text, nullable=False),
    Column("made_in", BigInteger, nullable=False),
    Column("frames", Payload),
    key=("process", "cluster", "nominal_time", "attempt", "step"),
)
