"""Tables of feed instances and process instances: where they are, what was seen of them, and each attempt."""

import sqlalchemy
from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    LargeBinary,
    TypeDecorator,
    text,
)

from feed_assets.log.records import Cause, FeedInstanceStatus, FrozenInput, ProcessInstanceStatus
from feed_assets.sql.column_types import (
    JSON_VERSION,
    AnyText,
    Choice,
    Entries,
    Payload,
    Text,
    UtcDateTime,
    _from_json,
    _render_json,
    from_micros,
    to_micros,
)
from feed_assets.sql.tables import define_table, index_where


class FrozenInputs(TypeDecorator[tuple[FrozenInput, ...]]):
    """A list of frozen inputs as JSON with a version; an empty list is stored as NULL."""

    impl = sqlalchemy.Text
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


# Queries repeat the conditions of partial indexes literally: else SQLite does not use the index.
IS_WAITING_WITH_DEADLINE = text("status = 'WAITING' AND deadline_at IS NOT NULL")

IS_UNREQUESTED = text("status = 'READY' AND request_key IS NULL")

IS_REQUESTED = text("status = 'READY' AND request_key IS NOT NULL")

HAS_FAILED = text("status IN ('FAILED', 'TIMEDOUT')")

HAS_NOTICE_TIME = text("status IN ('FAILED', 'KILLED', 'SKIPPED', 'TIMEDOUT', 'WAITING') AND notice_at IS NOT NULL")

HAS_OBSTACLE = text("obstacle IS NOT NULL")

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
