"""Frequencies: a unit and a count, written `hours(2)`, and the length of one step."""

import re
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import assert_never

from feed_assets.timing.errors import FrequencyError


class Unit(StrEnum):
    """Units of a frequency. Seconds, minutes and hours are elapsed time, days and months are calendar steps."""

    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"
    MONTHS = "months"


_SYNTAX = re.compile(r"(\w*)\((.*)\)", re.ASCII)  # hours(2)
_COUNT = re.compile(r"[1-9][0-9]*")  # 2, 30, not 0, 02 or -1
_DAYS_OF_A_MONTH = 31
_LONGEST = date.max - date.min
_LONGEST_COUNT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """`count` units.

    Equality is textual, as in Falcon: `hours(24)` is not `days(1)`; compare lengths by `as_duration()`.

    >>> Frequency(unit=Unit.HOURS, count=24) == Frequency(unit=Unit.DAYS, count=1)
    False
    """

    unit: Unit
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise FrequencyError(text=self.render(), reason="the count is below 1")

    def __str__(self) -> str:
        return self.render()

    @property
    def is_calendar(self) -> bool:
        """Whether a step keeps wall-clock time (days, months) instead of being elapsed time."""
        return self.unit is Unit.DAYS or self.unit is Unit.MONTHS

    def render(self) -> str:
        """Return the text form, `hours(2)`."""
        return f"{self.unit.value}({self.count})"

    def as_duration(self) -> timedelta:
        """Return the nominal length of one step; a month counts as 31 days, a day as 24 hours.

        Raises:
            FrequencyError: the length exceeds what a duration can hold (about 2.7 million years).

        >>> parse_frequency("months(1)").as_duration()
        datetime.timedelta(days=31)
        """
        try:
            match self.unit:
                case Unit.SECONDS:
                    return timedelta(seconds=self.count)
                case Unit.MINUTES:
                    return timedelta(minutes=self.count)
                case Unit.HOURS:
                    return timedelta(hours=self.count)
                case Unit.DAYS:
                    return timedelta(days=self.count)
                case Unit.MONTHS:
                    return timedelta(days=self.count * _DAYS_OF_A_MONTH)
                case _:
                    assert_never(self.unit)
        except OverflowError as exc:
            raise FrequencyError(text=self.render(), reason="it is longer than any calendar") from exc


def parse_frequency(text: str, *, finest: Unit = Unit.MINUTES) -> Frequency:
    """Parse `minutes(n)`, `hours(n)`, `days(n)` or `months(n)`, with n at least 1; surrounding blanks are ignored.

    With SECONDS as `finest` unit, `seconds(n)` too, which Falcon does not know.

    Raises:
        FrequencyError: anything else, such as `hours(0)`, `weeks(1)`, `Hours(1)` or `hours( 1 )`, and more than the
            calendar's 9,999 years.

    >>> parse_frequency("hours(2)").render()
    'hours(2)'
    """
    found = _SYNTAX.fullmatch(text.strip())
    if found is None:
        raise FrequencyError(text=text, reason="it does not have the form unit(count)")
    unit_name, count = found.groups()
    try:
        unit = Unit(unit_name)
    except ValueError as exc:
        raise FrequencyError(text=text, reason=f"{unit_name!r} is not a unit of frequencies") from exc
    if unit is Unit.SECONDS and finest is not Unit.SECONDS:
        raise FrequencyError(text=text, reason="seconds are too fine here; the finest unit is minutes")
    if _COUNT.fullmatch(count) is None:
        raise FrequencyError(text=text, reason=f"{count!r} is not a whole number of at least 1 without leading zeros")
    frequency = Frequency(unit=unit, count=int(count)) if len(count) <= _LONGEST_COUNT else None
    if frequency is None or frequency.as_duration() > _LONGEST:
        raise FrequencyError(text=text, reason="it is longer than any calendar")
    return frequency
