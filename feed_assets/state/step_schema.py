"""The table of the steps of attempts. It belongs to the same schema as all other tables."""

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table

from feed_assets.state.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.state.schema import metadata
from feed_assets.state.step_records import StepStatus

steps = Table(
    "fa_steps",
    metadata,
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
    PrimaryKeyConstraint("process", "cluster", "nominal_time", "attempt", "step", name="fa_steps_pk"),
    sqlite_with_rowid=False,
)
