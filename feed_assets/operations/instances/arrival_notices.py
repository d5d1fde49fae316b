"""Notices of arrivals: producers report instances, so that they need not be polled."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NoReturn

from sqlalchemy import Connection

from feed_assets.command_lines import instance_command
from feed_assets.entities.common import Kind
from feed_assets.entities.places import Places
from feed_assets.json_form import NominalTime
from feed_assets.lifecycle.arrival.polling import PollResult, decide_poll_result, record_poll_results
from feed_assets.lifecycle.arrival.store_polls import Candidate
from feed_assets.operations.context import OperationContext
from feed_assets.operations.errors import ArrivalRefusedError
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.records import FeedEvent, FeedInstanceStatus
from feed_assets.storage.records import Availability, Look
from feed_assets.timing.dates import render_datetime


class NoticeOutcome(StrEnum):
    """The outcome of a notice."""

    RECORDED = "recorded"
    KNOWN = "known already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A report that an instance of a feed has arrived.

    `cluster` may be omitted if the feed arrives on one cluster only. The second of two notices with the same `key` does
    nothing. `path` and `bytes` are compared with the instance's location and content. With `is_trusted` storage is not
    checked.
    """

    feed: str
    nominal_time: datetime
    author: str
    cluster: str | None = None
    key: str | None = None
    path: str | None = None
    bytes: int | None = None
    is_trusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeResult:
    """The outcome of a notice; bytes and files are None if storage was not checked."""

    feed: str
    cluster: str
    nominal_time: NominalTime
    outcome: NoticeOutcome
    url: str
    bytes: int | None
    files: int | None
    dry_run: bool = False

    def render(self) -> str:
        """Return one line."""
        size = "" if self.files is None else f", {counted(self.bytes or 0, 'byte')} in {counted(self.files, 'file')}"
        would = "would be " if self.dry_run and self.outcome is NoticeOutcome.RECORDED else ""
        time = render_datetime(self.nominal_time)
        return f"feed {self.feed!r} on {self.cluster} at {time}: {would}{self.outcome.value}{size}"


def record_notice(context: OperationContext, notice: Notice, *, dry_run: bool = False) -> NoticeResult:
    """Record the arrival that a notice reports. The next tick opens the gates of the processes that read the instance.
    A notice of an instance that has already arrived does nothing and is no error.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the feed is not on the cluster.
        InstanceError: the time is no instance of it.
        ArrivalRefusedError: the instance is missing or incomplete, or the feed is produced here.
        StorageError: storage cannot be reached.
    """
    record = _find_record(context, notice)
    record.sequence.index(notice.nominal_time)
    _check_notice(context, record, notice)
    with context.database.read() as connection:
        known = _find_known(connection, record, notice)
    if known is not None:
        return _result(context, record, notice, NoticeOutcome.KNOWN, known.bytes, known.files, dry_run=dry_run)
    look = _look(context, record, notice)
    if not dry_run:
        with context.database.begin() as connection:
            if _find_known(connection, record, notice) is None:
                record_poll_results(connection, [_seen(record, notice, look, context.as_of)])
    size, files = (notice.bytes, None) if notice.is_trusted else (look.bytes, look.files)
    return _result(context, record, notice, NoticeOutcome.RECORDED, size, files, dry_run=dry_run)


def _find_record(context: OperationContext, notice: Notice) -> FeedRecord:
    if notice.cluster is not None:
        return context.feed_on(notice.feed, notice.cluster)
    records = [context.feed_on(notice.feed, cluster) for cluster in context.clusters_of(Kind.FEED, notice.feed)]
    arriving = [record for record in records if record.is_external]
    if len(arriving) > 1:
        names = ", ".join(record.cluster for record in arriving)
        _refuse(notice, None, f"it arrives on {names}", "Choose one with --cluster.")
    return arriving[0] if arriving else records[0]


def _check_notice(context: OperationContext, record: FeedRecord, notice: Notice) -> None:
    if not record.is_external:
        writer = record.outputs_of[0].process
        rerun = instance_command("rerun", writer, notice.nominal_time, record.cluster)
        _refuse(notice, record, f"process {writer!r} writes it", f"Run that: {rerun}")
    if notice.nominal_time > context.as_of:
        _refuse(
            notice, record, "its nominal time is in the future", "Give notice after that time; polls also start then."
        )
    path = record.path(notice.nominal_time)
    named = None if notice.path is None else notice.path.rstrip("/")
    if named is not None and named.lstrip("/") != path and not _is_same_place(named, f"{record.store.url}/{path}"):
        _refuse(notice, record, f"its data belong to {path}, not to {notice.path}", "Correct the path or the instance.")


