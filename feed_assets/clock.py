"""What time it is. The only module that reads the time; everybody else is given `now` or `as_of`."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol


class Clock(ABC):
    """A source of the present time."""

    @abstractmethod
    def now(self) -> datetime:
        """The present as an aware UTC datetime; never earlier than an earlier answer meant, but for clock repairs."""


class SystemClock(Clock):
    """The time of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class FrozenClock(Clock):
    """A clock that stands at one moment.

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


class Replay(Protocol):
    """What a demo asks for: data time `origin` at the real time `real_start`, `speed` times as fast, to `until`."""

    @property
    def origin(self) -> datetime: ...
    @property
    def real_start(self) -> datetime: ...
    @property
    def speed(self) -> float: ...
    @property
    def until(self) -> datetime | None: ...


class ClockSettings(Protocol):
    """The part of the settings that chooses the clock."""

    @property
    def replay(self) -> Replay | None: ...


def open_clock(settings: ClockSettings) -> Clock:
    """The clock that the settings ask for: the machine's, or a replay in a demo."""
    replay = settings.replay
    if replay is None:
        return SystemClock()
    return ReplayClock(origin=replay.origin, real_start=replay.real_start, speed=replay.speed, until=replay.until)


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """How long a piece of work may take, in seconds from when the budget is made; independent of any `Clock`.

    >>> TimeBudget(3600.0).is_spent, TimeBudget(0.0).is_spent
    (False, True)
    """

    seconds: float
    _begun: float = field(default_factory=time.monotonic, init=False, repr=False, compare=False)

    @property
    def is_spent(self) -> bool:
        """Whether the time is up."""
        return self.left <= 0.0

    @property
    def left(self) -> float:
        """The seconds that are left, below 0 when the time is up."""
        return self._begun + self.seconds - time.monotonic()


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """How long something has taken since the watch was made, in seconds; independent of any `Clock`.

    >>> Stopwatch().seconds >= 0.0
    True
    """

    _begun: float = field(default_factory=time.monotonic, init=False, repr=False, compare=False)

    @property
    def seconds(self) -> float:
        """The time since then."""
        return time.monotonic() - self._begun
