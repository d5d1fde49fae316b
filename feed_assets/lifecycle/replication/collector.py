"""Python's collector of garbage while many files are copied.

A batch is many tuples that live until its end, and hardly anything that is a cycle. The collector looks at all of them
again and again: with the defaults that was a tenth of the time of a copy, and more in a process that holds much else.
"""

import gc
from threading import Lock
from types import TracebackType

_THRESHOLD = 200_000


class SeldomCollected:
    """Lets the collector look seldom as long as any thread has entered this; afterwards as often as before."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._entered = 0
        self._former = gc.get_threshold()

    def __enter__(self) -> None:
        with self._mutex:
            if self._entered == 0:
                self._former = gc.get_threshold()
                first, *others = self._former
                gc.set_threshold(first and max(first, _THRESHOLD), *others)  # 0 is that it never looks
            self._entered += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._mutex:
            self._entered -= 1
            if self._entered == 0:
                gc.set_threshold(*self._former)


SELDOM_COLLECTED = SeldomCollected()
"""The one of this process."""
