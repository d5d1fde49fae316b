"""`replication status`: the state of the copies of a feed, from the record alone; storage is not listed. The bytes,
files and seconds of each instance are Falcon's counters BYTESCOPIED, COPY and TIMETAKEN.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext
from feed_assets.instances.attempts.copy_records import copy_of, figures_of, has_changed
from feed_assets.json_form import Hidden, NominalTime, shown, shows
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    CONTENT,
    FeedEvent,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.operation import tell_shown
from feed_assets.plan.records import ProcessRecord
from feed_assets.replication.queries import CopyQuery
from feed_assets.replication.scope import AT_ONCE, CopyScope, OnProgress, find_scope, is_due, source_of

NOT_DUE = "NOT_DUE"
UNSCHEDULED = "UNSCHEDULED"
_MOMENT = timedelta(microseconds=1)

_AT_SOURCE = frozenset({FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EMPTY})
_FAILED = frozenset({ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.KILLED})


class Sync(StrEnum):
    """The state of a replica relative to its source, by the record. BEHIND: the source has changed since. MISSING: the
    source is available, and nothing of it was copied. FAILED: the newest attempt failed, timed out or was killed.
    WAITING: the source is not available (yet).
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
    """The figures of the newest copy that transferred data: bytes, files, seconds, and bytes per second."""

    copied_at: datetime
    bytes: int
    files: int
    seconds: float
    bandwidth: int
    resumed: int
    removed: int
    verification: str
    source_digest: str


