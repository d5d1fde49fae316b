"""When a sweep stops and asks."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from feed_assets.entities.common import SweepLimits
from feed_assets.plan.records import RetentionRecord
from feed_assets.retention.rules.eligibility import (
    Amounts,
    KnownTimes,
    ObstacleCode,
    count_enough,
    count_usual,
    decide_clock,
    decide_limits,
)
from feed_assets.timing.sequence import parse_frequency

NOW = datetime(2013, 11, 11, 12, tzinfo=UTC)
HOURLY = parse_frequency("hours(1)")
SECOND = timedelta(seconds=1)


def policy(cadence: str = "hours(6)", **limits: Any) -> RetentionRecord:
    return RetentionRecord(
        limit=parse_frequency("days(2)"),
        cadence=parse_frequency(cadence),
        trash=parse_frequency("days(7)"),
        sweep_limits=SweepLimits(**limits),
    )


def sentences(
    of: RetentionRecord, taken: int, stay: int, size: int | None = None, frequency: str = "hours(1)"
) -> list[str]:
    taking = Amounts(instances=taken, stay=stay, bytes=size)
    return [each.sentence for each in decide_limits(of, taking, parse_frequency(frequency), NOW, KnownTimes())]


def test_the_defaults_are_half_of_the_instances_and_ten_thousand() -> None:
    assert SweepLimits() == SweepLimits(share=0.5, instances=10_000, bytes=None)


def test_a_larger_share_than_allowed_asks() -> None:
    assert sentences(policy(), 50, 50) == []
    assert sentences(policy(), 51, 49) == ["51 of the 100 instances would be removed, more than the share 0.5."]
    assert sentences(policy(share=0.1), 100, 900) == []
    assert sentences(policy(share=0.1), 101, 899) == [
        "101 of the 1,000 instances would be removed, more than the share 0.1."
    ]
    assert sentences(policy(share=1.0), 9999, 1) == []


def test_what_two_cadences_bring_may_always_go() -> None:
    assert sentences(policy(), 12, 1) == []
    assert sentences(policy(), 13, 1) == ["13 of the 14 instances would be removed, more than the share 0.5."]
    assert sentences(policy(), 2, 1, frequency="hours(8)") == []
    assert sentences(policy(), 3, 1, frequency="hours(8)") == [
        "3 of the 4 instances would be removed, more than the share 0.5."
    ]


@pytest.mark.parametrize(
    ("cadence", "frequency", "count"),
    [
        ("hours(6)", "hours(1)", 12),
        ("days(1)", "days(1)", 2),
        ("hours(6)", "hours(5)", 3),
        ("hours(6)", "months(1)", 1),
    ],
)
def test_the_usual_number_is_rounded_up(cadence: str, frequency: str, count: int) -> None:
    assert count_usual(parse_frequency(cadence), parse_frequency(frequency)) == count


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9, 1.0])
def test_with_one_instance_less_than_enough_a_sweep_asks(share: float) -> None:
    of = policy(share=share)
    for taken in range(1, 60):
        enough = count_enough(of, taken, HOURLY)
        assert sentences(of, taken, enough) == []
        assert sentences(of, taken, enough - 1) != []


def test_to_take_everything_asks_however_few_there_are() -> None:
    assert sentences(policy(), 1, 0) == ["All 1 instances of the feed would be removed."]
    assert sentences(policy(share=1.0), 5000, 0) == ["All 5,000 instances of the feed would be removed."]
    assert sentences(policy(), 1, 1) == []
    assert sentences(policy(), 0, 0) == []


def test_a_larger_number_than_allowed_asks() -> None:
    assert sentences(policy(), 10_000, 90_000) == []
    assert sentences(policy(), 10_001, 90_000) == [
        "10,001 of the 100,001 instances would be removed, more than 10,000."
    ]


def test_more_bytes_than_allowed_ask_and_so_do_unknown_ones() -> None:
    of = policy(bytes=10_240)
    assert sentences(of, 1, 9, 10_240) == []
    assert sentences(of, 1, 9, 10_241) == ["10,241 bytes would be removed, more than 10KiB."]
    assert sentences(of, 1, 9, None) == ["An unknown size would be removed, more than 10KiB."]
    assert sentences(of, 0, 9, None) == []
    assert sentences(policy(), 1, 9, 10**18) == []


def test_every_limit_that_is_exceeded_is_named() -> None:
    of = policy(instances=20, bytes=1)
    found = decide_limits(of, Amounts(instances=30, stay=10, bytes=2), HOURLY, NOW, KnownTimes(last_sweep=NOW + SECOND))
    assert [each.code for each in found] == ["clock-back", "share", "instances", "bytes"]
    found = decide_limits(
        of, Amounts(instances=30, stay=0, bytes=2), HOURLY, NOW, KnownTimes(newest=NOW - 30 * 24 * 3600 * SECOND)
    )
    assert [each.code for each in found] == ["clock-jump", "everything", "instances", "bytes"]


def test_a_clock_that_stands_before_the_last_sweep_is_not_believed() -> None:
    assert decide_clock(HOURLY, NOW, KnownTimes(last_sweep=NOW)) == ()
    (found,) = decide_clock(HOURLY, NOW, KnownTimes(last_sweep=NOW + SECOND * 60))
    assert found.code is ObstacleCode.CLOCK_BACK.value
    assert found.sentence == "The clock stands at 2013-11-11T12:00Z, before the last sweep at 2013-11-11T12:01Z."


@pytest.mark.parametrize(
    ("cadence", "longest"), [("hours(6)", 72), ("days(1)", 72), ("hours(25)", 75), ("days(2)", 144)]
)
def test_a_clock_far_beyond_anything_on_record_is_not_believed(cadence: str, longest: int) -> None:
    seen = NOW - timedelta(hours=longest)
    assert decide_clock(parse_frequency(cadence), NOW, KnownTimes(newest=seen)) == ()
    (found,) = decide_clock(parse_frequency(cadence), NOW, KnownTimes(newest=seen - SECOND))
    assert found.code == ObstacleCode.CLOCK_JUMP


def test_a_jump_of_the_clock_is_told_with_both_times() -> None:
    (found,) = decide_clock(HOURLY, NOW, KnownTimes(newest=datetime(2013, 11, 1, tzinfo=UTC)))
    assert found.sentence == (
        "The clock stands at 2013-11-11T12:00Z, and the newest time on record is 2013-11-01T00:00Z: "
        "it has jumped, or nothing has run in between."
    )


def test_without_a_record_the_clock_is_believed() -> None:
    assert decide_clock(HOURLY, NOW, KnownTimes()) == ()
    assert decide_clock(HOURLY, NOW, KnownTimes(newest=NOW + timedelta(days=99))) == ()


def test_the_first_sweep_asks_if_the_clock_is_far_behind_the_newest_instance() -> None:
    jump = timedelta(days=3)  # more than three cadences, and than ten of its hours

    def ask(newest: datetime | None, **known: Any) -> tuple[Any, ...]:
        return decide_limits(
            policy(), Amounts(instances=1, stay=9, bytes=1, newest=newest), HOURLY, NOW, KnownTimes(**known)
        )

    (found,) = ask(NOW - jump - SECOND)
    assert found.code == ObstacleCode.CLOCK_JUMP
    assert found.sentence == (
        "The clock stands at 2013-11-11T12:00Z, and the newest instance of the feed is that of "
        "2013-11-08T11:59:59Z: it has jumped, or nothing has arrived since."
    )
    assert ask(NOW - jump) == ask(None) == ()
    assert ask(NOW - jump - SECOND, last_sweep=NOW - SECOND) == ()
