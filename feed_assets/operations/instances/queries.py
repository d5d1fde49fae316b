"""`list`, `status`, `running` and `summary`: how the instances of one feed or process stand.

Nothing enumerates the instances of an entity: ranges are numbers of a sequence, and rows are read by an index.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.operations.consolidation import Consolidated, Result, consolidate
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.instances.evictions import find_evictions
from feed_assets.operations.instances.lifecycles import Subject, Subjects, find_subjects, require_statuses
from feed_assets.operations.instances.ranges import (
    SUMMARY_FILTERS,
    InstanceQuery,
    Lifecycle,
    OrderField,
    decide_range,
)
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
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import FeedRecord
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.instance_pages import InstancePages, PageOrder
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedInstanceStatus,
    FrontierKind,
    ProcessInstance,
    ProcessInstanceStatus,
)
from feed_assets.timing.dates import render_datetime

VERSION = 1
UNSCHEDULED = "UNSCHEDULED"
_RUNNING_AT_ONCE = 10_000

_PAGE_ORDER = {
    OrderField.STATUS: PageOrder.STATUS,
    OrderField.START_TIME: PageOrder.STARTED_AT,
    OrderField.END_TIME: PageOrder.ENDED_AT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage:
    """One page of instances. `has_more` says that another page follows; `start` and `stop` are None for no range."""

    result: Result
    message: str
    start: datetime | None
    stop: datetime | None
    instances: tuple[InstanceRow, ...]
    has_more: bool

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "status": self.result.value,
            "message": self.message,
            "start": self.start and render_datetime(self.start),
            "end": self.stop and render_datetime(self.stop),
            "instances": [row.to_json() for row in self.instances],
            "hasMore": self.has_more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """How many instances have each status on a cluster; UNSCHEDULED are those that have not come into being."""

    cluster: str
    counts: Mapping[str, int]

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {"cluster": self.cluster, "counts": dict(self.counts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSummary:
    """The counts of each cluster over the nominal times `[start, stop)`."""

    result: Result
    message: str
    start: datetime
    stop: datetime
    clusters: tuple[ClusterSummary, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "status": self.result.value,
            "message": self.message,
            "start": render_datetime(self.start),
            "end": render_datetime(self.stop),
            "clusters": [each.to_json() for each in self.clusters],
        }


def list_instances(scene: Scene, query: InstanceQuery) -> InstancePage:
    """The instances of a feed or process in a range: Falcon's `list` and `status`.

    Instances of processes and copies are listed from when they have come into being, data from their nominal time on.

    Differs from Falcon: of a feed that is not copied its data are listed, with their availability; of eviction what
    was done to each instance, not the jobs that did it.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the range makes no sense, or the lifecycle is none of the entity's.
    """
    subjects = subjects_of(scene, query)
    require_statuses(query, subjects.all)
    if query.all_attempts and all(subject.kind is not Kind.PROCESS for subject in subjects.all):
        raise InstanceQueryError(
            subject=f"{query.kind.value} {query.name!r}",
            reason="instances of feeds have no attempts",
            next_step="Ask for the attempts of the process that writes them.",
        )
    start, stop = range_of(scene, query, subjects)
    with scene.read() as connection:

        def read(cluster: str) -> Sequence[InstanceRow]:
            asked = subjects.queries_on(query, cluster)
            return [row for each in asked for row in find_rows(scene, connection, each, cluster, start, stop)]

        parts = consolidate(subjects.clusters, read)
        return _page(scene, connection, query, parts, start, stop)


def find_running(scene: Scene, query: InstanceQuery) -> InstancePage:
    """The instances of a process, or the copies of a feed, that run now, whatever their time.

    Differs from Falcon: what still runs of a process that was suspended meanwhile is shown, too.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
    """
    subjects = subjects_of(scene, query)
    with scene.read() as connection:

        def read(cluster: str) -> Sequence[InstanceRow]:
            asked = subjects.queries_on(query, cluster)
            return [row for each in asked for row in _running(scene, connection, each, cluster)]

        parts = consolidate(subjects.clusters, read)
        return _page(scene, connection, query, parts, None, None)


def _running(scene: Scene, connection: Connection, query: InstanceQuery, cluster: str) -> list[InstanceRow]:
    running = ProcessInstanceStatus.RUNNING
    if query.kind is not Kind.PROCESS or running not in (query.filter.statuses or {running}):
        return []
    scene.process_on(query.name, cluster)
    found = ProcessInstances(connection).with_status(running, query.name, cluster, limit=_RUNNING_AT_ONCE)
    after = query.filter.started_after
    is_wanted = [after is None or (row.started_at is not None and row.started_at > after) for row in found]
    return [process_row(scene, row) for row, wanted in zip(found, is_wanted, strict=True) if wanted]


def summarize_instances(scene: Scene, query: InstanceQuery) -> InstanceSummary:
    """How many instances of a range have which status, on each cluster.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the range makes no sense, or a filter or order does not go with counts.
    """
    unfit = query.filter.fields - SUMMARY_FILTERS
    if unfit or query.order not in (None, OrderField.CLUSTER):
        raise InstanceQueryError(
            subject="the summary",
            reason=f"counts cannot be filtered or ordered by {', '.join(sorted(unfit)) or query.order}",
            next_step="Filter by STATUS or CLUSTER, and order by cluster.",
        )
    subjects = subjects_of(scene, query)
    require_statuses(query, subjects.all)
    start, stop = range_of(scene, query, subjects)
    with scene.read() as connection:

        def read(cluster: str) -> Sequence[ClusterSummary]:
            counts: Counter[str] = Counter()
            for each in subjects.queries_on(query, cluster):
                counts.update(_counts(scene, connection, each, cluster, start, stop))
            shown = {
                status: number
                for status, number in sorted(counts.items())
                if number and status in (query.filter.statuses or {status})
            }
            return [ClusterSummary(cluster=cluster, counts=shown)]

        parts = consolidate(subjects.clusters, read)
    clusters = sorted(parts.items, key=lambda each: each.cluster, reverse=bool(query.descending))
    return InstanceSummary(result=parts.result, message=parts.message, start=start, stop=stop, clusters=tuple(clusters))


def range_of(scene: Scene, query: InstanceQuery, subjects: Subjects) -> tuple[datetime, datetime]:
    """The nominal times that a query is about (see `decide_range`)."""
    sequences = subjects.sequences(scene)
    return decide_range(sequences, start=query.start, end=query.end, results=query.results, now=scene.as_of)


def subjects_of(scene: Scene, query: InstanceQuery) -> Subjects:
    """What a query asks for, on which clusters: those it names, else all that the entity is on; filtered.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the lifecycle is none of the entity's.
    """
    found = find_subjects(scene, query.kind, query.name, query.lifecycles, query.clusters)
    clusters, sources = query.filter.clusters, query.filter.source_clusters
    return found.filtered(
        lambda subject, cluster: (
            (clusters is None or cluster in clusters)
            and (sources is None or _source(scene, subject, cluster) in sources)
        )
    )


def _source(scene: Scene, subject: Subject, cluster: str) -> str | None:
    if subject.kind is Kind.PROCESS:
        return subject.source
    record = scene.plan.feeds.get((subject.name, cluster))
    return source_cluster(scene.plan, record) if record is not None else None


def find_rows(
    scene: Scene, connection: Connection, query: InstanceQuery, cluster: str, start: datetime, stop: datetime
) -> list[InstanceRow]:
    """The first rows of a cluster in the order of a query, up to one beyond its page; of one process, flow or feed.

    Raises:
        InstanceQueryError: the entity is not on the cluster.
    """
    if Lifecycle.EVICTION in query.lifecycles:
        return find_evictions(scene, connection, query, cluster, start, stop)
    if query.kind is Kind.FEED:
        rows = _iter_feed_rows(scene, connection, scene.feed_on(query.name, cluster), query, start, stop)
        is_lazy = query.order in (None, OrderField.NOMINAL_TIME, OrderField.CLUSTER)
        return list(islice(rows, query.offset + query.results + 1) if is_lazy else rows)
    scene.process_on(query.name, cluster)
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
    return [process_row(scene, row) for row in found]


def _iter_feed_rows(
    scene: Scene, connection: Connection, record: FeedRecord, query: InstanceQuery, start: datetime, stop: datetime
) -> Iterator[InstanceRow]:
    statuses, after = query.filter.statuses, query.filter.started_after
    indices = due_between(record, start, stop, scene.as_of)
    for time, found in iter_feed_instances(connection, record, indices, descending=query.is_descending):
        status = (found.status if found else FeedInstanceStatus.MISSING).value
        available_at = found.available_at if found else None
        if statuses is not None and status not in statuses:
            continue
        if after is None or (available_at is not None and available_at > after):
            yield feed_row(scene, record, time, found)


def _page(
    scene: Scene,
    connection: Connection,
    query: InstanceQuery,
    parts: Consolidated[InstanceRow],
    start: datetime | None,
    stop: datetime | None,
) -> InstancePage:
    ordered = sort_rows(parts.items, query.order or OrderField.NOMINAL_TIME, descending=query.is_descending)
    end = query.offset + query.results
    rows = _with_details(scene, connection, ordered[query.offset : end])
    return InstancePage(
        result=parts.result,
        message=parts.message,
        start=start,
        stop=stop,
        instances=attempt_rows(scene, connection, rows) if query.all_attempts else rows,
        has_more=len(ordered) > end,
    )


def sort_rows(rows: Sequence[InstanceRow], order: OrderField, *, descending: bool) -> list[InstanceRow]:
    """Rows in an order; equal ones by nominal time and cluster, and those without the value last."""

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


def _with_details(scene: Scene, connection: Connection, rows: Sequence[InstanceRow]) -> tuple[InstanceRow, ...]:
    """The rows with what those that wait for inputs lack."""
    waiting = {
        (row.name, row.cluster, row.nominal_time)
        for row in rows
        if row.kind is Kind.PROCESS and row.status == ProcessInstanceStatus.WAITING
    }
    if not waiting:
        return tuple(rows)
    instances = ProcessInstances(connection).get_many(waiting)
    details = missing_dependencies(scene, connection, list(instances.values()))
    return tuple(
        process_row(scene, instance, details.get(instance.key, ()))
        if (instance := _found(instances, row)) is not None
        else row
        for row in rows
    )


def _found(instances: Mapping[Any, ProcessInstance], row: InstanceRow) -> ProcessInstance | None:
    return instances.get((row.name, row.cluster, row.nominal_time))


def _counts(
    scene: Scene, connection: Connection, query: InstanceQuery, cluster: str, start: datetime, stop: datetime
) -> Mapping[str, int]:
    if query.kind is Kind.PROCESS:
        return _process_counts(scene, connection, query, cluster, start, stop)
    if Lifecycle.EVICTION in query.lifecycles:
        return Counter(row.status for row in find_evictions(scene, connection, query, cluster, start, stop))
    return _feed_counts(scene, connection, query, cluster, start, stop)


def _process_counts(
    scene: Scene, connection: Connection, query: InstanceQuery, cluster: str, start: datetime, stop: datetime
) -> dict[str, int]:
    scene.process_on(query.name, cluster)
    found = InstancePages(connection).process_counts(query.name, cluster, start, stop)
    counts = {status.value: number for status, number in found.items()}
    frontier = Frontiers(connection).get(FrontierKind.PROCESS, query.name, cluster)
    since = start if frontier is None else frontier.next_time
    if since is not None:
        stretches = scene.governance.stretches(connection, (query.name, cluster), since)
        counts[UNSCHEDULED] = sum(len(each.between(max(start, since), stop)) for each in stretches)
    return counts


def _feed_counts(
    scene: Scene, connection: Connection, query: InstanceQuery, cluster: str, start: datetime, stop: datetime
) -> dict[str, int]:
    """What is due and has no row is MISSING. Rows of an earlier definition are counted as what they are."""
    record = scene.feed_on(query.name, cluster)
    due = due_between(record, start, stop, scene.as_of)
    if not due:
        return {UNSCHEDULED: len(record.sequence.indices_between(start, stop))}
    first, beyond = record.sequence.at(due.start), record.sequence.at(due.stop)
    found = InstancePages(connection).feed_counts(query.name, cluster, first, min(stop, beyond))
    counts = {status.value: number for status, number in found.items()}
    missing = FeedInstanceStatus.MISSING.value
    counts[missing] = counts.get(missing, 0) + max(0, len(due) - sum(counts.values()))
    counts[UNSCHEDULED] = len(record.sequence.indices_between(start, stop)) - len(due)
    return counts
