"""A calendar of a feed or process: how many instances each day of a year has, or each hour of a day, and in which
states. Instances without a row are counted by arithmetic; rows are counted in a statement for all days of a cluster.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.catalog.run_metadata import QUALITY, Facts
from feed_assets.context.consolidation import Answer, Result, consolidate
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import is_flow, source_of
from feed_assets.errors import WrongUsageError
from feed_assets.instances.lists.ranges import UNSCHEDULED, decide_range
from feed_assets.instances.lists.rows import count_due, source_cluster
from feed_assets.json_form import NominalTime
from feed_assets.log.events import EventLog
from feed_assets.log.instances.instance_pages import InstancePages
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.plan.records import FeedRecord, ProcessRecord

_MOMENT = timedelta(microseconds=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_YEARS = range(2, 9999)
"""Those whose days have a beginning and an end in every time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarCell:
    """A day, an instance or an hour, which begins at `start`, on a cluster; `label` is its day or time in the zone.

    `expected` are its instances, `counts` those of each state, and `marks` how many of them are late now, came or ran
    more than once, or have rows that are not good enough. `instance` is the only one.
    """

    label: str
    start: NominalTime
    cluster: str
    source_cluster: str | None
    instance: NominalTime | None
    expected: int
    counts: Mapping[str, int]
    marks: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar(Answer):
    """The cells that have an instance, of a year, or of a `day` of it. `since` and `until` are the first nominal time
    of the entity, and the end of what is due of it.
    """

    result: Result
    message: str
    kind: Kind
    name: str
    timezone: str
    year: int
    day: str | None
    since: NominalTime
    until: NominalTime
    cells: tuple[CalendarCell, ...]


_Record = FeedRecord | ProcessRecord
_Bounds = Sequence[tuple[str, datetime]]
"""The label and the beginning of each cell, oldest first; the last is the end of them all."""


def show_calendar(context: OperationContext, subject: Subject, year: int | None, day: str | None) -> Calendar:
    """Return the calendar of a year, or of a day, on each cluster; by default of the year of the newest due instance.

    Raises:
        WrongUsageError: both are given, or it is no day.
    """
    if year is not None and day is not None:
        raise WrongUsageError("A calendar is of a year or of a day. Leave out --year or --day.")
    sequences = [each.sequence for each in subject.records]
    zone = sequences[0].timezone
    since, until = decide_range(sequences, start=None, end=None, results=None, now=context.as_of)
    newest = max(since, until - _MOMENT).astimezone(zone).date()
    first = _parse_day(day) if day is not None else date(min(year or newest.year, _YEARS.stop), 1, 1)
    if first.year not in _YEARS:
        raise WrongUsageError(f"There is no calendar of year {year or first.year}. Name one up to {_YEARS[-1]}.")
    bounds = _days_of(first.year, zone) if day is None else _times_of(first, subject.records[0])
    with context.read() as connection:
        parts = consolidate(subject.asked, lambda cluster: _read(context, connection, subject, cluster, bounds))
    return Calendar(
        result=parts.result,
        message=parts.message,
        kind=subject.kind,
        name=subject.name,
        timezone=zone.key,
        year=first.year,
        day=None if day is None else first.isoformat(),
        since=since,
        until=until,
        cells=tuple(sorted(parts.items, key=lambda cell: (cell.start, cell.source_cluster is not None))),
    )


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise WrongUsageError(f"{text!r} is not a day. Write it as in 2013-11-03.") from None


def _begin(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _days_of(year: int, zone: ZoneInfo) -> _Bounds:
    days = map(date.fromordinal, range(date(year, 1, 1).toordinal(), date(year + 1, 1, 1).toordinal() + 1))
    return [(day.isoformat(), _begin(day, zone)) for day in days]


def _times_of(day: date, record: _Record) -> _Bounds:
    """Return the instances of a day; its hours if they come as they come."""
    is_known = record.is_expected if isinstance(record, FeedRecord) else record.is_enumerated
    zone = record.sequence.timezone
    start, stop = _begin(day, zone), _begin(day + _DAY, zone)
    hours = (start + n * _HOUR for n in range(-((start - stop) // _HOUR)))
    times = record.sequence.between(start, stop) if is_known else hours
    return [*((f"{time.astimezone(zone):%H:%M %Z}", time) for time in times), ("", stop)]


def _read(
    context: OperationContext, connection: Connection, subject: Subject, cluster: str, bounds: _Bounds
) -> list[CalendarCell]:
    """Return the cells of a cluster.

    Raises:
        InstanceQueryError: the feed or process is not on it.
    """
    key, starts, pages = (subject.name, cluster), [start for _, start in bounds], InstancePages(connection)
    spans = [(*key, *each) for each in pairwise(starts)]
    first, last = starts[0], starts[-1] - _MOMENT
    record: _Record
    if subject.kind is Kind.FEED:
        record = context.feed_on(*key)
        source, rows = source_cluster(context.plan, record), pages.feed_counts(spans)
        again = EventLog(connection).times_made_again(*key, first, last)
        bad = _find_bad(context, connection, record, first, last)
    else:
        record = context.process_on(*key)
        source, rows = source_of(subject.name), pages.process_counts(spans)
        again, bad = pages.times_retried(*key, first, starts[-1]), []
    late = SlaMisses(connection).late_times(subject.kind, *key, first, last)
    marked = {"late": late, "made again": again, "with bad rows": bad}
    marks = [(name, Counter(bisect_right(starts, time) - 1 for time in times)) for name, times in marked.items()]
    cells, dues = [], count_due(context, connection, record, starts)
    for at, (span, (due, ahead)) in enumerate(zip(spans, dues, strict=True)):
        found = rows.get(span, {})
        counts = Counter({status: each.number for status, each in found.items()})
        counts[FeedInstanceStatus.MISSING] += max(0, due - counts.total())
        counts[UNSCHEDULED] += ahead
        if not (expected := counts.total()):
            continue
        label, start = bounds[at]
        only = next((each.newest for each in found.values()), None) or record.sequence.ceil(start)
        cell = CalendarCell(
            label=label,
            start=start,
            cluster=cluster,
            source_cluster=source,
            instance=only if expected == 1 else None,
            expected=expected,
            counts={str(status): number for status, number in sorted((+counts).items())},
            marks={name: of[at] for name, of in marks if of[at]},
        )
        cells.append(cell)
    return cells


def _find_bad(
    context: OperationContext, connection: Connection, feed: FeedRecord, first: datetime, last: datetime
) -> list[datetime]:
    """Return the instances whose rows were not good enough, published or not."""
    if feed.quality is None:
        return []
    found: list[datetime | None] = []
    for edge in feed.outputs_of:
        process = context.plan.processes[edge.process_key].sequence
        indices = feed.sequence.indices_between(first, last + _MOMENT)
        writers = edge.window.consumers_of_range(indices, feed.sequence, process)
        if edge.quarantine_of is None and not is_flow(edge.process) and writers:
            span = (process.at(writers[0]), process.at(writers[-1]))
            times = Facts(connection).times_bad(*edge.process_key, f"{QUALITY}{edge.name}", *span)
            found += (context.plan.output_time(edge, time) for time in times)
    return [time for time in found if time is not None and first <= time <= last]
