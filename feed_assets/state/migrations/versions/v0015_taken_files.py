"""Add the files that were taken from inboxes."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fa_taken_files",
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("event", "name", name="fa_taken_files_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_taken_files_by_content", "fa_taken_files", ["feed", "cluster", "checksum"])


def downgrade() -> None:
    op.drop_table("fa_taken_files")
