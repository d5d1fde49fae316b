"""Choose the earlier instances that an instance is compared with: groups, each narrower than the one before. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from feed_assets.alerts.forecasting.outlooks import MOST, RECENT
from feed_assets.timing.sequence import InstanceSequence

_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
_HOUR = timedelta(hours=1)


class Group(StrEnum):
    """What the instances of a group have in common with the one that is forecast."""

    ALL = "all"
    HOUR = "hour"
    WEEKDAY = "weekday and hour"
    RECENT = "recent"


Groups: TypeAlias = dict[Group, tuple[datetime, ...]]
"""The nominal times of each group, newest first."""


def decide_groups(sequence: InstanceSequence, nominal_time: datetime, before: datetime) -> Groups:
    """Return the groups of an instance, of instances before a time: the last 60, as many at the same hour of the day,
    and of the same weekday and hour, in the time zone of the sequence. A group that the frequency makes equal to a
    wider one is left out. At most 60 days and 60 weeks are looked at.
    """
    last = [sequence.at(index) for index in _last_indices(sequence, before)]
    groups: Groups = {Group.ALL: tuple(last)}
    step = sequence.frequency.as_duration()
    if step < _DAY:
        groups[Group.HOUR] = tuple(_iter_same(sequence, nominal_time, before, _DAY))
    if step < _WEEK:
        groups[Group.WEEKDAY] = tuple(_iter_same(sequence, nominal_time, before, _WEEK))
    groups[Group.RECENT] = tuple(last[:RECENT])
    return groups


def _last_indices(sequence: InstanceSequence, before: datetime) -> range:
    """Return the last indices before a time, newest first."""
    indices = sequence.clip(range(max(0, sequence.index_at_or_after(before))))
    return indices[-MOST:][::-1]


def _iter_same(
    sequence: InstanceSequence, nominal_time: datetime, before: datetime, step: timedelta
) -> Iterator[datetime]:
    """Yield the instances in the same hour of the wall clock, so many steps back, newest first."""
    zone = sequence.timezone
    wall = nominal_time.astimezone(zone).replace(minute=0, second=0, microsecond=0, tzinfo=None)
    found = 0
    for number in range(1, MOST + 1):
        hour = (wall - step * number).replace(tzinfo=zone)
        indices = sequence.indices_between(hour.astimezone(UTC), hour.astimezone(UTC) + _HOUR)
        for index in reversed(indices):
            time = sequence.at(index)
            if time < before and time.astimezone(zone).hour == wall.hour:  # else the clock leaps it
                yield time
                found += 1
            if found == MOST:
                return
        if hour < sequence.start:
            return