@shows("figures", "copied_digest=source_digest")
@shows("at_target", "target_digest=manifest_digest")
@shows("at_source", "source_digest=manifest_digest")
@shows("run", "reason, run_id")
@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """One instance of a flow. `status` is that of the instance, UNSCHEDULED if it is not created yet, or NOT_DUE.
    `source_digest` is the recorded digest of the source now, or its size and time if the content was never read;
    `copied_digest` is that of the copied content, `target_digest` that of the whole instance at the target.
    """

    source: str
    target: str
    nominal_time: NominalTime
    is_due: Hidden[bool]
    run: Hidden[ProcessInstance | None]
    at_source: Hidden[FeedInstance | None]
    at_target: Hidden[FeedInstance | None]
    source_events: Hidden[Sequence[FeedEvent]]
    copy: Hidden[FeedEvent | None]
    figures: CopyFigures | None

    @shown
    def status(self) -> str:
        """The status of the instance."""
        return self.run.status.value if self.run else UNSCHEDULED if self.is_due else NOT_DUE

    @shown
    def attempts(self) -> int:
        """How often it was copied."""
        return self.run.attempt if self.run else 0

    @shown
    def sync(self) -> Sync:
        """The state of the replica. An attempt copied what its source was when it began."""
        run, target, source = self.run, self.at_target, self.at_source
        if target is not None and target.status is FeedInstanceStatus.EVICTED:
            return Sync.EVICTED
        if run is not None and run.status is ProcessInstanceStatus.RUNNING:
            return Sync.RUNNING
        if run is not None and run.status in _FAILED:
            return Sync.FAILED
        if self.copy is not None or (run is not None and run.status is ProcessInstanceStatus.SUCCEEDED):
            return Sync.BEHIND if has_changed(source, self.source_events, run, self.copy) else Sync.IN_SYNC
        if run is None and not self.is_due:
            return Sync.NOT_DUE
        return Sync.MISSING if source is not None and source.status in _AT_SOURCE else Sync.WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """The summary of a flow: its instances in the range by state, and its progress. `newest` is the newest instance
    that was ever copied, `newest_source` the newest available at the source.
    """

    source: str
    target: str
    counts: Mapping[Sync, int]
    newest: NominalTime | None
    newest_source: NominalTime | None
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0

    @property
    def lag(self) -> timedelta | None:
        """How much older the newest replica is than the newest source instance; None without one of them."""
        if self.newest is None or self.newest_source is None:
            return None
        return max(self.newest_source - self.newest, timedelta(0))

    @shown
    def lag_seconds(self) -> int | None:
        """The lag in seconds."""
        return None if self.lag is None else int(self.lag.total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """The state of the copies of a feed over the nominal times `[start, end)`: of all `total` ones by flow, and of the
    `instances` of a page one by one.
    """

    feed: str
    start: NominalTime
    end: NominalTime
    flows: tuple[FlowStatus, ...]
    instances: tuple[CopyRow, ...]
    total: int

    @shown
    def has_more(self) -> bool:
        """Whether there are others besides the page."""
        return self.total > len(self.instances)

    @property
    def summary(self) -> str:
        """How many of all are there, if not all are."""
        return tell_shown(len(self.instances), self.total, "copies", "--num-results shows more")


def find_status(
    context: OperationContext, query: CopyQuery, *, page: int | None = None, progress: OnProgress | None = None
) -> ReplicationStatus:
    """Return the recorded state of the copies of a feed; by flow, newest first unless a start is given.

    All copies are counted; the first `page` of each flow are returned, None for all.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the feed has no such copies, or the range is invalid.
    """
    scope = find_scope(context, query)
    is_oldest_first = query.start is not None
    found = {flow.key: _FlowCount() for flow in scope.flows}
    with context.read() as connection:
        for part in scope.iter_slices(context, AT_ONCE):
            for flow in scope.flows:
                found[flow.key].add(_rows(context, connection, part, flow), page, is_oldest_first=is_oldest_first)
            if progress is not None:
                progress("status", part.count_instances(context, since=scope.start), scope.count_instances(context))
        flows = [_summarize(context, connection, flow, found[flow.key]) for flow in scope.flows]
    rows = [row for each in found.values() for row in (each.rows if is_oldest_first else reversed(each.rows))]
    return ReplicationStatus(
        feed=scope.feed,
        start=scope.start,
        end=scope.end,
        flows=tuple(flows),
        instances=tuple(rows),
        total=sum(each.counts.total() for each in found.values()),
    )


@dataclass(slots=True)
class _FlowCount:
    """The counts of a flow so far, and the rows of its page, oldest first."""

    counts: Counter[Sync] = field(default_factory=Counter)
    rows: list[CopyRow] = field(default_factory=list)
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0

    def add(self, rows: Sequence[CopyRow], page: int | None, *, is_oldest_first: bool) -> None:
        """Add the next rows; keep those of the page."""
        self.counts.update(row.sync for row in rows)
        for figures in (row.figures for row in rows if row.figures is not None):
            self.bytes, self.files = self.bytes + figures.bytes, self.files + figures.files
            self.seconds += figures.seconds
        kept = [*self.rows, *rows]
        self.rows = kept if page is None else kept[:page] if is_oldest_first else kept[-page:]


def has_been_there(instance: FeedInstance | None, events: Sequence[FeedEvent]) -> bool:
    """Return whether the record has, or once had, data of an instance."""
    is_there = instance is not None and instance.status not in (FeedInstanceStatus.MISSING, FeedInstanceStatus.PARTIAL)
    return is_there or any(event.kind in CONTENT for event in events)


def _rows(context: OperationContext, connection: Connection, scope: CopyScope, flow: ProcessRecord) -> list[CopyRow]:
    """Return the rows of a flow, oldest first, in a few statements."""
    active = list(scope.iter_governed(context, connection, flow))
    times = [nominal_time for _, nominal_time in active]
    source = source_of(flow)
    feeds = FeedInstances(connection)
    at_source = feeds.get_many([FeedKey(scope.feed, source, time) for time in times])
    at_target = feeds.get_many([FeedKey(scope.feed, flow.cluster, time) for time in times])
    runs = ProcessInstances(connection).get_many([ProcessKey(*flow.key, time) for time in times])
    log = EventLog(connection)
    source_events = log.for_instances([FeedKey(scope.feed, source, time) for time in times])
    target_events = log.for_instances([FeedKey(scope.feed, flow.cluster, time) for time in times])
    return [
        CopyRow(
            source=source_of(span.record),
            target=flow.cluster,
            nominal_time=time,
            is_due=is_due(span, time, context.as_of),
            run=runs.get(ProcessKey(*flow.key, time)),
            at_source=at_source.get(FeedKey(scope.feed, source, time)),
            at_target=at_target.get(FeedKey(scope.feed, flow.cluster, time)),
            source_events=source_events.get(FeedKey(scope.feed, source, time), ()),
            copy=(copy := copy_of(target_events.get(FeedKey(scope.feed, flow.cluster, time), ()), flow.process)),
            figures=_figures(copy) if copy else None,
        )
        for span, time in active
    ]


def _figures(event: FeedEvent) -> CopyFigures:
    copied = figures_of(event)
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


def _summarize(context: OperationContext, connection: Connection, flow: ProcessRecord, found: _FlowCount) -> FlowStatus:
    newest = ProcessInstances(connection).with_status(
        ProcessInstanceStatus.SUCCEEDED, *flow.key, limit=1, newest_first=True
    )
    (edge,) = flow.inputs
    last = context.as_of if flow.sequence.end is None else min(context.as_of, flow.sequence.end - _MOMENT)
    available = FeedInstances(connection).latest_available(*edge.feed_key, last, 1)
    return FlowStatus(
        source=source_of(flow),
        target=flow.cluster,
        counts={sync: found.counts[sync] for sync in Sync if found.counts[sync]},
        newest=newest[0].nominal_time if newest else None,
        newest_source=available[0] if available else None,
        bytes=found.bytes,
        files=found.files,
        seconds=found.seconds,
    )
