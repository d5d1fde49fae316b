"""Which instances a reading verb is about: Falcon's default ranges, filters, order and paging."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from feed_assets.entities.common import Kind
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.state.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.timing.dates import parse_datetime, render_datetime
from feed_assets.timing.frequency import Frequency, Unit
from feed_assets.timing.sequence import InstanceSequence

PAGE = 10
_DAYS_OF_A_MONTH = 30
_FOREVER = datetime.max.replace(tzinfo=UTC)


class FilterField(StrEnum):
    """What instances can be filtered by, with Falcon's names."""

    STATUS = "STATUS"
    CLUSTER = "CLUSTER"
    SOURCE_CLUSTER = "SOURCECLUSTER"
    STARTED_AFTER = "STARTEDAFTER"


class Lifecycle(StrEnum):
    """What is done to the instances of an entity, with Falcon's names: the work of a process; of a feed, the copies to
    its targets, and what retention does.
    """

    EXECUTION = "execution"
    REPLICATION = "replication"
    EVICTION = "eviction"


class OrderField(StrEnum):
    """What instances can be ordered by: Falcon's names, and the nominal time, which is the order of the default."""

    STATUS = "status"
    CLUSTER = "cluster"
    START_TIME = "startTime"
    END_TIME = "endTime"
    NOMINAL_TIME = "nominalTime"


SUMMARY_FILTERS = frozenset({FilterField.STATUS, FilterField.CLUSTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFilter:
    """All conditions must hold; of several values of one field one is enough. None means any."""

    statuses: frozenset[str] | None = None
    clusters: frozenset[str] | None = None
    source_clusters: frozenset[str] | None = None
    started_after: datetime | None = None

    @property
    def fields(self) -> frozenset[FilterField]:
        """The fields that it has conditions on."""
        values = {
            FilterField.STATUS: self.statuses,
            FilterField.CLUSTER: self.clusters,
            FilterField.SOURCE_CLUSTER: self.source_clusters,
            FilterField.STARTED_AFTER: self.started_after,
        }
        return frozenset(name for name, value in values.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceQuery:
    """What is asked of the instances of a feed or process.

    `start` and `end` are None for Falcon's defaults (`decide_range`). `clusters` restricts the question; `order` None
    is newest first, or oldest first where a start is given, as in Falcon. With `all_attempts` each attempt is a row.
    `lifecycles` are those that are asked for; none for what `find_subjects` takes then.

    Raises:
        InstanceQueryError: a page without results, or a direction without something to order by.
    """

    kind: Kind
    name: str
    start: datetime | None = None
    end: datetime | None = None
    clusters: frozenset[str] | None = None
    filter: InstanceFilter = InstanceFilter()
    order: OrderField | None = None
    descending: bool | None = None
    offset: int = 0
    results: int = PAGE
    all_attempts: bool = False
    lifecycles: frozenset[Lifecycle] = frozenset()

    def __post_init__(self) -> None:
        if self.results < 1 or self.offset < 0:
            raise InstanceQueryError(
                subject="the page",
                reason=f"{self.results} results from {self.offset} on are none",
                next_step="Ask for at least 1 result, from 0 on.",
            )
        if self.descending is not None and self.order is None:
            raise InstanceQueryError(
                subject="the order",
                reason="a direction without something to order by says nothing",
                next_step=f"Order by {', '.join(OrderField)}, too.",
            )

    @property
    def is_descending(self) -> bool:
        """Whether the greatest come first."""
        if self.order is not None:
            return bool(self.descending)
        return self.start is None


def parse_filter(kind: Kind, texts: Iterable[str], *, is_of_data: bool = True) -> InstanceFilter:
    """Read `FIELD:value` conditions, several of them joined by commas or given one by one.

    A feed has more statuses where not only its data are in question.

    Raises:
        InstanceQueryError: an unknown field, or a status that instances of this kind never have.
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
    after = values.get(FilterField.STARTED_AFTER)
    return InstanceFilter(
        statuses=_frozen(kind, values.get(FilterField.STATUS), is_of_data=is_of_data),
        clusters=_known(values.get(FilterField.CLUSTER)),
        source_clusters=_known(values.get(FilterField.SOURCE_CLUSTER)),
        started_after=max(map(parse_datetime, after)) if after else None,
    )


def _known(values: Collection[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset(values)


def statuses_of(kind: Kind, lifecycle: Lifecycle | None) -> frozenset[str]:
    """The statuses that instances have, as lists of them show."""
    if lifecycle is Lifecycle.EVICTION:
        return frozenset({FeedEventKind.EVICTED.value, FeedEventKind.RESTORED.value})
    return frozenset(map(str, FeedInstanceStatus if kind is Kind.FEED else ProcessInstanceStatus))


def _frozen(kind: Kind, statuses: Collection[str] | None, *, is_of_data: bool) -> frozenset[str] | None:
    if statuses is None:
        return None
    known = statuses_of(kind, None)
    if kind is Kind.FEED and not is_of_data:
        known |= statuses_of(Kind.PROCESS, None) | statuses_of(kind, Lifecycle.EVICTION)
    wanted = frozenset(status.upper() for status in statuses)
    if not wanted <= known:
        raise InstanceQueryError(
            subject=f"status {', '.join(sorted(wanted - known))}",
            reason=f"an instance of a {kind.value} never has it",
            next_step=f"Statuses are {', '.join(sorted(known))}.",
        )
    return wanted


def decide_range(
    sequences: Sequence[InstanceSequence],
    *,
    start: datetime | None,
    end: datetime | None,
    results: int,
    now: datetime,
) -> tuple[datetime, datetime]:
    """The nominal times `[start, end)` that a question is about, with Falcon's defaults.

    The end is now where none is given, and never after the validity of all; the start is so many instances before the
    end (a month counts 30 days), and not before the first validity begins.

    Args:
        sequences: of one entity, on each of its clusters; at least one.
        start: as given.
        end: as given.
        results: the length of a page.
        now: stands for the present.

    Raises:
        InstanceQueryError: the end is before the start, or before the entity begins.
    """
    first = min(sequence.start for sequence in sequences)
    stop = min(end or now, max(sequence.end or _FOREVER for sequence in sequences))
    if end is not None and end < first:
        raise InstanceQueryError(
            subject=f"end {render_datetime(end)}",
            reason=f"it is before the entity begins at {render_datetime(first)}",
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
    sequences: Sequence[InstanceSequence], *, start: datetime | None, end: datetime | None, results: int, now: datetime
) -> tuple[datetime, datetime]:
    """The range of `decide_range`, empty where the question makes no sense."""
    first = min(sequence.start for sequence in sequences)
    stop = max(first, min(end or now, max(sequence.end or _FOREVER for sequence in sequences)))
    if start is None:
        start = stop - results * _page_step(sequences[0].frequency)
    start = max(start, first)
    return start, max(start, stop)


def _page_step(frequency: Frequency) -> timedelta:
    if frequency.unit is Unit.MONTHS:
        return timedelta(days=_DAYS_OF_A_MONTH) * frequency.count
    return frequency.as_duration()
