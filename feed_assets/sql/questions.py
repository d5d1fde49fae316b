"""Questions that can be stopped: who has asked is gone, so what the database is looking for is given up."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from sqlalchemy import Connection

from feed_assets.sql.errors import StateUnreachableError


class Question:
    """What is read while a request is answered; `stop` may be called from another thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._drivers: list[Any] = []
        self._is_stopped = False

    def stop(self) -> None:
        """Interrupt what is under way, and refuse what would follow."""
        with self._lock:
            self._is_stopped = True
            for driver in self._drivers:
                (driver.interrupt if hasattr(driver, "interrupt") else driver.cancel)()

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        """Let a connection be interrupted in the block."""
        driver = connection.connection.driver_connection
        with self._lock:
            if self._is_stopped:
                raise StateUnreachableError(reason="who has asked is gone", next_step="Ask again.")
            self._drivers.append(driver)
        try:
            yield
        finally:
            with self._lock:
                self._drivers.remove(driver)


_question: ContextVar[Question | None] = ContextVar("question", default=None)


@contextmanager
def asking(question: Question) -> Iterator[None]:
    """Let what is read in the block be stopped with a question."""
    token = _question.set(question)
    try:
        yield
    finally:
        _question.reset(token)


@contextmanager
def stoppable(connection: Connection) -> Iterator[None]:
    """Let a connection be stopped with the question that is being answered, if there is one."""
    question = _question.get()
    if question is None:
        yield
        return
    with question.reading(connection):
        yield
