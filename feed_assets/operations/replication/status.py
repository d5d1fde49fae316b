"""`replication status`: how the copies of a feed stand, from the record alone; nothing is listed on storage.

Falcon's counters of a replication, BYTESCOPIED, COPY and TIMETAKEN, are the bytes, files and seconds of each instance.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from feed_assets.lifecycle.governance import Governed
from feed_assets.operations.instances.rows import rendered
from feed_assets.operations.replication.scope import VERSION, CopyQuery, CopyScope, find_scope, is_due, source_of
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import ProcessRecord
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedEvent,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.timing.dates import render_datetime

NOT_DUE = "NOT_DUE"
UNSCHEDULED = "UNSCHEDULED"
_MINUTE = timedelta(minutes=1)

_FAILED = frozenset({ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.KILLED})
_CONTENT = frozenset(
    {
        FeedEventKind.ARRIVED,
        FeedEventKind.PRODUCED,
        FeedEventKind.REPLICATED,
        FeedEventKind.CHANGED,
        FeedEventKind.RESTORED,
    }
)


class Sync(StrEnum):
    """How a replica stands to its source, as far as the record knows.

    BEHIND: the source has changed since. MISSING: the source is there, and nothing of it has been copied. FAILED: the
    newest attempt failed, timed out or was killed. WAITING: the source is not there (yet).
    """

    IN_SYNC = "in sync"
    BEHIND = "behind"
    MISSING = "missing"
    FAILED = "failed"
    RUNNING = "running"
    WAITING = "waiting"
    EVICTED = "evicted"
    NOT_DUE = "not due"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFigures:
    """What the newest copy that transferred something did: bytes, files, seconds, and bytes a second."""

    copied_at: datetime
    bytes: int
    files: int
    seconds: float
    bandwidth: int
    resumed: int
    removed: int
    verification: str
    source_digest: str

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "copiedAt": rendered(self.copied_at),
            "bytes": self.bytes,
            "files": self.files,
            "seconds": self.seconds,
            "bandwidth": self.bandwidth,
            "resumedBytes": self.resumed,
            "removedFiles": self.removed,
            "verification": self.verification,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """One instance of a flow. `status` is that of the instance, UNSCHEDULED if it has not come into being, or NOT_DUE.

    `source_digest` is what the record has of the source now, a sign of its size and time where nobody has read it;
    `copied_digest` is that of the content that was copied, `target_digest` that of the whole instance at the target.
    """

    source: str
    target: str
    nominal_time: datetime
    status: str
    sync: Sync
    attempts: int = 0
    reason: str | None = None
    run_id: str | None = None
    source_digest: str | None = None
    copied_digest: str | None = None
    target_digest: str | None = None
    figures: CopyFigures | None = None

    def to_json(self) -> dict[str, object]:
        """The JSON form; what does not apply is left out."""
        fields: dict[str, object] = {
            "source": self.source,
            "target": self.target,
            "instance": render_datetime(self.nominal_time),
            "status": self.status,
            "sync": self.sync.value,
            "attempts": self.attempts,
            "reason": self.reason,
            "runId": self.run_id,
            "sourceDigest": self.source_digest,
            "copiedDigest": self.copied_digest,
            "targetDigest": self.target_digest,
            **(self.figures.to_json() if self.figures else {}),
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """A flow as a whole: its instances in the range by how they stand, and how far it has come.

    `newest` is the newest instance that was ever copied, `newest_source` the newest that there is at the source.
    """

    source: str
    target: str
    counts: Mapping[Sync, int]
    newest: datetime | None
    newest_source: datetime | None
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0

    @property
    def lag(self) -> timedelta | None:
        """How much older the newest replica is than the newest at the source; None where one of them is not there."""
        if self.newest is None or self.newest_source is None:
            return None
        return max(self.newest_source - self.newest, timedelta(0))

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "source": self.source,
            "target": self.target,
            "counts": {sync.value: count for sync, count in self.counts.items()},
            "newest": self.newest and render_datetime(self.newest),
            "newestAtSource": self.newest_source and render_datetime(self.newest_source),
            "lagSeconds": None if self.lag is None else int(self.lag.total_seconds()),
            "bytes": self.bytes,
            "files": self.files,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """How the copies of a feed stand over the nominal times `[start, stop)`."""

    feed: str
    start: datetime
    stop: datetime
    flows: tuple[FlowStatus, ...]
    instances: tuple[CopyRow, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "feed": self.feed,
            "start": render_datetime(self.start),
            "end": render_datetime(self.stop),
            "flows": [each.to_json() for each in self.flows],
            "instances": [each.to_json() for each in self.instances],
        }


def find_status(scene: Scene, query: CopyQuery) -> ReplicationStatus:
    """How the copies of a feed stand, by the record; by flow, and the newest first unless a start is given.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it is not copied, or not so, or the range makes no sense.
    """
    scope = find_scope(scene, query)
    rows: list[CopyRow] = []
    flows: list[FlowStatus] = []
    with scene.read() as connection:
        for flow in scope.flows:
            found = _rows(scene, connection, scope, flow)
            flows.append(_summarize(scene, connection, flow, found))
            rows += found if query.start is not None else reversed(found)
    return ReplicationStatus(
        feed=scope.feed, start=scope.start, stop=scope.stop, flows=tuple(flows), instances=tuple(rows)
    )


def copy_of(events: Sequence[FeedEvent], flow: str) -> FeedEvent | None:
    """The newest event, of those of an instance at a target, that tells of a copy by a flow."""
    mine = (
        event
        for event in reversed(events)
        if event.kind is FeedEventKind.REPLICATED and event.payload.get("process") == flow
    )
    return next(mine, None)


def has_been_there(instance: FeedInstance | None, events: Sequence[FeedEvent]) -> bool:
    """Whether the record knows that there is, or once was, data of an instance."""
    is_there = instance is not None and instance.status not in (FeedInstanceStatus.MISSING, FeedInstanceStatus.PARTIAL)
    return is_there or any(event.kind in _CONTENT for event in events)


def _rows(scene: Scene, connection: Connection, scope: CopyScope, flow: ProcessRecord) -> list[CopyRow]:
    """Oldest first, in a few statements."""
    governed = list(scope.iter_governed(scene, connection, flow))
    times = [nominal_time for _, nominal_time in governed]
    source = source_of(flow)
    feeds = FeedInstances(connection)
    at_source = feeds.get_many([FeedKey(scope.feed, source, time) for time in times])
    at_target = feeds.get_many([FeedKey(scope.feed, flow.cluster, time) for time in times])
    runs = ProcessInstances(connection).get_many([ProcessKey(*flow.key, time) for time in times])
    log = EventLog(connection)
    source_events = log.for_instances([FeedKey(scope.feed, source, time) for time in times])
    target_events = log.for_instances([FeedKey(scope.feed, flow.cluster, time) for time in times])
    return [
        _row(
            _Record(
                stretch=stretch,
                nominal_time=time,
                as_of=scene.as_of,
                run=runs.get(ProcessKey(*flow.key, time)),
                source=at_source.get(FeedKey(scope.feed, source, time)),
                target=at_target.get(FeedKey(scope.feed, flow.cluster, time)),
                source_events=source_events.get(FeedKey(scope.feed, source, time), ()),
                copy=copy_of(target_events.get(FeedKey(scope.feed, flow.cluster, time), ()), flow.process),
            )
        )
        for stretch, time in governed
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What the record has of one instance of a flow."""

    stretch: Governed
    nominal_time: datetime
    as_of: datetime
    run: ProcessInstance | None
    source: FeedInstance | None
    target: FeedInstance | None
    source_events: Sequence[FeedEvent]
    copy: FeedEvent | None

    @property
    def is_at_source(self) -> bool:
        return self.source is not None and self.source.status in (
            FeedInstanceStatus.AVAILABLE,
            FeedInstanceStatus.EMPTY,
        )

    @property
    def has_changed(self) -> bool:
        """Whether something happened at the source since the newest attempt began, which then copied what was there."""
        changes = [event.recorded_at for event in self.source_events if event.kind in _CONTENT]
        if not changes or self.run is None or self.run.started_at is None:
            return False
        now = self.source.manifest_digest if self.source else None
        then = {digest for frozen in self.run.inputs for digest in frozen.digests}
        is_same = now is not None and now in {*then, _copied(self.copy).get("source_digest")}
        return max(changes) > self.run.started_at and not is_same


