from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from feed_assets.timing.dates import is_fixed, is_regular, is_utc, offset_changes, offset_spread

SINCE = datetime(2010, 1, 1, tzinfo=UTC)


def test_the_changes_of_a_year_are_found_to_the_second() -> None:
    changes = [change for change in offset_changes(ZoneInfo("America/New_York")) if change.at.year == 2013]
    assert [(change.at.isoformat(), change.after - change.before) for change in changes] == [
        ("2013-03-10T07:00:00+00:00", timedelta(hours=1)),
        ("2013-11-03T06:00:00+00:00", timedelta(hours=-1)),
    ]


def test_utc_never_changes() -> None:
    assert offset_changes(ZoneInfo("UTC")) == ()
    assert is_fixed(ZoneInfo("Etc/GMT+5"))
    assert not is_utc(ZoneInfo("Etc/GMT+5"))
    assert is_utc(ZoneInfo("Etc/UTC"))


@pytest.mark.parametrize(
    ("zone", "spread"),
    [
        ("UTC", timedelta(0)),
        ("Asia/Kolkata", timedelta(0)),
        ("America/New_York", timedelta(hours=1)),
        ("Australia/Lord_Howe", timedelta(minutes=30)),
        ("Pacific/Apia", timedelta(hours=25)),
    ],
)
def test_the_spread_is_that_of_the_offsets_in_force_since(zone: str, spread: timedelta) -> None:
    assert offset_spread(ZoneInfo(zone), SINCE) == spread


@pytest.mark.parametrize(
    ("zone", "hours", "regular"),
    [
        ("America/New_York", 0.0, True),
        ("America/New_York", 1.5, False),
        ("America/New_York", 2.5, False),
        ("America/New_York", 3.0, True),
        ("Atlantic/Azores", 0.0, False),
        ("America/Sao_Paulo", 0.0, False),
        ("Pacific/Apia", 12.0, False),
        ("UTC", 2.5, True),
    ],
)
def test_a_time_of_day_is_regular_unless_a_change_skips_or_repeats_it(zone: str, hours: float, regular: bool) -> None:
    assert is_regular(ZoneInfo(zone), timedelta(hours=hours), SINCE) is regular
