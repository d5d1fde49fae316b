from datetime import timedelta

import pytest

from feed_assets.timing.errors import FrequencyError
from feed_assets.timing.sequence import Frequency, Unit, parse_frequency


@pytest.mark.parametrize("text", ["minutes(1)", "hours(24)", "days(90)", "months(9000)"])
def test_a_frequency_renders_as_it_was_written(text: str) -> None:
    assert parse_frequency(text).render() == text
    assert str(parse_frequency(f"  {text}\n")) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hours(0)", "leading zeros"),
        ("hours(-1)", "whole number"),
        ("hours(02)", "leading zeros"),
        ("hours( 2 )", "whole number"),
        ("weeks(1)", "'weeks' is not a unit"),
        ("Hours(1)", "'Hours' is not a unit"),
        ("hours", "unit\\(count\\)"),
        ("hours(١)", "whole number"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(FrequencyError, match=words):
        parse_frequency(text)


def test_only_days_and_months_follow_the_calendar() -> None:
    assert {unit for unit in Unit if Frequency(unit=unit, count=1).is_calendar} == {Unit.DAYS, Unit.MONTHS}


def test_equality_is_textual_and_length_is_compared_by_duration() -> None:
    hours, days = parse_frequency("hours(24)"), parse_frequency("days(1)")
    assert hours != days
    assert hours.as_duration() == days.as_duration() == timedelta(days=1)
    assert len({hours, days, parse_frequency("days(1)")}) == 2


def test_a_count_below_one_or_beyond_any_calendar_is_refused() -> None:
    with pytest.raises(FrequencyError, match="below 1"):
        Frequency(unit=Unit.HOURS, count=0)
    with pytest.raises(FrequencyError, match="longer than any calendar"):
        Frequency(unit=Unit.MONTHS, count=10**12).as_duration()
