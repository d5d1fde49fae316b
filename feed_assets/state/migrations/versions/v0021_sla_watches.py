"""Add the deadlines that are watched because a miss is told before it happens."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_sla_watches",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("nominal_time", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("look_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "cluster", "nominal_time", "level", name="fa_sla_watches_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_sla_watches_due", "fa_sla_watches", ["cluster", "look_at"])


def downgrade() -> None:
    op.drop_table("fa_sla_watches")
