"""Ranges of consecutive instances."""

from datetime import datetime

from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.timing.dates import parse_datetime, parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency

HOURLY = InstanceSequence(
    start=parse_datetime("2013-11-01T00:00Z"),
    frequency=parse_frequency("hours(1)"),
    timezone=parse_timezone("UTC"),
    end=parse_datetime("2013-11-02T00:00Z"),
)


def joined(*rows: tuple[datetime, InstanceSequence | None, str]) -> list[tuple[str, str]]:
    return [(render_range(first, last), cells) for first, last, cells in join_consecutive(rows)]


def test_equal_rows_of_consecutive_instances_are_joined_also_where_others_lie_between() -> None:
    rows = [(HOURLY.at(index), HOURLY, cluster) for index in range(3) for cluster in ("east", "west")]
    span = "2013-11-01T00:00Z to 2013-11-01T02:00Z"
    assert joined(*rows) == [(span, "east"), (span, "west")]


def test_a_gap_begins_a_new_row() -> None:
    assert joined(*[(HOURLY.at(index), HOURLY, "") for index in (0, 2)]) == [
        ("2013-11-01T00:00Z", ""),
        ("2013-11-01T02:00Z", ""),
    ]


def test_times_that_are_no_instances_are_not_joined() -> None:
    half = parse_datetime("2013-11-01T01:30Z")
    assert len(joined((HOURLY.at(0), HOURLY, ""), (half, HOURLY, ""))) == 2
    assert len(joined((HOURLY.at(23), HOURLY, ""), (HOURLY.at(24), HOURLY, ""))) == 2
    assert len(joined((HOURLY.at(0), None, ""), (HOURLY.at(1), None, ""))) == 2
