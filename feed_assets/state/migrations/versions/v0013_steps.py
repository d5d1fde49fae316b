"""Add the steps of attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_steps",
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("nominal_time", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("reason", sa.Text()),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("made_in", sa.BigInteger(), nullable=False),
        sa.Column("frames", sa.Text()),
        sa.PrimaryKeyConstraint("process", "cluster", "nominal_time", "attempt", "step", name="fa_steps_pk"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("fa_steps")
