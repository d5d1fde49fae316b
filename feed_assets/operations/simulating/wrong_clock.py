"""The clock of the machine in a simulation: right, until somebody or something sets it."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

_RIGHT = timedelta(0)
_SHORTEST = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSteps:
    """How often the clock is set, and by how much: the share of the ticks after which it is, and how far it may be
    ahead, or behind, from then on.

    A clock that is wrong is put right every other time. Small errors are more frequent than large ones.
    """

    share: float = 0.0
    ahead: timedelta = timedelta(days=4)
    behind: timedelta = timedelta(hours=12)


@dataclass(slots=True)
class WrongClock:
    """How far the clock of the machine is from the true time: `error` is above 0 where it is ahead."""

    steps: ClockSteps
    source: random.Random
    error: timedelta = field(default=_RIGHT, init=False)

    def read(self, true_time: datetime) -> datetime:
        """What the clock says at a time."""
        return true_time + self.error

    def step(self) -> timedelta | None:
        """Set the clock by chance; by how much, None if it is left alone."""
        if self.source.random() >= self.steps.share:
            return None
        before, self.error = self.error, self._next_error()
        return self.error - before

    def _next_error(self) -> timedelta:
        if self.error and self.source.random() < 0.5:
            return _RIGHT
        is_ahead = self.source.random() < 0.5
        most = self.steps.ahead if is_ahead else self.steps.behind
        seconds = max(most * self.source.random() ** 2, _SHORTEST) // timedelta(seconds=1)
        return timedelta(seconds=seconds if is_ahead else -seconds)


def describe_step(step: timedelta) -> str:
    """By how much a clock was set, for people.

    >>> describe_step(timedelta(days=1, minutes=2)), describe_step(timedelta(minutes=-90))
    ('forward by 1 day, 0:02:00', 'back by 1:30:00')
    """
    return f"forward by {step}" if step > _RIGHT else f"back by {-step}"
