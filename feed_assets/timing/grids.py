"""Comparison of sequences: whether two have the same instances, whatever their starts and ends."""

from datetime import timedelta

from feed_assets.timing.frequency import Unit
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.zones import is_regular


def is_same_grid(one: InstanceSequence, other: InstanceSequence) -> bool:
    """Return whether two sequences have the same instances while both are valid.

    Months from the 31st and months from 28 February differ: they meet in February only. Days from 02:30 in winter and
    days from 02:30 in summer differ if clocks change at that time: they part on that day.

    >>> from feed_assets.timing.dates import parse_datetime, parse_timezone
    >>> from feed_assets.timing.frequency import parse_frequency
    >>> monthly = [InstanceSequence(start=parse_datetime(f"2015-{day}T00:00Z"), frequency=parse_frequency("months(1)"),
    ...                             timezone=parse_timezone("UTC")) for day in ("01-31", "02-28", "03-31")]
    >>> is_same_grid(monthly[0], monthly[1]), is_same_grid(monthly[0], monthly[2])
    (False, True)
    """
    if (one.frequency, one.timezone.key) != (other.frequency, other.timezone.key):
        return False
    if not one.is_elapsed and not _steps_alike(one, other):
        return False
    return one.at(one.index_at_or_before(other.start)) == other.start


def _steps_alike(one: InstanceSequence, other: InstanceSequence) -> bool:
    """Return whether both anchors lead to the same clock times, within the month and at clock changes."""
    first, second = one.wall_start, other.wall_start
    if first.time() != second.time():
        return False
    if one.frequency.unit is Unit.MONTHS:
        return first.day == second.day
    time_of_day = timedelta(hours=first.hour, minutes=first.minute, seconds=first.second)
    same_offset = first - second == one.start.replace(tzinfo=None) - other.start.replace(tzinfo=None)
    return same_offset or is_regular(one.timezone, time_of_day, max(one.start, other.start))
