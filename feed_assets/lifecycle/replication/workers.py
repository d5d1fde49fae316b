"""Processes that make many small copies between filesystems of this machine.

Small files are short system calls with a little Python between them, and one process makes no more of them than one
processor can. A worker copies a batch as the process itself would. What only that one can answer, whether a plan may be
carried out and whether a copy may become visible, it is asked for through a pipe. A worker whose process is gone gets
no answer, and publishes nothing.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Lock
from types import TracebackType
from typing import TypeAlias

from feed_assets.clock import Clock
from feed_assets.lifecycle.errors import CopyWorkerLostError
from feed_assets.lifecycle.replication.outcomes import Copied
from feed_assets.lifecycle.replication.plans import CopyPlan, Side
from feed_assets.lifecycle.replication.requests import CopyRequest, Meter, Progress
from feed_assets.plan.copy_options import CopyOptions

_MODULE = "feed_assets.lifecycle.replication.worker"
_PATIENCE = 10.0
"""Seconds that a worker has to end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedCopy:
    """A copy for a worker: a request, of which the worker asks the rest."""

    source: Side
    target: Side
    extra: Mapping[str, str]
    distrusted: frozenset[str]
    is_checked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Copies for a worker. `clock` is the wall clock."""

    copies: tuple[OrderedCopy, ...]
    options: CopyOptions
    clock: Clock
    is_watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May the copy with this number be carried out as planned; without a plan: may it become visible?"""

    number: int
    plan: CopyPlan | None = None


Outcomes: TypeAlias = list[Copied | Exception]
Message: TypeAlias = Question | Progress | Outcomes
"""What a worker says: it asks, tells how far it is, and in the end what became of all copies."""


def useful_workers(tasks: int) -> int:
    """How many processes, this one included, at most `tasks` copies at a time are worth: no more than processors."""
    return max(1, min(tasks, len(os.sched_getaffinity(0))))


class CopyWorkers:
    """Worker processes, which start when this is entered and end when it is left: at once, if by an exception.

    Checks and guards are called while `asking` is held: who asks for a copy need not care for threads.
    """

    def __init__(self, count: int, options: CopyOptions, clock: Clock, meter: Meter, asking: Lock) -> None:
        self._count = count
        self._options = options
        self._clock = clock
        self._meter = meter
        self._all: list[_Worker] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._asking = asking

    def __enter__(self) -> "CopyWorkers":
        for _ in range(self._count):
            worker = _Worker()
            self._all.append(worker)
            self._idle.put(worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            for worker in self._all:
                worker.hang_up()
        for worker in self._all:
            worker.end(_PATIENCE if error is None else 0.0)

    def copy(self, requests: Sequence[CopyRequest]) -> Outcomes:
        """Let a worker copy a batch (see `copy_many`); in as many threads as there are workers.

        Raises:
            CopyWorkerLostError: it has ended meanwhile.
        """
        worker = self._idle.get()
        try:
            return self._order(worker, requests)
        except BaseException:
            worker.hang_up()
            raise
        finally:
            self._idle.put(worker)

    def _order(self, worker: "_Worker", requests: Sequence[CopyRequest]) -> Outcomes:
        copies = tuple(
            OrderedCopy(
                source=each.source,
                target=each.target,
                extra=dict(each.extra),
                distrusted=each.distrusted,
                is_checked=each.check is not None,
            )
            for each in requests
        )
        worker.send(Order(copies=copies, options=self._options, clock=self._clock, is_watched=self._meter.is_watched))
        told, refusals = Progress(), dict[int, Exception]()
        while True:
            message = worker.receive()
            if isinstance(message, Question):
                refusal = self._find_refusal(requests[message.number], message.plan)
                if refusal is not None:
                    refusals[message.number] = refusal
                worker.send(refusal is None)
            elif isinstance(message, Progress):
                self._meter.merge(message.since(told))
                told = message
            else:
                return [refusals.get(number, outcome) for number, outcome in enumerate(message)]

    def _find_refusal(self, request: CopyRequest, plan: CopyPlan | None) -> Exception | None:
        with self._asking:
            try:
                if plan is None:
                    request.guard()
                elif request.check is not None:
                    request.check(plan)
            except Exception as exc:  # noqa: BLE001 - whatever it is, it forbids this one copy and no other
                return exc
        return None


class _Worker:
    """A process, and the line to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._line = Connection(ours.detach())

    def send(self, message: Order | bool) -> None:
        """Say something."""
        try:
            self._line.send(message)
        except OSError as exc:
            raise CopyWorkerLostError(code=self.end(_PATIENCE)) from exc

    def receive(self) -> Message:
        """Wait for what it says."""
        try:
            message: Message = self._line.recv()
        except (EOFError, OSError) as exc:
            raise CopyWorkerLostError(code=self.end(_PATIENCE)) from exc
        return message

    def hang_up(self) -> None:
        """Close the line, after which the process ends."""
        self._line.close()

    def end(self, patience: float) -> int:
        """Wait for the end of the process, and make it end after some seconds; its exit code."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
