from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from feed_assets.timing.errors import DateTimeError, ExpressionError, UnknownNameError
from feed_assets.timing.text import TextContext, format_date, render_text

CONTEXT = TextContext(
    nominal_time=datetime(2009, 9, 2, 2, 5, tzinfo=UTC),
    timezone=ZoneInfo("America/Los_Angeles"),
    user="ann",
    cluster={"name": "primary", "colo": "nyc", "tier": "hot"},
    properties={"queue": "default", "my-flag": "x"},
    inputs={"clicks": ("/c/2", "/c/1")},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no variable at all: $5, {x}", "no variable at all: $5, {x}"),
        ("${cluster.name}.${cluster.colo}.${cluster.tier}", "primary.nyc.hot"),
        ("${YEAR}-${MONTH}-${DAY}T${HOUR}:${MINUTE}", "2009-09-01T19:05"),
        ("${queue}/${ my-flag }", "default/x"),
        ("${user()}", "ann"),
        ("${instanceTime()}", "2009-09-02T02:05Z"),
        ("${dateOffset(instanceTime(), -1, 'MONTH')}", "2009-08-02T02:05Z"),
        ("${dateOffset('2015-01-31T00:00Z', 1, 'MONTH')}", "2015-02-28T00:00Z"),
        ("${formatTime(dateOffset(instanceTime(), 1, 'DAY'), \"yyyyMMdd\")}", "20090903"),
        ("${formatTime(instanceTime(), '{yyyy}')}", "{2009}"),
        ("${today(0,0)}", "2009-09-01T07:00Z"),
        ("${currentWeek('MON',0,0)}", "2009-08-31T07:00Z"),
        ("${minutes(2)} ${hours(1)} ${days(1)}", "120000 3600000 86400000"),
        ("${months(1)} ${years(1)}", "2678400000 31622400000"),
        ("${dataIn('clicks', '*/US')}", "/c/2/*/US,/c/1/*/US"),
        ("${dataIn('clicks', '')}|${dataIn('clicks', 'null')}", "/c/2,/c/1|/c/2,/c/1"),
        ("${formatTime(dateTzOffset(instanceTime(), 'PST'), 'HH')}", "19"),
    ],
)
def test_text_is_rendered_from_the_context(text: str, expected: str) -> None:
    assert render_text(text, CONTEXT) == expected


def test_what_is_put_in_is_not_looked_at_again() -> None:
    context = TextContext(nominal_time=CONTEXT.nominal_time, timezone=CONTEXT.timezone, properties={"a": "${b}"})
    assert render_text("${a}", context) == "${b}"


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("x ${quee}", 4, "Did you mean queue"),
        ("x ${cluster.color}", 4, "Did you mean cluster.colo"),
        ("x ${formatDate('x','y')}", 4, "Did you mean formatTime"),
        ("x ${dataIn('click','')}", 11, "not a known input .*Did you mean clicks"),
    ],
)
def test_an_unknown_name_is_refused_naming_the_known_ones(text: str, position: int, words: str) -> None:
    with pytest.raises(UnknownNameError, match=words) as caught:
        render_text(text, CONTEXT)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a ${user(", 2),
        ("${YEAR} ${", 8),
        ("${user('x')}", 2),
        ("${minutes('1')}", 10),
        ("${dateOffset('2015-02-30T00:00Z', 1, 'DAY')}", 2),
        ("${dateOffset('2015-02-01T00:00Z', 1, 'WEEK')}", 2),
        ("${dateOffset('2015-02-01T00:00Z', 99999, 'YEAR')}", 2),
        ("${dateTzOffset('2015-02-01T00:00Z', 'Mars')}", 2),
        ("${formatTime(instanceTime(), 'ww')}", 2),
        ("${user() x}", 9),
        ("${today(0)}", 2),
    ],
)
def test_what_cannot_be_evaluated_is_refused_at_its_position(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        render_text(text, CONTEXT)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy-MM-dd'T'HH:mm'Z'", "2009-09-02T14:05Z"),
        ("yy M d H:m:s.SSS", "09 9 2 14:5:7.120"),
        ("EEE, EEEE MMM MMMM", "Wed, Wednesday Sep September"),
        ("hh a K k u D DDD G", "02 PM 2 14 3 245 245 AD"),
        ("z Z X XXX", "UTC +0000 Z Z"),
        ("'o''clock' ''", "o'clock '"),
        ("100%d", "100%2"),
    ],
)
def test_a_date_pattern_means_what_it_means_in_java(pattern: str, expected: str) -> None:
    assert format_date(datetime(2009, 9, 2, 14, 5, 7, 120_000, tzinfo=UTC), pattern) == expected


def test_offsets_of_other_zones_are_written_in_the_three_forms() -> None:
    moment = datetime(2009, 9, 2, 14, 5, tzinfo=ZoneInfo("America/New_York"))
    assert format_date(moment, "z Z X XX XXX") == "EDT -0400 -04 -0400 -04:00"


@pytest.mark.parametrize("pattern", ["YYYY", "ww", "'open", "yyyy-b"])
def test_letters_that_depend_on_a_locale_or_mean_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(DateTimeError):
        format_date(datetime(2009, 9, 2, tzinfo=UTC), pattern)
