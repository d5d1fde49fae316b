"""The tables of the state database, the indexes its questions need, and how values are stored in columns.

What changes here needs a migration; a test compares the two. Times are microseconds since 1970 in a 64-bit integer:
exact, fast, and the same in SQLite and PostgreSQL.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TypeDecorator,
    text,
)

from feed_assets.errors import StateError
from feed_assets.state.records import FrozenInput

SCHEMA_REVISION = "0002"
VERSION_TABLE = "feed_assets_alembic_version"
TABLE_PREFIX = "fa_"
JSON_VERSION = 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_render_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware time.

    >>> to_micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The UTC time of a number of microseconds since 1970.

    >>> from_micros(1000000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + timedelta(microseconds=micros)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time as microseconds since 1970; a time without a zone is refused."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, _dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


class Payload(TypeDecorator[Mapping[str, object]]):
    """JSON values by name, stored with a version; nothing is stored for an empty mapping."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, object] | None, _dialect: Dialect) -> str | None:
        return _render_json({"version": JSON_VERSION, "payload": dict(value)}) if value else None

    def process_result_value(self, value: str | None, _dialect: Dialect) -> Mapping[str, object]:
        if value is None:
            return {}
        payload: Mapping[str, object] = _from_json(value)["payload"]
        return payload


