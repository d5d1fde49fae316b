"""`list`, `status`, `running` and `summary`: the instances of one feed or process, and their states. No query
enumerates all instances of an entity: ranges are index ranges of a sequence, and rows are read by a database index.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.json_form import NominalTime
from feed_assets.operations.consolidation import Consolidated, Result, consolidate
from feed_assets.operations.context import OperationContext
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.instances.lifecycles import Subject, Subjects, find_subjects, require_statuses
from feed_assets.operations.instances.ranges import (
    SUMMARY_FILTERS,
    InstanceQuery,
    Lifecycle,
    OrderField,
    decide_range,
)
from feed_assets.operations.instances.removed_instances import find_evictions
from feed_assets.operations.instances.rows import (
    InstanceRow,
    attempt_rows,
    due_between,
    feed_row,
    iter_feed_instances,
    missing_dependencies,
    process_row,
    source_cluster,
)
from feed_assets.plan.records import FeedRecord
from feed_assets.state.instance_pages import InstancePages, PageOrder
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedInstanceStatus,
    ProcessInstance,
    ProcessInstanceStatus,
    WatermarkKind,
)
from feed_assets.state.watermarks import Watermarks

UNSCHEDULED = "UNSCHEDULED"
_RUNNING_AT_ONCE = 10_000

_PAGE_ORDER = {
    OrderField.STATUS: PageOrder.STATUS,
    OrderField.START_TIME: PageOrder.STARTED_AT,
    OrderField.END_TIME: PageOrder.ENDED_AT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage:
    """One page of instances. `has_more` says that another page follows; `start` and `end` are None without a range."""

    result: Result
    message: str
    start: NominalTime | None
    end: NominalTime | None
    instances: tuple[InstanceRow, ...]
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """The number of instances by status on a cluster; UNSCHEDULED instances are not created yet."""

    cluster: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSummary:
    """The counts of each cluster over the nominal times `[start, end)`."""

    result: Result
    message: str
    start: NominalTime
    end: NominalTime
    clusters: tuple[ClusterSummary, ...]


def list_instances(context: OperationContext, query: InstanceQuery) -> InstancePage:
    """Return the instances of a feed or process in a range: Falcon's `list` and `status`. Instances of processes and
    copies are listed once they are created, data from their nominal time on.

    Differs from Falcon: for a feed that is not copied, its data are listed with their availability; for eviction, the
    effect on each instance, not the eviction jobs.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the range is invalid, or the entity does not have the lifecycle.
    """
    subjects = subjects_of(context, query)
    require_statuses(query, subjects.all)
    if query.all_attempts and all(subject.kind is not Kind.PROCESS for subject in subjects.all):
        raise InstanceQueryError(
            subject=f"{query.kind.value} {query.name!r}",
            reason="instances of feeds have no attempts",
            next_step="List the attempts of the process that writes them.",
        )
    start, stop = range_of(context, query, subjects)
    with context.read() as connection:

        def read(cluster: str) -> Sequence[InstanceRow]:
            queries = subjects.queries_on(query, cluster)
            return [row for each in queries for row in find_rows(context, connection, each, cluster, start, stop)]

        parts = consolidate(subjects.clusters, read)
        return _page(context, connection, query, parts, start, stop)


def find_running(context: OperationContext, query: InstanceQuery) -> InstancePage:
    """Return the running instances of a process, or the running copies of a feed, of any nominal time.

    Differs from Falcon: running instances of a suspended process are included.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
    """
    subjects = subjects_of(context, query)
    with context.read() as connection:

        def read(cluster: str) -> Sequence[InstanceRow]:
            queries = subjects.queries_on(query, cluster)
            return [row for each in queries for row in _running(context, connection, each, cluster)]

        parts = consolidate(subjects.clusters, read)
        return _page(context, connection, query, parts, None, None)


def _running(
    context: OperationContext, connection: Connection, query: InstanceQuery, cluster: str
) -> list[InstanceRow]:
    running = ProcessInstanceStatus.RUNNING
    if query.kind is not Kind.PROCESS or running not in (query.filter.statuses or {running}):
        return []
    context.process_on(query.name, cluster)
    found = ProcessInstances(connection).with_status(running, query.name, cluster, limit=_RUNNING_AT_ONCE)
    after = query.filter.started_after
    is_wanted = [after is None or (row.started_at is not None and row.started_at > after) for row in found]
    return [process_row(context, row) for row, wanted in zip(found, is_wanted, strict=True) if wanted]


def summarize_instances(context: OperationContext, query: InstanceQuery, results: int | None = None) -> InstanceSummary:
    """Count the instances of a range by status, on each cluster: by default all, or the newest `results`.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
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
    sequences = subjects.sequences(context)
    start, stop = decide_range(sequences, start=query.start, end=query.end, results=results, now=context.as_of)
    with context.read() as connection:

        def read(cluster: str) -> Sequence[ClusterSummary]:
            counts: Counter[str] = Counter()
            for each in subjects.queries_on(query, cluster):
                counts.update(_counts(context, connection, each, cluster, start, stop))
            shown = {
                status: number
                for status, number in sorted(counts.items())
                if number and status in (query.filter.statuses or {status})
            }
            return [ClusterSummary(cluster=cluster, counts=shown)]

        parts = consolidate(subjects.clusters, read)
    clusters = sorted(parts.items, key=lambda each: each.cluster, reverse=bool(query.descending))
    return InstanceSummary(result=parts.result, message=parts.message, start=start, end=stop, clusters=tuple(clusters))


