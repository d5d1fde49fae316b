"""Rows of Falcon's feature table about time; the vectors are those of Falcon's own tests."""

import getpass
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.expressions import parse_time_expression
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import parse_path_template
from feed_assets.timing.text import TextContext
from tests.timing.functions import evaluate_function

UTC = ZoneInfo("UTC")
FEBRUARY = "2015-02-01T00:00Z"
SEPTEMBER = "2009-09-02T10:00Z"


def evaluated(text: str, nominal_time: str) -> str:
    return render_datetime(parse_time_expression(text).evaluate(parse_datetime(nominal_time), UTC))


def called(text: str, nominal_time: str = FEBRUARY) -> str:
    context = TextContext(nominal_time=parse_datetime(nominal_time), timezone=UTC, user=getpass.getuser())
    return evaluate_function(text, context)


@pytest.mark.parametrize(
    ("expression", "nominal_time", "expected"),
    [
        ("now(-10,-30)", FEBRUARY, "2015-01-31T13:30Z"),
        ("today(-1,0)", FEBRUARY, "2015-01-31T23:00Z"),
        ("yesterday(1,30)", FEBRUARY, "2015-01-31T01:30Z"),
        ("yesterday(0,60)", SEPTEMBER, "2009-09-01T01:00Z"),
    ],
)
def test_row_38_now_today_and_yesterday(expression: str, nominal_time: str, expected: str) -> None:
    assert evaluated(expression, nominal_time) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("currentWeek('THU',0,0)", "2015-01-29T00:00Z"),
        ("currentWeek('SUN',0,0)", "2015-02-01T00:00Z"),
        ("lastWeek('THU',0,0)", "2015-01-22T00:00Z"),
        ("lastWeek('SUN',0,0)", "2015-01-25T00:00Z"),
    ],
)
def test_row_39_weeks_end_on_their_own_weekday(expression: str, expected: str) -> None:
    assert evaluated(expression, FEBRUARY) == expected


@pytest.mark.parametrize(
    ("expression", "nominal_time", "expected"),
    [
        ("currentMonth(2,0,0)", FEBRUARY, "2015-02-03T00:00Z"),
        ("currentMonth(-2,1,30)", FEBRUARY, "2015-01-30T01:30Z"),
        ("lastMonth(3,0,0)", FEBRUARY, "2015-01-04T00:00Z"),
        ("lastMonth(-3,0,0)", FEBRUARY, "2014-12-29T00:00Z"),
        ("currentYear(1,1,0,0)", FEBRUARY, "2015-02-02T00:00Z"),
        ("currentYear(-1,1,0,0)", FEBRUARY, "2014-12-02T00:00Z"),
        ("lastYear(1,1,0,0)", FEBRUARY, "2014-02-02T00:00Z"),
        ("lastYear(-1,1,0,0)", FEBRUARY, "2013-12-02T00:00Z"),
        ("lastYear(1,0,0,0)", SEPTEMBER, "2008-02-01T00:00Z"),
        ("currentYear(0,-1,0,0)", SEPTEMBER, "2008-12-31T00:00Z"),
        ("currentMonth(-1,0,0)", SEPTEMBER, "2009-08-31T00:00Z"),
    ],
)
def test_row_40_months_and_years_roll_over(expression: str, nominal_time: str, expected: str) -> None:
    assert evaluated(expression, nominal_time) == expected


def test_row_45_text_functions() -> None:
    assert called("instanceTime()", SEPTEMBER) == SEPTEMBER
    assert called("formatTime(instanceTime(),'yyyy-MMM-dd')", SEPTEMBER) == "2009-Sep-02"
    assert called("dateOffset(instanceTime(), 1, 'MONTH')") == "2015-03-01T00:00Z"
    assert called("user()") == getpass.getuser()


def test_row_50_the_path_of_an_instance_leads_back_to_it_and_another_to_none() -> None:
    template = parse_path_template("/data/${YEAR}-${MONTH}-${DAY}/${HOUR}")
    for zone in (UTC, parse_timezone("America/New_York")):
        feed = InstanceSequence(
            start=parse_datetime("2015-01-01T05:00Z"), frequency=parse_frequency("hours(6)"), timezone=zone
        )
        for index in (0, 1, 400):
            path = template.in_zone(zone).render(feed.at(index))
            found = template.in_zone(zone).parse(path)
            assert isinstance(found, datetime)
            assert feed.index(found) == index
    for path in ("/data/2015-13-01/00", "/data/2015-02-30/00", "/data/2015-01-01/00_backup", "/data/2015-01-01"):
        assert template.in_zone(UTC).parse(path) is None
