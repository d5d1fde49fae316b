from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.timing.expressions import parse_time_expression
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit
from tests.timing.strategies import expressions, moments, zones
from tests.timing.test_sequence import sequence

NEW_YORK = "America/New_York"


def shift(text: str, process: InstanceSequence, feed: InstanceSequence) -> int | None:
    return parse_time_expression(text).shift(process, feed)


def test_hourly_over_hourly_is_constant_also_where_the_two_are_not_aligned() -> None:
    process, feed = sequence("2013-11-01T00:30Z", "hours(1)", NEW_YORK), sequence("2013-10-31T00:00Z", "hours(1)")
    assert shift("now(-1,0)", process, feed) == 23
    assert shift("now(0,29)", process, feed) == 24
    assert shift("now(0,30)", process, feed) == 25


def test_daily_in_a_zone_with_summer_time_is_constant_from_midnight_to_midnight() -> None:
    winter = sequence("2013-12-01T05:00Z", "days(1)", NEW_YORK)
    summer = sequence("2013-07-01T04:00Z", "days(1)", NEW_YORK)
    assert shift("today(0,0)", summer, summer) == 0
    assert shift("tomorrow(0,-60)", summer, summer) == 0
    assert shift("yesterday(0,0)", summer, summer) == -1
    assert shift("today(0,0)", winter, summer) == 153
    assert shift("tomorrow(0,0)", summer, summer) == 1


def test_what_a_clock_change_can_bend_is_not_constant() -> None:
    morning = sequence("2013-07-01T10:00Z", "days(1)", NEW_YORK)
    assert shift("today(6,0)", morning, morning) is None
    assert shift("today(8,0)", morning, morning) == 0
    assert shift("today(2,0)", morning, morning) == -1
    assert shift("now(-24,0)", morning, morning) is None
    assert shift("now(1,0)", morning, morning) == 0


def test_a_day_in_utc_may_be_written_as_hours() -> None:
    elapsed, daily = sequence("2013-07-01T00:00Z", "hours(24)"), sequence("2013-07-01T00:00Z", "days(1)")
    assert shift("today(0,0)", elapsed, daily) == 0


def test_weeks_are_constant_for_a_process_every_seven_days() -> None:
    weekly = sequence("2013-07-01T04:00Z", "days(7)", NEW_YORK)
    assert shift("currentWeek('MON',0,0)", weekly, weekly) == 0
    assert shift("lastWeek('MON',0,0)", weekly, weekly) == -1
    daily = sequence("2013-07-01T04:00Z", "days(1)", NEW_YORK)
    assert shift("currentWeek('MON',0,0)", daily, daily) is None


def test_months_are_constant_where_no_month_length_decides() -> None:
    first = sequence("2013-01-01T05:00Z", "months(1)", NEW_YORK)
    last = sequence("2013-01-31T05:00Z", "months(1)", NEW_YORK)
    assert shift("currentMonth(0,0,0)", first, first) == 0
    assert shift("lastMonth(0,0,0)", first, first) == -1
    assert shift("nextMonth(0,0,0)", first, first) == 1
    assert shift("nextMonth(-1,0,0)", first, first) == 0
    assert shift("now(0,0)", last, last) == 0
    assert shift("currentMonth(-1,0,0)", first, last) == -1
    assert shift("currentMonth(29,0,0)", first, last) is None
    assert shift("currentYear(0,0,0,0)", first, first) is None


def test_years_are_constant_for_a_process_every_twelve_months() -> None:
    yearly, monthly = sequence("2013-03-01T00:00Z", "months(12)"), sequence("2013-01-01T00:00Z", "months(12)")
    assert shift("currentYear(0,0,0,0)", yearly, monthly) == 0
    assert shift("lastYear(0,0,0,0)", yearly, monthly) == -1


def test_another_frequency_or_data_driven_is_never_constant() -> None:
    hourly, daily = sequence("2013-01-01T00:00Z", "hours(1)"), sequence("2013-01-01T00:00Z", "days(1)")
    assert shift("now(0,0)", hourly, daily) is None
    assert shift("latest(0)", hourly, hourly) is None


FREQUENCIES = (
    *(Frequency(unit=Unit.MINUTES, count=count) for count in (45, 1440)),
    *(Frequency(unit=Unit.HOURS, count=count) for count in (1, 5, 24, 168)),
    *(Frequency(unit=Unit.DAYS, count=count) for count in (1, 2, 7)),
    *(Frequency(unit=Unit.MONTHS, count=count) for count in (1, 3, 12)),
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[InstanceSequence, InstanceSequence]:
    frequency, zone, start = draw(st.sampled_from(FREQUENCIES)), draw(zones), draw(moments)
    hours = st.sampled_from((0, 0, 5, 24, 24 * 7, 24 * 31, 24 * 200))
    starts = (start, start.replace(minute=0, hour=draw(st.integers(0, 23))))
    feed = InstanceSequence(start=draw(st.sampled_from(starts)), frequency=frequency, timezone=zone)
    other = feed.at(draw(hours))
    return InstanceSequence(start=draw(st.sampled_from((other, *starts))), frequency=frequency, timezone=zone), feed


@given(pair=pairs(), text=expressions())
def test_a_constant_shift_holds_for_every_instance(pair: tuple[InstanceSequence, InstanceSequence], text: str) -> None:
    process, feed = pair
    expression = parse_time_expression(text)
    k = expression.shift(process, feed)
    if k is None:
        return
    for n in (*range(400), 1000, 3000):
        moment = process.at(n)
        if moment.year > 2090:
            break
        assert feed.index_at_or_before(expression.evaluate(moment, feed.timezone)) == n + k


@pytest.mark.parametrize("zone", ["UTC", NEW_YORK, "Pacific/Apia"])
def test_one_sequence_at_its_own_time_is_always_constant(zone: str) -> None:
    for frequency in FREQUENCIES:
        seq = InstanceSequence(
            start=sequence("2008-01-31T07:30Z", "days(1)").start, frequency=frequency, timezone=ZoneInfo(zone)
        )
        assert shift("now(0,0)", seq, seq) == 0