def _is_same_place(one: str, other: str) -> bool:
    places = Places()
    return places.canonical(one) == places.canonical(other)


def _find_known(connection: Connection, record: FeedRecord, notice: Notice) -> "FeedEvent | _RecordedInstance | None":
    """Return the known arrival: the event of the same notice, or the recorded instance."""
    if notice.key is not None:
        event = EventLog(connection).find_key(_key(notice.key))
        if event is not None:
            if (event.feed, event.cluster, event.nominal_time) != (*record.key, notice.nominal_time):
                other = f"feed {event.feed!r} on {event.cluster} at {render_datetime(event.nominal_time)}"
                _refuse(notice, record, f"the key {notice.key!r} was that of {other}", "Use a key for one instance.")
            return event
    row = FeedInstances(connection).get(*record.key, notice.nominal_time)
    if row is not None and row.status is FeedInstanceStatus.EVICTED:
        _refuse(notice, record, "it was evicted", "An evicted instance does not arrive again; restore it.")
    is_there = row is not None and row.status is FeedInstanceStatus.AVAILABLE
    return _RecordedInstance(bytes=row.bytes, files=row.files) if row is not None and is_there else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedInstance:
    bytes: int | None
    files: int | None


def _look(context: OperationContext, record: FeedRecord, notice: Notice) -> Look:
    path = record.path(notice.nominal_time)
    if notice.is_trusted:
        return Look(path=path, availability=Availability.AVAILABLE, bytes=notice.bytes or 0, files=0, modified_at=None)
    (look,) = context.stores.get(record.store).look([path], record.flag)
    url = context.feed_url(record, notice.nominal_time)
    if look.availability is Availability.AVAILABLE and notice.bytes in (None, look.bytes):
        return look
    if look.obstacle is not None:
        _refuse(notice, record, f"{url} cannot be read: {look.obstacle}", "Remove the obstacle, and give notice again.")
    reasons = {
        Availability.AVAILABLE: f"{url} has {look.bytes} bytes, not {notice.bytes}",
        Availability.MISSING: f"{url} does not exist",
        Availability.PARTIAL: f"{url} has no {record.flag} yet",
        Availability.EMPTY: f"{url} is empty",
    }
    next_step = "Give notice when it is complete, or skip the check of storage (--trust)."
    return _refuse(notice, record, reasons[look.availability], next_step)


def _seen(record: FeedRecord, notice: Notice, look: Look, as_of: datetime) -> PollResult:
    candidate = Candidate(record=record, nominal_time=notice.nominal_time)
    seen = decide_poll_result(candidate, look, as_of, notice_origin(notice.author))
    assert seen.event is not None
    assert seen.row is not None
    event = replace(seen.event, idempotency_key=None if notice.key is None else _key(notice.key))
    if not notice.is_trusted:
        return replace(seen, event=event)
    row = replace(seen.row, manifest_digest=None, bytes=notice.bytes, files=None)
    payload = {**event.payload, "trusted": True}
    event = replace(event, manifest_digest=None, bytes=notice.bytes, files=None, payload=payload)
    return replace(seen, row=row, event=event)


def notice_origin(author: str) -> str:
    """Return the origin of the events that a person's or program's notice records."""
    return f"notice:{author}"


def _key(key: str) -> str:
    """Return the event key of a notice: notices have a namespace of their own in the log."""
    return f"notice/{key}"


def _result(
    context: OperationContext,
    record: FeedRecord,
    notice: Notice,
    outcome: NoticeOutcome,
    size: int | None,
    files: int | None,
    *,
    dry_run: bool,
) -> NoticeResult:
    return NoticeResult(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=notice.nominal_time,
        outcome=outcome,
        url=context.feed_url(record, notice.nominal_time),
        bytes=size,
        files=files,
        dry_run=dry_run,
    )


def _refuse(notice: Notice, record: FeedRecord | None, reason: str, next_step: str) -> NoReturn:
    raise ArrivalRefusedError(
        feed=notice.feed,
        cluster=record.cluster if record else notice.cluster,
        nominal_time=notice.nominal_time,
        reason=reason,
        next_step=next_step,
    )
