"""Selection of instances: nominal times as users write them; Falcon's default ranges, filters, order and paging."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from feed_assets.context.consolidation import PAGE, Lifecycle
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.query_fields import FilterField, OrderField
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.timing.dates import parse_datetime, render_datetime
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit

_Cells = TypeVar("_Cells")

UNSCHEDULED = "UNSCHEDULED"
_DAYS_OF_A_MONTH = 30
_FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFilter:
    """Conditions on instances. All must hold; of several values of one field, one is enough. None accepts any value."""

    statuses: frozenset[str] | None = None
    clusters: frozenset[str] | None = None
    source_clusters: frozenset[str] | None = None
    started_after: datetime | None = None

    @property
    def fields(self) -> frozenset[FilterField]:
        """The fields with conditions."""
        values = {
            FilterField.STATUS: self.statuses,
            FilterField.CLUSTER: self.clusters,
            FilterField.SOURCE_CLUSTER: self.source_clusters,
            FilterField.STARTED_AFTER: self.started_after,
        }
        return frozenset(name for name, value in values.items() if value is not None)

    def is_met(self, status: str, started_at: datetime | None) -> bool:
        """Return whether an instance with this status and start is accepted."""
        after = self.started_after
        is_later = after is None or (started_at is not None and started_at > after)
        return is_later and (self.statuses is None or status in self.statuses)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceQuery:
    """A query for the instances of a feed or process.

    `start` and `end` are None for Falcon's defaults (`decide_range`). With `order` None the newest come first, or the
    oldest if a start is given, as in Falcon. With `all_attempts` each attempt is a row.

    Raises:
        InstanceQueryError: a direction is given without an order.
    """

    subject: Subject
    start: datetime | None = None
    end: datetime | None = None
    filter: InstanceFilter = InstanceFilter()
    order: OrderField | None = None
    descending: bool | None = None
    offset: int = 0
    results: int = PAGE
    all_attempts: bool = False

    def __post_init__(self) -> None:
        if self.descending is not None and self.order is None:
            raise InstanceQueryError(
                subject="the order",
                reason="a direction needs a field to order by",
                next_step=f"Also order by one of {', '.join(OrderField)}.",
            )

    @property
    def is_descending(self) -> bool:
        """Whether the greatest come first."""
        if self.order is not None:
            return bool(self.descending)
        return self.start is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQuery:
    """A query for the instances of one process, flow or feed on one cluster, with `start <= nominal time < stop`. The
    first `skip` ones are wanted by nobody.
    """

    context: OperationContext
    connection: Connection
    query: InstanceQuery
    cluster: str
    start: datetime
    stop: datetime
    skip: int = 0

    def about(self, subject: Subject) -> "ClusterQuery":
        """Return the same query for another subject."""
        return replace(self, query=replace(self.query, subject=subject))

    @property
    def key(self) -> Key:
        """(name, cluster)."""
        return (self.query.subject.name, self.cluster)

    @property
    def record(self) -> FeedRecord | ProcessRecord:
        """The queried entity. Raises InstanceQueryError if it is not on the cluster."""
        return self.context.process_on(*self.key) if self.query.subject.kind is Kind.PROCESS else self.feed

    @property
    def feed(self) -> FeedRecord:
        """The queried feed. Raises InstanceQueryError if it is not on the cluster."""
        return self.context.feed_on(*self.key)


def parse_filter(kind: Kind, texts: Iterable[str], *, is_of_data: bool = True) -> InstanceFilter:
    """Parse `FIELD:value` conditions, joined by commas or given one by one. A feed has more statuses if `is_of_data` is
    False.

    Raises:
        InstanceQueryError: a field is unknown, or a status does not exist for this kind.
        DateTimeError: STARTEDAFTER is no time.

    >>> parse_filter(Kind.PROCESS, ["STATUS:RUNNING,CLUSTER:primary"]).clusters
    frozenset({'primary'})
    """
    values: dict[FilterField, set[str]] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, separator, value = part.partition(":")
        if not separator or name.upper() not in set(FilterField):
            raise InstanceQueryError(
                subject=f"filter {part!r}",
                reason="it is not of the form FIELD:value with a known field",
                next_step=f"Fields are {', '.join(FilterField)}.",
            )
        values.setdefault(FilterField(name.upper()), set()).add(value)
    given = {name: frozenset(found) for name, found in values.items()}
    after = given.get(FilterField.STARTED_AFTER)
    return InstanceFilter(
        statuses=_require_known(kind, given.get(FilterField.STATUS), is_of_data=is_of_data),
        clusters=given.get(FilterField.CLUSTER),
        source_clusters=given.get(FilterField.SOURCE_CLUSTER),
        started_after=max(map(parse_datetime, after)) if after else None,
    )


def statuses_of(kind: Kind, lifecycles: Collection[Lifecycle] = ()) -> frozenset[str]:
    """Return the statuses of instances, as shown in lists."""
    if Lifecycle.EVICTION in lifecycles:
        return frozenset({FeedEventKind.EVICTED.value, FeedEventKind.RESTORED.value})
    return frozenset(map(str, FeedInstanceStatus if kind is Kind.FEED else ProcessInstanceStatus))


def _require_known(kind: Kind, statuses: Collection[str] | None, *, is_of_data: bool) -> frozenset[str] | None:
    if statuses is None:
        return None
    known = statuses_of(kind)
    if kind is Kind.FEED and not is_of_data:
        known |= statuses_of(Kind.PROCESS) | statuses_of(kind, [Lifecycle.EVICTION])
    return parse_statuses(statuses, known, f"an instance of a {kind.value}")


def parse_statuses(statuses: Iterable[str], known: frozenset[str], whose: str) -> frozenset[str]:
    """Return statuses in capitals. Raises InstanceQueryError if one is not known."""
    upper = frozenset(status.upper() for status in statuses)
    if not upper <= known:
        raise InstanceQueryError(
            subject=f"status {', '.join(sorted(upper - known))}",
            reason="such instances are not created yet: a summary counts them, and no list has them"
            if UNSCHEDULED in upper
            else f"{whose} never has it",
            next_step=f"Statuses are {', '.join(sorted(known))}.",
        )
    return upper


def decide_range(
    sequences: Sequence[InstanceSequence],
    *,
    start: datetime | None,
    end: datetime | None,
    results: int | None,
    now: datetime,
) -> tuple[datetime, datetime]:
    """Return the nominal times `[start, end)` of a query, with Falcon's defaults. The end defaults to now and is at
    most the latest end of validity. The start defaults to `results` instances before the end (a month counts 30 days)
    and is at least the earliest start of validity.

    Args:
        sequences: the entity's instances on each of its clusters; at least one.
        start: the requested start.
        end: the requested end.
        results: the length of a page; with None the start defaults to the earliest start of validity.
        now: the present.

    Raises:
        InstanceQueryError: the end is before the start, or before the entity begins.
    """
    first = min(sequence.start for sequence in sequences)
    stop = min(end or now, max(sequence.end or _FOREVER for sequence in sequences))
    if end is not None and end < first:
        raise InstanceQueryError(
            subject=f"end {render_datetime(end)}",
            reason=f"it is before the start of the entity at {render_datetime(first)}",
            next_step="Ask for a later time.",
        )
    if start is not None and start > (stop if end is None else end):
        raise InstanceQueryError(
            subject=f"start {render_datetime(start)}",
            reason=f"it is after the end {render_datetime(stop if end is None else end)}",
            next_step="Ask for an earlier start, or give a later end.",
        )
    return clip_range(sequences, start=start, end=end, results=results, now=now)


def clip_range(
    sequences: Sequence[InstanceSequence],
    *,
    start: datetime | None,
    end: datetime | None,
    results: int | None,
    now: datetime,
) -> tuple[datetime, datetime]:
    """Return the range of `decide_range`, or an empty range if the query is invalid.

    Where instances come as they come, nothing tells how long a page of them is: it begins with the validity.
    """
    first = min(sequence.start for sequence in sequences)
    stop = max(first, min(end or now, max(sequence.end or _FOREVER for sequence in sequences)))
    if start is None:
        frequency = sequences[0].frequency
        if results is None or frequency.unit is Unit.SECONDS or sequences[0].is_single:
            start = first
        else:
            step = _page_step(frequency)
            start = stop - min(results, (stop - first) // step + 1) * step
    start = max(start, first)
    return start, max(start, stop)


def _page_step(frequency: Frequency) -> timedelta:
    if frequency.unit is Unit.MONTHS:
        return timedelta(days=_DAYS_OF_A_MONTH) * frequency.count
    return frequency.as_duration()


def join_consecutive(
    rows: Iterable[tuple[datetime, InstanceSequence | None, _Cells]],
) -> list[tuple[datetime, datetime, _Cells]]:
    """Join the equal rows of consecutive instances. Returns first and last nominal time of each row, in the order of
    the first ones. Rows of each sequence are given in ascending order; rows without a sequence are not joined.
    """
    joined: list[tuple[datetime, datetime, _Cells]] = []
    places: dict[_Cells, int] = {}
    for time, sequence, cells in rows:
        place = places.get(cells)
        if place is not None and sequence is not None and _is_next(sequence, joined[place][1], time):
            joined[place] = (joined[place][0], time, cells)
        else:
            places[cells] = len(joined)
            joined.append((time, time, cells))
    return joined


def _is_next(sequence: InstanceSequence, before: datetime, time: datetime) -> bool:
    return (
        sequence.contains(before)
        and sequence.contains(time)
        and sequence.index_at_or_before(time) == sequence.index_at_or_before(before) + 1
    )


def render_range(first: datetime, last: datetime) -> str:
    """Return the range of consecutive instances for people."""
    return render_datetime(first) if first == last else f"{render_datetime(first)} to {render_datetime(last)}"


def render_ranges(times: Iterable[datetime], sequence: InstanceSequence) -> str:
    """Return nominal times as ranges of consecutive instances.

    >>> from feed_assets.timing.dates import parse_datetime, parse_timezone
    >>> from feed_assets.timing.sequence import parse_frequency
    >>> start = parse_datetime("2013-11-01T00:00Z")
    >>> hourly = InstanceSequence(start=start, frequency=parse_frequency("hours(1)"), timezone=parse_timezone("UTC"))
    >>> render_ranges([hourly.at(n) for n in (0, 1, 2, 5)], hourly)
    '2013-11-01T00:00Z to 2013-11-01T02:00Z, 2013-11-01T05:00Z'
    """
    joined = join_consecutive((time, sequence, None) for time in sorted(times))
    return ", ".join(render_range(first, last) for first, last, _ in joined)
