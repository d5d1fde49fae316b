"""Three seasons of lateness: Mondays are late, then a little more each day, then in bursts; how good forecasts are.

A seed always gives the same.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
LIMIT = 2
"""Most days are less than so many units late."""


class Season(StrEnum):
    """How it is late."""

    MONDAYS = "Mondays"
    DRIFT = "drift"
    BURSTS = "bursts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late what is due at `nominal_time` comes, and in which season."""

    nominal_time: datetime
    season: Season
    late: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was said of a day, so long before its deadline, and whether it missed it in the end."""

    season: Season
    day: datetime
    before: timedelta
    probability: float
    missed: bool


def iter_lateness(start: datetime, weeks: int, seed: int, unit: timedelta = HOUR) -> Iterator[Lateness]:
    """Yield how late each day is, of so many weeks in each season, in units of time."""
    source = random.Random(seed)
    length, day = weeks * 7, start
    for season in Season:
        in_burst = 0
        for number in range(length):
            usual = source.lognormvariate(math.log(0.7), 0.4)
            match season:
                case Season.MONDAYS:
                    late = usual + (source.uniform(0.5, 3) if day.weekday() == 0 else 0.0)
                case Season.DRIFT:
                    late = usual + 1.8 * number / length
                case Season.BURSTS:
                    if not in_burst and source.random() < 0.06:
                        in_burst = source.randint(2, 6)
                    late, in_burst = (source.uniform(1.5, 6), in_burst - 1) if in_burst else (usual, 0)
            yield Lateness(nominal_time=day, season=season, late=timedelta(minutes=round(late * (unit / HOUR) * 60)))
            day += DAY


def brier(said: Sequence[Said]) -> float:
    """The mean square of the error."""
    return sum((each.probability - each.missed) ** 2 for each in said) / len(said)


def base_brier(said: Sequence[Said]) -> float:
    """That of the share of misses, which nobody knows before the end."""
    rate = sum(each.missed for each in said) / len(said)
    return rate * (1 - rate)


def median_warning(said: Sequence[Said], warn_at: float) -> tuple[timedelta, int, int]:
    """How long before the deadline misses were first told that happened: the median, how many, and how many in vain."""
    first: dict[datetime, Said] = {}
    for each in said:
        if each.probability >= warn_at:
            first.setdefault(each.day, each)
    right = sorted(each.before for each in first.values() if each.missed)
    return right[len(right) // 2] if right else timedelta(0), len(right), len(first) - len(right)
