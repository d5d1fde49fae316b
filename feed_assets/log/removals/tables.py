"""Tables of retention: sweeps with their chunks, which have their items, and holds.

They belong to the same schema as all other tables.
"""

from dataclasses import asdict
from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, Table, text

from feed_assets.entities.common import Kind
from feed_assets.log.removals.records import (
    ChunkState,
    FeedCount,
    ItemOutcome,
    ItemResult,
    SweepItem,
    SweepObstacle,
    SweepState,
)
from feed_assets.sql.column_types import (
    Choice,
    Digest,
    Entries,
    PackedEntries,
    Text,
    UtcDateTime,
    from_micros,
    to_micros,
)
from feed_assets.sql.names import NAMES_FEED, members_in, names
from feed_assets.sql.tables import define_table, index_where, metadata

# Queries repeat these conditions literally, as for the other tables.
IS_TO_PURGE = text("purge_at IS NOT NULL AND purged_at IS NULL")
IS_UNARCHIVED = text("counts NOT LIKE '%\"is_archived\"_true%'")  # a colon would begin a parameter


def _to_obstacle(values: list[str]) -> SweepObstacle:
    code, sentence = values
    return SweepObstacle(code=code, sentence=sentence)


def _to_item(values: list[Any]) -> SweepItem:
    return SweepItem(values[0], from_micros(values[1]), *values[2:])


sweeps = define_table(
    "fa_sweeps",
    Column("sweep_id", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("state", Choice(SweepState), nullable=False),
    Column("as_of", UtcDateTime, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("log_seq", BigInteger, nullable=False),
    Column("instances", BigInteger, nullable=False),
    Column("paths", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("chunks", BigInteger, nullable=False),
    Column("obstacles", Entries(lambda each: [each.code, each.sentence], _to_obstacle)),
    Column(
        "counts",
        Entries(asdict, lambda values: FeedCount(**values)),
        info=names(members_in(feed=Kind.FEED)),
    ),
    Column("approved_by", Text),
    Column("approved_at", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("purge_at", UtcDateTime),
    Column("purged_at", UtcDateTime),
    Column("undone_at", UtcDateTime),
    Column("note", Text),
    Index("fa_sweeps_by_state", "state", "cluster", "created_at"),
    Index("fa_sweeps_by_cluster", "cluster", "created_at"),
    Index("fa_sweeps_by_time", "created_at"),
    index_where("fa_sweeps_to_purge", IS_TO_PURGE, "cluster", "purge_at"),
    key=("sweep_id",),
)

sweep_chunks = Table(
    "fa_sweep_chunks",
    metadata,
    Column("first_time", UtcDateTime, key="first", nullable=False),
    Column("last_time", UtcDateTime, key="last", nullable=False),
    Column("place", Integer),
    Column("count", BigInteger, nullable=False),
    Column("held_until", UtcDateTime),
    Column("number", Integer, nullable=False),
    Column("sweep_id", Text, nullable=False),
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("kind", Text, nullable=False),
    Column("digest", Digest, nullable=False),
    Column("state", Choice(ChunkState), nullable=False),
    Column("holder", Text),
    Column("items", PackedEntries(lambda item: [item[0], to_micros(item[1]), *item[2:]], _to_item), nullable=False),
    Column("outcomes", PackedEntries(list, lambda values: ItemResult(ItemOutcome(values[0]), *values[1:]))),
    PrimaryKeyConstraint("sweep_id", "number", name="fa_sweep_chunks_pk"),
    Index("fa_sweep_chunks_by_state", "sweep_id", "state", "number"),
)

holds = Table(
    "fa_holds",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("feed", Text, info=NAMES_FEED),
    Column("cluster", Text),
    Column("first_time", UtcDateTime, key="first"),
    Column("last_time", UtcDateTime, key="last"),
    Column("reason", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("released_at", UtcDateTime),
    Column("released_by", Text),
    Index("fa_holds_by_name", "name"),
    Index("fa_holds_by_release", "released_at"),
)
