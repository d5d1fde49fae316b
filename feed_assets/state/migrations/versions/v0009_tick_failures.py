"""Add what failed in a tick, and why an instance could not be polled."""

import sqlalchemy as sa
from alembic import op

_HAS_OBSTACLE = sa.text("obstacle IS NOT NULL")

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("fa_arrival_polls", sa.Column("obstacle", sa.Text(), nullable=True))
    op.create_index(
        "fa_arrival_polls_obstructed",
        "fa_arrival_polls",
        ["cluster", "feed"],
        sqlite_where=_HAS_OBSTACLE,
        postgresql_where=_HAS_OBSTACLE,
    )
    op.create_table(
        "fa_tick_failures",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("next_try_at", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "step", "subject", name="fa_tick_failures_pk"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("fa_tick_failures")
    op.drop_index("fa_arrival_polls_obstructed", "fa_arrival_polls")
    op.drop_column("fa_arrival_polls", "obstacle")
