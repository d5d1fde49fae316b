"""Notices of arrivals: producers report instances, so that they need not be polled."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import NoReturn

from sqlalchemy import Connection

from feed_assets.command_lines import command_line, instance_command
from feed_assets.context.errors import ArrivalRefusedError
from feed_assets.context.operation import ChangeContext, OperationContext, note_target
from feed_assets.entities.common import Kind
from feed_assets.entities.content.event_messages import (
    MARKING_REMEDY,
    PAYLOAD_REMEDY,
    find_marking_fault,
    find_payload_fault,
)
from feed_assets.entities.flow_names import is_flow
from feed_assets.entities.locations.overlaps import Places
from feed_assets.errors import describe_error
from feed_assets.instances.arrival.instance_paths import plain_template
from feed_assets.instances.arrival.polling import (
    PollResult,
    decide_poll_result,
    describe_owner,
    read_versions,
    record_poll_results,
)
from feed_assets.instances.arrival.recording import Signal, content_digest, record_signals
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.instances.arrival.stored_data import record_vanished
from feed_assets.instances.late.contents import note_content, record_contents, scan_contents, scan_held, with_content
from feed_assets.instances.late.quality_checks import (
    ACCEPTED,
    QualityChecks,
    find_refusal,
    hold_back,
    is_to_judge,
    let_in,
)
from feed_assets.json_form import Hidden, NominalTime
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import OWN_PATHS, FeedPlaces
from feed_assets.log.records import (
    MESSAGE,
    FeedEvent,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    NewFeedEvent,
)
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.sql.database import lock_log
from feed_assets.storage.records import Availability, Look
from feed_assets.timing.dates import render_datetime


class NoticeOutcome(StrEnum):
    """The outcome of a notice."""

    RECORDED = "recorded"
    CHANGED = "recorded again, with other content"
    HELD = "recorded, and available once its rows are judged"
    ACCEPTED = "accepted as it is"
    KNOWN = "known already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A report that an instance of a feed has arrived.

    `cluster` may be omitted if the feed arrives on one cluster only. The second of two notices with the same `key` does
    nothing, and has the outcome of the first. `path` and `bytes` are compared with the instance's location and content.
    With `is_trusted` storage is not checked. `payload` and `marking` are handed to those who read the instance.
    `is_again` says that an instance that has arrived has other content now. `accept` says why one that is held back
    because of its rows is taken as it is.

    The time may be omitted if the path tells it; for a signal it is then the present second.
    """

    feed: str
    nominal_time: datetime | None
    cluster: str | None = None
    key: str | None = None
    path: str | None = None
    bytes: int | None = None
    is_trusted: bool = False
    payload: Mapping[str, object] = field(default_factory=dict)
    marking: str | None = None
    is_again: bool = False
    accept: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeResult:
    """The outcome of a notice; bytes and files are None if storage was not checked. `other` says that a known instance
    has other content now.
    """

    feed: str
    cluster: str
    nominal_time: NominalTime
    outcome: NoticeOutcome
    url: str
    bytes: int | None
    files: int | None
    dry_run: bool = False
    other: Hidden[str] = ""

    @property
    def tick_clusters(self) -> tuple[str, ...]:
        """The cluster whose ticks go on with the instance."""
        return (self.cluster,)

    @property
    def told(self) -> str:
        """The outcome in one line."""
        size = "" if self.files is None else f", {counted(self.bytes or 0, 'byte')} in {counted(self.files, 'file')}"
        would = "would be " if self.dry_run and self.outcome is not NoticeOutcome.KNOWN else ""
        time = render_datetime(self.nominal_time)
        return f"feed {self.feed!r} on {self.cluster} at {time}: {would}{self.outcome.value}{size}{self.other}"


