"""Tables and indexes of the state database; those of retention, triggers and steps are in `…_schema` modules.

Tables are made from these definitions. Until release 0.1.0 a change makes another baseline: `SCHEMA_REVISION` has a
digest of it, which a test compares. From then on a change needs a migration.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    text,
)

from feed_assets.state.causes import Cause
from feed_assets.state.column_types import Choice, Entries, FrozenInputs, Payload, Text, UtcDateTime
from feed_assets.state.definition_records import ChangeState, DefinitionAction, DocumentFormat, Member, ScheduleState
from feed_assets.state.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus, WatermarkKind
from feed_assets.state.tick_records import TickStep

SCHEMA_REVISION = "0022-103e51a8"
VERSION_TABLE = "feed_assets_alembic_version"  # where Alembic looks for it, once there are migrations

metadata = MetaData()

version = Table(VERSION_TABLE, metadata, Column("version_num", Text, primary_key=True))

# Queries repeat the conditions of partial indexes literally: else SQLite does not use the index.
IS_WAITING_WITH_DEADLINE = text("status = 'WAITING' AND deadline_at IS NOT NULL")
IS_UNREQUESTED = text("status = 'READY' AND request_key IS NULL")
IS_REQUESTED = text("status = 'READY' AND request_key IS NOT NULL")
HAS_FAILED = text("status IN ('FAILED', 'TIMEDOUT')")
HAS_NOTICE_TIME = text("status IN ('FAILED', 'KILLED', 'SKIPPED', 'TIMEDOUT', 'WAITING') AND notice_at IS NOT NULL")
IS_DUE_SOMETIME = text("due_at IS NOT NULL")
HAS_KEY = text("idempotency_key IS NOT NULL")
HAS_NEXT_TIME = text("next_time IS NOT NULL")
HAS_HOLDER = text("holder IS NOT NULL")
HAS_OBSTACLE = text("obstacle IS NOT NULL")


def _member_values(member: Member) -> list[object]:
    return [member.kind, member.name, member.version]


def _to_member(values: list[Any]) -> Member:
    kind, name, version = values
    return Member(kind=kind, name=name, version=version)


feed_events = Table(
    "fa_feed_events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("kind", Choice(FeedEventKind), nullable=False),
    Column("origin", Text, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("manifest_digest", Text),
    Column("bytes", BigInteger),
    Column("files", BigInteger),
    Column("payload", Payload),
    Column("idempotency_key", Text),
    Column("marking", Text),
    Index("fa_feed_events_by_instance", "feed", "cluster", "nominal_time"),
    Index("fa_feed_events_by_feed", "feed", "cluster", "seq"),
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
    Column("status", Choice(FeedInstanceStatus), nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("manifest_digest", Text),
    Column("bytes", BigInteger),
    Column("files", BigInteger),
    Column("available_at", UtcDateTime),
    Column("event_seq", BigInteger),
    Column("fence", BigInteger, nullable=False),
    Column("place", BigInteger),
    PrimaryKeyConstraint("feed", "cluster", "nominal_time", name="fa_feed_instances_pk"),
    sqlite_with_rowid=False,
)

arrival_polls = Table(
    "fa_arrival_polls",
    metadata,
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("found", Text, nullable=False),
    Column("polled_at", UtcDateTime, nullable=False),
    Column("next_poll_at", UtcDateTime, nullable=False),
    Column("obstacle", Text),
    PrimaryKeyConstraint("feed", "cluster", "nominal_time", name="fa_arrival_polls_pk"),
    Index("fa_arrival_polls_due", "cluster", "next_poll_at", "feed", "nominal_time"),
    sqlite_with_rowid=False,
)
Index(
    "fa_arrival_polls_obstructed",
    arrival_polls.c.cluster,
    arrival_polls.c.feed,
    sqlite_where=HAS_OBSTACLE,
    postgresql_where=HAS_OBSTACLE,
)

tick_failures = Table(
    "fa_tick_failures",
    metadata,
    Column("cluster", Text, nullable=False),
    Column("step", Choice(TickStep), nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("next_try_at", UtcDateTime, nullable=False),
    Column("failures", BigInteger, nullable=False),
    PrimaryKeyConstraint("cluster", "step", "subject", name="fa_tick_failures_pk"),
    sqlite_with_rowid=False,
)

manifests = Table(
    "fa_manifests",
    metadata,
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("feed", "cluster", "nominal_time", name="fa_manifests_pk"),
    sqlite_with_rowid=False,
)

late_checks = Table(
    "fa_late_checks",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime),
    Column("cut_off_at", UtcDateTime, nullable=False),
    Column("checks", BigInteger, nullable=False),
    Column("changed", Entries("inputs", str, str)),
    PrimaryKeyConstraint("kind", "name", "cluster", "nominal_time", name="fa_late_checks_pk"),
    sqlite_with_rowid=False,
)
Index(
    "fa_late_checks_due",
    late_checks.c.cluster,
    late_checks.c.due_at,
    sqlite_where=IS_DUE_SOMETIME,
    postgresql_where=IS_DUE_SOMETIME,
)

process_instances = Table(
    "fa_process_instances",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("status", Choice(ProcessInstanceStatus), nullable=False),
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
    Column("cause_detail", Text),
    Column("definition_digest", Text),
    Column("release", BigInteger),
    Column("retries", BigInteger, nullable=False, server_default=text("0")),
    Column("deaths", BigInteger, nullable=False, server_default=text("0")),
    Column("retry_at", UtcDateTime),
    Column("overrides", Payload),
    Column("notice_at", UtcDateTime),
    Column("notice_digest", Text),
    Column("cause", Choice(Cause)),
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
    "fa_process_instances_failed",
    process_instances.c.cluster,
    process_instances.c.retry_at,
    sqlite_where=HAS_FAILED,
    postgresql_where=HAS_FAILED,
)
Index(
    "fa_process_instances_notices",
    process_instances.c.cluster,
    process_instances.c.notice_at,
    sqlite_where=HAS_NOTICE_TIME,
    postgresql_where=HAS_NOTICE_TIME,
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

attempts = Table(
    "fa_attempts",
    metadata,
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("run_id", Text),
    Column("status", Choice(ProcessInstanceStatus), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("reason", Text),
    Column("cause_detail", Text, nullable=False),
    Column("release", BigInteger),
    Column("cause", Choice(Cause)),
    Column("inputs", FrozenInputs),
    Column("outputs", Entries("events", int, int)),
    PrimaryKeyConstraint("process", "cluster", "nominal_time", "attempt", name="fa_attempts_pk"),
    Index("fa_attempts_by_run", "run_id"),
    Index("fa_attempts_by_end", "cluster", "ended_at", "process", "nominal_time", "attempt"),
    sqlite_with_rowid=False,
)

watermarks = Table(
    "fa_watermarks",
    metadata,
    Column("kind", Choice(WatermarkKind), nullable=False),
    Column("entity", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("next_index", BigInteger, nullable=False),
    Column("next_time", UtcDateTime),
    Column("due_at", UtcDateTime),
    PrimaryKeyConstraint("kind", "entity", "cluster", name="fa_watermarks_pk"),
    sqlite_with_rowid=False,
)
Index(
    "fa_watermarks_due",
    watermarks.c.kind,
    watermarks.c.due_at,
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
    Column("action", Choice(DefinitionAction), nullable=False),
    Column("digest", Text),
    Column("text", Text),
    Column("format", Choice(DocumentFormat), nullable=False),
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
    Column("state", Choice(ChangeState), nullable=False),
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
    Column("state", Choice(ScheduleState), nullable=False),
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
    Column("fingerprint", Text, nullable=False),
    Column("members", Entries("members", _member_values, _to_member), nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("process", "cluster", "release", name="fa_releases_pk"),
    sqlite_with_rowid=False,
)

workflow_files = Table(
    "fa_workflow_files",
    metadata,
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("digest", name="fa_workflow_files_pk"),
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
