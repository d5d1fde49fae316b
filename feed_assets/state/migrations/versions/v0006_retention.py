"""Add retention: sweeps as stored plans, the schedule of feeds, holds, and the outbox."""

from typing import Any

import sqlalchemy as sa
from alembic import op

_IS_TO_PURGE = sa.text("purge_at IS NOT NULL AND purged_at IS NULL")
_IS_UNSENT = sa.text("sent_at IS NULL")

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_sweeps",
        *_required(sa.Text(), "sweep_id", "cluster", "state"),
        *_required(sa.BigInteger(), "as_of", "created_at"),
        *_required(sa.Text(), "author", "origin", "digest"),
        *_required(sa.BigInteger(), "log_seq", "instances", "paths", "bytes", "files", "chunks"),
        *_optional(sa.Text(), "obstacles", "counts", "approved_by"),
        *_optional(sa.BigInteger(), "approved_at", "started_at", "ended_at", "purge_at", "purged_at", "undone_at"),
        *_optional(sa.Text(), "note"),
        sa.PrimaryKeyConstraint("sweep_id", name="fa_sweeps_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_sweeps_by_state", "fa_sweeps", ["state", "cluster", "created_at"])
    op.create_index("fa_sweeps_by_cluster", "fa_sweeps", ["cluster", "created_at"])
    op.create_index("fa_sweeps_by_time", "fa_sweeps", ["created_at"])
    _create_partial("fa_sweeps_to_purge", "fa_sweeps", ["cluster", "purge_at"], _IS_TO_PURGE)
    op.create_table(
        "fa_sweep_chunks",
        *_required(sa.Text(), "sweep_id"),
        *_required(sa.BigInteger(), "number"),
        *_required(sa.Text(), "feed", "kind"),
        *_required(sa.BigInteger(), "first_time", "last_time", "count"),
        *_required(sa.Text(), "digest"),
        *_required(sa.SmallInteger(), "state"),
        *_optional(sa.Text(), "holder"),
        *_optional(sa.BigInteger(), "held_until"),
        *_optional(sa.LargeBinary(), "results"),
        *_required(sa.LargeBinary(), "content"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name="fa_sweep_chunks_pk"),
    )
    op.create_index("fa_sweep_chunks_by_state", "fa_sweep_chunks", ["sweep_id", "state", "number"])
    op.create_index("fa_sweep_chunks_by_feed", "fa_sweep_chunks", ["sweep_id", "feed", "first_time"])
    op.create_table(
        "fa_sweep_turns",
        *_required(sa.Text(), "feed", "cluster"),
        *_required(sa.BigInteger(), "next_at"),
        *_optional(sa.BigInteger(), "last_at"),
        *_required(sa.Text(), "policy_digest"),
        sa.PrimaryKeyConstraint("feed", "cluster", name="fa_sweep_turns_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_sweep_turns_due", "fa_sweep_turns", ["cluster", "next_at"])
    _create_holds()
    _create_outbox()


def _create_holds() -> None:
    op.create_table(
        "fa_holds",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False
        ),
        *_required(sa.BigInteger(), "version"),
        *_required(sa.Text(), "name"),
        *_optional(sa.Text(), "feed", "cluster"),
        *_optional(sa.BigInteger(), "first_time", "last_time"),
        *_required(sa.Text(), "reason", "author"),
        *_required(sa.BigInteger(), "created_at"),
        *_optional(sa.BigInteger(), "expires_at", "released_at"),
        *_optional(sa.Text(), "released_by"),
    )
    op.create_index("fa_holds_by_name", "fa_holds", ["name"])
    op.create_index("fa_holds_by_release", "fa_holds", ["released_at"])


def _create_outbox() -> None:
    op.create_table(
        "fa_outbox",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
        *_required(sa.Text(), "topic"),
        *_required(sa.BigInteger(), "recorded_at"),
        *_optional(sa.Text(), "payload"),
        *_required(sa.Text(), "idempotency_key"),
        *_optional(sa.BigInteger(), "sent_at"),
    )
    op.create_index("fa_outbox_by_key", "fa_outbox", ["idempotency_key"], unique=True)
    _create_partial("fa_outbox_unsent", "fa_outbox", ["sent_at", "seq"], _IS_UNSENT)
    _create_partial("fa_outbox_unsent_of_topic", "fa_outbox", ["topic", "seq"], _IS_UNSENT)


def _create_partial(name: str, table: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def _required(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: sa.types.TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def downgrade() -> None:
    for table in ("fa_outbox", "fa_holds", "fa_sweep_turns", "fa_sweep_chunks", "fa_sweeps"):
        op.drop_table(table)