def record_notice(context: ChangeContext, notice: Notice) -> NoticeResult:
    """Record the arrival that a notice reports. The next tick opens the gates of the processes that read the instance.
    A notice of an instance that has already arrived, and is still there, does nothing and is no error.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the feed is not on the cluster.
        InstanceError: the time is no instance of it.
        ArrivalRefusedError: the instance is missing or incomplete, or the feed is produced here.
        StorageError: storage cannot be reached.
    """
    require_message(notice)
    record = _find_record(context, notice)
    if not record.has_data:
        return _record_signal(context, record, notice)
    time = _find_time(record, notice)
    record.sequence.index(time)
    _check_notice(context, record, notice, time)
    if notice.accept is not None:
        return _accept(context, record, notice, time)
    with context.database.read() as connection:
        known = _find_known(connection, record, notice, time)
    seen_now: dict[FeedKey, Look] = {}
    if isinstance(known, FeedInstance) and not notice.is_trusted:
        wanted, origin = [Candidate(record=record, nominal_time=time)], notice_origin(context.author)
        known = None if record_vanished(context, wanted, origin, dry_run=context.dry_run, seen=seen_now) else known
    if record.is_current and isinstance(known, FeedInstance) and not notice.is_trusted:
        return _record_version(context, record, notice, known)
    is_again = notice.is_again or record.is_current
    if known is not None and not (is_again and isinstance(known, FeedInstance)):
        _require_size(record, notice, time, known)
        outcome = NoticeOutcome.KNOWN
        if isinstance(known, FeedEvent) and not context.dry_run:
            outcome = NoticeOutcome.CHANGED if known.kind is FeedEventKind.CHANGED else NoticeOutcome.RECORDED
        result = _result(context, record, time, outcome, known.bytes, known.files)
        return replace(result, other=_describe_other(record, notice, known, seen_now.values()))
    _require_own_path(context, record, notice, time)
    look = _look(context, record, notice, time)
    seen = _seen(context, record, notice, time, look)
    outcome = NoticeOutcome.RECORDED if known is None else NoticeOutcome.CHANGED
    with context.database.read() as connection:
        is_held = seen.row is not None and is_to_judge(connection, record, seen.row)
        refusal = None if seen.row is None else find_refusal(connection, record, seen.row)
    if refusal is not None:
        told = f"; {refusal.sentence}; to take it as it is: {_notify(replace(notice, accept='REASON'), record.cluster)}"
        known_now = _result(context, record, time, NoticeOutcome.KNOWN, look.bytes, look.files)
        return replace(known_now, other=told)
    outcome = NoticeOutcome.HELD if is_held else outcome
    if known is not None and known.manifest_digest == (seen.row and seen.row.manifest_digest):
        return _result(context, record, time, NoticeOutcome.KNOWN, look.bytes, look.files)
    if not context.dry_run:
        with context.database.begin() as connection:
            lock_log(connection)  # so that no two notices find the same key free
            is_first = _find_known(connection, record, notice, time) == known
            FeedPlaces(connection).put([record])  # no tick may have seen the definition yet
            if is_first and known is not None:
                _record_change(connection, seen)
            elif is_first:
                record_poll_results(connection, [seen])
        if not is_first:
            return record_notice(context, notice)
        _audit(context, record, notice, time)
    size, files = (notice.bytes, None) if notice.is_trusted else (look.bytes, look.files)
    return _result(context, record, time, outcome, size, files)


def _record_version(context: ChangeContext, record: FeedRecord, notice: Notice, known: FeedInstance) -> NoticeResult:
    """Look at the content of a current instance at once, and record other content as a version."""
    look = _look(context, record, notice, known.nominal_time)
    (content,) = scan_contents(context, {known.key: record}, follows_declared=True).values()
    if content.scan is None:
        _refuse_unread(notice, record, known.nominal_time, describe_error(content.error) if content.error else None)
    is_other = content.earlier is not None and content.earlier.digest != content.scan.digest
    if not context.dry_run:
        with context.database.begin() as connection:
            say = partial(_complete, context, notice)
            is_other = bool(record_contents(connection, [content], context.as_of, say=say).changed)
        if is_other:
            _audit(context, record, notice, known.nominal_time)
    outcome = NoticeOutcome.CHANGED if is_other else NoticeOutcome.KNOWN
    outcome = NoticeOutcome.HELD if is_other and record.is_judged else outcome
    return _result(context, record, known.nominal_time, outcome, look.bytes, look.files)


def _complete(context: ChangeContext, notice: Notice, event: NewFeedEvent) -> NewFeedEvent:
    """Return an event of a notice with what the notice says."""
    return replace(
        event,
        origin=notice_origin(context.author),
        idempotency_key=None if notice.key is None else _key(notice.key),
        payload={**event.payload, **({MESSAGE: notice.payload} if notice.payload else {})},
        marking=notice.marking,
    )


