"""Partitions of tables by the keys that hold time, where strings would deceive."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.templates import TableAddress, parse_table_address
from tests.retention.partitioned_tables import expired_before

UTC_ZONE, NEW_YORK = parse_timezone("UTC"), parse_timezone("America/New_York")
BEFORE = datetime(2013, 11, 5, 3, tzinfo=UTC)


def table(partition: str) -> str:
    return f"catalog:web:clicks#{partition}"


def is_expired(address: TableAddress, values: dict[str, str], before: datetime, zone: ZoneInfo) -> bool:
    return expired_before(address, [values], before, zone) == [values]


def test_several_keys_make_one_date_in_whatever_order_they_stand() -> None:
    address = parse_table_address(table("day=${DAY};month=${MONTH};year=${YEAR}"))
    old = {"day": "30", "month": "10", "year": "2013"}
    new = {"day": "05", "month": "11", "year": "2013"}
    last = {"day": "31", "month": "12", "year": "2012"}
    assert [is_expired(address, values, BEFORE, UTC_ZONE) for values in (old, new, last)] == [True, False, True]


def test_days_are_those_of_the_zone() -> None:
    address = parse_table_address(table("ds=${YEAR}${MONTH}${DAY}"))
    assert not is_expired(address, {"ds": "20131104"}, BEFORE, NEW_YORK)
    assert is_expired(address, {"ds": "20131103"}, BEFORE, NEW_YORK)


@pytest.mark.parametrize(
    "value",
    ["20130231", "2013115", "+0131101", "20131101\n", "2013-11-01", "٢0131101", "", "__HIVE_DEFAULT_PARTITION__"],
)
def test_what_is_no_date_never_expires(value: str) -> None:
    address = parse_table_address(table("ds=${YEAR}${MONTH}${DAY}"))
    assert not is_expired(address, {"ds": value}, datetime(2099, 1, 1, tzinfo=UTC), UTC_ZONE)


def test_a_table_without_a_year_expires_nothing() -> None:
    address = parse_table_address(table("month=${MONTH}"))
    assert not is_expired(address, {"month": "01"}, BEFORE, UTC_ZONE)


def test_keys_without_time_say_whose_a_partition_is() -> None:
    address = parse_table_address(table("ds=${YEAR};region=eu"))
    partitions = [{"ds": "2012", "region": region} for region in ("eu", "us", "eu_old", "EU")]
    assert expired_before(address, partitions, BEFORE, UTC_ZONE) == partitions[:1]


def test_special_characters_of_a_value_stay_in_it() -> None:
    address = parse_table_address(table("ds=o'${YEAR}"))
    assert is_expired(address, {"ds": "o'2012"}, BEFORE, UTC_ZONE)
    assert not is_expired(address, {"ds": "o2012"}, BEFORE, UTC_ZONE)


@settings(max_examples=200)
@given(
    order=st.permutations(["year=${YEAR}", "month=${MONTH}", "day=${DAY}"]),
    days=st.integers(-700, 400),
)
def test_days_of_several_keys_expire_as_dates_do(order: list[str], days: int) -> None:
    address = parse_table_address(table(";".join(order)))
    time = BEFORE + timedelta(days=days)
    values = {"year": f"{time.year:04d}", "month": f"{time.month:02d}", "day": f"{time.day:02d}"}
    assert is_expired(address, values, BEFORE, UTC_ZONE) == (time.date() < BEFORE.date())
