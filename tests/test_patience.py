"""What hangs is waited for once; all others are answered."""

from collections.abc import Callable
from threading import Event

import pytest

from feed_assets.clock import Stopwatch
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.context.errors import NotAskedError
from feed_assets.errors import NoAnswerError
from feed_assets.patience import Patience
from tests.context.test_bulkheads import SetClock

A_MOMENT = 0.1


def fail() -> int:
    raise ValueError("broken")


def end_all(patience: Patience) -> None:
    for thread in list(patience._hanging.values()):
        thread.join()


def test_all_are_called_at_once_and_what_hangs_is_left_alone_until_it_ends() -> None:
    patience, end, called = Patience(A_MOMENT), Event(), []

    def hang() -> int:
        called.append(1)
        end.wait(60)
        return 0

    calls: dict[str, Callable[[], int]] = {"one": hang, "two": hang, "good": lambda: 7, "bad": fail}
    watch = Stopwatch()
    answers = patience.ask(calls)
    assert watch.seconds < 50 * A_MOMENT
    assert answers["good"].value == 7
    assert str(answers["bad"].value) == "broken"
    assert str(answers["one"].value).startswith("one has not answered within 0.1 seconds.")

    assert isinstance(patience.ask({"one": hang})["one"].value, NoAnswerError)
    assert len(called) == 2
    end.set()
    end_all(patience)
    assert patience.ask({"one": hang})["one"].value == 0


def test_an_endpoint_that_hangs_is_recorded_and_not_asked_before_its_next_try() -> None:
    clock, end = SetClock(), Event()
    patience = Patience(A_MOMENT)
    bulkheads = Bulkheads("here", clock, patience=patience)
    storage = TickStep.STORAGE
    first = bulkheads.ask(storage, {"s3://hole": lambda: end.wait(60), "s3://bad": fail})
    assert isinstance(first["s3://hole"], NoAnswerError)
    assert isinstance(first["s3://bad"], ValueError)
    (failure,) = bulkheads.failures
    assert (failure.step, failure.subject) == (storage, "s3://hole")

    end.set()
    end_all(patience)
    again = bulkheads.ask(storage, {"s3://hole": lambda: True})
    assert isinstance(again["s3://hole"], NotAskedError)
    assert "s3://hole does not answer: " in str(again["s3://hole"])

    clock.at = failure.next_try_at
    assert bulkheads.ask(storage, {"s3://hole": lambda: True}) == {"s3://hole": True}
    assert bulkheads.failures == []


def test_an_interrupt_in_a_call_is_not_an_answer() -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Patience(None).ask({"one": interrupt})
