"""Add metadata of entities, their changes, the index for searches, and facts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_HAS_NUMBER = sa.text("number IS NOT NULL")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ORDERED = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "fa_metadata_entities",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("path", _ORDERED, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", _ORDERED, nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("described", sa.Text()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("fa_metadata_entities_by_path", "fa_metadata_entities", ["path"], unique=True)
    op.create_index("fa_metadata_entities_by_name", "fa_metadata_entities", ["name", "id"])
    op.create_index("fa_metadata_entities_by_age", "fa_metadata_entities", ["created_at", "id"])
    op.create_table(
        "fa_metadata",
        sa.Column("entity", sa.BigInteger(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("entity", "scope", "kind", "name", name="fa_metadata_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fa_metadata_changes",
        sa.Column("seq", _NUMBER, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("before", sa.Text()),
        sa.Column("after", sa.Text()),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("fa_metadata_changes_by_entity", "fa_metadata_changes", ["path", "seq"])
    op.create_table(
        "fa_search_tokens",
        sa.Column("token", _ORDERED, nullable=False),
        sa.Column("field", _ORDERED, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("entity", sa.BigInteger(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("number", sa.Float()),
        sa.PrimaryKeyConstraint("token", "field", "scope", "entity", "weight", name="fa_search_tokens_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_search_tokens_by_entity", "fa_search_tokens", ["entity"])
    op.create_index("fa_search_tokens_by_field", "fa_search_tokens", ["field", "entity"])
    op.create_index(
        "fa_search_tokens_by_number",
        "fa_search_tokens",
        ["field", "number"],
        sqlite_where=_HAS_NUMBER,
        postgresql_where=_HAS_NUMBER,
    )
    op.create_table(
        "fa_facts",
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("nominal_time", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "process", "cluster", "nominal_time", "attempt", "category", "name", name="fa_facts_pk"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("fa_attempts_by_run", "fa_attempts", ["run_id"])


def downgrade() -> None:
    op.drop_index("fa_attempts_by_run", "fa_attempts")
    for table in ("fa_facts", "fa_search_tokens", "fa_metadata_changes", "fa_metadata", "fa_metadata_entities"):
        op.drop_table(table)
