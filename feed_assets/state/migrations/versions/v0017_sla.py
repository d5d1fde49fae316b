"""Add missed deadlines, and the pauses that move deadlines."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_IS_OPEN = sa.text("recovered_at IS NULL")
_IS_UNSHOWN = sa.text("shown_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "fa_sla",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("nominal_time", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("episode", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("missed_at", sa.BigInteger(), nullable=False),
        sa.Column("told_at", sa.BigInteger()),
        sa.Column("recovered_at", sa.BigInteger()),
        sa.Column("recovered_by", sa.Text()),
        sa.Column("acknowledged_at", sa.BigInteger()),
        sa.Column("acknowledged_by", sa.Text()),
        sa.Column("shown_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("kind", "name", "cluster", "nominal_time", "level", "episode", name="fa_sla_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_sla_by_time", "fa_sla", ["nominal_time"])
    op.create_index(
        "fa_sla_open",
        "fa_sla",
        ["cluster", "name", "nominal_time"],
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    )
    op.create_index("fa_sla_unshown", "fa_sla", ["cluster"], sqlite_where=_IS_UNSHOWN, postgresql_where=_IS_UNSHOWN)
    op.create_table(
        "fa_sla_pauses",
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("process", "cluster", "begun_at", name="fa_sla_pauses_pk"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("fa_sla_pauses", "fa_sla"):
        op.drop_table(table)
