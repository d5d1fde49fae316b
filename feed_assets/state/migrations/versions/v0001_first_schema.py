"""Create the first schema: feed events, feed and process instances, frontiers, cursors, leases."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_feed_tables()
    _create_process_tables()
    op.create_table(
        "fa_frontiers",
        *_required(sa.Text(), "kind", "entity", "cluster"),
        *_required(sa.BigInteger(), "next_index"),
        *_optional(sa.BigInteger(), "next_time"),
        sa.PrimaryKeyConstraint("kind", "entity", "cluster", name="fa_frontiers_pk"),
        sqlite_with_rowid=False,
    )
    _create_partial_index("fa_frontiers_due", "fa_frontiers", ["kind", "next_time"], "next_time IS NOT NULL")
    op.create_table(
        "fa_cursors",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fa_leases",
        *_required(sa.Text(), "entity", "cluster"),
        *_required(sa.BigInteger(), "nominal_time", "token"),
        *_optional(sa.Text(), "holder"),
        *_required(sa.BigInteger(), "expires_at"),
        sa.PrimaryKeyConstraint("entity", "cluster", "nominal_time", name="fa_leases_pk"),
        sqlite_with_rowid=False,
    )
    held = sa.text("holder IS NOT NULL")
    op.create_index("fa_leases_by_holder", "fa_leases", ["holder"], sqlite_where=held, postgresql_where=held)


def _create_feed_tables() -> None:
    op.create_table(
        "fa_feed_events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
        *_required(sa.Text(), "feed", "cluster"),
        *_required(sa.BigInteger(), "nominal_time"),
        *_required(sa.Text(), "kind", "origin"),
        *_required(sa.BigInteger(), "recorded_at"),
        *_optional(sa.Text(), "manifest_digest"),
        *_optional(sa.BigInteger(), "bytes", "files"),
        *_optional(sa.Text(), "payload", "idempotency_key"),
    )
    op.create_index("fa_feed_events_by_instance", "fa_feed_events", ["feed", "cluster", "nominal_time"])
    op.create_index("fa_feed_events_by_cluster", "fa_feed_events", ["cluster", "seq"])
    _create_partial_index(
        "fa_feed_events_by_key", "fa_feed_events", ["idempotency_key"], "idempotency_key IS NOT NULL", unique=True
    )
    op.create_table(
        "fa_feed_instances",
        *_required(sa.Text(), "feed", "cluster"),
        *_required(sa.BigInteger(), "nominal_time"),
        *_required(sa.Text(), "status"),
        *_required(sa.BigInteger(), "updated_at"),
        *_optional(sa.Text(), "manifest_digest"),
        *_optional(sa.BigInteger(), "bytes", "files", "available_at", "event_seq", "next_look_at"),
        *_required(sa.BigInteger(), "fence"),
        sa.PrimaryKeyConstraint("feed", "cluster", "nominal_time", name="fa_feed_instances_pk"),
        sqlite_with_rowid=False,
    )
    _create_partial_index(
        "fa_feed_instances_looks",
        "fa_feed_instances",
        ["cluster", "next_look_at", "feed", "nominal_time"],
        "status NOT IN ('AVAILABLE', 'EVICTED') AND next_look_at IS NOT NULL",
    )


def _create_process_tables() -> None:
    op.create_table(
        "fa_process_instances",
        *_required(sa.Text(), "process", "cluster"),
        *_required(sa.BigInteger(), "nominal_time"),
        *_required(sa.Text(), "status"),
        *_required(sa.BigInteger(), "updated_at", "attempt"),
        *_optional(sa.Text(), "run_id", "request_key"),
        *_optional(sa.BigInteger(), "requested_at"),
        *_optional(sa.Text(), "inputs"),
        *_optional(sa.BigInteger(), "materialized_at", "ready_at", "deadline_at", "started_at", "ended_at"),
        *_optional(sa.Text(), "reason", "definition_digest"),
        sa.PrimaryKeyConstraint("process", "cluster", "nominal_time", name="fa_process_instances_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_process_instances_by_status", "fa_process_instances", ["status", "nominal_time"])
    op.create_index(
        "fa_process_instances_by_process", "fa_process_instances", ["process", "cluster", "status", "nominal_time"]
    )
    _create_partial_index(
        "fa_process_instances_deadlines",
        "fa_process_instances",
        ["cluster", "deadline_at"],
        "status = 'WAITING' AND deadline_at IS NOT NULL",
    )
    _create_partial_index(
        "fa_process_instances_unrequested",
        "fa_process_instances",
        ["cluster", "nominal_time"],
        "status = 'READY' AND request_key IS NULL",
    )
    _create_partial_index(
        "fa_process_instances_requested",
        "fa_process_instances",
        ["cluster", "process"],
        "status = 'READY' AND request_key IS NOT NULL",
    )


def _required(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def _create_partial_index(name: str, table: str, columns: Sequence[str], where: str, *, unique: bool = False) -> None:
    op.create_index(
        name, table, list(columns), unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where)
    )


def downgrade() -> None:
    for table in (
        "fa_leases",
        "fa_cursors",
        "fa_frontiers",
        "fa_process_instances",
        "fa_feed_instances",
        "fa_feed_events",
    ):
        op.drop_table(table)
