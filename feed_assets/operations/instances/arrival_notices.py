"""Notices of arrivals: a producer says that an instance is there, and nobody has to wait until it is looked for."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NoReturn

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.lifecycle.arrivals import Candidate, Seen, decide_seen, record_seen
from feed_assets.operations.errors import ArrivalRefusedError
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import FeedRecord
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.records import FeedEvent, FeedInstanceStatus
from feed_assets.storage.records import Availability, Look
from feed_assets.timing.dates import render_datetime

VERSION = 1


class NoticeOutcome(StrEnum):
    """What became of a notice."""

    RECORDED = "recorded"
    KNOWN = "known already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What somebody says: an instance of a feed is there.

    `cluster` may be left out where the feed arrives on one only. Of two notices with one `key` the second does nothing.
    `path` and `bytes` are held against where the instance belongs and what is there. With `is_trusted` storage is not
    asked.
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
    """What became of a notice; bytes and files are None where storage was not asked."""

    feed: str
    cluster: str
    nominal_time: datetime
    outcome: NoticeOutcome
    url: str
    bytes: int | None
    files: int | None
    is_dry_run: bool = False

    def render(self) -> str:
        """One line."""
        size = "" if self.files is None else f", {self.bytes} bytes in {self.files} files"
        would = "would be " if self.is_dry_run and self.outcome is NoticeOutcome.RECORDED else ""
        time = render_datetime(self.nominal_time)
        return f"feed {self.feed!r} on {self.cluster} at {time}: {would}{self.outcome.value}{size}"

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "feed": self.feed,
            "cluster": self.cluster,
            "instance": render_datetime(self.nominal_time),
            "outcome": self.outcome.value,
            "uri": self.url,
            "bytes": self.bytes,
            "files": self.files,
            "dry_run": self.is_dry_run,
        }


def record_notice(scene: Scene, notice: Notice, *, dry_run: bool = False) -> NoticeResult:
    """Record the arrival that a notice tells of; the gates of those who read it open with the next tick.

    A notice of what has arrived already does nothing, and is no error.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it is not on the cluster.
        InstanceError: the time is no instance of it.
        ArrivalRefusedError: the instance is not there, or not whole, or it is not arrivals that make it.
        StorageError: storage cannot be asked.
    """
    record = _find_record(scene, notice)
    record.sequence.index(notice.nominal_time)
    _check_notice(scene, record, notice)
    with scene.database.read() as connection:
        known = _find_known(connection, record, notice)
    if known is not None:
        return _result(scene, record, notice, NoticeOutcome.KNOWN, known.bytes, known.files, dry_run=dry_run)
    look = _look(scene, record, notice)
    if not dry_run:
        with scene.database.begin() as connection:
            if _find_known(connection, record, notice) is None:
                record_seen(connection, [_seen(record, notice, look, scene.as_of)])
    size, files = (notice.bytes, None) if notice.is_trusted else (look.bytes, look.files)
    return _result(scene, record, notice, NoticeOutcome.RECORDED, size, files, dry_run=dry_run)


def _find_record(scene: Scene, notice: Notice) -> FeedRecord:
    if notice.cluster is not None:
        return scene.feed_on(notice.feed, notice.cluster)
    records = [scene.feed_on(notice.feed, cluster) for cluster in scene.clusters_of(Kind.FEED, notice.feed)]
    arriving = [record for record in records if record.is_external]
    if len(arriving) > 1:
        names = ", ".join(record.cluster for record in arriving)
        _refuse(notice, None, f"it arrives on {names}", "Say on which of them.")
    return arriving[0] if arriving else records[0]


def _check_notice(scene: Scene, record: FeedRecord, notice: Notice) -> None:
    if not record.is_external:
        writer = record.outputs_of[0].process
        _refuse(notice, record, f"process {writer!r} writes it", f"Run that with: feed-assets instance rerun {writer}.")
    if notice.nominal_time > scene.as_of:
        _refuse(notice, record, "its nominal time has not come yet", "Give notice then; it is looked for then, too.")
    path = record.path(notice.nominal_time)
    named = None if notice.path is None else notice.path.rstrip("/")
    if named is not None and named.lstrip("/") != path and named != scene.feed_url(record, notice.nominal_time):
        _refuse(notice, record, f"its data belong to {path}, not to {notice.path}", "Correct the path or the instance.")


def _find_known(connection: Connection, record: FeedRecord, notice: Notice) -> "FeedEvent | _Standing | None":
    """What is recorded already: by the same notice, or by whoever has seen the instance before."""
    if notice.key is not None:
        event = EventLog(connection).find_key(_key(notice.key))
        if event is not None:
            if (event.feed, event.cluster, event.nominal_time) != (*record.key, notice.nominal_time):
                other = f"feed {event.feed!r} on {event.cluster} at {render_datetime(event.nominal_time)}"
                _refuse(notice, record, f"the key {notice.key!r} was that of {other}", "Use a key for one instance.")
            return event
    row = FeedInstances(connection).get(*record.key, notice.nominal_time)
    if row is not None and row.status is FeedInstanceStatus.EVICTED:
        _refuse(notice, record, "it was evicted", "What has been evicted does not arrive again; restore it.")
    is_there = row is not None and row.status is FeedInstanceStatus.AVAILABLE
    return _Standing(bytes=row.bytes, files=row.files) if row is not None and is_there else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    bytes: int | None
    files: int | None


def _look(scene: Scene, record: FeedRecord, notice: Notice) -> Look:
    path = record.path(notice.nominal_time)
    if notice.is_trusted:
        return Look(path=path, availability=Availability.AVAILABLE, bytes=notice.bytes or 0, files=0, modified_at=None)
    (look,) = scene.stores.get(record.store).look([path], record.flag)
    url = scene.feed_url(record, notice.nominal_time)
    if look.availability is Availability.AVAILABLE and notice.bytes in (None, look.bytes):
        return look
    reasons = {
        Availability.AVAILABLE: f"{url} holds {look.bytes} bytes, not {notice.bytes}",
        Availability.MISSING: f"nothing is at {url}",
        Availability.PARTIAL: f"{url} has no {record.flag} yet",
        Availability.EMPTY: f"{url} is empty",
    }
    next_step = "Give notice when it is whole, or say that storage is not to be asked (--trust)."
    return _refuse(notice, record, reasons[look.availability], next_step)


def _seen(record: FeedRecord, notice: Notice, look: Look, as_of: datetime) -> Seen:
    seen = decide_seen(Candidate(record=record, nominal_time=notice.nominal_time), look, as_of)
    assert seen.event is not None
    event = replace(
        seen.event,
        origin=f"notice:{notice.author}",
        idempotency_key=None if notice.key is None else _key(notice.key),
    )
    if not notice.is_trusted:
        return replace(seen, event=event)
    row = replace(seen.row, manifest_digest=None, bytes=notice.bytes, files=None)
    payload = {**event.payload, "trusted": True}
    event = replace(event, manifest_digest=None, bytes=notice.bytes, files=None, payload=payload)
    return replace(seen, row=row, event=event)


def _key(key: str) -> str:
    """Keys of notices have a space of their own in the log."""
    return f"notice/{key}"


def _result(
    scene: Scene,
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
        url=scene.feed_url(record, notice.nominal_time),
        bytes=size,
        files=files,
        is_dry_run=dry_run,
    )


def _refuse(notice: Notice, record: FeedRecord | None, reason: str, next_step: str) -> NoReturn:
    raise ArrivalRefusedError(
        feed=notice.feed,
        cluster=record.cluster if record else notice.cluster,
        nominal_time=notice.nominal_time,
        reason=reason,
        next_step=next_step,
    )