def _record_signal(context: ChangeContext, record: FeedRecord, notice: Notice) -> NoticeResult:
    """Record a notice of a feed without data; each is an event of its second, or with a time the only one of that."""
    if record.produced_by is not None:
        _refuse(notice, record, notice.nominal_time, f"asset {record.producer} makes it", "Materialize the asset.")
    if notice.path is not None or notice.bytes is not None:
        _refuse(notice, record, notice.nominal_time, "it has no data", "Leave out the path and the size.")
    if notice.nominal_time is not None:
        record.sequence.index(notice.nominal_time)
    signal = Signal(
        record=record,
        at=notice.nominal_time or context.as_of,
        origin=notice_origin(context.author),
        payload=notice.payload,
        marking=notice.marking,
        key=None if notice.key is None else _key(notice.key),
    )
    time = signal.instance.nominal_time
    with context.database.read() as connection:
        event = _find_event(connection, record, notice, notice.nominal_time)
        row = FeedInstances(connection).get(*record.key, time) if notice.nominal_time is not None else None
    if event is not None or (row is not None and not notice.is_again):
        outcome = NoticeOutcome.KNOWN
        if event is not None and not context.dry_run:
            outcome = NoticeOutcome.CHANGED if notice.is_again and notice.nominal_time else NoticeOutcome.RECORDED
        known = event.nominal_time if event is not None else time
        return _result(context, record, known, outcome, None, None)
    outcome = NoticeOutcome.RECORDED if row is None else NoticeOutcome.CHANGED
    if not context.dry_run:
        with context.database.begin() as connection:
            is_first = bool(record_signals(connection, [signal], context.as_of))
        if not is_first:
            return _record_signal(context, record, notice)
        _audit(context, record, notice, time)
    return _result(context, record, time, outcome, None, None)


def require_message(notice: Notice) -> None:
    """Require that the payload and the marking of a notice can be kept.

    Raises:
        ArrivalRefusedError: one of them cannot.
    """
    if fault := find_payload_fault(notice.payload):
        _refuse(notice, None, notice.nominal_time, fault, PAYLOAD_REMEDY)
    if fault := find_marking_fault(notice.marking):
        _refuse(notice, None, notice.nominal_time, fault, MARKING_REMEDY)


def _find_time(record: FeedRecord, notice: Notice) -> datetime:
    """Return the time of the instance: as given, or as the path tells it; a current one needs neither."""
    if notice.nominal_time is not None:
        return notice.nominal_time
    if record.is_current:
        return record.sequence.start
    root = record.store.url.rstrip("/")
    path = (notice.path or "").rstrip("/").removeprefix(root).removeprefix(root.removeprefix("file://"))
    found = plain_template(record.template).find_instance(path.lstrip("/"), record.sequence) if notice.path else None
    if found is None:
        reason = "neither its time nor the path of an instance is given"
        _refuse(notice, record, None, reason, f"Name the instance, or a path such as {record.template}.")
    return found


def _record_change(connection: Connection, seen: PollResult) -> None:
    """Record other content of an instance that has arrived before."""
    assert seen.event is not None
    assert seen.row is not None
    instances = FeedInstances(connection)
    before = instances.get(*seen.key)
    event = replace(seen.event, kind=FeedEventKind.CHANGED)
    row = replace(seen.row, available_at=before.available_at if before is not None else None)
    if held := hold_back(connection, [(seen.record, row, event)]):
        instances.put(held.values())
        ArrivalPolls(connection).put([seen.next_poll] if seen.next_poll is not None else [])
        return
    (seq,) = EventLog(connection).append([event])
    came_at = event.recorded_at if seen.record.is_current else row.available_at
    instances.put([replace(row, event_seq=seq, available_at=came_at)])


def _accept(context: ChangeContext, record: FeedRecord, notice: Notice, time: datetime) -> NoticeResult:
    """Let in an instance that is held back because of its rows, as it is; what was found about them stays."""
    look = _look(context, record, notice, time)
    seen = _seen(context, record, notice, time, look)
    assert seen.row is not None
    if not (notice.accept or "").strip():
        _refuse(notice, record, time, "nothing says why its rows are accepted", "Write the reason behind --accept.")
    key = FeedKey(*record.key, time)
    content = scan_held(context, record, key)
    with context.database.begin() as connection:
        lock_log(connection)
        row, check = FeedInstances(connection).get(*key), QualityChecks(connection).of_instances([key]).get(key)
        if row is None or check is None or row.status is not FeedInstanceStatus.PARTIAL:
            again = _notify(replace(notice, accept=None), record.cluster)
            _refuse(notice, record, time, "its rows do not hold it back", f"Give notice without --accept: {again}")
        if not context.dry_run:
            told = {"by": context.author, "because": notice.accept}
            if check.content != (seen.row.manifest_digest or ""):
                check = replace(check, facts={}, summary=None, content=seen.row.manifest_digest or "")
            accepted = replace(seen.row, available_at=row.available_at)
            check = replace(
                check,
                accepted=f"{context.author}: {notice.accept}",
                event={
                    **check.event,
                    "origin": notice_origin(context.author),
                    "bytes": look.bytes,
                    "files": look.files,
                },
            )
            let_in(connection, record, with_content(accepted, content), check, context.as_of, **{ACCEPTED: told})
            note_content(connection, content, context.as_of)
    if not context.dry_run:
        _audit(context, record, notice, time)
    return _result(context, record, time, NoticeOutcome.ACCEPTED, look.bytes, look.files)


