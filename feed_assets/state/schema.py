"""Tables and indexes of the state database; those of retention, triggers and others are in `…_schema` modules.

Tables are made from these definitions. Until release 0.1.0 a change makes another baseline: `SCHEMA_REVISION` has a
digest of it, which a test compares. From then on a change needs a migration.
"""

from importlib import import_module
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
    TextClause,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex

from feed_assets.state.causes import Cause
from feed_assets.state.column_types import AnyText, Choice, Entries, FrozenInputs, Payload, Text, UtcDateTime
from feed_assets.state.definition_records import ChangeState, DefinitionAction, DocumentFormat, Member, ScheduleState
from feed_assets.state.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus, WatermarkKind
from feed_assets.state.step_records import StepStatus
from feed_assets.state.tick_records import TickStep

SCHEMA_REVISION = "0022-00a74075"
VERSION_TABLE = "feed_assets_alembic_version"  # where Alembic looks for it, once there are migrations

TABLE_MODULES = (
    "feed_assets.state.delivery_schema",
    "feed_assets.state.metadata_schema",
    "feed_assets.state.retention_schema",
    "feed_assets.state.sla_schema",
    "feed_assets.state.totals_schema",
    "feed_assets.state.trigger_schema",
)
metadata = MetaData()


def load_tables() -> MetaData:
    """Return the tables of all rooms."""
    for module in TABLE_MODULES:
        import_module(module)
    return metadata


def define_table(name: str, *parts: Column[Any] | Index, key: tuple[str, ...]) -> Table:
    """Define a table whose rows SQLite keeps in the order of their key."""
    primary = PrimaryKeyConstraint(*key, name=f"{name}_pk")
    return Table(name, metadata, *parts, primary, sqlite_with_rowid=False)


def index_where(name: str, condition: TextClause, *columns: str, unique: bool = False) -> Index:
    """Return an index of the rows that meet a condition."""
    return Index(name, *columns, unique=unique, sqlite_where=condition)


@compiles(CreateIndex, "postgresql")
def _create_with_condition(create: CreateIndex, compiler: Any, **options: Any) -> str:
    """The condition of `index_where`. Given at the import, it would load what SQLAlchemy knows of PostgreSQL: 18 ms."""
    index = create.element
    index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    statement: str = compiler.visit_create_index(create, **options)
    return statement


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
    index_where("fa_feed_events_by_key", HAS_KEY, "idempotency_key", unique=True),
)

feed_instances = define_table(
    "fa_feed_instances",
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
    key=("feed", "cluster", "nominal_time"),
)

feed_places = define_table(
    "fa_feed_places",
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("url", AnyText, nullable=False),
    Column("template", AnyText, nullable=False),
    Column("zone", Text, nullable=False),
    Column("flag", AnyText),
    key=("feed", "cluster", "place"),
)

arrival_polls = define_table(
    "fa_arrival_polls",
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("found", Text, nullable=False),
    Column("polled_at", UtcDateTime, nullable=False),
    Column("next_poll_at", UtcDateTime, nullable=False),
    Column("obstacle", Text),
    Index("fa_arrival_polls_due", "cluster", "next_poll_at", "feed", "nominal_time"),
    index_where("fa_arrival_polls_obstructed", HAS_OBSTACLE, "cluster", "feed"),
    key=("feed", "cluster", "nominal_time"),
)

tick_failures = define_table(
    "fa_tick_failures",
    Column("cluster", Text, nullable=False),
    Column("step", Choice(TickStep), nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", UtcDateTime, nullable=False),
    Column("next_try_at", UtcDateTime, nullable=False),
    Column("failures", BigInteger, nullable=False),
    key=("cluster", "step", "subject"),
)

taken_files = define_table(
    "fa_taken_files",
    Column("event", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    Index("fa_taken_files_by_content", "feed", "cluster", "checksum"),
    key=("event", "name"),
)

manifests = define_table(
    "fa_manifests",
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    key=("feed", "cluster", "nominal_time"),
)

late_checks = define_table(
    "fa_late_checks",
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime),
    Column("cut_off_at", UtcDateTime, nullable=False),
    Column("checks", BigInteger, nullable=False),
    Column("changed", Entries("inputs", str, str)),
    index_where("fa_late_checks_due", IS_DUE_SOMETIME, "cluster", "due_at"),
    key=("kind", "name", "cluster", "nominal_time"),
)

process_instances = define_table(
    "fa_process_instances",
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
    Index("fa_process_instances_by_status", "status", "nominal_time"),
    Index("fa_process_instances_by_process", "process", "cluster", "status", "nominal_time"),
    index_where("fa_process_instances_deadlines", IS_WAITING_WITH_DEADLINE, "cluster", "deadline_at"),
    index_where("fa_process_instances_failed", HAS_FAILED, "cluster", "retry_at"),
    index_where("fa_process_instances_notices", HAS_NOTICE_TIME, "cluster", "notice_at"),
    index_where("fa_process_instances_unrequested", IS_UNREQUESTED, "cluster", "nominal_time"),
    index_where("fa_process_instances_requested", IS_REQUESTED, "cluster", "process"),
    key=("process", "cluster", "nominal_time"),
)

attempts = define_table(
    "fa_attempts",
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
    Index("fa_attempts_by_run", "run_id"),
    Index("fa_attempts_by_end", "cluster", "ended_at", "process", "nominal_time", "attempt"),
    key=("process", "cluster", "nominal_time", "attempt"),
)

steps = define_table(
    "fa_steps",
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("step", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("status", Choice(StepStatus), nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("reason", Text),
    Column("basis", Text, nullable=False),
    Column("made_in", BigInteger, nullable=False),
    Column("frames", Payload),
    key=("process", "cluster", "nominal_time", "attempt", "step"),
)

watermarks = define_table(
    "fa_watermarks",
    Column("kind", Choice(WatermarkKind), nullable=False),
    Column("entity", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("next_index", BigInteger, nullable=False),
    Column("next_time", UtcDateTime),
    Column("due_at", UtcDateTime),
    index_where("fa_watermarks_due", HAS_NEXT_TIME, "kind", "due_at"),
    key=("kind", "entity", "cluster"),
)

cursors = Table(
    "fa_cursors",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

leases = define_table(
    "fa_leases",
    Column("entity", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("holder", Text),
    Column("expires_at", UtcDateTime, nullable=False),
    index_where("fa_leases_by_holder", HAS_HOLDER, "holder"),
    key=("entity", "cluster", "nominal_time"),
)

definitions = define_table(
    "fa_definitions",
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
    Index("fa_definitions_by_digest", "kind", "name", "digest"),
    Index("fa_definitions_by_change", "change_id"),
    key=("kind", "name", "version"),
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

schedules = define_table(
    "fa_schedules",
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("state", Choice(ScheduleState), nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("scheduled_at", UtcDateTime),
    key=("kind", "name", "cluster"),
)

releases = define_table(
    "fa_releases",
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("release", BigInteger, nullable=False),
    Column("effective_from", UtcDateTime, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("members", Entries("members", _member_values, _to_member), nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    key=("process", "cluster", "release"),
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
