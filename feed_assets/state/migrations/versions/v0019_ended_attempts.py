"""Find the attempts that have ended in a span of time, for the clean-up of what their runs have left."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("fa_attempts_by_end", "fa_attempts", ["cluster", "ended_at", "process", "nominal_time", "attempt"])


def downgrade() -> None:
    op.drop_index("fa_attempts_by_end", "fa_attempts")