def _audit(context: ChangeContext, record: FeedRecord, notice: Notice, time: datetime) -> None:
    details = {"marking": notice.marking, "key": notice.key, "again": notice.is_again or None}
    details["accepted"] = notice.accept
    note_target(
        context,
        "feed notify",
        f"feed {record.feed!r} on {record.cluster} at {render_datetime(time)}",
        **{name: value for name, value in details.items() if value is not None},
    )


def _find_record(context: OperationContext, notice: Notice) -> FeedRecord:
    records = context.feeds_of(notice.feed, notice.cluster)
    arriving = [record for record in records if record.is_external]
    if len(arriving) > 1:
        names = ", ".join(record.cluster for record in arriving)
        choice = _notify(notice, arriving[0].cluster)
        _refuse(notice, None, notice.nominal_time, f"it arrives on {names}", f"Choose one: {choice}")
    return arriving[0] if arriving else min(records, key=lambda each: is_flow(each.outputs_of[0].process))


def _check_notice(context: OperationContext, record: FeedRecord, notice: Notice, time: datetime) -> None:
    if not record.is_external:
        writer = record.outputs_of[0].process
        rerun = instance_command("rerun", writer, time, record.cluster)
        _refuse(notice, record, time, f"process {writer!r} writes it", f"Run that: {rerun}")
    if time > context.as_of:
        next_step = "Give notice after that time; polls also start then."
        _refuse(notice, record, time, "its nominal time is in the future", next_step)
    path = record.path(time)
    named = None if notice.path is None else notice.path.rstrip("/")
    if named is not None and named.lstrip("/") != path and not _is_same_place(named, f"{record.store.url}/{path}"):
        reason = f"its data belong to {path}, not to {notice.path}"
        _refuse(notice, record, time, reason, "Correct the path or the instance.")


def _require_own_path(context: OperationContext, record: FeedRecord, notice: Notice, time: datetime) -> None:
    with context.database.read() as connection:
        for owner in FeedPlaces(connection).find_owners([(record, time)]).values():
            _refuse(notice, record, time, describe_owner(owner), OWN_PATHS)


def _is_same_place(one: str, other: str) -> bool:
    places = Places()
    return places.canonical(one) == places.canonical(other)


def _find_known(
    connection: Connection, record: FeedRecord, notice: Notice, time: datetime
) -> FeedEvent | FeedInstance | None:
    """Return the known arrival: the event of the same notice, or the recorded instance."""
    if (event := _find_event(connection, record, notice, time)) is not None:
        return event
    row = FeedInstances(connection).get(*record.key, time)
    if row is not None and row.status is FeedInstanceStatus.EVICTED:
        why = command_line("why", record.feed, time, kind=Kind.FEED.value, cluster=record.cluster)
        next_step = f"An evicted instance does not arrive again. How it is restored: {why}"
        _refuse(notice, record, time, "it was evicted", next_step)
    return row if row is not None and row.status is FeedInstanceStatus.AVAILABLE else None


def _find_event(connection: Connection, record: FeedRecord, notice: Notice, time: datetime | None) -> FeedEvent | None:
    """Return the event of the same notice, by its key."""
    event = EventLog(connection).find_key(_key(notice.key)) if notice.key is not None else None
    if event is None:
        return None
    if (event.feed, event.cluster, event.nominal_time) != (*record.key, time or event.nominal_time):
        other = f"feed {event.feed!r} on {event.cluster} at {render_datetime(event.nominal_time)}"
        reason = f"the key {notice.key!r} was that of {other}"
        _refuse(notice, record, time, reason, "Use a key for one instance.")
    if (event.payload.get(MESSAGE, {}), event.marking) != (notice.payload, notice.marking):
        reason = f"the key {notice.key!r} was that of a notice with another payload or marking"
        _refuse(notice, record, time, reason, "Use another key, with --again.")
    return event


def _require_size(record: FeedRecord, notice: Notice, time: datetime, known: FeedEvent | FeedInstance) -> None:
    """Require that a known arrival has the size that a notice tells, if both have one."""
    if notice.bytes is not None and known.bytes not in (None, notice.bytes):
        again = _notify(replace(notice, key=None, is_again=True), record.cluster)
        reason = f"it has arrived with {known.bytes:,} bytes, not {notice.bytes:,}"
        _refuse(notice, record, time, reason, f"Correct the size; or, if it has other content now: {again}")


