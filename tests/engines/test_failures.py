"""User code may raise anything; only a signal interrupts a run."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from feed_assets.engines.errors import WorkflowFailedError
from feed_assets.engines.failures import reporting_failures
from tests.engines.works import work


class Interrupted(BaseException):
    """What Dagster's handler raises."""


def end(_number: int, _frame: FrameType | None) -> None:
    raise Interrupted


@pytest.fixture
def handler() -> Iterator[None]:
    """A handler as a run of Dagster has one."""
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, former in before.items():
        signal.signal(number, former)


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize(
    "error", [SystemExit(0), KeyboardInterrupt(), BaseException("base"), GeneratorExit(), asyncio.CancelledError()]
)
def test_whatever_user_code_raises_is_a_failure_of_the_workflow(error: BaseException, tmp_path: Path) -> None:
    with (
        pytest.raises(WorkflowFailedError, match=f"failed: {type(error).__name__}"),
        reporting_failures(work(tmp_path, "")),
    ):
        raise error


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_the_run(number: signal.Signals, tmp_path: Path) -> None:
    with pytest.raises(Interrupted), reporting_failures(work(tmp_path, "")):
        os.kill(os.getpid(), number)


def test_without_a_handler_of_its_own_a_keyboard_interrupt_interrupts_the_run(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), reporting_failures(work(tmp_path, "")):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
