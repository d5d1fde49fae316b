import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from feed_assets.timing.dates import NEVER, offset_changes, parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import DateTimeError, TimeZoneError
from tests.timing.strategies import moments


@given(moment=moments)
def test_a_date_survives_the_round_trip(moment: datetime) -> None:
    assert parse_datetime(render_datetime(moment)) == moment


def test_never_survives_the_round_trip() -> None:
    assert parse_datetime(render_datetime(NEVER)) == NEVER


def test_a_time_in_another_zone_is_rendered_in_utc() -> None:
    assert render_datetime(datetime(2015, 1, 1, tzinfo=ZoneInfo("America/New_York"))) == "2015-01-01T05:00Z"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2015-02-29T00:00Z", "day is out of range"),
        ("2015-01-01T24:00Z", "hour must be"),
        ("2015/02/01T00:00Z", "form"),
        ("2015-01-01T00:00", "form"),
        ("9999-12-31T00:00Z", "year"),
    ],
)
def test_a_date_that_does_not_exist_or_has_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(DateTimeError, match=words):
        parse_datetime(text)


def test_dates_are_aware_and_in_utc() -> None:
    assert parse_datetime("2016-02-29T00:00Z") == datetime(2016, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("UTC", "UTC"),
        ("Asia/Kolkata", "Asia/Kolkata"),
        ("PST", "America/Los_Angeles"),
        ("Etc/GMT-8", "Etc/GMT-8"),
        ("GMT+08:00", "Etc/GMT-8"),
        ("GMT-3", "Etc/GMT+3"),
        ("UTC+8", "Etc/GMT-8"),
        ("GMT+00:00", "UTC"),
        ("UTC+05:30", "GMT+05:30"),
    ],
)
def test_zones_are_found_by_their_name_and_by_javas_short_names_and_offsets(name: str, key: str) -> None:
    assert parse_timezone(name).key == key


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("America/NewYork", "America/New_York"),
        ("new york", "America/New_York"),
        ("utc", "UTC"),
        ("America", ""),
        ("localtime", ""),
        ("right/UTC", ""),
        ("../UTC", ""),
        ("", ""),
    ],
)
def test_an_unknown_zone_is_refused_with_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(TimeZoneError) as caught:
        parse_timezone(name)
    assert suggestion == "" or suggestion in caught.value.suggestions
    assert name not in caught.value.suggestions


@pytest.mark.parametrize("name", ["GMT+24:00", "GMT+3:5", "GMT+08:60", "GMT8", "Etc/GMT+25", "gmt+08:00"])
def test_an_offset_in_another_form_gets_no_advice_that_moves_days(name: str) -> None:
    with pytest.raises(TimeZoneError, match="or an offset from GMT-23:59 to GMT") as caught:
        parse_timezone(name)
    assert caught.value.suggestions == ()


@pytest.mark.parametrize(("name", "minutes"), [("GMT-03:50", -230), ("GMT+14:30", 870), ("GMT-23:59", -1439)])
def test_an_offset_without_a_name_in_the_database_holds_at_all_times_and_can_be_pickled(
    name: str, minutes: int
) -> None:
    zone = parse_timezone(name)
    offsets = {datetime(year, 7, 1, tzinfo=UTC).astimezone(zone).utcoffset() for year in (1900, 2026, 2999)}
    assert offsets == {timedelta(minutes=minutes)}
    assert pickle.loads(pickle.dumps(zone)) is zone
    assert offset_changes(zone) == ()