def _describe_other(record: FeedRecord, notice: Notice, known: FeedEvent | FeedInstance, looks: Iterable[Look]) -> str:
    """Return that storage has another size than a known arrival, and what records it; nothing if it has not."""
    again = _notify(replace(notice, key=None, bytes=None, is_again=True), record.cluster)
    found = (each.bytes for each in looks if each.availability is Availability.AVAILABLE and each.bytes != known.bytes)
    told = (f"; it has other content now, {counted(size, 'byte')}, to record it: {again}" for size in found)
    return next(told, "")


def _look(context: OperationContext, record: FeedRecord, notice: Notice, time: datetime) -> Look:
    path = record.path(time)
    if notice.is_trusted:
        return Look(path=path, availability=Availability.AVAILABLE, bytes=notice.bytes or 0, files=0, modified_at=None)
    (look,) = context.stores.get(record.store).look([path], record.flag)
    url = context.feed_url(record, time)
    if look.availability is Availability.AVAILABLE and notice.bytes in (None, look.bytes):
        return look
    if look.obstacle is not None:
        reason = f"{url} cannot be read: {look.obstacle}"
        _refuse(notice, record, time, reason, "Remove the obstacle, and give notice again.")
    reasons = {
        Availability.AVAILABLE: f"{url} has {look.bytes} bytes, not {notice.bytes}",
        Availability.MISSING: f"{url} does not exist",
        Availability.PARTIAL: f"{url} has no {record.flag} yet",
        Availability.EMPTY: f"{url} is empty",
    }
    trusted = _notify(notice, record.cluster, is_trusted=True)
    next_step = f"Give notice when it is complete, or skip the check of storage: {trusted}"
    return _refuse(notice, record, time, reasons[look.availability], next_step)


def _notify(notice: Notice, cluster: str, *, is_trusted: bool = False) -> str:
    """Return the command of a notice, with a cluster."""
    instance = () if notice.nominal_time is None else (notice.nominal_time,)
    return command_line(
        "feed",
        "notify",
        notice.feed,
        *instance,
        cluster=cluster,
        key=notice.key,
        path=notice.path,
        bytes=None if notice.bytes is None else str(notice.bytes),
        trust=is_trusted,
        payload=json.dumps(notice.payload) if notice.payload else None,
        marking=notice.marking,
        again=notice.is_again,
        accept=notice.accept,
    )


def _refuse_unread(notice: Notice, record: FeedRecord, time: datetime, reason: str | None) -> NoReturn:
    said = reason or "its content cannot be read now"
    _refuse(notice, record, time, said, "Give notice again when nobody writes there any more.")


def _seen(context: ChangeContext, record: FeedRecord, notice: Notice, time: datetime, look: Look) -> PollResult:
    candidate = Candidate(record=record, nominal_time=time)
    seen = decide_poll_result(candidate, look, context.as_of, notice_origin(context.author))
    if not notice.is_trusted:
        (seen,) = read_versions(context, [seen])
    if seen.event is None:
        _refuse_unread(notice, record, time, seen.next_poll and seen.next_poll.obstacle)
    assert seen.row is not None
    event = _complete(context, notice, seen.event)
    if not notice.is_trusted:
        return replace(seen, event=event)
    digest = content_digest(notice.payload) if notice.payload else None
    row = replace(seen.row, manifest_digest=digest, bytes=notice.bytes, files=None)
    payload = {**event.payload, "trusted": True}
    event = replace(event, manifest_digest=digest, bytes=notice.bytes, files=None, payload=payload)
    return replace(seen, row=row, event=event)


def notice_origin(author: str) -> str:
    """Return the origin of the events that a person's or program's notice records."""
    return f"notice:{author}"


def _key(key: str) -> str:
    """Return the event key of a notice: notices have a namespace of their own in the log."""
    return f"notice/{key}"


def _result(
    context: ChangeContext,
    record: FeedRecord,
    time: datetime,
    outcome: NoticeOutcome,
    size: int | None,
    files: int | None,
) -> NoticeResult:
    return NoticeResult(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=time,
        outcome=outcome,
        url=context.feed_url(record, time),
        bytes=size,
        files=files,
        dry_run=context.dry_run,
    )


def _refuse(notice: Notice, record: FeedRecord | None, time: datetime | None, reason: str, next_step: str) -> NoReturn:
    raise ArrivalRefusedError(
        feed=notice.feed,
        cluster=record.cluster if record else notice.cluster,
        nominal_time=time,
        reason=reason,
        next_step=next_step,
    )
