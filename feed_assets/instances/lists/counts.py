"""`summary`: counts of instances by status on each cluster, and how many instances a page is taken from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feed_assets.context.consolidation import Answer, Lifecycle, Result, consolidate
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.lifecycles import require_statuses, subjects_of
from feed_assets.instances.lists.query_fields import SUMMARY_FILTERS, OrderField
from feed_assets.instances.lists.ranges import ClusterQuery, InstanceQuery, decide_range
from feed_assets.instances.lists.rows import InstanceRow, due_between
from feed_assets.json_form import NominalTime
from feed_assets.log.events import EventLog
from feed_assets.log.instances.instance_pages import InstancePages
from feed_assets.log.records import FeedEvent, FeedEventKind, FeedInstanceStatus, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import FeedRecord

UNSCHEDULED = "UNSCHEDULED"


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
                counts.update(_count_by_status(whole.about(each)))
            return [ClusterSummary(cluster=cluster, counts=dict(sorted(counts.items())))]

        parts = consolidate(subjects.by_cluster, read)
    clusters = sorted(parts.items, key=lambda each: each.cluster, reverse=bool(query.descending))
    return InstanceSummary(result=parts.result, message=parts.message, start=start, end=stop, clusters=tuple(clusters))


def count_listed(of: ClusterQuery) -> int:
    """Return how many instances a list without pages would have.

    Raises:
        InstanceQueryError: the entity is not on the cluster.
    """
    return sum(count for status, count in _count_by_status(of).items() if status != UNSCHEDULED)


def _count_by_status(of: ClusterQuery) -> dict[str, int]:
    """Return the number of instances by status, as far as the filter asks for them; no zeros."""
    if of.query.subject.kind is Kind.PROCESS:
        counts = _count_work(of)
    elif Lifecycle.EVICTION in of.query.subject.lifecycles:
        counts = Counter(row.status for row in find_evictions(of))
    else:
        counts = _count_data(of)
    statuses = of.query.filter.statuses
    return {status: count for status, count in counts.items() if count and (statuses is None or status in statuses)}


def _count_work(of: ClusterQuery) -> dict[str, int]:
    process = of.context.process_on(*of.key)
    after = of.query.filter.started_after
    found = InstancePages(of.connection).process_counts(*of.key, of.start, of.stop, started_after=after)
    counts = {status.value: number for status, number in found.items()}
    watermark = Watermarks(of.connection).get(WatermarkKind.PROCESS, *of.key)
    since = of.start if watermark is None else watermark.next_time
    if since is not None and process.is_enumerated:
        spans = of.context.timeline.spans(of.connection, of.key, since)
        counts[UNSCHEDULED] = sum(len(each.between(max(of.start, since), of.stop)) for each in spans)
    return counts


def _count_data(of: ClusterQuery) -> dict[str, int]:
    """Count the instances of a feed. Due instances without a row are MISSING; rows of an earlier definition keep their
    status.
    """
    sequence, after = of.feed.sequence, of.query.filter.started_after
    due = due_between(of.feed, of.start, of.stop, of.context.as_of)
    is_expected = of.feed.is_expected
    ahead = {UNSCHEDULED: len(sequence.indices_between(of.start, of.stop)) - len(due)} if is_expected else {}
    if not due:
        return ahead
    first, beyond = sequence.at(due.start), sequence.at(due.stop)
    pages = InstancePages(of.connection)
    found = pages.feed_counts(*of.key, first, min(of.stop, beyond), available_after=after)
    counts = {status.value: number for status, number in found.items()}
    missing = FeedInstanceStatus.MISSING.value
    if after is None and is_expected:
        counts[missing] = counts.get(missing, 0) + max(0, len(due) - sum(counts.values()))
    return counts | ahead


def find_evictions(of: ClusterQuery) -> list[InstanceRow]:
    """Return the last action of retention on each instance of a range: EVICTED or RESTORED.

    Raises:
        InstanceQueryError: the feed is not on the cluster.
    """
    record, log = of.feed, EventLog(of.connection)
    events = [*log.for_feed(*record.key, FeedEventKind.EVICTED), *log.for_feed(*record.key, FeedEventKind.RESTORED)]
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