def _row(record: _Record) -> CopyRow:
    run, copy = record.run, record.copy
    figures = _figures(copy) if copy else None
    flow = record.stretch.record
    return CopyRow(
        source=source_of(flow),
        target=flow.cluster,
        nominal_time=record.nominal_time,
        status=run.status.value if run else _unborn(record),
        sync=_decide_sync(record),
        attempts=run.attempt if run else 0,
        reason=run.reason if run else None,
        run_id=run.run_id if run else None,
        source_digest=record.source.manifest_digest if record.source else None,
        copied_digest=figures.source_digest if figures else None,
        target_digest=record.target.manifest_digest if record.target else None,
        figures=figures,
    )


def _unborn(record: _Record) -> str:
    return UNSCHEDULED if is_due(record.stretch, record.nominal_time, record.as_of) else NOT_DUE


def _decide_sync(record: _Record) -> Sync:
    run = record.run
    if record.target is not None and record.target.status is FeedInstanceStatus.EVICTED:
        return Sync.EVICTED
    if run is not None and run.status is ProcessInstanceStatus.RUNNING:
        return Sync.RUNNING
    if run is not None and run.status in _FAILED:
        return Sync.FAILED
    if record.copy is not None or (run is not None and run.status is ProcessInstanceStatus.SUCCEEDED):
        return Sync.BEHIND if record.has_changed else Sync.IN_SYNC
    if run is None and not is_due(record.stretch, record.nominal_time, record.as_of):
        return Sync.NOT_DUE
    return Sync.MISSING if record.is_at_source else Sync.WAITING


