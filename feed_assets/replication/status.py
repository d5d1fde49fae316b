"""`replication status`: the state of the copies of a feed, from the record alone; storage is not listed. The bytes,
files and seconds of each instance are Falcon's counters BYTESCOPIED, COPY and TIMETAKEN.

Its scope is that of all queries about copies: the flows of a feed to some targets, and a range of instances.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import flow_name, parse_flow
from feed_assets.errors import Fault
from feed_assets.instances.attempts.copy_records import copy_of, figures_of, has_changed
from feed_assets.instances.lists.ranges import decide_range
from feed_assets.json_form import Hidden, NominalTime, shown, shows
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    CONTENT,
    FeedEvent,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.pages import tell_shown
from feed_assets.plan.records import ProcessRecord
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.replication.queries import CopyQuery

AT_ONCE = 500
"""How many instances of a target are handled before the facts of the next ones are read."""

OnProgress = Callable[[str, int, int], None]
"""Called with what is done, and the numbers of handled and of all instances or files."""

_MOMENT, _DAY = timedelta(microseconds=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyScope:
    """The flows of a query, and the nominal times `[start, end)`."""

    feed: str
    flows: Hidden[tuple[ProcessRecord, ...]]
    start: NominalTime
    end: NominalTime

    @property
    def targets(self) -> tuple[str, ...]:
        """The clusters of the targets."""
        return tuple(sorted({flow.cluster for flow in self.flows}))

    def count_instances(self, context: OperationContext, *, since: datetime | None = None) -> int:
        """Return how many instances all targets have in the range, or from `since` to its end."""
        records = [context.plan.feeds[self.feed, target] for target in self.targets]
        return sum(len(record.sequence.indices_between(since or self.start, self.end)) for record in records)

    def iter_slices(self, context: OperationContext, instances: int) -> "Iterator[CopyScope]":
        """Yield consecutive parts of the range, each with about so many instances of a target, oldest first."""
        records = [context.plan.feeds[self.feed, target] for target in self.targets]
        start, step = self.start, min(record.sequence.frequency.as_duration() for record in records)
        length = min(step, (self.end - start) / instances) * instances
        if not all(record.is_expected for record in records):
            length = max(length, _DAY)
        while start < self.end:
            stop = min(start + length, self.end)
            yield replace(self, start=start, end=stop)
            start = stop

    def iter_governed(
        self, context: OperationContext, connection: Connection, flow: ProcessRecord
    ) -> Iterator[tuple[ActiveRelease, datetime]]:
        """Yield the instances of a flow in the range, oldest first, with the definitions that govern them."""
        for active in context.timeline.spans(connection, flow.key, self.start):
            sequence = active.record.sequence
            if not active.record.is_enumerated:
                (edge,) = active.record.inputs
                first, last = max(self.start, active.start), min(self.end, active.stop) - _MOMENT
                times = FeedInstances(connection).available_times(*edge.feed_key, first, last)
                yield from ((active, time) for time in times)
                continue
            for index in active.between(self.start, self.end):
                yield active, sequence.at(index)


def find_scope(context: OperationContext, query: CopyQuery, results: int | None = None) -> CopyScope:
    """Find the flows and the range of a query: by default the newest `results` instances, or all (`decide_range`).

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the feed has no such copies, or the range is invalid.
    """
    flow = parse_flow(query.feed)
    feed = query.feed if flow is None else flow[0]
    named = {name for name in (query.source, flow and flow[1]) if name}
    known = find_flows(context, feed)
    if not known:
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason="it is not replicated",
            next_step="Add a cluster of type target whose validity overlaps that of a source.",
        )
    _require(feed, "to", query.targets, {each.cluster for each in known})
    _require(feed, "from", named, {source_of(each) for each in known})
    selected = [
        each for each in known if (not query.targets or each.cluster in query.targets) and named <= {source_of(each)}
    ]
    if not selected:
        targets = ", ".join(sorted(query.targets)) or "anywhere"
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason=f"it is not copied from {', '.join(sorted(named))} to {targets}",
            next_step=f"It is copied {', '.join(map(describe_direction, known))}.",
        )
    sequences = [each.sequence for each in selected]
    sequences += [context.plan.feeds[feed, each.cluster].sequence for each in selected]
    start, stop = decide_range(sequences, start=query.start, end=query.end, results=results, now=context.as_of)
    return CopyScope(feed=feed, flows=tuple(selected), start=start, end=stop)


def find_flows(context: OperationContext, feed: str) -> tuple[ProcessRecord, ...]:
    """Return the flows of a feed, by target and source.

    Raises:
        EntityNotFoundError: there is no such feed.
    """
    clusters = context.clusters_of(Kind.FEED, feed)
    found = (
        context.plan.processes.get((flow_name(feed, source), target)) for target in clusters for source in clusters
    )
    return tuple(flow for flow in found if flow is not None)


def source_of(flow: ProcessRecord) -> str:
    """Return the source cluster of a flow."""
    return flow.copied.source


def describe_direction(flow: ProcessRecord) -> str:
    """Return source and target of a flow as part of a sentence."""
    return f"from {source_of(flow)} to {flow.cluster}"


def _require(feed: str, way: str, requested: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(requested) - set(known)):
        raise InstanceQueryError(
            subject=f"cluster {', '.join(unknown)}",
            reason=f"feed {feed!r} is not copied {way} it",
            next_step=f"It is copied {way} {', '.join(sorted(known))}.",
            fault=Fault.MISSING,
        )


NOT_DUE = "NOT_DUE"
UNSCHEDULED = "UNSCHEDULED"

_AT_SOURCE = frozenset({FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EMPTY})
_FAILED = frozenset({ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.KILLED})


class Sync(StrEnum):
    """The state of a replica relative to its source, by the record. BEHIND: the source has changed since, or a former
    version was brought back at the target. MISSING: the source is available, and nothing of it was copied. FAILED: the
    newest attempt failed, timed out or was killed. WAITING: the source is not available (yet).
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
    """What the record says of one instance of a flow, which `active` governs. `status` is that of the instance,
    UNSCHEDULED if it is not created yet, or NOT_DUE. `source_digest` is the recorded digest of the source now, or its
    size and time if the content was never read; `copied_digest` is that of the copied content, `target_digest` that of
    the whole instance at the target.
    """

    source: str
    target: str
    nominal_time: NominalTime
    active: Hidden[ActiveRelease]
    is_due: Hidden[bool]
    run: Hidden[ProcessInstance | None]
    at_source: Hidden[FeedInstance | None]
    at_target: Hidden[FeedInstance | None]
    source_events: Hidden[Sequence[FeedEvent]]
    target_events: Hidden[Sequence[FeedEvent]]
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
            is_behind = self._is_replaced() or has_changed(source, self.source_events, run, self.copy)
            return Sync.BEHIND if is_behind else Sync.IN_SYNC
        if run is None and not self.is_due:
            return Sync.NOT_DUE
        return Sync.MISSING if source is not None and source.status in _AT_SOURCE else Sync.WAITING

    def _is_replaced(self) -> bool:
        """Return whether something else than a copy has come in its place: a former version that was brought back."""
        since = self.copy.seq if self.copy is not None else 0
        digests = {each.manifest_digest for each in (self.at_source, self.at_target) if each is not None}
        return len(digests) > 1 and any(
            event.kind is FeedEventKind.CHANGED and event.seq > since for event in self.target_events
        )


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
                found[flow.key].add(find_rows(context, connection, part, flow), page, is_oldest_first=is_oldest_first)
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


def find_rows(
    context: OperationContext, connection: Connection, scope: CopyScope, flow: ProcessRecord
) -> list[CopyRow]:
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
            active=span,
            is_due=time + span.record.delay <= context.as_of,
            run=runs.get(ProcessKey(*flow.key, time)),
            at_source=at_source.get(FeedKey(scope.feed, source, time)),
            at_target=at_target.get(FeedKey(scope.feed, flow.cluster, time)),
            source_events=source_events.get(FeedKey(scope.feed, source, time), ()),
            target_events=(told := target_events.get(FeedKey(scope.feed, flow.cluster, time), ())),
            copy=(copy := copy_of(told, flow.process)),
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
