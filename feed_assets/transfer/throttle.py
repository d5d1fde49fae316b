"""Limit bandwidth with a token bucket, counted in bytes."""

import threading
import time
from collections.abc import Callable

_BURST = 4


class Throttle:
    """Limits the bytes per second of all threads that share it; bursts are limited to a quarter of a second.

    `monotonic` returns seconds; `sleep` waits for seconds.

    >>> slept = []
    >>> throttle = Throttle(100, monotonic=lambda: 0.0, sleep=slept.append)
    >>> throttle.take(25), throttle.take(100), slept
    (None, None, [1.0])
    """

    def __init__(
        self,
        rate: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = max(rate, 1)
        self._monotonic = monotonic
        self._sleep = sleep
        self._left = self._rate / _BURST
        self._at = monotonic()
        self._mutex = threading.Lock()

    def take(self, count: int) -> None:
        """Wait until this many bytes may pass."""
        with self._mutex:
            now = self._monotonic()
            self._left = min(self._rate / _BURST, self._left + (now - self._at) * self._rate) - count
            self._at = now
            pause = -self._left / self._rate
        if pause > 0:
            self._sleep(pause)
