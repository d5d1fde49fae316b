"""Tables of triggers: the marks of consumers, when they are looked at, their batches, and changes of their queues.

They belong to the same schema as all other tables.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, text

from feed_assets.sql.column_types import Choice, Text, UtcDateTime
from feed_assets.sql.names import NAMES_FEED, NAMES_PROCESS
from feed_assets.sql.tables import define_table, index_where
from feed_assets.triggers.queue.records import QueueAction, RangeUse

# Queries repeat these conditions literally, as for the other tables.
HAS_WAKE_TIME = text("wake_at IS NOT NULL")
HAS_PENDING = text("pending > 0")
HAS_BATCH = text("nominal_time IS NOT NULL")

trigger_inputs = define_table(
    "fa_trigger_inputs",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("input", Text, nullable=False),
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("feed_cluster", Text, nullable=False),
    Column("counts_unchanged", Boolean, nullable=False),
    Column("start_seq", BigInteger, nullable=False),
    Column("taken_seq", BigInteger, nullable=False),
    Column("pending", BigInteger, nullable=False),
    Column("first_seq", BigInteger),
    Column("first_at", UtcDateTime),
    Column("last_at", UtcDateTime),
    Column("marker_seq", BigInteger),
    Index("fa_trigger_inputs_by_feed", "feed", "feed_cluster"),
    index_where("fa_trigger_inputs_pending", HAS_PENDING, "cluster", "first_at"),
    key=("process", "cluster", "input", "feed", "feed_cluster"),
)

triggers = define_table(
    "fa_triggers",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("sign", Text, nullable=False),
    Column("next_at", UtcDateTime),
    Column("by_at", UtcDateTime),
    Column("wake_at", UtcDateTime),
    index_where("fa_triggers_awake", HAS_WAKE_TIME, "cluster", "wake_at"),
    key=("process", "cluster"),
)

batches = define_table(
    "fa_batches",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("input", Text, nullable=False),
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("feed_cluster", Text, nullable=False),
    Column("after_seq", BigInteger, nullable=False),
    Column("to_seq", BigInteger, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("counts_unchanged", Boolean, nullable=False),
    Column("use", Choice(RangeUse), nullable=False),
    Column("nominal_time", UtcDateTime),
    Index("fa_batches_by_instance", "process", "cluster", "nominal_time"),
    Index("fa_batches_by_feed", "feed", "feed_cluster", "to_seq"),
    key=("process", "cluster", "input", "feed", "feed_cluster", "to_seq"),
)

queue_changes = define_table(
    "fa_queue_changes",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("input", Text, nullable=False),
    Column("event", BigInteger, nullable=False),
    Column("action", Choice(QueueAction), nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("nominal_time", UtcDateTime),
    index_where("fa_queue_changes_by_batch", HAS_BATCH, "process", "cluster", "nominal_time"),
    key=("process", "cluster", "input", "event"),
)
