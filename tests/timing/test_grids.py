"""When the start of a sequence moves: are its instances the same ones?"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from feed_assets.timing.sequence import InstanceSequence, is_same_grid, parse_frequency


def sequence(frequency: str, start: str, zone: str = "UTC") -> InstanceSequence:
    begins = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return InstanceSequence(start=begins, frequency=parse_frequency(frequency), timezone=ZoneInfo(zone))


@pytest.mark.parametrize(
    ("frequency", "one", "other", "expected"),
    [
        ("hours(1)", "2015-01-01T00:00", "2015-03-01T05:00", True),
        ("hours(1)", "2015-01-01T00:00", "2015-03-01T05:10", False),
        ("hours(5)", "2015-01-01T00:00", "2015-01-01T05:00", True),
        ("hours(5)", "2015-01-01T00:00", "2015-01-01T06:00", False),
        ("days(2)", "2015-01-01T00:00", "2015-01-04T00:00", False),
        ("months(1)", "2015-01-15T00:00", "2015-02-15T00:00", True),
        ("months(1)", "2015-01-31T00:00", "2015-02-28T00:00", False),
        ("months(1)", "2015-01-31T00:00", "2015-03-31T00:00", True),
    ],
)
def test_sequences_are_of_one_grid_if_they_agree_where_both_are_valid(
    frequency: str, one: str, other: str, expected: bool
) -> None:
    first, second = sequence(frequency, one), sequence(frequency, other)
    assert is_same_grid(first, second) is is_same_grid(second, first) is expected


def test_another_zone_or_frequency_is_another_grid() -> None:
    daily = sequence("days(1)", "2015-01-01T00:00")
    assert not is_same_grid(daily, sequence("days(1)", "2015-01-01T00:00", "America/New_York"))
    assert not is_same_grid(daily, sequence("hours(24)", "2015-01-01T00:00"))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("2015-01-01T05:00", "2015-07-01T04:00", True),
        ("2015-01-01T07:30", "2015-02-01T07:30", True),
        ("2015-01-01T07:30", "2015-03-08T06:30", False),
        ("2015-01-01T07:30", "2015-07-01T06:30", False),
    ],
)
def test_days_are_of_one_grid_if_they_agree_where_clocks_change_too(one: str, other: str, expected: bool) -> None:
    first, second = (sequence("days(1)", start, "America/New_York") for start in (one, other))
    assert is_same_grid(first, second) is is_same_grid(second, first) is expected
    later = max(first.start, second.start)
    stop = later + timedelta(days=1000)
    assert (list(first.between(later, stop)) == list(second.between(later, stop))) is expected


def test_months_that_begin_where_clocks_change_keep_to_their_own_time() -> None:
    monthly = sequence("months(1)", "2015-02-08T07:30", "America/New_York")
    in_the_gap = sequence("months(1)", "2015-03-08T07:30", "America/New_York")
    assert monthly.contains(in_the_gap.start)
    assert not is_same_grid(monthly, in_the_gap)
