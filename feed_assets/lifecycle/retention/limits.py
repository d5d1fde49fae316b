"""When a sweep stops and asks a person: it would take much, or all, or the clock cannot be right. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from feed_assets.entities.sizes import Size
from feed_assets.plan.records import RetentionRecord
from feed_assets.state.sweep_records import SweepObstacle
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.frequency import Frequency

_CADENCES = 2
_CLOCK_CADENCES = 3
_LEAST_JUMP = timedelta(days=3)


class ObstacleCode(StrEnum):
    """Why a sweep stops and asks."""

    SHARE = "share"
    INSTANCES = "instances"
    BYTES = "bytes"
    EVERYTHING = "everything"
    CLOCK_BACK = "clock-back"
    CLOCK_JUMP = "clock-jump"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """What a sweep would do to one feed: how many instances it takes, of how many bytes (None: not measured), and how
    many stay.
    """

    instances: int
    stay: int
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSeen:
    """What is known of the time: the moment of the last sweep, and the newest time that stands in any record; None
    where there is none yet.
    """

    last_sweep: datetime | None = None
    newest: datetime | None = None


def decide_limits(
    policy: RetentionRecord, taking: Taking, frequency: Frequency, as_of: datetime, clock: ClockSeen
) -> tuple[SweepObstacle, ...]:
    """Everything because of which a sweep of one feed stops and asks; empty where it may run.

    Args:
        policy: of the feed, with its limits of a sweep.
        taking: what the sweep would take and leave.
        frequency: of the feed.
        as_of: what the sweep takes for the present.
        clock: what is known of the time.
    """
    return (*_iter_clock(policy.cadence, as_of, clock), *_iter_amounts(policy, taking, frequency))


def decide_clock(cadence: Frequency, as_of: datetime, clock: ClockSeen) -> tuple[SweepObstacle, ...]:
    """Why the clock cannot be right: it stands before the last sweep, or more than three cadences, and three days,
    after the newest time on record.
    """
    return tuple(_iter_clock(cadence, as_of, clock))


def count_usual(cadence: Frequency, frequency: Frequency) -> int:
    """How many instances expire within two cadences: what any sweep may take, as a limit below the cadence needs it.

    >>> from feed_assets.timing.frequency import parse_frequency
    >>> count_usual(parse_frequency("hours(6)"), parse_frequency("hours(1)"))
    12
    """
    return -(-_CADENCES * cadence.as_duration() // frequency.as_duration())


def _iter_clock(cadence: Frequency, as_of: datetime, clock: ClockSeen) -> Iterator[SweepObstacle]:
    if clock.last_sweep is not None and as_of < clock.last_sweep:
        sentence = f"The clock stands at {render_datetime(as_of)}, before the last sweep at "
        yield _obstacle(ObstacleCode.CLOCK_BACK, f"{sentence}{render_datetime(clock.last_sweep)}.")
    if clock.newest is not None and as_of - clock.newest > _longest_jump(cadence):
        sentence = f"The clock stands at {render_datetime(as_of)}, and the newest time on record is "
        sentence += f"{render_datetime(clock.newest)}: it has jumped, or nothing has run in between."
        yield _obstacle(ObstacleCode.CLOCK_JUMP, sentence)


def _longest_jump(cadence: Frequency) -> timedelta:
    return max(_CLOCK_CADENCES * cadence.as_duration(), _LEAST_JUMP)


def _iter_amounts(policy: RetentionRecord, taking: Taking, frequency: Frequency) -> Iterator[SweepObstacle]:
    limits, count, total = policy.sweep_limits, taking.instances, taking.instances + taking.stay
    of_all = f"{count:,} of the {total:,} instances would go"
    if count and not taking.stay:
        yield _obstacle(ObstacleCode.EVERYTHING, f"All {total:,} instances of the feed would go.")
    elif count > limits.share * total and count > count_usual(policy.cadence, frequency):
        yield _obstacle(ObstacleCode.SHARE, f"{of_all}, more than the share {limits.share:g}.")
    if count > limits.instances:
        yield _obstacle(ObstacleCode.INSTANCES, f"{of_all}, more than {limits.instances:,}.")
    if limits.bytes is not None and count and (taking.bytes is None or taking.bytes > limits.bytes):
        size = "an unknown size" if taking.bytes is None else f"{taking.bytes:,} bytes"
        yield _obstacle(ObstacleCode.BYTES, f"{size[0].upper()}{size[1:]} would go, more than {Size(limits.bytes)}.")


def _obstacle(code: ObstacleCode, sentence: str) -> SweepObstacle:
    return SweepObstacle(code=code.value, sentence=sentence)
