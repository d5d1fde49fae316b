"""Decide when a sweep needs approval: it would remove too much, or everything, or the clock is implausible. Pure."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil

from feed_assets.entities.fields import Size
from feed_assets.log.removals.records import SweepObstacle
from feed_assets.plan.records import RetentionRecord
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import Frequency

_CADENCES = 2
_CLOCK_CADENCES = 3
_SILENT_PERIODS = 10
_LEAST_JUMP = timedelta(days=3)


class ObstacleCode(StrEnum):
    """The reason why a sweep needs approval."""

    SHARE = "share"
    INSTANCES = "instances"
    BYTES = "bytes"
    EVERYTHING = "everything"
    CLOCK_BACK = "clock-back"
    CLOCK_JUMP = "clock-jump"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The effect of a sweep on one feed: removed instances and bytes (None: not measured), and instances that stay.

    Only instances with data are removed in this sense; none stays if no instance that stays has data. `newest` is the
    nominal time of the newest known instance.
    """

    instances: int
    stay: int
    bytes: int | None = None
    newest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTimes:
    """The known times: the last sweep, and the newest time in any record; None if there is none yet."""

    last_sweep: datetime | None = None
    newest: datetime | None = None


def decide_limits(
    policy: RetentionRecord, taking: Amounts, frequency: Frequency, as_of: datetime, clock: KnownTimes
) -> tuple[SweepObstacle, ...]:
    """Return all obstacles of one feed that make its sweep ask for approval; empty if it may run.

    Args:
        policy: the retention of the feed, with the limits of a sweep.
        taking: the amounts that the sweep would remove and leave.
        frequency: the frequency of the feed.
        as_of: the present time of the sweep.
        clock: the known times.
    """
    of_clock = tuple(_iter_clock(policy.cadence, as_of, clock))
    if not of_clock and clock.last_sweep is None:
        of_clock = _first_obstacles(policy.cadence, frequency, as_of, taking.newest)
    return (*of_clock, *_iter_amounts(policy, taking, frequency))


def decide_clock(cadence: Frequency, as_of: datetime, clock: KnownTimes) -> tuple[SweepObstacle, ...]:
    """Return why the clock is implausible.

    It is before the last sweep, or after the newest recorded time by more than three cadences and three days.
    """
    return tuple(_iter_clock(cadence, as_of, clock))


def count_usual(cadence: Frequency, frequency: Frequency) -> int:
    """Return the number of instances that expire within two cadences, which any sweep may remove.

    Feeds whose frequency is below the cadence need this minimum.

    >>> from feed_assets.timing.sequence import parse_frequency
    >>> count_usual(parse_frequency("hours(6)"), parse_frequency("hours(1)"))
    12
    """
    return -(-_CADENCES * cadence.as_duration() // frequency.as_duration())


def count_enough(policy: RetentionRecord, instances: int, frequency: Frequency) -> int:
    """Return how many instances with data must stay at least, so that a sweep of others asks for no approval.

    At least one, and as many as the share demands.
    """
    share = policy.sweep_limits.share
    if instances <= count_usual(policy.cadence, frequency) or share >= 1:
        return 1
    return max(1, ceil(instances / share) - instances) if share else sys.maxsize


def _iter_clock(cadence: Frequency, as_of: datetime, clock: KnownTimes) -> Iterator[SweepObstacle]:
    if clock.last_sweep is not None and as_of < clock.last_sweep:
        sentence = f"The clock stands at {render_datetime(as_of)}, before the last sweep at "
        yield _obstacle(ObstacleCode.CLOCK_BACK, f"{sentence}{render_datetime(clock.last_sweep)}.")
    if clock.newest is not None and as_of - clock.newest > _longest_jump(cadence):
        sentence = f"The clock stands at {render_datetime(as_of)}, and the newest time on record is "
        sentence += f"{render_datetime(clock.newest)}: it has jumped, or nothing has run in between."
        yield _obstacle(ObstacleCode.CLOCK_JUMP, sentence)


def _first_obstacles(
    cadence: Frequency, frequency: Frequency, as_of: datetime, newest: datetime | None
) -> tuple[SweepObstacle, ...]:
    """Return why the clock of a cluster's first sweep may be wrong, although it agrees with what it has recorded."""
    if newest is None or as_of - newest <= max(_SILENT_PERIODS * frequency.as_duration(), _longest_jump(cadence)):
        return ()
    sentence = f"The clock stands at {render_datetime(as_of)}, and the newest instance of the feed is that of "
    sentence += f"{render_datetime(newest)}: it has jumped, or nothing has arrived since."
    return (_obstacle(ObstacleCode.CLOCK_JUMP, sentence),)


def _longest_jump(cadence: Frequency) -> timedelta:
    return max(_CLOCK_CADENCES * cadence.as_duration(), _LEAST_JUMP)


def _iter_amounts(policy: RetentionRecord, taking: Amounts, frequency: Frequency) -> Iterator[SweepObstacle]:
    limits, count, total = policy.sweep_limits, taking.instances, taking.instances + taking.stay
    of_all = f"{count:,} of the {total:,} instances would be removed"
    if count and not taking.stay:
        yield _obstacle(ObstacleCode.EVERYTHING, f"All {total:,} instances of the feed would be removed.")
    elif count > limits.share * total and count > count_usual(policy.cadence, frequency):
        yield _obstacle(ObstacleCode.SHARE, f"{of_all}, more than the share {limits.share:g}.")
    if count > limits.instances:
        yield _obstacle(ObstacleCode.INSTANCES, f"{of_all}, more than {limits.instances:,}.")
    if limits.bytes is not None and count and (taking.bytes is None or taking.bytes > limits.bytes):
        size = "an unknown size" if taking.bytes is None else f"{taking.bytes:,} bytes"
        yield _obstacle(
            ObstacleCode.BYTES, f"{size[0].upper()}{size[1:]} would be removed, more than {Size(limits.bytes)}."
        )


def _obstacle(code: ObstacleCode, sentence: str) -> SweepObstacle:
    return SweepObstacle(code=code.value, sentence=sentence)
