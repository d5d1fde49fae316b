"""Translate exceptions of user code and Spark to `EngineError`, so that callers need to know only one class."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from feed_assets.engines.errors import EngineError, WorkflowFailedError
from feed_assets.engines.port import Work
from feed_assets.timing.dates import render_datetime

_LONGEST_REASON = 800
_KEPT_LINES = 20
_STACK_FRAME = re.compile(r"\s+(?:at |\.\.\. \d+ more)")  # \tat org.Example.main(Example.java:1)
_APPENDED = re.compile(r"\n\n(?:== |JVM stacktrace:)|;\n['+]")  # … (line 1, pos 7)\n\n== SQL ==\nSELECT …


@contextmanager
def reporting_failures(work: Work) -> Iterator[None]:
    """Translate every exception raised by the work inside the block.

    User code may raise any exception, and so may Spark on its behalf. This is therefore the only broad catch in
    engines. `sys.exit` ends the instance, not the run of its neighbours.

    Raises:
        WorkflowFailedError: from the exception of user code or Spark; an `EngineError` passes unchanged.
    """
    try:
        yield
    except EngineError:
        raise
    except (Exception, SystemExit) as exc:
        raise WorkflowFailedError(
            process=work.process,
            nominal_time=render_datetime(work.nominal_time),
            path=work.path,
            reason=render_cause(exc),
        ) from exc


def render_cause(exc: BaseException) -> str:
    """Return the class and the text of an exception, without the text that Spark appends and without a closing full
    stop.

    >>> render_cause(ValueError("no such origin."))
    'ValueError: no such origin'
    """
    text = _APPENDED.split(str(exc), maxsplit=1)[0].strip()
    if len(text) > _LONGEST_REASON:
        text = f"{text[:_LONGEST_REASON]} …"
    return f"{type(exc).__name__}: {text}".rstrip(". :\n")


def last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the last twenty informative lines of a program's output, without blank lines and frames of Java stack
    traces.

    >>> last_lines(["Exception: no master\\n", "\\tat org.Example.main(Example.java:1)\\n", "ended\\n"])
    ('Exception: no master', 'ended')
    """
    stripped = (line.rstrip() for line in lines if not _STACK_FRAME.match(line))
    return tuple(deque((line for line in stripped if line), maxlen=_KEPT_LINES))
