"""Add ways out with their cursors, and deliveries; messages have columns by which ways choose, and are never marked."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_IS_UNSENT = sa.text("sent_at IS NULL")
_IS_OPEN = sa.text("next_at IS NOT NULL")
_IS_DEAD = sa.text("dead_at IS NOT NULL")
_ROWS_A_STEP = 1_000

_OUTBOX = sa.table(
    "fa_outbox",
    sa.column("seq", sa.BigInteger()),
    sa.column("topic", sa.Text()),
    sa.column("payload", sa.Text()),
    sa.column("level", sa.Text()),
    sa.column("kind", sa.Text()),
    sa.column("entity", sa.Text()),
)


def upgrade() -> None:
    op.drop_index("fa_outbox_unsent_of_topic", "fa_outbox")
    op.drop_index("fa_outbox_unsent", "fa_outbox")
    op.drop_column("fa_outbox", "sent_at")
    for name in ("user_topic", "level", "kind", "entity"):
        op.add_column("fa_outbox", sa.Column(name, sa.Text(), nullable=True))
    op.create_index("fa_outbox_by_topic", "fa_outbox", ["topic", "seq"])
    _fill_subjects(op.get_bind())
    op.create_table(
        "fa_ways_out",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("down_since", sa.BigInteger()),
        sa.Column("next_at", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.Column("holder", sa.Text()),
        sa.Column("held_until", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="fa_ways_out_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fa_deliveries",
        sa.Column("way", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger()),
        sa.Column("dead_at", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("seq", "way", name="fa_deliveries_pk"),
        sqlite_with_rowid=False,
    )
    for name, condition in (("fa_deliveries_open", _IS_OPEN), ("fa_deliveries_dead", _IS_DEAD)):
        op.create_index(name, "fa_deliveries", ["way", "seq"], sqlite_where=condition, postgresql_where=condition)


def _fill_subjects(connection: sa.Connection) -> None:
    """Say of each message what it is about, as its content has it: evictions and metadata are all that there was."""
    last = -1
    while True:
        query = sa.select(_OUTBOX.c.seq, _OUTBOX.c.topic, _OUTBOX.c.payload).where(_OUTBOX.c.seq > last)
        rows = connection.execute(query.order_by(_OUTBOX.c.seq).limit(_ROWS_A_STEP)).all()
        if not rows:
            return
        changes = [{"number": row.seq, **_subject(row.topic, row.payload)} for row in rows]
        changed = sa.update(_OUTBOX).where(_OUTBOX.c.seq == sa.bindparam("number"))
        connection.execute(
            changed.values(level="info", kind=sa.bindparam("of_kind"), entity=sa.bindparam("of_entity")), changes
        )
        last = rows[-1].seq


def _subject(topic: str, payload: str | None) -> dict[str, str]:
    values = json.loads(payload)["payload"] if payload else {}
    if topic == "eviction":
        return {"of_kind": "feed", "of_entity": str(values.get("feed", ""))}
    kind, _, below = str(values.get("entity", "")).partition("/")
    return {"of_kind": kind, "of_entity": below.partition("/")[0]}


def downgrade() -> None:
    op.drop_table("fa_deliveries")
    op.drop_table("fa_ways_out")
    op.drop_index("fa_outbox_by_topic", "fa_outbox")
    for name in ("entity", "kind", "level", "user_topic"):
        op.drop_column("fa_outbox", name)
    op.add_column("fa_outbox", sa.Column("sent_at", sa.BigInteger(), nullable=True))
    for name, columns in (("fa_outbox_unsent", ["sent_at", "seq"]), ("fa_outbox_unsent_of_topic", ["topic", "seq"])):
        op.create_index(name, "fa_outbox", columns, sqlite_where=_IS_UNSENT, postgresql_where=_IS_UNSENT)