def range_of(context: OperationContext, query: InstanceQuery, subjects: Subjects) -> tuple[datetime, datetime]:
    """Return the nominal times of a query (see `decide_range`)."""
    sequences = subjects.sequences(context)
    return decide_range(sequences, start=query.start, end=query.end, results=query.results, now=context.as_of)


def subjects_of(context: OperationContext, query: InstanceQuery) -> Subjects:
    """Return the filtered subjects of a query on its clusters, by default all clusters of the entity.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the entity does not have the lifecycle.
    """
    found = find_subjects(context, query.kind, query.name, query.lifecycles, query.clusters)
    clusters, sources = query.filter.clusters, query.filter.source_clusters
    return found.filtered(
        lambda subject, cluster: (
            (clusters is None or cluster in clusters)
            and (sources is None or _source(context, subject, cluster) in sources)
        )
    )


def _source(context: OperationContext, subject: Subject, cluster: str) -> str | None:
    if subject.kind is Kind.PROCESS:
        return subject.source
    record = context.plan.feeds.get((subject.name, cluster))
    return source_cluster(context.plan, record) if record is not None else None


def find_rows(
    context: OperationContext,
    connection: Connection,
    query: InstanceQuery,
    cluster: str,
    start: datetime,
    stop: datetime,
) -> list[InstanceRow]:
    """Return the first rows of a cluster in the order of a query, up to one beyond its page; of one process, flow or
    feed.

    Raises:
        InstanceQueryError: the entity is not on the cluster.
    """
    if Lifecycle.EVICTION in query.lifecycles:
        return find_evictions(context, connection, query, cluster, start, stop)
    if query.kind is Kind.FEED:
        rows = _iter_feed_rows(context, connection, context.feed_on(query.name, cluster), query, start, stop)
        is_lazy = query.order in (None, OrderField.NOMINAL_TIME, OrderField.CLUSTER)
        return list(islice(rows, query.offset + query.results + 1) if is_lazy else rows)
    context.process_on(query.name, cluster)
    statuses = query.filter.statuses
    found = InstancePages(connection).of_process(
        query.name,
        cluster,
        start,
        stop,
        query.offset + query.results + 1,
        statuses=None if statuses is None else [ProcessInstanceStatus(status) for status in statuses],
        started_after=query.filter.started_after,
        order=_PAGE_ORDER.get(query.order or OrderField.NOMINAL_TIME, PageOrder.NOMINAL_TIME),
        descending=query.is_descending,
    )
    return [process_row(context, row) for row in found]


