"""Repeat the interrupt of a cancelled run until the run ends.

Dagster interrupts the process of a run once. Python drops an interrupt that arrives inside a finalizer or a callback of
an import, and a workflow that catches every exception swallows it; the run would then continue to its end.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from dagster import DagsterInstance, DagsterRunStatus

from feed_assets.clock import Stopwatch
from feed_assets.masking import get_logger

POLL_SECONDS = 5.0
"""Seconds between two polls of a run's status."""

GRACE_SECONDS = 10.0
"""Seconds that a cancelled run has to end before it is interrupted again."""

_logger = get_logger(__name__)


def is_cancelled(instance: DagsterInstance, run_id: str) -> bool:
    """Return whether somebody has cancelled a run; False if that cannot be read."""
    try:
        run = instance.get_run_by_id(run_id)
    except Exception:
        _logger.exception("the status of run %s could not be read", run_id)
        return False
    return run is not None and run.status in {DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED}


@contextmanager
def repeated_interrupts(instance: DagsterInstance, run_id: str) -> Iterator[None]:
    """Interrupt this process repeatedly, inside the context, once the run that it works on is cancelled."""
    ended, asked = threading.Event(), partial(is_cancelled, instance, run_id)
    poller = threading.Thread(target=_interrupt_until, args=(ended, asked), name=f"end of {run_id}", daemon=True)
    poller.start()
    try:
        yield
    finally:
        ended.set()
        poller.join()


def _interrupt_until(ended: threading.Event, is_cancelled: Callable[[], bool]) -> None:
    since: Stopwatch | None = None
    while not ended.wait(POLL_SECONDS):
        if since is None:
            since = Stopwatch() if is_cancelled() else None
        elif since.seconds >= GRACE_SECONDS:
            os.kill(os.getpid(), signal.SIGINT)
