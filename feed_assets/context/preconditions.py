"""What whoever asks for a change demands of the state at its moment, as a request that names what it has seen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_demand: ContextVar[Callable[[], None] | None] = ContextVar("demand", default=None)


@contextmanager
def demanding(check: Callable[[], None]) -> Iterator[None]:
    """Let changes of definitions and metadata in the block call `check` under their lock; it raises to refuse."""
    token = _demand.set(check)
    try:
        yield
    finally:
        _demand.reset(token)


def require_demanded() -> None:
    """Call what is demanded, under the lock of a change and before it."""
    if (check := _demand.get()) is not None:
        check()
