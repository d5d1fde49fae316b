"""Add definitions: their versions, the journal of changes, schedules, releases of processes, and the audit.

Polls of missing instances get a table of their own. Instances that failed before this migration are not retried.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from feed_assets.state.column_types import to_micros
from feed_assets.timing.dates import NEVER

_HAS_FAILED = sa.text("status IN ('FAILED', 'TIMEDOUT')")

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_definitions",
        *_required(sa.Text(), "kind", "name"),
        *_required(sa.BigInteger(), "version"),
        *_required(sa.Text(), "action"),
        *_optional(sa.Text(), "digest", "text"),
        *_required(sa.Text(), "format", "file", "author", "origin"),
        *_required(sa.BigInteger(), "recorded_at"),
        *_optional(sa.Text(), "change_id"),
        sa.PrimaryKeyConstraint("kind", "name", "version", name="fa_definitions_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_definitions_by_digest", "fa_definitions", ["kind", "name", "digest"])
    op.create_index("fa_definitions_by_change", "fa_definitions", ["change_id"])
    op.create_table(
        "fa_changes",
        sa.Column("change_id", sa.Text(), primary_key=True),
        *_required(sa.BigInteger(), "number"),
        *_required(sa.Text(), "state", "author", "origin"),
        *_required(sa.BigInteger(), "begun_at"),
        *_optional(sa.BigInteger(), "ended_at"),
        *_required(sa.Text(), "content"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_changes_by_number", "fa_changes", ["number"], unique=True)
    op.create_index("fa_changes_by_state", "fa_changes", ["state"])
    op.create_table(
        "fa_schedules",
        *_required(sa.Text(), "kind", "name", "cluster", "state"),
        *_required(sa.BigInteger(), "changed_at"),
        *_required(sa.Text(), "author"),
        *_optional(sa.BigInteger(), "scheduled_at"),
        sa.PrimaryKeyConstraint("kind", "name", "cluster", name="fa_schedules_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fa_releases",
        *_required(sa.Text(), "process", "cluster"),
        *_required(sa.BigInteger(), "release", "effective_from"),
        *_required(sa.Text(), "sign", "members"),
        *_required(sa.BigInteger(), "recorded_at"),
        *_required(sa.Text(), "reason"),
        sa.PrimaryKeyConstraint("process", "cluster", "release", name="fa_releases_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fa_audit",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
        *_required(sa.BigInteger(), "recorded_at"),
        *_required(sa.Text(), "author", "action"),
        *_optional(sa.Text(), "target", "details"),
    )
    op.add_column("fa_process_instances", sa.Column("release", sa.BigInteger(), nullable=True))
    op.add_column(
        "fa_process_instances", sa.Column("retries", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    )
    op.add_column("fa_process_instances", sa.Column("retry_at", sa.BigInteger(), nullable=True))
    op.add_column("fa_process_instances", sa.Column("overrides", sa.Text(), nullable=True))
    op.execute(f"UPDATE fa_process_instances SET retry_at = {to_micros(NEVER)} WHERE status IN ('FAILED', 'TIMEDOUT')")
    op.create_index(
        "fa_process_instances_failed",
        "fa_process_instances",
        ["cluster", "retry_at"],
        sqlite_where=_HAS_FAILED,
        postgresql_where=_HAS_FAILED,
    )
    _part_looks()


def _part_looks() -> None:
    op.create_table(
        "fa_looks",
        *_required(sa.Text(), "feed", "cluster"),
        *_required(sa.BigInteger(), "nominal_time"),
        *_required(sa.Text(), "found"),
        *_required(sa.BigInteger(), "looked_at", "next_look_at"),
        sa.PrimaryKeyConstraint("feed", "cluster", "nominal_time", name="fa_looks_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_looks_due", "fa_looks", ["cluster", "next_look_at", "feed", "nominal_time"])
    op.execute(
        "INSERT INTO fa_looks (feed, cluster, nominal_time, found, looked_at, next_look_at) "
        "SELECT feed, cluster, nominal_time, '', updated_at, next_look_at FROM fa_feed_instances "
        "WHERE status NOT IN ('AVAILABLE', 'EVICTED') AND next_look_at IS NOT NULL"
    )
    op.drop_index("fa_feed_instances_looks", "fa_feed_instances")
    op.drop_column("fa_feed_instances", "next_look_at")


def _required(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def downgrade() -> None:
    op.drop_index("fa_process_instances_failed", "fa_process_instances")
    for column in ("release", "retries", "retry_at", "overrides"):
        op.drop_column("fa_process_instances", column)
    op.add_column("fa_feed_instances", sa.Column("next_look_at", sa.BigInteger(), nullable=True))
    op.execute(
        "UPDATE fa_feed_instances SET next_look_at = (SELECT looks.next_look_at FROM fa_looks AS looks "
        "WHERE looks.feed = fa_feed_instances.feed AND looks.cluster = fa_feed_instances.cluster "
        "AND looks.nominal_time = fa_feed_instances.nominal_time)"
    )
    is_looked_for = sa.text("status NOT IN ('AVAILABLE', 'EVICTED') AND next_look_at IS NOT NULL")
    op.create_index(
        "fa_feed_instances_looks",
        "fa_feed_instances",
        ["cluster", "next_look_at", "feed", "nominal_time"],
        sqlite_where=is_looked_for,
        postgresql_where=is_looked_for,
    )
    for table in ("fa_looks", "fa_audit", "fa_releases", "fa_schedules", "fa_changes", "fa_definitions"):
        op.drop_table(table)
