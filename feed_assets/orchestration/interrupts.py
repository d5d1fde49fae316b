"""A run that somebody has cancelled ends, also when what it is doing has swallowed the interrupt.

Dagster interrupts the process of a run once. Python drops an interrupt that arrives inside a finalizer or a callback of
an import, and so does a workflow that catches every exception; the run would then go on to its end.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dagster import DagsterInstance, DagsterRunStatus

from feed_assets.clock import Stopwatch

LOOK_EVERY = 5.0
"""Seconds between two looks at the status of a run."""

PATIENCE = 10.0
"""Seconds that a run which is being cancelled has to end before it is interrupted again."""

_logger = logging.getLogger(__name__)


@contextmanager
def repeated_interrupts(instance: DagsterInstance, run_id: str) -> Iterator[None]:
    """A context in which this process, which works at a run, is interrupted again and again if the run is cancelled."""

    def is_cancelled() -> bool:
        try:
            run = instance.get_run_by_id(run_id)
        except Exception:
            _logger.exception("the status of run %s could not be read; it is asked for again", run_id)
            return False
        return run is not None and run.status in {DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED}

    ended = threading.Event()
    looker = threading.Thread(target=_interrupt_until, args=(ended, is_cancelled), name=f"end of {run_id}", daemon=True)
    looker.start()
    try:
        yield
    finally:
        ended.set()
        looker.join()


def _interrupt_until(ended: threading.Event, is_cancelled: Callable[[], bool]) -> None:
    since: Stopwatch | None = None
    while not ended.wait(LOOK_EVERY):
        if since is None:
            since = Stopwatch() if is_cancelled() else None
        elif since.seconds >= PATIENCE:
            os.kill(os.getpid(), signal.SIGINT)
