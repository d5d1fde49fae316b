"""Add when people are notified about a process instance that is not done, and the digest of the last notice."""

import sqlalchemy as sa
from alembic import op

_IS_TOLD_SOMETIME = sa.text("status IN ('FAILED', 'TIMEDOUT', 'WAITING') AND tell_at IS NOT NULL")

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("fa_process_instances", sa.Column("tell_at", sa.BigInteger(), nullable=True))
    op.add_column("fa_process_instances", sa.Column("told", sa.Text(), nullable=True))
    op.create_index(
        "fa_process_instances_to_tell",
        "fa_process_instances",
        ["cluster", "tell_at"],
        sqlite_where=_IS_TOLD_SOMETIME,
        postgresql_where=_IS_TOLD_SOMETIME,
    )


def downgrade() -> None:
    op.drop_index("fa_process_instances_to_tell", "fa_process_instances")
    op.drop_column("fa_process_instances", "told")
    op.drop_column("fa_process_instances", "tell_at")