def _figures(event: FeedEvent) -> CopyFigures:
    copied = _copied(event)
    return CopyFigures(
        copied_at=event.recorded_at,
        bytes=copied.get("copied_bytes", 0),
        files=copied.get("copied_files", 0),
        seconds=copied.get("copy_seconds", 0.0),
        bandwidth=copied.get("bandwidth", 0),
        resumed=copied.get("resumed_bytes", 0),
        removed=copied.get("removed_files", 0),
        verification=copied.get("verification", ""),
        source_digest=copied.get("source_digest", ""),
    )


def _copied(event: FeedEvent | None) -> Mapping[str, Any]:
    """The figures of a copy, as `describe_copy` made them."""
    found: Any = event.payload.get("copy") if event else None
    return found or {}


def _summarize(scene: Scene, connection: Connection, flow: ProcessRecord, rows: Sequence[CopyRow]) -> FlowStatus:
    newest = ProcessInstances(connection).with_status(
        ProcessInstanceStatus.SUCCEEDED, *flow.key, limit=1, newest_first=True
    )
    (edge,) = flow.inputs
    last = scene.as_of if flow.sequence.end is None else min(scene.as_of, flow.sequence.end - _MINUTE)
    available = FeedInstances(connection).latest_available(*edge.feed_key, last, 1)
    figures = [row.figures for row in rows if row.figures is not None]
    counts = Counter(row.sync for row in rows)
    return FlowStatus(
        source=source_of(flow),
        target=flow.cluster,
        counts={sync: counts[sync] for sync in Sync if counts[sync]},
        newest=newest[0].nominal_time if newest else None,
        newest_source=available[0] if available else None,
        bytes=sum(each.bytes for each in figures),
        files=sum(each.files for each in figures),
        seconds=sum(each.seconds for each in figures),
    )