def _iter_feed_rows(
    context: OperationContext,
    connection: Connection,
    record: FeedRecord,
    query: InstanceQuery,
    start: datetime,
    stop: datetime,
) -> Iterator[InstanceRow]:
    statuses, after = query.filter.statuses, query.filter.started_after
    indices = due_between(record, start, stop, context.as_of)
    for time, found in iter_feed_instances(connection, record, indices, descending=query.is_descending):
        status = (found.status if found else FeedInstanceStatus.MISSING).value
        available_at = found.available_at if found else None
        if statuses is not None and status not in statuses:
            continue
        if after is None or (available_at is not None and available_at > after):
            yield feed_row(context, record, time, found)


def _page(
    context: OperationContext,
    connection: Connection,
    query: InstanceQuery,
    parts: Consolidated[InstanceRow],
    start: datetime | None,
    stop: datetime | None,
) -> InstancePage:
    ordered = sort_rows(parts.items, query.order or OrderField.NOMINAL_TIME, descending=query.is_descending)
    end = query.offset + query.results
    rows = _with_details(context, connection, ordered[query.offset : end])
    return InstancePage(
        result=parts.result,
        message=parts.message,
        start=start,
        end=stop,
        instances=attempt_rows(context, connection, rows) if query.all_attempts else rows,
        has_more=len(ordered) > end,
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
    """Return the rows, with the missing inputs of waiting instances."""
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
        if (instance := _found(instances, row)) is not None
        else row
        for row in rows
    )


def _found(instances: Mapping[Any, ProcessInstance], row: InstanceRow) -> ProcessInstance | None:
    return instances.get((row.name, row.cluster, row.nominal_time))


def _counts(
    context: OperationContext,
    connection: Connection,
    query: InstanceQuery,
    cluster: str,
    start: datetime,
    stop: datetime,
) -> Mapping[str, int]:
    if query.kind is Kind.PROCESS:
        return _process_counts(context, connection, query, cluster, start, stop)
    if Lifecycle.EVICTION in query.lifecycles:
        return Counter(row.status for row in find_evictions(context, connection, query, cluster, start, stop))
    return _feed_counts(context, connection, query, cluster, start, stop)


def _process_counts(
    context: OperationContext,
    connection: Connection,
    query: InstanceQuery,
    cluster: str,
    start: datetime,
    stop: datetime,
) -> dict[str, int]:
    context.process_on(query.name, cluster)
    found = InstancePages(connection).process_counts(query.name, cluster, start, stop)
    counts = {status.value: number for status, number in found.items()}
    watermark = Watermarks(connection).get(WatermarkKind.PROCESS, query.name, cluster)
    since = start if watermark is None else watermark.next_time
    if since is not None:
        spans = context.timeline.spans(connection, (query.name, cluster), since)
        counts[UNSCHEDULED] = sum(len(each.between(max(start, since), stop)) for each in spans)
    return counts


def _feed_counts(
    context: OperationContext,
    connection: Connection,
    query: InstanceQuery,
    cluster: str,
    start: datetime,
    stop: datetime,
) -> dict[str, int]:
    """Count the instances of a feed. Due instances without a row are MISSING; rows of an earlier definition keep their
    status.
    """
    record = context.feed_on(query.name, cluster)
    due = due_between(record, start, stop, context.as_of)
    if not due:
        return {UNSCHEDULED: len(record.sequence.indices_between(start, stop))}
    first, beyond = record.sequence.at(due.start), record.sequence.at(due.stop)
    found = InstancePages(connection).feed_counts(query.name, cluster, first, min(stop, beyond))
    counts = {status.value: number for status, number in found.items()}
    missing = FeedInstanceStatus.MISSING.value
    counts[missing] = counts.get(missing, 0) + max(0, len(due) - sum(counts.values()))
    counts[UNSCHEDULED] = len(record.sequence.indices_between(start, stop)) - len(due)
    return counts