class FrozenInputs(TypeDecorator[tuple[FrozenInput, ...]]):
    """A frozen input list as JSON with a version; nothing is stored for an empty list."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[FrozenInput, ...] | None, _dialect: Dialect) -> str | None:
        if not value:
            return None
        inputs = [
            {
                "name": entry.name,
                "feed": entry.feed,
                "nominal_times": [to_micros(moment) for moment in entry.nominal_times],
                "digests": list(entry.digests),
            }
            for entry in value
        ]
        return _render_json({"version": JSON_VERSION, "inputs": inputs})

    def process_result_value(self, value: str | None, _dialect: Dialect) -> tuple[FrozenInput, ...]:
        if value is None:
            return ()
        return tuple(
            FrozenInput(
                name=entry["name"],
                feed=entry["feed"],
                nominal_times=tuple(from_micros(micros) for micros in entry["nominal_times"]),
                digests=tuple(entry["digests"]),
            )
            for entry in _from_json(value)["inputs"]
        )


def _from_json(value: str) -> Any:
    document = json.loads(value)
    if document["version"] > JSON_VERSION:
        raise StateError(
            reason=f"a row has content of version {document['version']}, and this release reads up to {JSON_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote it.",
        )
    return document


metadata = MetaData()

# The texts of partial indexes are repeated literally in the queries that use them: SQLite proves nothing else.
IS_LOOKED_FOR = text("status NOT IN ('AVAILABLE', 'EVICTED') AND next_look_at IS NOT NULL")
IS_WAITING_WITH_DEADLINE = text("status = 'WAITING' AND deadline_at IS NOT NULL")
IS_UNREQUESTED = text("status = 'READY' AND request_key IS NULL")
IS_REQUESTED = text("status = 'READY' AND request_key IS NOT NULL")
HAS_KEY = text("idempotency_key IS NOT NULL")
HAS_NEXT_TIME = text("next_time IS NOT NULL")
HAS_HOLDER = text("holder IS NOT NULL")

feed_events = Table(
    "fa_feed_events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("kind", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("manifest_digest", Text),
    Column("bytes", BigInteger),
    Column("files", BigInteger),
    Column("payload", Payload),
    Column("idempotency_key", Text),
    Index("fa_feed_events_by_instance", "feed", "cluster", "nominal_time"),
    Index("fa_feed_events_by_cluster", "cluster", "seq"),
)
Index(
    "fa_feed_events_by_key",
    feed_events.c.idempotency_key,
    unique=True,
    sqlite_where=HAS_KEY,
    postgresql_where=HAS_KEY,
)

feed_instances = Table(
    "fa_feed_instances",
    metadata,
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("status", Text, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("manifest_digest", Text),
    Column("bytes", BigInteger),
    Column("files", BigInteger),
    Column("available_at", UtcDateTime),
    Column("event_seq", BigInteger),
    Column("next_look_at", UtcDateTime),
    Column("fence", BigInteger, nullable=False),
    PrimaryKeyConstraint("feed", "cluster", "nominal_time", name="fa_feed_instances_pk"),
    sqlite_with_rowid=False,
)
Index(
    "fa_feed_instances_looks",
    feed_instances.c.cluster,
    feed_instances.c.next_look_at,
    feed_instances.c.feed,
    feed_instances.c.nominal_time,
    sqlite_where=IS_LOOKED_FOR,
    postgresql_where=IS_LOOKED_FOR,
)

process_instances = Table(
    "fa_process_instances",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("status", Text, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("run_id", Text),
    Column("request_key", Text),
    Column("requested_at", UtcDateTime),
    Column("inputs", FrozenInputs),
    Column("materialized_at", UtcDateTime),
    Column("ready_at", UtcDateTime),
    Column("deadline_at", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("reason", Text),
    Column("definition_digest", Text),
    Column("release", BigInteger),
    PrimaryKeyConstraint("process", "cluster", "nominal_time", name="fa_process_instances_pk"),
    Index("fa_process_instances_by_status", "status", "nominal_time"),
    Index("fa_process_instances_by_process", "process", "cluster", "status", "nominal_time"),
    sqlite_with_rowid=False,
)
Index(
    "fa_process_instances_deadlines",
    process_instances.c.cluster,
    process_instances.c.deadline_at,
    sqlite_where=IS_WAITING_WITH_DEADLINE,
    postgresql_where=IS_WAITING_WITH_DEADLINE,
)
Index(
    "fa_process_instances_unrequested",
    process_instances.c.cluster,
    process_instances.c.nominal_time,
    sqlite_where=IS_UNREQUESTED,
    postgresql_where=IS_UNREQUESTED,
)
Index(
    "fa_process_instances_requested",
    process_instances.c.cluster,
    process_instances.c.process,
    sqlite_where=IS_REQUESTED,
    postgresql_where=IS_REQUESTED,
)

frontiers = Table(
    "fa_frontiers",
    metadata,
    Column("kind", Text, nullable=False),
    Column("entity", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("next_index", BigInteger, nullable=False),
    Column("next_time", UtcDateTime),
    PrimaryKeyConstraint("kind", "entity", "cluster", name="fa_frontiers_pk"),
    sqlite_with_rowid=False,
)
Index(
    "fa_frontiers_due",
    frontiers.c.kind,
    frontiers.c.next_time,
    sqlite_where=HAS_NEXT_TIME,
    postgresql_where=HAS_NEXT_TIME,
)

cursors = Table(
    "fa_cursors",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

leases = Table(
    "fa_leases",
    metadata,
    Column("entity", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("holder", Text),
    Column("expires_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("entity", "cluster", "nominal_time", name="fa_leases_pk"),
    sqlite_with_rowid=False,
)
Index("fa_leases_by_holder", leases.c.holder, sqlite_where=HAS_HOLDER, postgresql_where=HAS_HOLDER)

definitions = Table(
    "fa_definitions",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("action", Text, nullable=False),
    Column("digest", Text),
    Column("text", Text),
    Column("format", Text, nullable=False),
    Column("file", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("change_id", Text),
    PrimaryKeyConstraint("kind", "name", "version", name="fa_definitions_pk"),
    Index("fa_definitions_by_digest", "kind", "name", "digest"),
    Index("fa_definitions_by_change", "change_id"),
    sqlite_with_rowid=False,
)

changes = Table(
    "fa_changes",
    metadata,
    Column("change_id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("begun_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("content", Payload, nullable=False),
    Index("fa_changes_by_number", "number", unique=True),
    Index("fa_changes_by_state", "state"),
    sqlite_with_rowid=False,
)

schedules = Table(
    "fa_schedules",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("scheduled_at", UtcDateTime),
    PrimaryKeyConstraint("kind", "name", "cluster", name="fa_schedules_pk"),
    sqlite_with_rowid=False,
)

releases = Table(
    "fa_releases",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("release", BigInteger, nullable=False),
    Column("effective_from", UtcDateTime, nullable=False),
    Column("sign", Text, nullable=False),
    Column("members", Payload, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("process", "cluster", "release", name="fa_releases_pk"),
    sqlite_with_rowid=False,
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
)
