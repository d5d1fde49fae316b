"""Time expressions (`today(0,0)`, `lastMonth(-1,0,0)`, `latest(0)`) and the meaning of each function.

The semantics are Falcon's at run time: truncation in the feed's time zone, then months and days, hours and minutes as
elapsed time. An offset is monotone in the time it is applied to, so it has an inverse (`earliest_reaching`). With the
inverse, the process instances that see a feed instance are computed without a search.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import assert_never
from zoneinfo import ZoneInfo

from feed_assets.errors import find_similar
from feed_assets.timing.calls import Call, Word
from feed_assets.timing.dates import is_regular, is_undisturbed, is_utc, offset_spread, render_datetime
from feed_assets.timing.errors import ExpressionError, InstanceError
from feed_assets.timing.sequence import InstanceSequence, Unit


class Truncation(StrEnum):
    """The unit that a time is truncated to before anything is added."""

    NONE = "none"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


_NO_TIME = timedelta(0)
_DAY = timedelta(days=1)
_MONTHS, _DAYS = 400 * 12, 146_097  # the calendar repeats after 400 years
_WEEK = 7


def local_day(moment: datetime, zone: ZoneInfo) -> int:
    """Return the local day (as a proleptic ordinal) of a UTC moment: the last day that has started."""
    wall = moment.astimezone(zone)
    day = wall.toordinal()
    if wall.fold or (wall.hour == 0 and wall.minute):
        # Where clocks change around midnight, the date can be ahead of or behind the day that has started.
        if start_of_day(day, zone) > moment:
            return day - 1
        if start_of_day(day + 1, zone) <= moment:
            return day + 1
    return day


@lru_cache(maxsize=16384)
def start_of_day(day: int, zone: ZoneInfo) -> datetime:
    """Return the UTC instant at which a local day (a proleptic ordinal) starts."""
    midnight = datetime.fromordinal(day)
    return midnight.replace(tzinfo=UTC) if is_utc(zone) else midnight.replace(tzinfo=zone).astimezone(UTC)


def _month_of(day: int) -> int:
    found = date.fromordinal(day)
    return found.year * 12 + found.month - 1


def _month_at_or_after(day: int) -> int:
    month = _month_of(day)
    return month if _first_of(month) == day else month + 1


def _first_of(month: int) -> int:
    return date(month // 12, month % 12 + 1, 1).toordinal()


@lru_cache(maxsize=1024)
def _day_bounds(truncation: Truncation, months: int) -> tuple[int, int]:
    """Return bounds, in days, of (truncated and moved by months) − T."""
    match truncation:
        case Truncation.NONE:
            return 0, 0
        case Truncation.DAY:
            return -1, 0
        case Truncation.WEEK:
            return -_WEEK, 0
        case Truncation.MONTH | Truncation.YEAR:
            step = 1 if truncation is Truncation.MONTH else 12
        case _:
            assert_never(truncation)
    cycles, rest = divmod(months, _MONTHS)
    origins = range(2000 * 12, 2000 * 12 + _MONTHS, step)
    moved = [cycles * _DAYS + _first_of(origin + rest) for origin in origins]
    firsts = [_first_of(origin) for origin in (*origins, origins.stop)]
    least = min(move - following for move, following in zip(moved, firsts[1:], strict=True))
    return least, max(move - first for move, first in zip(moved, firsts, strict=False))


_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class DataDriven(StrEnum):
    """Functions whose result depends on which instances are available."""

    LATEST = "latest"
    FUTURE = "future"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    parameters: tuple[str, ...]
    truncation: Truncation = Truncation.NONE
    months: int = 0
    days: int = 0
    data_driven: DataDriven | None = None


_CLOCK = ("hours", "minutes")
_FUNCTIONS: Mapping[str, _Function] = MappingProxyType(
    {
        "now": _Function(parameters=_CLOCK),
        "today": _Function(parameters=_CLOCK, truncation=Truncation.DAY),
        "yesterday": _Function(parameters=_CLOCK, truncation=Truncation.DAY, days=-1),
        "tomorrow": _Function(parameters=_CLOCK, truncation=Truncation.DAY, days=1),
        "currentWeek": _Function(parameters=("weekday", *_CLOCK), truncation=Truncation.WEEK),
        "lastWeek": _Function(parameters=("weekday", *_CLOCK), truncation=Truncation.WEEK, days=-7),
        "currentMonth": _Function(parameters=("days", *_CLOCK), truncation=Truncation.MONTH),
        "lastMonth": _Function(parameters=("days", *_CLOCK), truncation=Truncation.MONTH, months=-1),
        "nextMonth": _Function(parameters=("days", *_CLOCK), truncation=Truncation.MONTH, months=1),
        "currentYear": _Function(parameters=("months", "days", *_CLOCK), truncation=Truncation.YEAR),
        "lastYear": _Function(parameters=("months", "days", *_CLOCK), truncation=Truncation.YEAR, months=-12),
        "latest": _Function(parameters=("n",), data_driven=DataDriven.LATEST),
        "future": _Function(parameters=("n", "limit"), data_driven=DataDriven.FUTURE),
    }
)
TIME_FUNCTIONS = frozenset(_FUNCTIONS)
NEXT_MONTH = "nextMonth"
"""Which Falcon does not know, and nothing of it can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExpression:
    """A parsed expression; make one with `parse_time_expression`.

    It truncates a nominal time, then adds months, days (both on the calendar of the zone) and elapsed time, in this
    order. `weekday` (0 is Sunday) is the day that a WEEK truncation goes back to; a time on that weekday stays on its
    day. `latest(n)` and `future(n,limit)` change nothing: `data_driven` names the function, `n` and `limit` are its
    arguments, and a window resolves it.

    A local day starts at its first instant: at the first of two midnights, or at 01:00 if midnight is skipped. It does
    not start a second time if the clocks go back over midnight. Hours and minutes are elapsed time. So 24 hours after
    midnight is 01:00 on the day after a 23-hour day, and 60 minutes before midnight is always the last elapsed hour.
    """

    text: str
    truncation: Truncation = field(repr=False)
    weekday: int = field(repr=False)
    months: int = field(repr=False)
    days: int = field(repr=False)
    elapsed: timedelta = field(repr=False)
    data_driven: DataDriven | None = field(repr=False)
    n: int = field(repr=False)
    limit: int = field(repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def is_data_driven(self) -> bool:
        """Whether the result depends on which instances are available."""
        return self.data_driven is not None

    def evaluate(self, nominal_time: datetime, zone: ZoneInfo) -> datetime:
        """Return the UTC instant that the expression names for an instance at `nominal_time`.

        Args:
            nominal_time: aware.
            zone: the zone in which days, weeks, months and years start: the feed's.

        Applies truncation, then months and days on the zone's calendar, then hours and minutes as elapsed time. So
        `today(0,0)` to `tomorrow(0,-60)` over an hourly feed in UTC has 23, 24 or 25 instances. Data-driven
        expressions give `nominal_time`, as in Falcon's own calculations.

        Differs from Falcon: `tomorrow` (the start of the next day) and `nextMonth` are new; where local midnight occurs
        twice, the day starts at the first, so `today(0,0)` is never in the future.

        Raises:
            InstanceError: the result is outside the years 1 to 9999.

        >>> new_york = ZoneInfo("America/New_York")
        >>> end_of_day = parse_time_expression("tomorrow(0,-60)")
        >>> render_datetime(end_of_day.evaluate(datetime(2013, 11, 3, 12, tzinfo=UTC), new_york))
        '2013-11-04T04:00Z'
        """
        if nominal_time.tzinfo is not UTC:
            nominal_time = nominal_time.astimezone(UTC)
        try:
            return self._apply(nominal_time, zone)
        except (OverflowError, ValueError) as exc:
            raise InstanceError(
                subject=f"{self.text} at {render_datetime(nominal_time)}",
                reason="the result is outside the years 1 to 9999",
                next_step="Use smaller numbers.",
            ) from exc

    def earliest_reaching(self, target: datetime, zone: ZoneInfo) -> datetime:
        """Return the earliest nominal time at which the expression gives `target` or later.

        The expression is monotone.
        """
        try:
            return self._earliest_reaching(target.astimezone(UTC), zone)
        except (OverflowError, ValueError) as exc:
            raise InstanceError(
                subject=f"the time at which {self.text} reaches {render_datetime(target)}",
                reason="it is outside the years 1 to 9999",
                next_step="Use smaller numbers.",
            ) from exc

    def _apply(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """Return the resulting UTC instant. Raises OverflowError or ValueError if it is outside the calendar."""
        match self.truncation:
            case Truncation.NONE:
                return moment + self.elapsed
            case Truncation.DAY:
                day = local_day(moment, zone) + self.days
            case Truncation.WEEK:
                today = local_day(moment, zone)
                day = today - (today - self.weekday) % _WEEK + self.days
            case Truncation.MONTH:
                today = local_day(moment, zone)
                day = _first_of(_month_of(today) + self.months) + self.days
            case Truncation.YEAR:
                month = _month_of(local_day(moment, zone))
                day = _first_of(month - month % 12 + self.months) + self.days
            case _:
                assert_never(self.truncation)
        return start_of_day(day, zone) + self.elapsed

    def _earliest_reaching(self, target: datetime, zone: ZoneInfo) -> datetime:
        if self.truncation is Truncation.NONE:
            return target - self.elapsed
        target -= self.elapsed
        day = local_day(target, zone)
        if start_of_day(day, zone) < target:
            day += 1
        day -= self.days
        match self.truncation:
            case Truncation.DAY:
                pass
            case Truncation.WEEK:
                day += (self.weekday - day) % _WEEK
            case Truncation.MONTH:
                day = _first_of(_month_at_or_after(day) - self.months)
            case Truncation.YEAR:
                day = _first_of(-((self.months - _month_at_or_after(day)) // 12) * 12)
            case _:
                assert_never(self.truncation)
        return start_of_day(day, zone)

    def bounds(self, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
        """Return safe outer bounds (least, greatest) of result − nominal time over all nominal times.

        The bounds include clock changes. They are the widest for an expression whose results are outside the calendar.
        """
        if self.truncation is Truncation.NONE:
            return self.elapsed, self.elapsed
        slack = offset_spread(zone)
        least, most = _day_bounds(self.truncation, self.months)
        try:
            fixed = self.days * _DAY + self.elapsed
            return fixed + least * _DAY - slack, fixed + most * _DAY + slack
        except OverflowError:
            return timedelta.min, timedelta.max

    def shift(self, process: InstanceSequence, feed: InstanceSequence) -> int | None:
        """Return the k for which the expression at process instance n names feed instance n + k, for every n ≥ 0.

        Returns None if this cannot be proven: for different frequencies, for offsets whose result a clock change or a
        month length can alter, and for data-driven expressions. Ignores the ends of validities.

        >>> from feed_assets.timing.sequence import parse_frequency
        >>> daily = InstanceSequence(start=datetime(2013, 11, 1, 4, tzinfo=UTC), frequency=parse_frequency("days(1)"),
        ...                          timezone=ZoneInfo("America/New_York"))
        >>> parse_time_expression("yesterday(0,0)").shift(daily, daily)
        -1
        """
        return None if self.is_data_driven else _find_constant_shift(self, process, feed)


@lru_cache(maxsize=8192)
def parse_time_expression(text: str) -> TimeExpression:
    """Parse a time expression.

    Raises:
        ExpressionError: a syntax error, an unknown function, or arguments that do not fit; has the position and
            suggestions.

    >>> parse_time_expression("currentWek('MON',0,0)")
    Traceback (most recent call last):
    feed_assets.timing.errors.ExpressionError: expression "currentWek('MON',0,0)", character 1: currentWek is not a \
time function. Did you mean currentWeek?
    """
    from feed_assets.timing.grammar import parse_call

    call = parse_call(text)
    function = _FUNCTIONS.get(call.name)
    if function is None:
        raise ExpressionError(
            text=text,
            position=call.position,
            reason=f"{call.name} is not a time function",
            suggestions=tuple(find_similar(call.name, _FUNCTIONS, n=1)),
        )
    values = _values_of(text, call, function)
    number = {name: value for name, value in values.items() if isinstance(value, int)}
    try:
        elapsed = timedelta(hours=number.get("hours", 0), minutes=number.get("minutes", 0))
    except OverflowError as exc:
        raise ExpressionError(text=text, position=call.position, reason="the numbers are too large") from exc
    return TimeExpression(
        text=text.strip(),
        truncation=function.truncation,
        weekday=_WEEKDAYS.index(str(values.get("weekday", "SUN"))),
        months=function.months + number.get("months", 0),
        days=function.days + number.get("days", 0),
        elapsed=elapsed,
        data_driven=function.data_driven,
        n=number.get("n", 0),
        limit=number.get("limit", 0),
    )


def _values_of(text: str, call: Call, function: _Function) -> dict[str, int | str]:
    if len(call.arguments) != len(function.parameters):
        signature = f"{call.name}({', '.join(function.parameters)})"
        raise ExpressionError(
            text=text,
            position=call.position,
            reason=f"{signature} takes {len(function.parameters)} arguments, not {len(call.arguments)}",
        )
    values: dict[str, int | str] = {}
    for parameter, value, position in zip(function.parameters, call.arguments, call.argument_positions, strict=True):
        if parameter == "weekday":
            values[parameter] = _weekday_of(text, value, position)
        elif isinstance(value, int):
            values[parameter] = value
        else:
            raise ExpressionError(text=text, position=position, reason=f"{parameter} is a whole number")
    return values


def _weekday_of(text: str, value: int | str | Word | Call, position: int) -> str:
    if isinstance(value, str) and value in _WEEKDAYS:
        return value
    written = value.name if isinstance(value, (Word, Call)) else str(value)
    close = find_similar(written.upper(), _WEEKDAYS, n=1)
    raise ExpressionError(
        text=text,
        position=position,
        reason="the weekday is one of 'SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT', in quotes",
        suggestions=tuple(f"'{name}'" for name in close),
    )


_MARGIN = timedelta(days=3)
_MONTH_LENGTHS = (28, 29, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """A sequence in the feed's local time: the anchor's day or month, and its position inside it."""

    origin: int
    day: int
    time: timedelta
    is_regular: bool


def _find_constant_shift(offset: TimeExpression, process: InstanceSequence, feed: InstanceSequence) -> int | None:
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
        return _shift_on_calendar(offset, process, feed, since, step // _DAY, by_month=False)
    if process.timezone.key != feed.timezone.key or process.frequency != feed.frequency:
        return None
    if not process.frequency.is_calendar:
        return None
    by_month = process.frequency.unit is Unit.MONTHS
    return _shift_on_calendar(offset, process, feed, since, process.frequency.count, by_month=by_month)


def _is_even(sequence: InstanceSequence, since: datetime) -> bool:
    if sequence.is_elapsed:
        return True
    return sequence.frequency.unit is Unit.DAYS and not offset_spread(sequence.timezone, since)


def _shift_on_calendar(
    offset: TimeExpression,
    process: InstanceSequence,
    feed: InstanceSequence,
    since: datetime,
    count: int,
    *,
    by_month: bool,
) -> int | None:
    """Return the shift of two sequences of every so many days or months, on the calendar of the feed."""
    zone, is_unmoved = feed.timezone, offset.truncation is Truncation.NONE
    walls = [sequence.start.astimezone(zone) for sequence in (process, feed)]
    p, f = (_grid_of(wall, zone, since, by_month=by_month) for wall in walls)
    is_same_place = (p.day, p.time) == (f.day, f.time) and walls[0].utcoffset() == walls[1].utcoffset()
    if is_unmoved and not offset.elapsed and is_same_place:
        return (p.origin - f.origin) // count
    if not (p.is_regular and f.is_regular):
        return None
    # how far clock changes can move the result from its usual local time
    is_settled = (is_unmoved or is_regular(zone, _NO_TIME, since)) and is_undisturbed(
        zone, p.time if is_unmoved else _NO_TIME, offset.elapsed, since
    )
    slack = _NO_TIME if is_settled else offset_spread(zone, since)
    return (_shift_in_months if by_month else _shift_in_days)(offset, p, f, slack, count)


def _grid_of(wall: datetime, zone: ZoneInfo, since: datetime, *, by_month: bool) -> _Grid:
    time = timedelta(hours=wall.hour, minutes=wall.minute, seconds=wall.second, microseconds=wall.microsecond)
    return _Grid(
        origin=wall.year * 12 + wall.month - 1 if by_month else wall.toordinal(),
        day=wall.day - 1 if by_month else 0,
        time=time,
        is_regular=is_regular(zone, time, since),
    )


def _shift_in_days(offset: TimeExpression, p: _Grid, f: _Grid, slack: timedelta, count: int) -> int | None:
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
    distance = (p.origin + days - f.origin) * _DAY + time - f.time
    least, most = ((distance + change) // (count * _DAY) for change in (-slack, slack))
    return least if least == most else None


def _shift_in_months(offset: TimeExpression, p: _Grid, f: _Grid, slack: timedelta, count: int) -> int | None:
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
