"""`python -m feed_assets.lifecycle.replication.worker DESCRIPTOR`: a worker process, for `CopyWorkers` alone.

It copies what it is sent through the inherited descriptor of a socket, and ends when that is closed. An interrupt of
the terminal is for the process that it works for.
"""

import gc
import signal
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from threading import Lock

from feed_assets.lifecycle.errors import CopyForbiddenError
from feed_assets.lifecycle.replication.collector import SELDOM_COLLECTED
from feed_assets.lifecycle.replication.copying import copy_many
from feed_assets.lifecycle.replication.plans import CopyPlan
from feed_assets.lifecycle.replication.requests import CopyRequest, Progress
from feed_assets.lifecycle.replication.workers import Message, Order, Outcomes, Question
from feed_assets.lifecycle.stores import StorePool

_TELLING = 0.2
"""Seconds between two reports of how far it is."""


class _Master:
    """The process that this one works for, as seen through the line to it, by one thread at a time."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._mutex = Lock()
        self._told_at = 0.0

    def ask(self, number: int, plan: CopyPlan | None = None) -> None:
        """Ask, and raise if the answer is no; or if there is nobody any more who could answer."""
        with self._mutex:
            self._line.send(Question(number=number, plan=plan))
            is_allowed: bool = self._line.recv()
        if not is_allowed:
            raise CopyForbiddenError

    def tell(self, progress: Progress) -> None:
        """Tell how far it is, but not too often."""
        now = time.monotonic()
        if now - self._told_at >= _TELLING:
            self.send(progress)
            self._told_at = now

    def send(self, message: Message) -> None:
        """Tell something that needs no answer."""
        with self._mutex:
            self._line.send(message)


def work(line: Connection) -> None:
    """Copy what is ordered, until the line is closed."""
    stores, master = StorePool(), _Master(line)
    while True:
        try:
            order: Order = line.recv()
        except EOFError:
            return
        master.send(_carry_out(stores, order, master))


def _carry_out(stores: StorePool, order: Order, master: _Master) -> Outcomes:
    requests = [
        CopyRequest(
            source=copy.source,
            target=copy.target,
            guard=partial(master.ask, number),
            extra=copy.extra,
            distrusted=copy.distrusted,
            check=partial(master.ask, number) if copy.is_checked else None,
        )
        for number, copy in enumerate(order.copies)
    ]
    last = Progress()

    def tell(progress: Progress) -> None:
        nonlocal last
        last = progress
        master.tell(progress)

    outcomes = copy_many(stores, requests, order.options, order.clock, on_progress=tell if order.is_watched else None)
    if order.is_watched:
        master.send(last)
    return outcomes


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    with SELDOM_COLLECTED, Connection(int(sys.argv[1])) as inherited:
        work(inherited)
