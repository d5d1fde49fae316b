"""Translate exceptions of user code and Spark to `EngineError`, so that callers need to know only one class."""

import re
import signal
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from feed_assets.engines.errors import EngineError, WorkflowFailedError
from feed_assets.engines.port import Work
from feed_assets.errors import shorten
from feed_assets.masking import text_of
from feed_assets.timing.dates import render_datetime

_LONGEST_REASON = 800
_KEPT_LINES = 20
_STACK_FRAME = re.compile(r"\s+(?:at |\.\.\. \d+ more)")  # \tat org.Example.main(Example.java:1)
_APPENDED = re.compile(r"\n\n(?:== |JVM stacktrace:)|;\n['+]")  # … (line 1, pos 7)\n\n== SQL ==\nSELECT …


@contextmanager
def reporting_failures(work: Work) -> Iterator[None]:
    """Translate every exception raised by the work inside the block.

    User code may raise any exception, and so may Spark on its behalf. This is therefore the only broad catch in
    engines. Whatever is raised, also by `sys.exit`, ends the instance and not the run of its neighbours. An interrupt
    by a signal passes unchanged.

    Raises:
        WorkflowFailedError: from the exception of user code or Spark; an `EngineError` passes unchanged.
    """
    try:
        yield
    except EngineError:
        raise
    except BaseException as exc:
        if _is_interrupt(exc):
            raise
        raise WorkflowFailedError(
            process=work.process,
            nominal_time=render_datetime(work.nominal_time),
            path=work.path or work.engine,
            reason=render_cause(exc),
        ) from exc


def _is_interrupt(exc: BaseException) -> bool:
    """Return whether an exception was raised by the handler of a signal that ends the process, not by user code.

    Python's own handler leaves no trace, so that with it any `KeyboardInterrupt` counts.
    """
    if isinstance(exc, Exception | SystemExit | GeneratorExit):
        return False
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    if isinstance(exc, KeyboardInterrupt) and signal.default_int_handler in handlers:
        return True
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(exc.__traceback__))


def render_cause(exc: BaseException) -> str:
    """Return the class and the text of an exception, without the text that Spark appends, frames of Java stack traces
    and a closing full stop.

    >>> render_cause(ValueError("no such origin."))
    'ValueError: no such origin'
    >>> render_cause(ValueError("no row\\n\\tat org.A.b(A.java:1)\\nCaused by: java.io.IOException: gone"))
    'ValueError: no row\\nCaused by: java.io.IOException: gone'
    """
    lines = _APPENDED.split(text_of(exc), maxsplit=1)[0].splitlines()
    text = "\n".join(line for line in lines if not _STACK_FRAME.match(line)).strip()
    return f"{type(exc).__name__}: {shorten(text, _LONGEST_REASON)}".rstrip(". :\n")


def last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the last twenty informative lines of a program's output, without blank lines and frames of Java stack
    traces.

    >>> last_lines(["Exception: no master\\n", "\\tat org.Example.main(Example.java:1)\\n", "ended\\n"])
    ('Exception: no master', 'ended')
    """
    stripped = (line.rstrip() for line in lines if not _STACK_FRAME.match(line))
    return tuple(deque((line for line in stripped if line), maxlen=_KEPT_LINES))
