"""Add attempts at process instances: one row for each, which stays when the instance is rerun."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_attempts",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("process", "cluster")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("nominal_time", "attempt")),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("release", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("process", "cluster", "nominal_time", "attempt", name="fa_attempts_pk"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO fa_attempts "
        "(process, cluster, nominal_time, attempt, run_id, status, started_at, ended_at, reason, trigger, release) "
        "SELECT process, cluster, nominal_time, attempt, run_id, status, started_at, ended_at, reason, '', release "
        "FROM fa_process_instances WHERE attempt > 0 AND started_at IS NOT NULL "
        "AND status IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'KILLED')"
    )


def downgrade() -> None:
    op.drop_table("fa_attempts")
