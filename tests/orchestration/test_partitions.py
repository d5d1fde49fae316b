"""Grids: the partitions that Dagster counts are the instances that we count, key by key."""

from datetime import UTC, datetime

import pytest
from dagster import DynamicPartitionsDefinition, TimeWindowPartitionsDefinition
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.orchestration.errors import PartitionKeyError
from feed_assets.orchestration.graph.partitions import Grid, exact_cron, grid
from feed_assets.timing.dates import parse_datetime, parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency

NEW_YORK = "America/New_York"


def sequence(frequency: str, start: str, zone: str = "UTC", end: str | None = None) -> InstanceSequence:
    return InstanceSequence(
        start=parse_datetime(start),
        frequency=parse_frequency(frequency),
        timezone=parse_timezone(zone),
        end=parse_datetime(end) if end else None,
    )


@pytest.mark.parametrize(
    ("frequency", "start", "zone", "cron"),
    [
        ("minutes(15)", "2013-01-01T00:00Z", "UTC", "*/15 * * * *"),
        ("minutes(20)", "2013-01-01T00:07Z", "UTC", "7,27,47 * * * *"),
        ("minutes(120)", "2013-01-01T01:00Z", "UTC", "0 1,3,5,7,9,11,13,15,17,19,21,23 * * *"),
        ("hours(1)", "2013-01-01T00:17Z", NEW_YORK, "17 * * * *"),
        ("hours(6)", "2013-01-01T01:17Z", "UTC", "17 1,7,13,19 * * *"),
        ("hours(24)", "2013-01-01T05:00Z", NEW_YORK, "0 5 * * *"),
        ("days(1)", "2013-01-01T05:00Z", NEW_YORK, "0 0 * * *"),
        ("days(7)", "2013-11-03T04:00Z", NEW_YORK, "0 0 * * 0"),
        ("months(1)", "2013-01-01T05:00Z", NEW_YORK, "0 0 1 * *"),
        ("months(3)", "2013-02-28T00:00Z", "UTC", "0 0 28 2,5,8,11 *"),
        ("months(1)", "2013-01-31T16:00Z", "GMT+08:00", "0 0 1 * *"),
        ("hours(1)", "2013-01-01T00:00Z", "GMT-03:50", "0 * * * *"),
    ],
)
def test_a_grid_that_cron_says_exactly_is_cron(frequency: str, start: str, zone: str, cron: str) -> None:
    assert exact_cron(sequence(frequency, start, zone)) == cron


@pytest.mark.parametrize(
    ("frequency", "start", "zone"),
    [
        ("minutes(1)", "2013-01-01T00:00Z", "UTC"),
        ("minutes(45)", "2013-01-01T00:00Z", "UTC"),
        ("hours(5)", "2013-01-01T01:17Z", "UTC"),
        ("days(2)", "2013-01-01T00:00Z", "UTC"),
        ("months(5)", "2013-01-01T00:00Z", "UTC"),
        ("months(1)", "2013-01-31T00:00Z", "UTC"),
        ("days(1)", "2013-01-01T07:30Z", NEW_YORK),
        ("days(1)", "2013-01-01T03:50Z", "GMT-03:50"),
    ],
)
def test_every_other_grid_is_dynamic(frequency: str, start: str, zone: str) -> None:
    made = grid(sequence(frequency, start, zone))
    assert made.is_dynamic
    assert isinstance(made.definition(), DynamicPartitionsDefinition)


FREQUENCIES = [
    "minutes(5)",
    "minutes(30)",
    "hours(1)",
    "hours(4)",
    "hours(12)",
    "days(1)",
    "days(7)",
    "months(1)",
    "months(6)",
]


@settings(max_examples=60, deadline=None)
@given(
    frequency=st.sampled_from(FREQUENCIES),
    zone=st.sampled_from(
        ["UTC", NEW_YORK, "Europe/Berlin", "Asia/Kolkata", "America/Havana", "GMT+08:00", "GMT-03:50"]
    ),
    day=st.integers(0, 700),
    minute=st.integers(0, 24 * 60 - 1),
    count=st.integers(1, 400),
)
def test_dagster_counts_the_same_instances(frequency: str, zone: str, day: int, minute: int, count: int) -> None:
    start = datetime(2013, 1, 1, tzinfo=UTC).timestamp() + day * 86400 + minute * 60
    open_end = InstanceSequence(
        start=datetime.fromtimestamp(start, UTC), frequency=parse_frequency(frequency), timezone=parse_timezone(zone)
    )
    bounded = InstanceSequence(
        start=open_end.start, frequency=open_end.frequency, timezone=open_end.timezone, end=open_end.at(count)
    )
    made = grid(bounded)
    if made.is_dynamic:
        return
    definition = made.definition()
    assert isinstance(definition, TimeWindowPartitionsDefinition)
    keys = [made.key(bounded.at(index)) for index in range(count)]
    assert definition.get_partition_keys(current_time=bounded.end) == keys
    assert [made.nominal_time(key) for key in keys] == [bounded.at(index) for index in range(count)]


def test_the_running_instance_exists_from_its_nominal_time_on() -> None:
    definition = grid(sequence("days(1)", "2024-01-01T00:00Z")).definition()
    at = datetime(2024, 1, 3, 0, 0, 1, tzinfo=UTC)
    assert definition.get_partition_keys(current_time=at) == ["2024-01-01", "2024-01-02", "2024-01-03"]


def test_equal_grids_share_one_definition() -> None:
    first = grid(sequence("hours(1)", "2013-01-01T00:00Z")).definition()
    assert grid(sequence("hours(1)", "2013-01-01T00:00Z")).definition() is first


@pytest.mark.parametrize(
    ("key", "reason"),
    [("2013-11-32", "keys have the form 2013-11-01"), ("2013-12-01", "the validity has no such instance")],
)
def test_a_key_that_is_no_instance_is_refused(key: str, reason: str) -> None:
    made: Grid = grid(sequence("days(1)", "2013-11-01T04:00Z", NEW_YORK, "2013-12-01T05:00Z"))
    with pytest.raises(PartitionKeyError) as caught:
        made.nominal_time(key)
    assert str(caught.value) == (
        f"partition '{key}' is not an instance of days(1) from 2013-11-01T04:00Z: {reason}. "
        "Choose a partition from the asset's page."
    )


def test_an_unaligned_end_keeps_the_last_instance() -> None:
    made = grid(sequence("hours(1)", "2013-11-01T00:00Z", end="2013-11-01T06:30Z"))
    assert made.definition().get_partition_keys()[-1] == "2013-11-01-06:00"


def test_months_from_the_31st_keep_their_keys() -> None:
    made = grid(sequence("months(1)", "2013-01-31T00:00Z", end="2013-06-01T00:00Z"))
    keys = [made.key(made.sequence.at(index)) for index in range(4)]
    assert keys == ["2013-01-31", "2013-02-28", "2013-03-31", "2013-04-30"]
    assert [made.nominal_time(key) for key in keys] == [made.sequence.at(index) for index in range(4)]
