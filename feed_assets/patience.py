"""Call services that may never answer, with one time limit, so that ticks and runs end whatever they do.

Python cannot end a call that hangs. It is left alone in its thread, and its endpoint is not called again meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Generic, TypeVar

from feed_assets.clock import Stopwatch
from feed_assets.errors import NoAnswerError

Result = TypeVar("Result")

_asked: dict[object, tuple[str, ...]] = {}
"""The endpoints of each question that is not yet answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[Result]):
    """What a call returned or raised, and after how many seconds."""

    value: Result | Exception
    seconds: float


class Patience:
    """Waits for endpoints, at most `seconds` for all that are called together; without a limit if None.

    One object serves a whole process.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._hanging: dict[str, Thread] = {}
        self._apart: dict[str, set[str]] = defaultdict(set)
        self._lock = Lock()

    def ask(self, calls: Mapping[str, Callable[[], Result]]) -> dict[str, Answer[Result]]:
        """Call several endpoints at once, and return the answer of each.

        The answer of an endpoint that takes too long, or still hangs from an earlier call, is a `NoAnswerError`.
        """
        with _asking(calls):
            return self._ask(calls)

    def _ask(self, calls: Mapping[str, Callable[[], Result]]) -> dict[str, Answer[Result]]:
        if self._seconds is None:
            return {endpoint: _answer(call) for endpoint, call in calls.items()}
        answers: dict[str, Answer[Result]] = {}
        begun: dict[str, tuple[Thread, Future[Answer[Result]]]] = {}
        for endpoint, call in calls.items():
            if self._is_hanging(endpoint):
                answers[endpoint] = self._no_answer(endpoint, 0.0)
                continue
            future: Future[Answer[Result]] = Future()
            thread = Thread(target=_fulfil, args=(future, call), name=f"call of {endpoint}", daemon=True)
            begun[endpoint] = thread, future
            thread.start()
        wait([future for _, future in begun.values()], self._seconds)
        for endpoint, (thread, future) in begun.items():
            if future.done():
                answers[endpoint] = future.result()
            else:
                with self._lock:
                    self._hanging[endpoint] = thread
                answers[endpoint] = self._no_answer(endpoint, self._seconds)
        return answers

    def set_apart(self, endpoint: str, part: str) -> None:
        """Call a part of an endpoint by itself from now on: it was at work when the endpoint took too long. A call that
        hangs is the part's.
        """
        with self._lock:
            self._apart[endpoint].add(part)
            if (thread := self._hanging.pop(endpoint, None)) is not None:
                self._hanging[part] = thread

    def put_back(self, endpoint: str, part: str) -> None:
        """Call a part together with its endpoint again."""
        with self._lock:
            self._apart[endpoint].discard(part)

    def find_apart(self, endpoint: str) -> frozenset[str]:
        """Return the parts of an endpoint that are called by themselves."""
        with self._lock:
            return frozenset(self._apart.get(endpoint, ()))

    def _is_hanging(self, endpoint: str) -> bool:
        with self._lock:
            thread = self._hanging.get(endpoint)
            if thread is not None and not thread.is_alive():
                del self._hanging[endpoint]
            return endpoint in self._hanging

    def _no_answer(self, endpoint: str, seconds: float) -> Answer[Result]:
        return Answer(value=NoAnswerError(endpoint=endpoint, seconds=self._seconds or 0.0), seconds=seconds)


def list_asked() -> tuple[str, ...]:
    """Return the endpoints whose answers this process is waiting for."""
    return tuple(dict.fromkeys(endpoint for endpoints in tuple(_asked.values()) for endpoint in endpoints))


@contextmanager
def _asking(endpoints: Iterable[str]) -> Iterator[None]:
    question = object()
    _asked[question] = tuple(endpoints)
    try:
        yield
    finally:
        del _asked[question]


def _fulfil(future: Future[Answer[Result]], call: Callable[[], Result]) -> None:
    try:
        future.set_result(_answer(call))
    except BaseException as exc:
        future.set_exception(exc)
        raise


def _answer(call: Callable[[], Result]) -> Answer[Result]:
    watch = Stopwatch()
    try:
        value: Result | Exception = call()
    except Exception as exc:  # noqa: BLE001 - the caller decides what a failure means
        value = exc
    return Answer(value=value, seconds=watch.seconds)
