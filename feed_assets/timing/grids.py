"""Whether two sequences have the same instances, whatever their starts and ends."""

from datetime import timedelta

from feed_assets.timing.frequency import Unit
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.zones import is_regular


def is_same_grid(one: InstanceSequence, other: InstanceSequence) -> bool:
    """Whether two sequences have the same instances where both are valid.

    Months from the 31st and from 28 February are not: they meet in February only. Nor are days from 02:30 in winter and
    from 02:30 in summer, where clocks change at that time: they part on that day.

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
    """Whether anchors lead to the same clock times: of the month, and where clocks change."""
    first, second = one.wall_start, other.wall_start
    if first.time() != second.time():
        return False
    if one.frequency.unit is Unit.MONTHS:
        return first.day == second.day
    time_of_day = timedelta(hours=first.hour, minutes=first.minute, seconds=first.second)
    same_offset = first - second == one.start.replace(tzinfo=None) - other.start.replace(tzinfo=None)
    return same_offset or is_regular(one.timezone, time_of_day, max(one.start, other.start))
