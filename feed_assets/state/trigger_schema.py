"""Tables of triggers: the marks of consumers, when they are looked at, their batches, and changes of their queues.

They belong to the same schema as all other tables.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, PrimaryKeyConstraint, Table, text

from feed_assets.state.column_types import Choice, Text, UtcDateTime
from feed_assets.state.queue_records import QueueAction, RangeUse
from feed_assets.state.schema import metadata

# Queries repeat these conditions literally, as for the other tables.
HAS_WAKE_TIME = text("wake_at IS NOT NULL")
HAS_PENDING = text("pending > 0")
HAS_BATCH = text("nominal_time IS NOT NULL")

trigger_inputs = Table(
    "fa_trigger_inputs",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("input", Text, nullable=False),
    Column("feed", Text, nullable=False),
    Column("feed_cluster", Text, nullable=False),
    Column("counts_unchanged", Boolean, nullable=False),
    Column("start_seq", BigInteger, nullable=False),
    Column("taken_seq", BigInteger, nullable=False),
    Column("pending", BigInteger, nullable=False),
    Column("first_seq", BigInteger),
    Column("first_at", UtcDateTime),
    Column("last_at", UtcDateTime),
    Column("marker_seq", BigInteger),
    PrimaryKeyConstraint("process", "cluster", "input", "feed", "feed_cluster", name="fa_trigger_inputs_pk"),
    Index("fa_trigger_inputs_by_feed", "feed", "feed_cluster"),
    sqlite_with_rowid=False,
)
Index(
    "fa_trigger_inputs_pending",
    trigger_inputs.c.cluster,
    trigger_inputs.c.first_at,
    sqlite_where=HAS_PENDING,
    postgresql_where=HAS_PENDING,
)

triggers = Table(
    "fa_triggers",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("sign", Text, nullable=False),
    Column("next_at", UtcDateTime),
    Column("by_at", UtcDateTime),
    Column("wake_at", UtcDateTime),
    PrimaryKeyConstraint("process", "cluster", name="fa_triggers_pk"),
    sqlite_with_rowid=False,
)
Index(
    "fa_triggers_awake",
    triggers.c.cluster,
    triggers.c.wake_at,
    sqlite_where=HAS_WAKE_TIME,
    postgresql_where=HAS_WAKE_TIME,
)

batches = Table(
    "fa_batches",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("input", Text, nullable=False),
    Column("feed", Text, nullable=False),
    Column("feed_cluster", Text, nullable=False),
    Column("after_seq", BigInteger, nullable=False),
    Column("to_seq", BigInteger, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("counts_unchanged", Boolean, nullable=False),
    Column("use", Choice(RangeUse), nullable=False),
    Column("nominal_time", UtcDateTime),
    PrimaryKeyConstraint("process", "cluster", "input", "feed", "feed_cluster", "to_seq", name="fa_batches_pk"),
    Index("fa_batches_by_instance", "process", "cluster", "nominal_time"),
    Index("fa_batches_by_feed", "feed", "feed_cluster", "to_seq"),
    sqlite_with_rowid=False,
)

queue_changes = Table(
    "fa_queue_changes",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("input", Text, nullable=False),
    Column("event", BigInteger, nullable=False),
    Column("action", Choice(QueueAction), nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("nominal_time", UtcDateTime),
    PrimaryKeyConstraint("process", "cluster", "input", "event", name="fa_queue_changes_pk"),
    sqlite_with_rowid=False,
)
Index(
    "fa_queue_changes_by_batch",
    queue_changes.c.process,
    queue_changes.c.cluster,
    queue_changes.c.nominal_time,
    sqlite_where=HAS_BATCH,
    postgresql_where=HAS_BATCH,
)
