"""Add the content of the files of workflows, which releases pin."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_workflow_files",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="fa_workflow_files_pk"),
    )


def downgrade() -> None:
    op.drop_table("fa_workflow_files")
