"""Tables of feed instances and process instances: where they are, what was seen of them, and each attempt."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    TypeDecorator,
    func,
    literal,
    select,
    text,
    type_coerce,
    update,
)

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
    digest_from_column,
    from_micros,
    newer_content,
    to_micros,
)
from feed_assets.sql.names import NAMES_FEED, NAMES_PROCESS, Renaming, names
from feed_assets.sql.tables import define_table, index_where

_INPUTS_VERSION = b"\x01"
_LONG_SIZE, _NO_DIGEST = 254, b"\xff"
_write_digest, _read_digest = Digest().process_bind_param, digest_from_column


def _rename_inputs(connection: Connection, column: Column[Any], renaming: Renaming) -> None:
    table, keys, raw = column.table, list(column.table.primary_key), type_coerce(column, LargeBinary)
    for old, new in renaming.names(Kind.FEED).items():
        name = literal(f"\0{old}\0".encode(), LargeBinary)
        is_sqlite = connection.dialect.name == "sqlite"
        place = func.instr(raw, name) if is_sqlite else func.position(name.bool_op("IN")(raw))
        for inputs, *key in connection.execute(select(column, *keys).where(place > 0)).all():
            renamed = tuple(replace(each, feed=new) if each.feed == old else each for each in inputs)
            is_it = [each == value for each, value in zip(keys, key, strict=True)]
            connection.execute(update(table).where(*is_it).values({column.key: renamed}))


class _Inputs(TypeDecorator[tuple[FrozenInput, ...]]):
    """The inputs of an attempt as bytes, behind a version. Of each: name and feed, which end with NUL, the number of
    its times, these in microseconds, and its digests, each behind its length, or 255
    for none. None is stored as NULL.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: tuple[FrozenInput, ...] | None, dialect: Dialect) -> bytes | None:
        if not value:
            return None
        parts = [_INPUTS_VERSION]
        for each in value:
            times = [to_micros(time) for time in each.nominal_times]
            parts += [f"{each.name}\0{each.feed}\0{len(times)}\0".encode(), struct.pack(f">{len(times)}q", *times)]
            for digest in each.digests:
                stored = _write_digest(digest, dialect)
                parts.append(_NO_DIGEST if stored is None else _sized(stored))
        return b"".join(parts)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], tuple[FrozenInput, ...]]:  # noqa: ARG002
        """Replaces `process_result_value`, as for times."""
        return lambda value: () if value is None else tuple(_iter_inputs(bytes(value)))


def _sized(stored: bytes) -> bytes:
    size = len(stored)
    return (bytes([size]) if size < _LONG_SIZE else bytes([_LONG_SIZE]) + size.to_bytes(4, "big")) + stored


def _iter_inputs(stored: bytes) -> Iterator[FrozenInput]:
    version, rest = stored[:1], stored[1:]
    if version != _INPUTS_VERSION:
        raise newer_content(ord(version))
    while rest:
        name, feed, count, rest = rest.split(b"\0", 3)
        times = struct.unpack_from(f">{int(count)}q", rest)
        position, digests = struct.calcsize(f">{int(count)}q"), list[str | None]()
        for _ in times:
            size, begin = rest[position], position + 1
            if size == _LONG_SIZE:
                size, begin = int.from_bytes(rest[begin : begin + 4], "big"), begin + 4
            is_known = rest[position : position + 1] != _NO_DIGEST
            position = begin + size if is_known else begin
            digests.append(_read_digest(rest[begin:position]) if is_known else None)
        rest = rest[position:]
        nominal_times = tuple(map(from_micros, times))
        yield FrozenInput(name=name.decode(), feed=feed.decode(), nominal_times=nominal_times, digests=tuple(digests))


# Queries repeat the conditions of partial indexes literally: else SQLite does not use the index.
IS_WAITING_WITH_DEADLINE = text("status = 'WAITING' AND deadline_at IS NOT NULL")

IS_UNREQUESTED = text("status = 'READY' AND request_key IS NULL")

IS_REQUESTED = text("status = 'READY' AND request_key IS NOT NULL")

HAS_FAILED = text("status IN ('FAILED', 'TIMEDOUT')")

HAS_NOTICE_TIME = text("status IN ('FAILED', 'KILLED', 'SKIPPED', 'TIMEDOUT', 'WAITING') AND notice_at IS NOT NULL")

HAS_OBSTACLE = text("obstacle IS NOT NULL")

HAS_NOT_SUCCEEDED = text("status <> 'SUCCEEDED'")
"""Most instances have: an index of these would be as large as that of the key, and find no fewer rows."""

LONG = timedelta(days=1)

IS_LONG = text("ended_at - started_at > 86400000000")

feed_instances = define_table(
    "fa_feed_instances",
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("bytes", BigInteger),
    Column("available_at", UtcDateTime),
    Column("event_seq", BigInteger),
    Column("fence", BigInteger, nullable=False),
    Column("files", Integer),
    Column("place", Integer),
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
    Column("place", Integer, nullable=False),
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
    Column("retries", Integer, nullable=False, server_default=text("0")),  # a policy may allow 65,535
    Column("deaths", SmallInteger, nullable=False, server_default=text("0")),
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
    index_where("fa_process_instances_by_process", HAS_NOT_SUCCEEDED, "process", "cluster", "status", "nominal_time"),
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
    Column("inputs", _Inputs, info=names(_rename_inputs)),
    Column("outputs", Entries(int, int)),
    Index("fa_attempts_by_run", "run_id"),
    Index("fa_attempts_by_end", "ended_at"),
    index_where("fa_attempts_long", IS_LONG, "cluster", "ended_at"),
    key=("process", "cluster", "nominal_time", "attempt"),
)
