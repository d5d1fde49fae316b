"""Add late data: the recorded content of external feed instances, and the next check of each."""

import sqlalchemy as sa
from alembic import op

_IS_DUE_SOMETIME = sa.text("due_at IS NOT NULL")

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_manifests",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("feed", "cluster")),
        sa.Column("nominal_time", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "cluster", "nominal_time", name="fa_manifests_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fa_late_checks",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("kind", "name", "cluster")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("nominal_time", "planned_at")),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("cut_off_at", "checks")),
        sa.Column("changed", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("kind", "name", "cluster", "nominal_time", name="fa_late_checks_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "fa_late_checks_due",
        "fa_late_checks",
        ["cluster", "due_at"],
        sqlite_where=_IS_DUE_SOMETIME,
        postgresql_where=_IS_DUE_SOMETIME,
    )


def downgrade() -> None:
    op.drop_table("fa_late_checks")
    op.drop_table("fa_manifests")
