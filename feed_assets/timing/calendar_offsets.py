"""Calendar arithmetic of an expression: truncate in local time, move by months and days, then by elapsed time.

An offset is monotone in the time it is applied to, so it has an inverse (`earliest_reaching`). With the inverse, the
process instances that see a feed instance are computed without a search.
"""

from calendar import isleap
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import assert_never
from zoneinfo import ZoneInfo

from feed_assets.timing.zones import is_utc, offset_spread


class Truncation(StrEnum):
    """The unit that a time is truncated to before anything is added."""

    NONE = "none"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


_NO_TIME = timedelta(0)
_DAY = timedelta(days=1)
_WIDEST_SPREAD = timedelta(hours=26)
_MONTHS, _DAYS = 400 * 12, 146_097  # the calendar repeats after 400 years
_WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarOffset:
    """An offset: truncate, then add months, days (both on the calendar of the zone) and elapsed time, in this order.

    `weekday` (0 is Sunday) is the day that a WEEK truncation goes back to; a time on that weekday stays on its day.

    A local day starts at its first instant: at the first of two midnights, or at 01:00 if midnight is skipped. It does
    not start a second time if the clocks go back over midnight. Hours and minutes are elapsed time. So 24 hours after
    midnight is 01:00 on the day after a 23-hour day, and 60 minutes before midnight is always the last elapsed hour.
    """

    truncation: Truncation
    weekday: int = 0
    months: int = 0
    days: int = 0
    elapsed: timedelta = _NO_TIME

    def apply(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """Return the resulting UTC instant; `moment` is aware and in UTC.

        Raises:
            OverflowError, ValueError: the result is outside the years 1 to 9999.
        """
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

    def earliest_reaching(self, target: datetime, zone: ZoneInfo) -> datetime:
        """Return the earliest moment T with `apply(T) >= target`."""
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

    def bounds(self, zone: ZoneInfo | None = None) -> tuple[timedelta, timedelta]:
        """Return safe outer bounds of `apply(T) - T` over all T; without a zone they hold in every zone."""
        if self.truncation is Truncation.NONE:
            return self.elapsed, self.elapsed
        slack = _WIDEST_SPREAD if zone is None else offset_spread(zone)
        least, most = _day_bounds(self.truncation, self.months)
        fixed = self.days * _DAY + self.elapsed
        return fixed + least * _DAY - slack, fixed + most * _DAY + slack


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
        case Truncation.MONTH:
            origins, step = range(_MONTHS), 1
        case Truncation.YEAR:
            origins, step = range(0, _MONTHS, 12), 12
        case _:
            assert_never(truncation)
    firsts = _firsts_of_the_cycle()

    def first_of(month: int) -> int:
        cycles, rest = divmod(month, _MONTHS)
        return cycles * _DAYS + firsts[rest]

    moves = [first_of(origin + months) - first_of(origin) for origin in origins]
    lengths = [first_of(origin + step) - first_of(origin) for origin in origins]
    return min(move - length for move, length in zip(moves, lengths, strict=True)), max(moves)


@lru_cache(maxsize=1)
def _firsts_of_the_cycle() -> tuple[int, ...]:
    firsts = [0]
    for year in range(2000, 2400):
        for length in (31, 29 if isleap(year) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31):
            firsts.append(firsts[-1] + length)
    return tuple(firsts)
