from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.timing.dates import parse_datetime, render_datetime
from feed_assets.timing.errors import ExpressionError, InstanceError
from feed_assets.timing.expressions import DataDriven, parse_time_expression
from tests.timing.strategies import expressions, moments, zones


def at(text: str, moment: str, zone: str = "UTC") -> str:
    return render_datetime(parse_time_expression(text).evaluate(parse_datetime(moment), ZoneInfo(zone)))


def test_tomorrow_is_the_next_day_at_midnight() -> None:
    assert at("tomorrow(0,0)", "2015-02-28T23:59Z") == "2015-03-01T00:00Z"
    assert at("tomorrow(1,30)", "2015-02-28T00:00Z", "America/New_York") == "2015-02-28T06:30Z"


@pytest.mark.parametrize(
    ("day", "last_hour"), [("2013-03-10", "2013-03-11T03:00Z"), ("2013-11-03", "2013-11-04T04:00Z")]
)
def test_an_hour_before_tomorrow_is_the_last_elapsed_hour_of_the_day(day: str, last_hour: str) -> None:
    assert at("tomorrow(0,-60)", f"{day}T16:00Z", "America/New_York") == last_hour


def test_a_repeated_midnight_starts_the_day_once() -> None:
    first, second = "2015-10-25T00:30Z", "2015-10-25T01:30Z"
    assert at("today(0,0)", first, "Atlantic/Azores") == "2015-10-25T00:00Z"
    assert at("today(0,0)", second, "Atlantic/Azores") == "2015-10-25T00:00Z"


def test_a_day_does_not_start_again_when_clocks_go_back_over_midnight() -> None:
    zone = "America/St_Johns"
    assert at("today(0,0)", "2010-11-07T02:30Z", zone) == "2010-11-07T02:30Z"
    assert at("today(0,0)", "2010-11-07T03:00Z", zone) == "2010-11-07T02:30Z"
    assert at("today(0,0)", "2010-11-07T02:29Z", zone) == "2010-11-06T02:30Z"


def test_data_driven_expressions_give_the_nominal_time() -> None:
    assert at("latest(-3)", "2015-02-01T00:00Z") == "2015-02-01T00:00Z"
    future = parse_time_expression("future(1,5)")
    assert (future.data_driven, future.n, future.limit) == (DataDriven.FUTURE, 1, 5)
    assert future.is_data_driven
    assert not parse_time_expression("now(0,0)").is_data_driven


@pytest.mark.parametrize(
    ("text", "position", "suggestion"),
    [
        ("tody(0,0)", 0, ("today",)),
        ("currentWeek(MON,0,0)", 12, ("'MON'",)),
        ("currentWeek('Mon',0,0)", 12, ("'MON'",)),
        ("now(0)", 0, ()),
        ("now(0,'1')", 6, ()),
        ("now(0,1", 7, ()),
        ("now(0,1)) ", 8, ()),
        ("now(0;1)", 5, ()),
        ("", 0, ()),
        ("instanceTime()", 0, ()),
    ],
)
def test_text_that_is_no_time_expression_is_refused_at_its_position(
    text: str, position: int, suggestion: tuple[str, ...]
) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_time_expression(text)
    assert caught.value.position == position
    assert suggestion == caught.value.suggestions[: len(suggestion)]


def test_blanks_signs_and_leading_zeros_are_allowed() -> None:
    assert at(" now ( +01 , -05 ) ", "2015-01-01T00:00Z") == "2015-01-01T00:55Z"


def test_a_result_outside_the_calendar_is_refused() -> None:
    with pytest.raises(InstanceError, match="outside the years"):
        at("currentYear(120000,0,0,0)", "2015-01-01T00:00Z")
    far = parse_time_expression("currentYear(40000000,0,0,0)")
    assert far.bounds(ZoneInfo("UTC")) == (timedelta.min, timedelta.max)
    with pytest.raises(ExpressionError, match="too large"):
        parse_time_expression(f"now({10**12},0)")


@given(text=expressions(), moment=moments, zone=zones, step=st.timedeltas(timedelta(0), timedelta(days=3)))
def test_an_expression_is_monotone(text: str, moment: datetime, zone: ZoneInfo, step: timedelta) -> None:
    expression = parse_time_expression(text)
    assert expression.evaluate(moment, zone) <= expression.evaluate(moment + step, zone)


@given(text=expressions(), target=moments, zone=zones)
def test_the_earliest_time_that_reaches_a_target_is_the_earliest(text: str, target: datetime, zone: ZoneInfo) -> None:
    expression = parse_time_expression(text)
    earliest = expression.earliest_reaching(target, zone)
    assert expression.evaluate(earliest, zone) >= target
    assert expression.evaluate(earliest - timedelta(minutes=1), zone) < target


@given(text=expressions(), moment=moments, zone=zones)
def test_the_bounds_hold(text: str, moment: datetime, zone: ZoneInfo) -> None:
    expression = parse_time_expression(text)
    distance = expression.evaluate(moment, zone) - moment
    least, most = expression.bounds(zone)
    assert least <= distance <= most


@given(moment=moments, zone=zones)
def test_today_is_never_in_the_future_and_tomorrow_never_in_the_past(moment: datetime, zone: ZoneInfo) -> None:
    today, tomorrow = (parse_time_expression(f"{name}(0,0)").evaluate(moment, zone) for name in ("today", "tomorrow"))
    assert today <= moment < tomorrow


@given(moment=moments)
def test_in_utc_the_functions_are_plain_calendar_arithmetic(moment: datetime) -> None:
    zone = ZoneInfo("UTC")

    def value(text: str) -> datetime:
        return parse_time_expression(text).evaluate(moment, zone)

    midnight = moment.replace(hour=0, minute=0)
    assert value("yesterday(0,0)") == midnight - timedelta(days=1)
    assert value("currentMonth(0,0,0)") == midnight.replace(day=1)
    assert value("lastMonth(0,0,0)") == (midnight.replace(day=1) - timedelta(days=1)).replace(day=1)
    assert value("currentYear(0,0,0,0)") == datetime(moment.year, 1, 1, tzinfo=UTC)
    assert value("lastYear(0,0,0,0)") == datetime(moment.year - 1, 1, 1, tzinfo=UTC)
    assert value("currentWeek('SUN',0,0)") == midnight - timedelta(days=moment.isoweekday() % 7)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"now({'9' * 5_000},0)", "it has more than 400 characters"),
        (f"now({'9' * 300},0)", "the number has more than 18 digits"),
        ("a(" * 100 + ")" * 100, "is not a time function"),
        (f"now({'9' * 18},0)", "the numbers are too large"),
    ],
)
def test_a_number_or_text_of_any_size_is_refused_with_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason) as caught:
        parse_time_expression(text)
    assert len(str(caught.value)) < 1_000
