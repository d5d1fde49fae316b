"""Tables of feed instances and process instances: where they are, what was seen of them, and each attempt."""

from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, text, type_coerce

from feed_assets.entities.common import Kind
from feed_assets.log.records import Cause, FeedInstanceStatus, FrozenInput, ProcessInstanceStatus
from feed_assets.sql.column_types import (
    AnyText,
    Choice,
    Digest,
    Entries,
    Payload,
    Text,
    UtcDateTime,
    from_micros,
    to_micros,
)
from feed_assets.sql.names import NAMES_FEED, NAMES_PROCESS, Renaming, content_in, names
from feed_assets.sql.tables import define_table, index_where


def _write_input(entry: FrozenInput) -> list[object]:
    """Return an input as it is stored with each attempt and instance: without names, which most of it would be."""
    return [entry.name, entry.feed, list(map(to_micros, entry.nominal_times)), list(entry.digests)]


def _rename_inputs(inputs: list[list[Any]], renaming: Renaming) -> list[list[Any]]:
    return [[name, renaming.replace(Kind.FEED, feed), *others] for name, feed, *others in inputs]


def _to_feed(values: list[Any]) -> str | None:
    _, feed, times, _ = values
    return feed if times else None


def _to_input(values: list[Any]) -> FrozenInput:
    name, feed, times, digests = values
    nominal_times = tuple(map(from_micros, times))
    return FrozenInput(name=name, feed=feed, nominal_times=nominal_times, digests=tuple(digests))


# Queries repeat the conditions of partial indexes literally: else SQLite does not use the index.
IS_WAITING_WITH_DEADLINE = text("status = 'WAITING' AND deadline_at IS NOT NULL")

IS_UNREQUESTED = text("status = 'READY' AND request_key IS NULL")

IS_REQUESTED = text("status = 'READY' AND request_key IS NOT NULL")

HAS_FAILED = text("status IN ('FAILED', 'TIMEDOUT')")

HAS_NOTICE_TIME = text("status IN ('FAILED', 'KILLED', 'SKIPPED', 'TIMEDOUT', 'WAITING') AND notice_at IS NOT NULL")

HAS_OBSTACLE = text("obstacle IS NOT NULL")

LONG = timedelta(days=1)

IS_LONG = text("ended_at - started_at > 86400000000")

feed_instances = define_table(
    "fa_feed_instances",
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("bytes", BigInteger),
    Column("files", BigInteger),
    Column("available_at", UtcDateTime),
    Column("event_seq", BigInteger),
    Column("fence", BigInteger, nullable=False),
    Column("place", BigInteger),
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("cluster", Text, nullable=False),
    Column("status", Choice(FeedInstanceStatus), nullable=False),
    Column("manifest_digest", Digest),
    key=("feed", "cluster", "nominal_time"),
)

feed_places = define_table(
    "fa_feed_places",
    Column("feed", Text, nullable=False, info=NAMES_FEED),
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
    Column("feed", Text, nullable=False, info=NAMES_FEED),
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

manifests = define_table(
    "fa_manifests",
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("feed", Text, nullable=False, info=NAMES_FEED),
    Column("cluster", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    key=("feed", "cluster", "nominal_time"),
)

process_instances = define_table(
    "fa_process_instances",
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("requested_at", UtcDateTime),
    Column("materialized_at", UtcDateTime),
    Column("ready_at", UtcDateTime),
    Column("deadline_at", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("retry_at", UtcDateTime),
    Column("notice_at", UtcDateTime),
    Column("attempt", Integer, nullable=False),
    Column("release", Integer),
    Column("retries", Integer, nullable=False, server_default=text("0")),
    Column("deaths", Integer, nullable=False, server_default=text("0")),
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("status", Choice(ProcessInstanceStatus), nullable=False),
    Column("run_id", Digest),
    Column("request_key", Digest),
    Column("cause_detail", Text),
    Column("definition_digest", Digest),
    Column("overrides", Payload),
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
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("metadata_seq", BigInteger),
    Column("attempt", Integer, nullable=False),
    Column("release", Integer),
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("run_id", Digest),
    Column("status", Choice(ProcessInstanceStatus), nullable=False),
    Column("reason", Text),
    Column("cause_detail", Text, nullable=False),
    Column("cause", Choice(Cause)),
    Column("inputs", Entries(_write_input, _to_input), info=names(content_in(_rename_inputs))),
    Column("outputs", Entries(int, int)),
    Index("fa_attempts_by_run", "run_id"),
    Index("fa_attempts_by_end", "cluster", "ended_at"),
    index_where("fa_attempts_long", IS_LONG, "cluster", "ended_at"),
    key=("process", "cluster", "nominal_time", "attempt"),
)

FEEDS_READ = type_coerce(attempts.c.inputs, Entries(_write_input, _to_feed)).label("feeds")
"""The feeds of the inputs of an attempt, without their instances; None for one without any."""
