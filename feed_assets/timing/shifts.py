"""Constant windows: proofs that an expression at process instance n always names feed instance n + k.

The proof compares positions in local time. It gives up if a clock change or the length of a month could decide.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from feed_assets.timing.calendar_offsets import CalendarOffset, Truncation
from feed_assets.timing.frequency import Unit
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.zones import is_regular, is_undisturbed, offset_spread

_NO_TIME = timedelta(0)
_DAY = timedelta(days=1)
_MARGIN = timedelta(days=3)
_MONTH_LENGTHS = (28, 29, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """A sequence in the feed's local time: the anchor's day or month, and its position inside it."""

    origin: int
    day: int
    time: timedelta
    is_regular: bool


def find_constant_shift(offset: CalendarOffset, process: InstanceSequence, feed: InstanceSequence) -> int | None:
    """Return the k for which `offset` at process instance n floors to feed instance n + k for every n ≥ 0.

    Returns None if this cannot be proven.
    """
    try:
        since = min(process.start, feed.start, process.start + offset.bounds(feed.timezone)[0]) - _MARGIN
    except OverflowError:
        return None
    step = process.frequency.as_duration()
    if _is_even(process, since) and _is_even(feed, since) and step == feed.frequency.as_duration():
        if offset.truncation is Truncation.NONE:
            return (process.start + offset.elapsed - feed.start) // step
        if step % _DAY or offset_spread(feed.timezone, since):
            return None
        return _shift_in_days(offset, process, feed, since, step // _DAY)
    if process.timezone.key != feed.timezone.key or process.frequency != feed.frequency:
        return None
    match process.frequency.unit:
        case Unit.DAYS:
            return _shift_in_days(offset, process, feed, since, process.frequency.count)
        case Unit.MONTHS:
            return _shift_in_months(offset, process, feed, since)
        case Unit.SECONDS | Unit.MINUTES | Unit.HOURS:
            return None
        case _:
            assert_never(process.frequency.unit)


def _is_even(sequence: InstanceSequence, since: datetime) -> bool:
    if sequence.is_elapsed:
        return True
    return sequence.frequency.unit is Unit.DAYS and not offset_spread(sequence.timezone, since)


def _grid_of(sequence: InstanceSequence, feed: InstanceSequence, since: datetime, *, by_month: bool) -> _Grid:
    wall = sequence.start.astimezone(feed.timezone)
    time = timedelta(hours=wall.hour, minutes=wall.minute, seconds=wall.second, microseconds=wall.microsecond)
    return _Grid(
        origin=wall.year * 12 + wall.month - 1 if by_month else wall.toordinal(),
        day=wall.day - 1,
        time=time,
        is_regular=is_regular(feed.timezone, time, since),
    )


def _same_grid(offset: CalendarOffset, process: InstanceSequence, feed: InstanceSequence, p: _Grid, f: _Grid) -> bool:
    """Return whether the expression is the process time itself and both sequences place the same day or month alike."""
    unmoved = offset.truncation is Truncation.NONE and not offset.elapsed
    same_time = p.time == f.time and p.day == f.day
    offsets = {sequence.start.astimezone(feed.timezone).utcoffset() for sequence in (process, feed)}
    return unmoved and same_time and len(offsets) == 1


def _slack_of(offset: CalendarOffset, process: _Grid, feed: InstanceSequence, since: datetime) -> timedelta:
    """Return how far clock changes can move the result from its usual local time."""
    zone = feed.timezone
    is_moved_from_process = offset.truncation is Truncation.NONE
    time = process.time if is_moved_from_process else _NO_TIME
    settled = is_moved_from_process or is_regular(zone, _NO_TIME, since)
    return _NO_TIME if settled and is_undisturbed(zone, time, offset.elapsed, since) else offset_spread(zone, since)


def _shift_in_days(
    offset: CalendarOffset, process: InstanceSequence, feed: InstanceSequence, since: datetime, count: int
) -> int | None:
    p, f = (_grid_of(sequence, feed, since, by_month=False) for sequence in (process, feed))
    if _same_grid(offset, process, feed, _without_day(p), _without_day(f)):
        return (p.origin - f.origin) // count
    if not (p.is_regular and f.is_regular):
        return None
    match offset.truncation:
        case Truncation.NONE:
            days, time = 0, p.time + offset.elapsed
        case Truncation.DAY:
            days, time = offset.days, offset.elapsed
        case Truncation.WEEK if count % 7 == 0:
            days, time = offset.days - (p.origin - offset.weekday) % 7, offset.elapsed
        case Truncation.WEEK | Truncation.MONTH | Truncation.YEAR:
            return None
        case _:
            assert_never(offset.truncation)
    slack = _slack_of(offset, p, feed, since)
    distance = (p.origin + days - f.origin) * _DAY + time - f.time
    least, most = ((distance + change) // (count * _DAY) for change in (-slack, slack))
    return least if least == most else None


def _without_day(grid: _Grid) -> _Grid:
    return _Grid(origin=grid.origin, day=0, time=grid.time, is_regular=grid.is_regular)


def _shift_in_months(
    offset: CalendarOffset, process: InstanceSequence, feed: InstanceSequence, since: datetime
) -> int | None:
    p, f = (_grid_of(sequence, feed, since, by_month=True) for sequence in (process, feed))
    count = feed.frequency.count
    if _same_grid(offset, process, feed, p, f):
        return (p.origin - f.origin) // count
    if not (p.is_regular and f.is_regular):
        return None
    match offset.truncation:
        case Truncation.NONE:
            months, clipped, day, time = 0, True, 0, p.time + offset.elapsed
        case Truncation.DAY:
            months, clipped, day, time = 0, True, offset.days, offset.elapsed
        case Truncation.MONTH:
            months, clipped, day, time = offset.months, False, offset.days, offset.elapsed
        case Truncation.YEAR if count % 12 == 0:
            months, clipped, day, time = offset.months - p.origin % 12, False, offset.days, offset.elapsed
        case Truncation.WEEK | Truncation.YEAR:
            return None
        case _:
            assert_never(offset.truncation)
    slack = _slack_of(offset, p, feed, since)
    floors: set[int | None] = set()
    for length in _MONTH_LENGTHS:
        position = ((min(p.day, length - 1) if clipped else 0) + day) * _DAY + time
        floors |= {_months_back(position + change, length, f) for change in (-slack, slack)}
    if len(floors) != 1 or None in floors:
        return None
    (floor,) = floors
    return None if floor is None else (p.origin + months + floor - f.origin) // count


def _months_back(position: timedelta, length: int, feed: _Grid) -> int | None:
    """Return 0 if the feed's last instance at or before the position is in the same month, -1 if in the month before.

    `position` counts from the start of a month of `length` days. Returns None if other month lengths would decide.
    """

    def instance_in(days: int) -> timedelta:
        return min(feed.day, days - 1) * _DAY + feed.time

    if instance_in(length) <= position < length * _DAY + min(map(instance_in, _MONTH_LENGTHS)):
        return 0
    if max(instance_in(days) - days * _DAY for days in _MONTH_LENGTHS) <= position < instance_in(length):
        return -1
    return None
