"""`list`, `status`, `running` and `summary`: the instances of one feed or process. No query enumerates all instances
of an entity: ranges are index ranges of a sequence, and rows are read by a database index.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from feed_assets.context.consolidation import Answer, Consolidated, Lifecycle, Result, consolidate
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.heartbeat import find_silence
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.flow_names import describe_process
from feed_assets.instances.late.quality_checks import QualityChecks
from feed_assets.instances.late.store import LateChecks
from feed_assets.instances.lists.lifecycles import Subjects, require_statuses, subjects_of
from feed_assets.instances.lists.query_fields import SUMMARY_FILTERS, FilterField, OrderField
from feed_assets.instances.lists.ranges import UNSCHEDULED, ClusterQuery, InstanceQuery, decide_range
from feed_assets.instances.lists.rows import (
    InstanceRow,
    attempt_rows,
    count_due,
    due_between,
    feed_row,
    iter_feed_instances,
    missing_dependencies,
    process_row,
    with_levels,
)
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.instance_pages import Counted, InstancePages, PageOrder, Span
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    FeedEvent,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.pages import COUNTED, PAGES, MoreThan, has_more, tell_shown, up_to
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.timing.dates import render_datetime

_PAGE_ORDER = {
    OrderField.STATUS: PageOrder.STATUS,
    OrderField.START_TIME: PageOrder.STARTED_AT,
    OrderField.END_TIME: PageOrder.ENDED_AT,
}

_MANY = 100_000
"""Instances of most entities that are counted by reading all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage(Answer):
    """One page of instances: `listed` of `total` ones up to the end, each with one row or more; the page begins at
    `offset`. `start` and `end` are None without a range.
    """

    result: Result
    message: str
    start: NominalTime | None
    end: NominalTime | None
    instances: tuple[InstanceRow, ...]
    listed: int
    total: int
    offset: Hidden[int]
    none: Hidden[str] = ""
    """Why there is no instance."""

    @shown
    def more_than_total(self) -> bool:
        """Whether there are more than were counted."""
        return isinstance(self.total, MoreThan)

    @shown
    def has_more(self) -> bool:
        """Whether another page follows."""
        return has_more(self.offset + self.listed, self.total)

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many of all there are, if not all are; why there is none."""
        return (tell_shown(self.listed, self.total, "instances", PAGES), self.none)

    def or_why(self, context: OperationContext, clusters: Collection[str], reason: str) -> "InstancePage":
        """Return the page; one without any instance says that no ticks come, or else this reason."""
        if self.total or self.message:
            return self
        return replace(self, none=find_silence(context, clusters) or reason)

    @property
    def steps(self) -> tuple[tuple[object, ...], ...]:
        """The attempts of the instances, each followed by its steps."""
        return tuple(cells for row in self.instances for cells in row.steps)


def list_instances(context: OperationContext, query: InstanceQuery) -> InstancePage:
    """Return the instances of a feed or process in a range: Falcon's `list` and `status`. Instances of processes and
    copies are listed once they are created, data from their nominal time on.

    Differs from Falcon: for a feed that is not copied, its data are listed with their availability; for eviction, the
    effect on each instance, not the eviction jobs.

    Raises:
        InstanceQueryError: the range is invalid, or the entity does not have the lifecycle.
    """
    subjects = subjects_of(context, query)
    require_statuses(query, subjects.all)
    if query.all_attempts and all(subject.kind is not Kind.PROCESS for subject in subjects.all):
        raise InstanceQueryError(
            subject=label_of((query.subject.kind, query.subject.name)),
            reason="instances of feeds have no attempts",
            next_step="List the attempts of the process that writes them.",
        )
    start, stop = range_of(context, query, subjects)
    since, _ = range_of(context, query, subjects, is_whole=True)
    skip = query.offset if sum(map(len, subjects.by_cluster.values())) == 1 and _is_lazy(subjects.all[0], query) else 0
    with context.read() as connection:
        total = 0

        def read(subject: Subject, cluster: str) -> Sequence[InstanceRow]:
            nonlocal total
            whole = ClusterQuery(
                context=context, connection=connection, query=query, cluster=cluster, start=start, stop=stop, skip=skip
            ).about(subject)
            total += count_listed(replace(whole, start=since))
            return find_rows(whole)

        parts = subjects.consolidate(read)
        total = up_to(total, query.offset + query.results)
        page = _page(context, connection, query, parts, total, start, stop, skip=skip)
    of_filter = "passes the filters" if query.filter.fields else "has been created"
    reason = f"no instance from {render_datetime(since)} to {render_datetime(stop)} {of_filter}"
    return page.or_why(context, subjects.by_cluster, reason)


def _is_lazy(subject: Subject, query: InstanceQuery) -> bool:
    """Return whether no more instances are read than are wanted."""
    if subject.kind is Kind.PROCESS:
        return True
    in_time = query.order in (None, OrderField.NOMINAL_TIME, OrderField.CLUSTER)
    return in_time and Lifecycle.EVICTION not in subject.lifecycles


def find_running(context: OperationContext, query: InstanceQuery) -> InstancePage:
    """Return the running instances of a process, or the running copies of a feed, of any nominal time.

    Differs from Falcon: running instances of a suspended process are included.
    """
    with context.read() as connection:

        def read(subject: Subject, cluster: str) -> Sequence[InstanceRow]:
            if subject.kind is not Kind.PROCESS:
                return ()
            key = context.process_on(subject.name, cluster).key
            found = ProcessInstances(connection).with_status(ProcessInstanceStatus.RUNNING, *key, limit=None)
            return [process_row(context, row) for row in found if query.filter.is_met(row.status.value, row.started_at)]

        subjects = subjects_of(context, query)
        parts = subjects.consolidate(read)
        page = _page(context, connection, query, parts, len(parts.items), None, None)
    return page.or_why(context, subjects.by_cluster, "nothing is running")


def range_of(
    context: OperationContext, query: InstanceQuery, subjects: Subjects, *, is_whole: bool = False
) -> tuple[datetime, datetime]:
    """Return the nominal times of a query up to the end of its page, or of all its pages (see `decide_range`)."""
    return decide_range(
        subjects.sequences,
        start=query.start,
        end=query.end,
        results=None if is_whole else query.offset + query.results,
        now=context.as_of,
    )


def find_rows(of: ClusterQuery) -> list[InstanceRow]:
    """Return the first rows in the order of a query, up to the end of its page, without those that are skipped.

    Raises:
        InstanceQueryError: the entity is not on the cluster.
    """
    query, end = of.query, of.query.offset + of.query.results
    if Lifecycle.EVICTION in query.subject.lifecycles:
        return find_evictions(of)
    if query.subject.kind is Kind.FEED:
        found = _iter_feed_instances(of, end if _is_lazy(query.subject, query) else None)
        places = FeedPlaces(of.connection)
        return [feed_row(of.context, places.at_place(of.feed, row), time, row) for time, row in found]
    of.context.process_on(*of.key)
    statuses = query.filter.statuses
    work = InstancePages(of.connection).of_process(
        *of.key,
        of.start,
        of.stop,
        end - of.skip,
        statuses=None if statuses is None else [ProcessInstanceStatus(status) for status in statuses],
        started_after=query.filter.started_after,
        order=_PAGE_ORDER.get(query.order or OrderField.NOMINAL_TIME, PageOrder.NOMINAL_TIME),
        descending=query.is_descending,
        skip=of.skip,
    )
    return [process_row(of.context, row) for row in work]


def _iter_feed_instances(of: ClusterQuery, end: int | None) -> Iterator[tuple[datetime, FeedInstance | None]]:
    """Return an iterator over the instances of a feed that a query wants, up to the `end` of its page."""
    record, accepted, descending = of.feed, of.query.filter, of.query.is_descending
    indices, skip = due_between(record, of.start, of.stop, of.context.as_of), of.skip
    if record.is_expected and not accepted.fields - {FilterField.CLUSTER, FilterField.SOURCE_CLUSTER}:
        indices, skip = indices[: max(0, len(indices) - skip)] if descending else indices[skip:], 0
        end = None if end is None else end - of.skip
    found = iter_feed_instances(of.connection, record, indices, descending=descending)
    wanted = (
        (time, row)
        for time, row in found
        if accepted.is_met((row.status if row else FeedInstanceStatus.MISSING).value, row.available_at if row else None)
    )
    return islice(wanted, skip, end)


def _page(
    context: OperationContext,
    connection: Connection,
    query: InstanceQuery,
    parts: Consolidated[InstanceRow],
    total: int,
    start: datetime | None,
    stop: datetime | None,
    *,
    skip: int = 0,
) -> InstancePage:
    ordered = sort_rows(parts.items, query.order or OrderField.NOMINAL_TIME, descending=query.is_descending)
    first, end = query.offset - skip, query.offset - skip + query.results
    rows = with_levels(connection, _with_details(context, connection, ordered[first:end]))
    return InstancePage(
        result=parts.result,
        message=parts.message,
        start=start,
        end=stop,
        instances=attempt_rows(context, connection, rows) if query.all_attempts else rows,
        listed=len(rows),
        total=total,
        offset=query.offset,
    )


def sort_rows(rows: Sequence[InstanceRow], order: OrderField, *, descending: bool) -> list[InstanceRow]:
    """Return rows in an order; equal ones by nominal time and cluster, those without the value last."""

    def key(row: InstanceRow) -> Any:
        match order:
            case OrderField.STATUS:
                return row.status
            case OrderField.CLUSTER:
                return row.cluster
            case OrderField.START_TIME:
                return row.started_at
            case OrderField.END_TIME:
                return row.ended_at
            case _:
                return row.nominal_time

    with_value = [row for row in rows if key(row) is not None]
    by_time = sorted(with_value, key=lambda row: (row.nominal_time, row.cluster), reverse=descending)
    return sorted(by_time, key=key, reverse=descending) + [row for row in rows if key(row) is None]


def _with_details(
    context: OperationContext, connection: Connection, rows: Sequence[InstanceRow]
) -> tuple[InstanceRow, ...]:
    """Return the rows, with the missing inputs of waiting instances, the reruns that are asked for, and of feeds what
    holds instances back, or which of several processes has written them.
    """
    keys = [FeedKey(row.name, row.cluster, row.nominal_time) for row in rows]
    said = _remarks(context, connection, list(zip(keys, rows, strict=True)))
    rows = [replace(row, reason=said.get(key, row.reason)) for key, row in zip(keys, rows, strict=True)]
    asked = LateChecks(connection).reruns_of(ProcessKey(row.name, row.cluster, row.nominal_time) for row in rows)
    if asked:
        noted = {key: each.label for key, (_, each) in asked.items() if not each.has_begun}
        names = [noted.get(ProcessKey(row.name, row.cluster, row.nominal_time)) for row in rows]
        reasons = [f"it is to run again, as a part of {name}" if name else None for name in names]
        rows = [replace(row, reason=why or row.reason) for row, why in zip(rows, reasons, strict=True)]
    waiting = {
        (row.name, row.cluster, row.nominal_time)
        for row in rows
        if row.kind is Kind.PROCESS and row.status == ProcessInstanceStatus.WAITING
    }
    if not waiting:
        return tuple(rows)
    instances = ProcessInstances(connection).get_many(waiting)
    details = missing_dependencies(context, connection, list(instances.values()))
    return tuple(
        process_row(context, instance, details.get(instance.key, ()))
        if (instance := instances.get(ProcessKey(row.name, row.cluster, row.nominal_time))) is not None
        else row
        for row in rows
    )


def _remarks(
    context: OperationContext, connection: Connection, rows: Sequence[tuple[FeedKey, InstanceRow]]
) -> dict[FeedKey, str]:
    of_feeds = {key: row for key, row in rows if row.kind is Kind.FEED}
    held = [key for key, row in of_feeds.items() if row.status == FeedInstanceStatus.PARTIAL]
    said = {key: each.sentence for key, each in QualityChecks(connection).of_instances(held).items()}
    feeds = ((key, context.plan.feeds.get((key.feed, key.cluster))) for key in of_feeds)
    shared = [key for key, feed in feeds if feed is not None and not feed.is_expected and len(feed.outputs_of) > 1]
    if shared:
        seqs = {key: row.event_seq for key, row in FeedInstances(connection).get_many(shared).items() if row.event_seq}
        events = EventLog(connection).of_numbers(seqs.values())
        makers = ((key, events[seq].maker) for key, seq in seqs.items() if seq in events)
        said |= {key: f"written by {describe_process(maker.process)}" for key, maker in makers if maker is not None}
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """The number of instances by status on a cluster; UNSCHEDULED instances are not created yet."""

    cluster: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSummary(Answer):
    """The counts of each cluster over the nominal times `[start, end)`."""

    result: Result
    message: str
    start: NominalTime
    end: NominalTime
    clusters: tuple[ClusterSummary, ...]

    @property
    def counts(self) -> tuple[tuple[str, str, int], ...]:
        """The cluster, the status and the number of each count."""
        return tuple((each.cluster, *count) for each in self.clusters for count in each.counts.items())


def summarize_instances(context: OperationContext, query: InstanceQuery, results: int | None = None) -> InstanceSummary:
    """Count the instances of a range by status, on each cluster: by default all, or the newest `results`.

    Raises:
        InstanceQueryError: the range is invalid, or a filter or order does not apply to counts.
    """
    unfit = query.filter.fields - SUMMARY_FILTERS
    if unfit or query.order not in (None, OrderField.CLUSTER):
        raise InstanceQueryError(
            subject="the summary",
            reason=f"counts cannot be filtered or ordered by {', '.join(sorted(unfit)) or query.order}",
            next_step="Filter by STATUS or CLUSTER, and order by cluster.",
        )
    subjects = subjects_of(context, query)
    require_statuses(query, subjects.all)
    start, stop = decide_range(subjects.sequences, start=query.start, end=query.end, results=results, now=context.as_of)
    with context.read() as connection:

        def read(cluster: str) -> Sequence[ClusterSummary]:
            counts: Counter[str] = Counter()
            whole = ClusterQuery(
                context=context, connection=connection, query=query, cluster=cluster, start=start, stop=stop
            )
            for each in subjects.by_cluster[cluster]:
                one = whole.about(each)
                (found,) = count_by_status([one])
                counts.update({status: each.number for status, each in found.items()})
                counts.update({UNSCHEDULED: _count_unscheduled(one)} if query.filter.statuses is None else {})
            return [ClusterSummary(cluster=cluster, counts=dict(sorted((+counts).items())))]

        parts = consolidate(subjects.by_cluster, read)
    clusters = sorted(parts.items, key=lambda each: each.cluster, reverse=bool(query.descending))
    return InstanceSummary(result=parts.result, message=parts.message, start=start, end=stop, clusters=tuple(clusters))


def count_listed(of: ClusterQuery) -> int:
    """Return how many instances a list without pages would have, if not more than are counted.

    Raises:
        InstanceQueryError: the entity is not on the cluster.
    """
    _, (counts,) = count_newest([of])
    return sum(each.number for each in counts.values())


def count_newest(queries: Sequence[ClusterQuery]) -> tuple[list[ClusterQuery], list[dict[str, Counted]]]:
    """Count, as `count_by_status`, in so long a time before the newest instances that there are more than are counted,
    else in all. Return the queries for that time, too.

    Raises:
        InstanceQueryError: an entity is not on its cluster.
    """
    if not queries:
        return [], []
    first, last = min(of.start for of in queries), max(of.stop for of in queries)
    most = max(COUNTED, queries[0].query.offset + queries[0].query.results)
    expected = sum(len(of.record.sequence.indices_between(of.start, of.stop)) for of in queries)
    width = (last - first) * min(1.0, 2 * most / max(1, expected))
    while True:
        since = max(first, last - width)
        newest = [replace(of, start=min(max(of.start, since), of.stop)) for of in queries]
        counts = count_by_status(newest)
        if since == first or sum(each.number for by_status in counts for each in by_status.values()) > most:
            return newest, counts
        width *= 8


def count_by_status(queries: Sequence[ClusterQuery]) -> list[dict[str, Counted]]:
    """Return how many instances a list of each query would have by status, as far as its filter asks for them, in a
    statement for all processes and one for all feeds; no zeros. The queries have one transaction, and those of a kind
    one filter.

    Raises:
        InstanceQueryError: an entity is not on its cluster.
    """
    if not queries:
        return []
    pages, after = InstancePages(queries[0].connection), queries[0].query.filter.started_after
    work, data, due = dict[Key, Span](), dict[Key, Span](), dict[Key, range]()
    asked = {of.query.subject.kind: of.query.filter.statuses for of in queries}
    if FeedInstanceStatus.MISSING in (asked.get(Kind.FEED) or ()):
        asked[Kind.FEED] = None  # those without a row are the due ones besides all others
    for of in queries:
        if of.query.subject.kind is Kind.PROCESS:
            of.context.process_on(*of.key)
            work[of.key] = (*of.key, of.start, of.stop)
        elif indices := due.setdefault(of.key, due_between(of.feed, of.start, of.stop, of.context.as_of)):
            first, beyond = of.feed.sequence.at(indices.start), of.feed.sequence.at(indices.stop)
            data[of.key] = (*of.key, first, min(of.stop, beyond))
    of_work = pages.process_counts(
        work.values(),
        statuses=asked.get(Kind.PROCESS),
        started_after=after,
        are_most=_are_most(queries, Kind.PROCESS),
    )
    of_data = pages.feed_counts(
        data.values(), statuses=asked.get(Kind.FEED), available_after=after, are_most=_are_most(queries, Kind.FEED)
    )

    def counts(of: ClusterQuery) -> Mapping[str, Counted]:
        if of.query.subject.kind is Kind.PROCESS:
            return of_work.get(work[of.key], {})
        if Lifecycle.EVICTION in of.query.subject.lifecycles:
            return _count_evictions(of)
        found = of_data.get(data[of.key], {}) if of.key in data else {}
        return _with_missing(of, due[of.key], found)

    return [
        {
            status: each
            for status, each in counts(of).items()
            if of.query.filter.statuses is None or status in of.query.filter.statuses
        }
        for of in queries
    ]


def _are_most(queries: Sequence[ClusterQuery], kind: Kind) -> bool:
    """Return whether the queries of a kind are about most of its instances: many of most entities."""
    found = [of for of in queries if of.query.subject.kind is kind]
    expected = sum(len(of.record.sequence.indices_between(of.start, of.stop)) for of in found)
    return expected > _MANY and 2 * len(found) > len(queries[0].context.records(kind))


def _count_evictions(of: ClusterQuery) -> Mapping[str, Counted]:
    times: dict[str, list[datetime]] = defaultdict(list)
    for row in find_evictions(of):
        times[row.status].append(row.nominal_time)
    return {status: Counted(len(found), max(found)) for status, found in times.items()}


def _with_missing(of: ClusterQuery, due: range, found: Mapping[str, Counted]) -> Mapping[str, Counted]:
    """Return the counts of a feed. Due instances without a row are MISSING; rows of an earlier definition keep their
    status.
    """
    without = len(due) - sum(each.number for each in found.values())
    if without <= 0 or of.query.filter.started_after is not None or not of.feed.is_expected:
        return found
    missing = FeedInstanceStatus.MISSING.value
    count = without + (found[missing].number if missing in found else 0)
    return {**found, missing: Counted(count, of.feed.sequence.at(due.stop - 1))}


def _count_unscheduled(of: ClusterQuery) -> int:
    """Return how many instances of the range are not created yet."""
    if Lifecycle.EVICTION in of.query.subject.lifecycles:
        return 0
    ((_, ahead),) = count_due(of.context, of.connection, of.record, [of.start, of.stop])
    return ahead


def find_evictions(of: ClusterQuery) -> list[InstanceRow]:
    """Return the last action of retention on each instance of a range: EVICTED or RESTORED.

    Raises:
        InstanceQueryError: the feed is not on the cluster.
    """
    record, log = of.feed, EventLog(of.connection)
    held = (each for each in log.for_feed(*record.key, FeedEventKind.HELD) if "sweep" in each.payload)
    returned = (replace(each, kind=FeedEventKind.RESTORED) for each in held)
    back = [*log.for_feed(*record.key, FeedEventKind.RESTORED), *returned]
    events = [*log.for_feed(*record.key, FeedEventKind.EVICTED), *back]
    newest = {
        event.nominal_time: event
        for event in sorted(events, key=lambda event: event.seq)
        if of.start <= event.nominal_time < of.stop and event.is_of_data
    }
    return [
        _row(record, event) for event in newest.values() if of.query.filter.is_met(event.kind.value, event.recorded_at)
    ]


def _row(record: FeedRecord, event: FeedEvent) -> InstanceRow:
    reason, sweep, store = (event.payload.get(name) for name in ("reason", "sweep", "store"))
    return InstanceRow(
        kind=Kind.FEED,
        name=record.feed,
        cluster=record.cluster,
        lifecycle=Lifecycle.EVICTION,
        nominal_time=event.nominal_time,
        status=event.kind.value,
        reason="; ".join(str(text) for text in (f"sweep {sweep}" if sweep else event.origin, reason) if text),
        ended_at=event.recorded_at,
        bytes=event.bytes,
        files=event.files,
        url=f"{str(store).rstrip('/')}/{event.payload['path']}" if store else None,
    )
