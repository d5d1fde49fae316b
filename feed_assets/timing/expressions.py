"""Time expressions (`today(0,0)`, `lastMonth(-1,0,0)`, `latest(0)`) and the meaning of each function.

The semantics are Falcon's at run time: truncation in the feed's time zone, hours and minutes as elapsed time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from zoneinfo import ZoneInfo

from feed_assets.timing.calendar_offsets import CalendarOffset, Truncation
from feed_assets.timing.calls import Call, Word
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import ExpressionError, InstanceError
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.shifts import find_constant_shift

_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NO_TIME = timedelta(0)


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
        "currentYear": _Function(parameters=("months", "days", *_CLOCK), truncation=Truncation.YEAR),
        "lastYear": _Function(parameters=("months", "days", *_CLOCK), truncation=Truncation.YEAR, months=-12),
        "latest": _Function(parameters=("n",), data_driven=DataDriven.LATEST),
        "future": _Function(parameters=("n", "limit"), data_driven=DataDriven.FUTURE),
    }
)
TIME_FUNCTIONS = frozenset(_FUNCTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExpression:
    """A parsed expression; make one with `parse_time_expression`.

    `offset` is the change that the expression makes to a nominal time. For `latest(n)` and `future(n,limit)` it is
    empty: `data_driven` names the function, `n` and `limit` are its arguments, and a window resolves it.
    """

    text: str
    offset: CalendarOffset = field(repr=False)
    data_driven: DataDriven | None = field(default=None, repr=False)
    n: int = field(default=0, repr=False)
    limit: int = field(default=0, repr=False)

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

        Differs from Falcon: `tomorrow` is new (the start of the next day); where local midnight occurs twice, the day
        starts at the first, so `today(0,0)` is never in the future.

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
            return self.offset.apply(nominal_time, zone)
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
            return self.offset.earliest_reaching(target.astimezone(UTC), zone)
        except (OverflowError, ValueError) as exc:
            raise InstanceError(
                subject=f"the time at which {self.text} reaches {render_datetime(target)}",
                reason="it is outside the years 1 to 9999",
                next_step="Use smaller numbers.",
            ) from exc

    def bounds(self, zone: ZoneInfo | None = None) -> tuple[timedelta, timedelta]:
        """Return safe outer bounds (least, greatest) of result − nominal time over all nominal times.

        The bounds include clock changes. Without a zone they hold in every zone; this adds 26 hours on each side for
        expressions that truncate.
        """
        return self.offset.bounds(zone)

    def shift(self, process: InstanceSequence, feed: InstanceSequence) -> int | None:
        """Return the k for which the expression at process instance n names feed instance n + k, for every n ≥ 0.

        Returns None if this cannot be proven: for different frequencies, for offsets whose result a clock change or a
        month length can alter, and for data-driven expressions. Ignores the ends of validities.

        >>> from feed_assets.timing.frequency import parse_frequency
        >>> daily = InstanceSequence(start=datetime(2013, 11, 1, 4, tzinfo=UTC), frequency=parse_frequency("days(1)"),
        ...                          timezone=ZoneInfo("America/New_York"))
        >>> parse_time_expression("yesterday(0,0)").shift(daily, daily)
        -1
        """
        return None if self.is_data_driven else find_constant_shift(self.offset, process, feed)


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
            suggestions=tuple(get_close_matches(call.name, _FUNCTIONS, n=1)),
        )
    values = _values_of(text, call, function)
    number = {name: value for name, value in values.items() if isinstance(value, int)}
    try:
        elapsed = timedelta(hours=number.get("hours", 0), minutes=number.get("minutes", 0))
    except OverflowError as exc:
        raise ExpressionError(text=text, position=call.position, reason="the numbers are too large") from exc
    return TimeExpression(
        text=text.strip(),
        offset=CalendarOffset(
            truncation=function.truncation,
            weekday=_WEEKDAYS.index(str(values.get("weekday", "SUN"))),
            months=function.months + number.get("months", 0),
            days=function.days + number.get("days", 0),
            elapsed=elapsed,
        ),
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
    close = get_close_matches(written.upper(), _WEEKDAYS, n=1)
    raise ExpressionError(
        text=text,
        position=position,
        reason="the weekday is one of 'SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT', in quotes",
        suggestions=tuple(f"'{name}'" for name in close),
    )
