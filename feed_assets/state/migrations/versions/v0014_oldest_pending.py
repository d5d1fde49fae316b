"""Find the queue with the oldest pending event without reading all queues."""

import sqlalchemy as sa
from alembic import op

_HAS_PENDING = sa.text("pending > 0")

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "fa_trigger_inputs_pending",
        "fa_trigger_inputs",
        ["cluster", "first_at"],
        sqlite_where=_HAS_PENDING,
        postgresql_where=_HAS_PENDING,
    )


def downgrade() -> None:
    op.drop_index("fa_trigger_inputs_pending", "fa_trigger_inputs")
