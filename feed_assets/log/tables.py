"""Tables of the event log, watermarks, cursors, leases and the audit."""

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, Table, text

from feed_assets.entities.common import Kind
from feed_assets.log.records import FeedEventKind, WatermarkKind
from feed_assets.sql.column_types import Choice, Digest, Payload, Text, UtcDateTime
from feed_assets.sql.names import (
    NAMES_FEED,
    Renaming,
    content_in,
    names,
    names_by,
    paths_in,
    tails_in,
)
from feed_assets.sql.tables import define_table, index_where, metadata

HAS_KEY = text("idempotency_key IS NOT NULL")

HAS_NEXT_TIME = text("next_time IS NOT NULL")

HAS_PAST = text("past_time IS NOT NULL")

HAS_HOLDER = text("holder IS NOT NULL")

_NAMED_CURSORS = names(tails_in(Kind.FEED, "watch/", "inbox/"), tails_in(Kind.PROCESS, "queue-ended/"))


def _rename_values(value: Any, renaming: Renaming) -> Any:
    """Return the value of a cursor. What was told of feeds under their names is told anew under the new one."""
    if not isinstance(value, dict):
        return value
    kinds = {"feeds": Kind.FEED, "behind": Kind.FEED, "assets": Kind.FEED, "processes": Kind.PROCESS}
    changed = {key: renaming.replace(kinds[key], each) for key, each in value.items() if key in kinds}
    if isinstance(told := value.get("feeds"), dict):
        changed["feeds"] = {key: each for key, each in told.items() if key not in renaming.names(Kind.FEED)}
    return value | changed


feed_events = Table(
    "fa_feed_events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("bytes", BigInteger),
    Column("shared", BigInteger),
    Column("files", Integer),
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("cluster", Text, nullable=False),
    Column("kind", Choice(FeedEventKind, 3), nullable=False),
    Column("origin", Digest),
    Column("manifest_digest", Digest),
    Column("payload", Payload),
    Column("idempotency_key", Text),
    Column("marking", Text),
    Index("fa_feed_events_by_instance", "feed", "nominal_time"),
    Index("fa_feed_events_by_feed", "feed", "seq"),
    index_where("fa_feed_events_by_key", HAS_KEY, "idempotency_key", unique=True),
)

shared_payloads = define_table(
    "fa_shared_payloads",
    Column("number", BigInteger, nullable=False),
    Column("payload", Payload),
    key=("number",),
)


def _kind_of_watermark(kind: WatermarkKind) -> Kind:
    return Kind.FEED if Kind.FEED in kind else Kind.PROCESS


watermarks = define_table(
    "fa_watermarks",
    Column("kind", Choice(WatermarkKind), nullable=False),
    Column("entity", Text, nullable=False, info=names_by("kind", WatermarkKind, _kind_of_watermark)),
    Column("cluster", Text, nullable=False),
    Column("next_index", BigInteger, nullable=False),
    Column("next_time", UtcDateTime),
    Column("due_at", UtcDateTime),
    Column("past_time", UtcDateTime),
    Column("past_until", UtcDateTime),
    index_where("fa_watermarks_past", HAS_PAST, "kind", "cluster", "past_time"),
    index_where("fa_watermarks_due", HAS_NEXT_TIME, "kind", "due_at"),
    key=("kind", "entity", "cluster"),
)

cursors = Table(
    "fa_cursors",
    metadata,
    Column("name", Text, primary_key=True, info=_NAMED_CURSORS),
    Column("value", Text, nullable=False, info=names(content_in(_rename_values))),
    sqlite_with_rowid=False,
)

leases = define_table(
    "fa_leases",
    Column(
        "entity",
        Text,
        nullable=False,
        info=names(paths_in(Kind.FEED, "feed/"), paths_in(Kind.PROCESS, "process/", "mirror/")),
    ),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("holder", Text),
    Column("expires_at", UtcDateTime, nullable=False),
    index_where("fa_leases_by_holder", HAS_HOLDER, "holder"),
    key=("entity", "cluster", "nominal_time"),
)

audit = Table(
    "fa_audit",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text),
    Column("details", Payload),
    Column("digest", Text),
)
