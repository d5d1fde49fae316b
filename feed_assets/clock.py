"""Clocks: the only module that reads the time. All other code takes `now` or `as_of` as an argument."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from feed_assets.setting_sections import ReplaySettings


class Clock(ABC):
    """A source of the present time."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the present as an aware UTC datetime; it never goes back, unless the clock is corrected."""

    def span(self, real: timedelta) -> timedelta:
        """Return how much of this clock's time passes in a span of real time."""
        return real


class SystemClock(Clock):
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class FrozenClock(Clock):
    """A clock that stays at one moment.

    >>> FrozenClock(datetime(2013, 11, 3, tzinfo=UTC)).now().isoformat()
    '2013-11-03T00:00:00+00:00'
    """

    at: datetime

    def now(self) -> datetime:
        return self.at.astimezone(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayClock(Clock):
    """Data time: `origin` until `real_start`, then `speed` times as fast as `reference`, and never after `until`.

    >>> day = datetime(2013, 11, 3, tzinfo=UTC)
    >>> clock = ReplayClock(origin=day, real_start=datetime(2030, 1, 1, tzinfo=UTC), speed=60.0,
    ...                     reference=FrozenClock(datetime(2030, 1, 1, 0, 1, tzinfo=UTC)))
    >>> clock.now().isoformat()
    '2013-11-03T01:00:00+00:00'
    """

    origin: datetime
    real_start: datetime
    speed: float
    until: datetime | None = None
    reference: Clock = field(default_factory=SystemClock)

    def now(self) -> datetime:
        elapsed = self.reference.now() - self.real_start
        moment = self.origin + max(elapsed, elapsed * 0) * self.speed
        return (moment if self.until is None else min(moment, self.until)).astimezone(UTC)

    def span(self, real: timedelta) -> timedelta:
        return real * self.speed


class ClockSettings(Protocol):
    """The part of the settings that chooses the clock."""

    @property
    def replay(self) -> "ReplaySettings | None": ...


def open_clock(settings: ClockSettings) -> Clock:
    """Return the clock for the settings: the machine's, or a replay in a demo."""
    replay = settings.replay
    if replay is None:
        return SystemClock()
    return ReplayClock(origin=replay.origin, real_start=replay.real_start, speed=replay.speed, until=replay.until)


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """The time limit of a piece of work, in seconds from creation; independent of any `Clock`.

    >>> TimeBudget(3600.0).is_spent, TimeBudget(0.0).is_spent
    (False, True)
    """

    seconds: float
    _begun: float = field(default_factory=time.monotonic, init=False, repr=False, compare=False)

    @classmethod
    def ample(cls) -> Self:
        """Return the budget of work that nothing hurries: an hour."""
        return cls(3600.0)

    @property
    def is_spent(self) -> bool:
        """Whether the time is used up."""
        return self.left <= 0.0

    @property
    def left(self) -> float:
        """The seconds left, below 0 when the time is used up."""
        return self._begun + self.seconds - time.monotonic()


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """The time since creation, in seconds; independent of any `Clock`.

    >>> Stopwatch().seconds >= 0.0
    True
    """

    _begun: float = field(default_factory=time.monotonic, init=False, repr=False, compare=False)

    @property
    def seconds(self) -> float:
        """The seconds since creation."""
        return time.monotonic() - self._begun
