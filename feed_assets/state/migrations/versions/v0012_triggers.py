"""Add triggers: the marks of consumers, their batches, changes of their queues; markings, and what attempts read."""

import sqlalchemy as sa
from alembic import op

_HAS_WAKE_TIME = sa.text("wake_at IS NOT NULL")
_HAS_BATCH = sa.text("nominal_time IS NOT NULL")
_INPUT = ("process", "cluster", "input", "feed", "feed_cluster")

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("fa_feed_events", sa.Column("marking", sa.Text(), nullable=True))
    op.create_index("fa_feed_events_by_feed", "fa_feed_events", ["feed", "cluster", "seq"])
    op.add_column("fa_attempts", sa.Column("inputs", sa.Text(), nullable=True))
    op.add_column("fa_attempts", sa.Column("outputs", sa.Text(), nullable=True))
    op.create_table(
        "fa_trigger_inputs",
        *(sa.Column(name, sa.Text(), nullable=False) for name in _INPUT),
        sa.Column("counts_unchanged", sa.Boolean(), nullable=False),
        sa.Column("start_seq", sa.BigInteger(), nullable=False),
        sa.Column("taken_seq", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("first_seq", sa.BigInteger()),
        sa.Column("first_at", sa.BigInteger()),
        sa.Column("last_at", sa.BigInteger()),
        sa.Column("marker_seq", sa.BigInteger()),
        sa.PrimaryKeyConstraint(*_INPUT, name="fa_trigger_inputs_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_trigger_inputs_by_feed", "fa_trigger_inputs", ["feed", "feed_cluster"])
    op.create_table(
        "fa_triggers",
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("sign", sa.Text(), nullable=False),
        sa.Column("next_at", sa.BigInteger()),
        sa.Column("by_at", sa.BigInteger()),
        sa.Column("wake_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("process", "cluster", name="fa_triggers_pk"),
        sqlite_with_rowid=False,
    )
    _create_partial_index("fa_triggers_awake", "fa_triggers", ["cluster", "wake_at"], _HAS_WAKE_TIME)
    op.create_table(
        "fa_batches",
        *(sa.Column(name, sa.Text(), nullable=False) for name in _INPUT),
        sa.Column("after_seq", sa.BigInteger(), nullable=False),
        sa.Column("to_seq", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("counts_unchanged", sa.Boolean(), nullable=False),
        sa.Column("use", sa.Text(), nullable=False),
        sa.Column("nominal_time", sa.BigInteger()),
        sa.PrimaryKeyConstraint(*_INPUT, "to_seq", name="fa_batches_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_batches_by_instance", "fa_batches", ["process", "cluster", "nominal_time"])
    op.create_index("fa_batches_by_feed", "fa_batches", ["feed", "feed_cluster", "to_seq"])
    op.create_table(
        "fa_queue_changes",
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("nominal_time", sa.BigInteger()),
        sa.PrimaryKeyConstraint("process", "cluster", "input", "event", name="fa_queue_changes_pk"),
        sqlite_with_rowid=False,
    )
    columns = ["process", "cluster", "nominal_time"]
    _create_partial_index("fa_queue_changes_by_batch", "fa_queue_changes", columns, _HAS_BATCH)


def _create_partial_index(name: str, table: str, columns: list[str], condition: sa.TextClause) -> None:
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    for table in ("fa_queue_changes", "fa_batches", "fa_triggers", "fa_trigger_inputs"):
        op.drop_table(table)
    op.drop_column("fa_attempts", "outputs")
    op.drop_column("fa_attempts", "inputs")
    op.drop_index("fa_feed_events_by_feed", "fa_feed_events")
    op.drop_column("fa_feed_events", "marking")
