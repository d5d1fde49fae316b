import random
from datetime import UTC, datetime, timedelta

from feed_assets.simulate.parts import ClockSteps, WrongClock

NOON = datetime(2013, 11, 1, 12, tzinfo=UTC)
STEPS = ClockSteps(share=0.5, ahead=timedelta(days=4), behind=timedelta(hours=12))


def steps_of(clock: WrongClock, ticks: int = 1_000) -> list[timedelta]:
    return [step for _ in range(ticks) if (step := clock.step()) is not None]


def test_a_clock_that_nobody_sets_is_right() -> None:
    clock = WrongClock(ClockSteps(), random.Random(1))
    assert steps_of(clock) == []
    assert clock.read(NOON) == NOON


def test_a_clock_is_set_forward_by_days_and_back_by_minutes_hours_and_days() -> None:
    steps = steps_of(WrongClock(STEPS, random.Random(1)))
    assert 400 < len(steps) < 600
    assert max(steps) > timedelta(days=2)
    assert min(steps) < -timedelta(days=2)
    for least, most in ((timedelta(minutes=1), timedelta(hours=1)), (timedelta(hours=1), timedelta(hours=12))):
        assert [step for step in steps if least <= step < most]
        assert [step for step in steps if least <= -step < most]


def test_it_is_never_farther_from_the_truth_than_it_may_be_and_often_right() -> None:
    clock = WrongClock(STEPS, random.Random(1))
    errors = [clock.error for _ in range(1_000) if clock.step() is not None]
    assert -STEPS.behind <= min(errors) < timedelta(0) < max(errors) <= STEPS.ahead
    assert errors.count(timedelta(0)) > len(errors) / 4
    assert clock.read(NOON) == NOON + clock.error
