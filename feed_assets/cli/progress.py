"""The line that says what a command is doing or waiting for: on standard error, on terminals only, and only after two
seconds without any other output.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread

from feed_assets.clock import Stopwatch
from feed_assets.patience import list_asked

SILENCE = 2.0
_EVERY = 0.5
_ERASE = "\r\x1b[2K"


class StatusLine:
    """One line of a terminal: what is being done, and for how many seconds."""

    def __init__(self) -> None:
        self._what = ""
        self._begun = Stopwatch()
        self._silent = Stopwatch()
        self._is_drawn = False
        self._is_paused = False
        self._lock = RLock()

    @contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Show the line while the block runs; `what` is being done unless something else is named."""
        if not sys.stderr.isatty():
            yield
            return
        self._what, self._begun = what, Stopwatch()
        self.hush()
        ended = Event()

        def draw() -> None:
            while not ended.wait(_EVERY):
                self._draw()

        thread = Thread(target=draw, name="status line", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.hush()

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Name what is waited for in the block."""
        before, self._what = self._what, f"waiting for {what}"
        try:
            yield
        finally:
            self._what = before

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Show nothing in the block: a person is asked."""
        self._is_paused = True
        self.hush()
        try:
            yield
        finally:
            self.hush()
            self._is_paused = False

    def show(self, name: str, settled: int, total: int) -> None:
        """Show the progress of the work `name`."""
        self._what = f"{name}: {settled:,} of {total:,}"

    def hush(self) -> None:
        """Erase the line, before anything else is printed. It comes back after two seconds of silence."""
        with self._lock:
            if self._is_drawn:
                sys.stderr.write(_ERASE)
                sys.stderr.flush()
            self._is_drawn = False
            self._silent = Stopwatch()

    def _draw(self) -> None:
        with self._lock:
            if self._is_paused or self._silent.seconds < SILENCE:
                return
            asked = ", ".join(list_asked())
            what = f"{self._what}, waiting for {asked}" if asked else self._what
            text = f"{what} ({self._begun.seconds:.0f} s)"
            sys.stderr.write(f"{_ERASE}{text[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()
            self._is_drawn = True


status_line = StatusLine()
"""The line of this process; a command is one at a time."""
