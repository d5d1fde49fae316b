from datetime import UTC, datetime, timedelta, timezone

from feed_assets.clock import FrozenClock, ReplayClock, SystemClock

DAY = datetime(2013, 11, 3, tzinfo=UTC)
REAL = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_system_clock_is_aware_and_goes_on() -> None:
    first, second = SystemClock().now(), SystemClock().now()
    assert first.tzinfo is UTC
    assert first <= second


def test_a_frozen_clock_stands_in_utc() -> None:
    assert FrozenClock(DAY.astimezone(timezone(timedelta(hours=5)))).now() == DAY


def test_a_replay_stands_at_its_origin_until_it_starts() -> None:
    clock = ReplayClock(origin=DAY, real_start=REAL, speed=10.0, reference=FrozenClock(REAL - timedelta(days=1)))
    assert clock.now() == DAY


def test_a_replay_runs_at_its_speed() -> None:
    clock = ReplayClock(origin=DAY, real_start=REAL, speed=0.5, reference=FrozenClock(REAL + timedelta(hours=2)))
    assert clock.now() == DAY + timedelta(hours=1)
