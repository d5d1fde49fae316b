"""The machine's clock in a simulation: correct until it is set."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

_RIGHT = timedelta(0)
_SHORTEST = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSteps:
    """How often and how far the clock is set: the share of ticks after which it is set, and its largest error ahead or
    behind. Every other step corrects a wrong clock. Small errors are more frequent than large ones.
    """

    share: float = 0.0
    ahead: timedelta = timedelta(days=4)
    behind: timedelta = timedelta(hours=12)


@dataclass(slots=True)
class WrongClock:
    """The error of the machine's clock relative to the true time; `error` is positive if it is ahead."""

    steps: ClockSteps
    source: random.Random
    error: timedelta = field(default=_RIGHT, init=False)

    def read(self, true_time: datetime) -> datetime:
        """Return the clock's time at a true time."""
        return true_time + self.error

    def step(self) -> timedelta | None:
        """Set the clock at random; return the change, None if the clock is left alone."""
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
    """Return a change of the clock for people.

    >>> describe_step(timedelta(days=1, minutes=2)), describe_step(timedelta(minutes=-90))
    ('forward by 1 day, 0:02:00', 'back by 1:30:00')
    """
    return f"forward by {step}" if step > _RIGHT else f"back by {-step}"
