"""A step of a tick is a plain call that its bulkheads confine."""

from pathlib import Path

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.context.tick import Tick, tick_step
from tests.instances.harness import START, LifecycleHarness


@tick_step(TickStep.GATES, otherwise=7)
def divide(tick: Tick, number: int, *, by: int = 1) -> int:
    """Divide a number."""
    assert tick.cluster == "primary"
    return number // by


@tick_step(TickStep.REPORTS, otherwise=None, unit="late instances")
def report(tick: Tick) -> str:
    return f"on {tick.cluster} at {tick.as_of:%H:%M}"


def test_a_step_that_fails_has_its_other_result_and_is_put_off(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path)
    bulkheads = Bulkheads("primary", FrozenClock(START))
    tick = lifecycle.open_tick(START, bulkheads=bulkheads)
    assert divide(tick, 6, by=2) == 3
    assert divide(tick, 6, by=0) == 7
    assert divide(tick, 6, by=2) == 7, "its next try is not due"
    assert report(tick) == "on primary at 00:00"
    assert [(each.step, each.subject) for each in bulkheads.failures] == [(TickStep.GATES, "")]
    bulkheads.fail(TickStep.REPORTS, "late instances", ValueError("no"))
    assert report(tick) is None
    assert (divide.__name__, divide.__doc__) == ("divide", "Divide a number.")


def test_without_bulkheads_a_step_that_fails_raises_and_the_next_one_runs(tmp_path: Path) -> None:
    tick = LifecycleHarness.of(tmp_path).open_tick(START)
    with pytest.raises(ZeroDivisionError):
        divide(tick, 6, by=0)
    assert divide(tick, 6) == 6
