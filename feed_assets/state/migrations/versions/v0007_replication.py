"""Add when the next instance of an entity is created, if that is later than its nominal time."""

import sqlalchemy as sa
from alembic import op

_HAS_NEXT_TIME = sa.text("next_time IS NOT NULL")

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("fa_frontiers_due", "fa_frontiers")
    op.add_column("fa_frontiers", sa.Column("due_at", sa.BigInteger(), nullable=True))
    op.execute("UPDATE fa_frontiers SET due_at = next_time")
    _index("due_at")


def downgrade() -> None:
    op.drop_index("fa_frontiers_due", "fa_frontiers")
    op.drop_column("fa_frontiers", "due_at")
    _index("next_time")


def _index(column: str) -> None:
    op.create_index(
        "fa_frontiers_due",
        "fa_frontiers",
        ["kind", column],
        sqlite_where=_HAS_NEXT_TIME,
        postgresql_where=_HAS_NEXT_TIME,
    )
