"""Three seasons of lateness: Mondays are late, then a little more each day, then in bursts. The same seed, the same."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

DAY = timedelta(days=1)


class Season(StrEnum):
    """How it is late."""

    MONDAYS = "Mondays"
    DRIFT = "drift"
    BURSTS = "bursts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late what is due at `nominal_time` comes, and in which season; `is_warm` while there is no history yet."""

    nominal_time: datetime
    season: Season
    late: timedelta


def iter_lateness(start: datetime, weeks: int, seed: int) -> Iterator[Lateness]:
    """Yield how late each day is, of so many weeks in each season; most days by less than an hour."""
    source = random.Random(seed)
    length, day = weeks * 7, start
    for season in Season:
        in_burst = 0
        for number in range(length):
            usual = source.lognormvariate(math.log(0.7), 0.4)
            match season:
                case Season.MONDAYS:
                    hours = usual + (source.uniform(0.5, 3) if day.weekday() == 0 else 0.0)
                case Season.DRIFT:
                    hours = usual + 1.8 * number / length
                case Season.BURSTS:
                    if not in_burst and source.random() < 0.06:
                        in_burst = source.randint(2, 6)
                    hours, in_burst = (source.uniform(1.5, 6), in_burst - 1) if in_burst else (usual, 0)
            yield Lateness(nominal_time=day, season=season, late=timedelta(minutes=round(hours * 60)))
            day += DAY
