"""Partitions of tables by the keys that hold time, where strings would deceive."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.lifecycle.retention.partitions import find_partition_time, is_expired, is_of_feed, render_filter
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.tables import parse_table_address

UTC_ZONE, NEW_YORK = parse_timezone("UTC"), parse_timezone("America/New_York")
BEFORE = datetime(2013, 11, 5, 3, tzinfo=UTC)


def table(partition: str) -> str:
    return f"catalog:web:clicks#{partition}"


def test_several_keys_make_one_date_in_whatever_order_they_stand() -> None:
    address = parse_table_address(table("day=${DAY};month=${MONTH};year=${YEAR}"))
    old = {"day": "30", "month": "10", "year": "2013"}
    new = {"day": "05", "month": "11", "year": "2013"}
    last = {"day": "31", "month": "12", "year": "2012"}
    assert [is_expired(address, values, BEFORE, UTC_ZONE) for values in (old, new, last)] == [True, False, True]
    assert render_filter(address, BEFORE, UTC_ZONE) == (
        "(year < '2013') or (year = '2013' and month < '11') or (year = '2013' and month = '11' and day < '05')"
    )


@pytest.mark.parametrize(
    "partition",
    ["ds=${DAY}-${MONTH}-${YEAR}", "ym=${MONTH}${YEAR};day=${DAY}", "day=${MONTH}${DAY}", "ds=${YEAR}-${DAY}"],
)
def test_where_strings_do_not_tell_the_order_there_is_no_filter(partition: str) -> None:
    assert render_filter(parse_table_address(table(partition)), BEFORE, UTC_ZONE) is None


def test_days_are_those_of_the_zone() -> None:
    address = parse_table_address(table("ds=${YEAR}${MONTH}${DAY}"))
    assert render_filter(address, BEFORE, NEW_YORK) == "(ds < '20131104')"
    assert not is_expired(address, {"ds": "20131104"}, BEFORE, NEW_YORK)
    assert is_expired(address, {"ds": "20131103"}, BEFORE, NEW_YORK)


@pytest.mark.parametrize(
    "value",
    ["20130231", "2013115", "+0131101", "20131101\n", "2013-11-01", "٢0131101", "", "__HIVE_DEFAULT_PARTITION__"],
)
def test_what_is_no_date_never_expires(value: str) -> None:
    address = parse_table_address(table("ds=${YEAR}${MONTH}${DAY}"))
    assert find_partition_time(address, {"ds": value}, UTC_ZONE) is None
    assert not is_expired(address, {"ds": value}, datetime(2099, 1, 1, tzinfo=UTC), UTC_ZONE)
    assert not is_expired(address, {"other": value}, datetime(2099, 1, 1, tzinfo=UTC), UTC_ZONE)


def test_a_table_without_a_year_expires_nothing() -> None:
    address = parse_table_address(table("month=${MONTH}"))
    assert not is_expired(address, {"month": "01"}, BEFORE, UTC_ZONE)


def test_keys_without_time_say_whose_a_partition_is() -> None:
    address = parse_table_address(table("ds=${YEAR};region=eu"))
    assert is_of_feed(address, {"ds": "2013", "region": "eu"})
    assert not is_of_feed(address, {"ds": "2013", "region": "us"})
    assert not is_of_feed(address, {"ds": "2013"})
    assert is_expired(address, {"ds": "2012", "region": "us"}, BEFORE, UTC_ZONE)


def test_a_quote_in_a_value_stays_in_it() -> None:
    address = parse_table_address(table("ds=o'${YEAR}\\"))
    assert render_filter(address, BEFORE, UTC_ZONE) == "(ds < 'o\\'2013\\\\')"


@settings(max_examples=200)
@given(
    order=st.permutations(["year=${YEAR}", "month=${MONTH}", "day=${DAY}"]),
    days=st.integers(-700, 400),
)
def test_a_filter_and_the_exact_look_agree(order: list[str], days: int) -> None:
    address = parse_table_address(table(";".join(order)))
    time = BEFORE + timedelta(days=days)
    values = {"year": f"{time.year:04d}", "month": f"{time.month:02d}", "day": f"{time.day:02d}"}
    assert is_expired(address, values, BEFORE, UTC_ZONE) == (time.date() < BEFORE.date())
    key = (values["year"], values["month"], values["day"])
    assert (key < ("2013", "11", "05")) == (time.date() < BEFORE.date())
