"""Definitions: their versions, the journal of changes, schedules, releases of processes, and the audit."""

from typing import Any

import sqlalchemy as sa
from alembic import op

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


def _required(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def downgrade() -> None:
    op.drop_column("fa_process_instances", "release")
    for table in ("fa_audit", "fa_releases", "fa_schedules", "fa_changes", "fa_definitions"):
        op.drop_table(table)
