from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.timing.dates import NEVER, parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import DateTimeError, InstanceError
from feed_assets.timing.sequence import InstanceSequence, parse_frequency, parse_instance
from tests.timing.strategies import moments, sequences


def sequence(start: str, frequency: str, zone: str = "UTC", end: str | None = None) -> InstanceSequence:
    return InstanceSequence(
        start=parse_datetime(start),
        frequency=parse_frequency(frequency),
        timezone=parse_timezone(zone),
        end=None if end is None else parse_datetime(end),
    )


def rendered(seq: InstanceSequence, *numbers: int) -> list[str]:
    return [render_datetime(seq.at(n)) for n in numbers]


def test_months_from_the_31st_clip_and_come_back() -> None:
    monthly = sequence("2015-01-31T00:00Z", "months(1)")
    assert rendered(monthly, 0, 1, 2, 13, -2) == [
        "2015-01-31T00:00Z",
        "2015-02-28T00:00Z",
        "2015-03-31T00:00Z",
        "2016-02-29T00:00Z",
        "2014-11-30T00:00Z",
    ]


def test_a_daily_feed_in_a_zone_moves_in_utc_twice_a_year() -> None:
    daily = sequence("2015-01-01T08:00Z", "days(1)", "America/Los_Angeles")
    assert daily.contains(parse_datetime("2015-07-01T07:00Z"))
    assert not daily.contains(parse_datetime("2015-07-01T08:00Z"))
    assert daily.contains(parse_datetime("2015-12-01T08:00Z"))


def test_hours_24_is_elapsed_time_and_stays_in_utc() -> None:
    elapsed = sequence("2015-01-01T08:00Z", "hours(24)", "America/Los_Angeles")
    assert elapsed.contains(parse_datetime("2015-07-01T08:00Z"))


@pytest.mark.parametrize(
    ("start", "gap", "fold"),
    [
        pytest.param("2015-01-01T10:30Z", "2015-03-08T09:30Z", None, id="02:30 in winter time"),
        pytest.param("2014-07-01T09:30Z", "2015-03-08T10:30Z", None, id="02:30 in summer time"),
        pytest.param("2015-01-01T09:30Z", None, "2015-11-01T09:30Z", id="01:30 in winter time"),
        pytest.param("2015-07-01T08:30Z", None, "2015-11-01T08:30Z", id="01:30 in summer time"),
    ],
)
def test_a_daily_time_in_a_gap_or_a_repeated_hour_is_where_java_puts_it(
    start: str, gap: str | None, fold: str | None
) -> None:
    daily = sequence(start, "days(1)", "America/Los_Angeles")
    for expected in filter(None, (gap, fold)):
        day = parse_datetime(expected)
        assert [render_datetime(t) for t in daily.between(day - timedelta(hours=6), day + timedelta(hours=6))] == [
            expected
        ]


def test_a_midnight_that_does_not_exist_stays_on_its_day() -> None:
    daily = sequence("2018-10-01T03:00Z", "days(1)", "America/Sao_Paulo")
    zone = ZoneInfo("America/Sao_Paulo")
    local = [daily.at(n).astimezone(zone) for n in range(60)]
    assert {moment.hour for moment in local if moment.day == 4 and moment.month == 11} == {1}
    assert [moment.date() for moment in local] == sorted({moment.date() for moment in local})


@pytest.mark.parametrize("start", ["2011-12-27T10:00Z", "2011-12-27T18:30Z", "2012-01-03T10:00Z"])
def test_a_day_that_a_zone_leapt_has_no_instance(start: str) -> None:
    apia = sequence(start, "days(1)", "Pacific/Apia")
    times = {n: apia.at(n) for n in range(-7, 8)}
    days = [time.astimezone(apia.timezone).date() for time in times.values()]
    assert (days[-1] - days[0], date(2011, 12, 30) in days) == (timedelta(days=15), False)
    for n, time in times.items():
        assert apia.index_at_or_before(time) == apia.index_at_or_after(time) == n
        assert apia.index_at_or_before(time - timedelta(minutes=1)) == n - 1
    with pytest.raises(DateTimeError, match="the clocks of Pacific/Apia leapt over it"):
        parse_instance("2011-12-30", apia.timezone)
    with pytest.raises(DateTimeError, match="the clocks of America/Los_Angeles leapt over it"):
        parse_instance("2015-03-08-02:30", ZoneInfo("America/Los_Angeles"))
    assert parse_instance("2018-11-04", ZoneInfo("America/Sao_Paulo")) == parse_datetime("2018-11-04T03:00Z")
    assert parse_instance("2011-12-31", apia.timezone) == parse_datetime("2011-12-30T10:00Z")


def test_a_monthly_time_in_a_gap_moves_forward_and_a_repeated_one_is_the_second() -> None:
    assert rendered(sequence("2015-02-08T10:30Z", "months(1)", "America/Los_Angeles"), 1) == ["2015-03-08T10:30Z"]
    assert rendered(sequence("2015-10-01T08:30Z", "months(1)", "America/Los_Angeles"), 1) == ["2015-11-01T09:30Z"]


def test_no_instance_exists_at_the_end() -> None:
    hourly = sequence("2015-01-01T00:00Z", "hours(1)", end="2015-01-01T03:00Z")
    assert hourly.size == 3
    assert not hourly.contains(parse_datetime("2015-01-01T03:00Z"))
    assert hourly.ceil(parse_datetime("2015-01-01T03:00Z")) is None


def test_nothing_is_at_or_before_a_moment_before_the_start() -> None:
    hourly = sequence("2015-01-01T00:00Z", "hours(1)")
    before = parse_datetime("2014-12-31T23:59Z")
    assert hourly.index_at_or_before(before) == -1
    assert hourly.ceil(before) == hourly.start


def test_an_endless_sequence_has_no_size_and_reaches_any_year() -> None:
    yearly = sequence("1999-12-31T23:00Z", "months(12)", "Europe/Paris")
    assert yearly.size is None
    assert yearly.index_at_or_before(NEVER) == 7999


def test_a_validity_that_ends_before_it_starts_has_no_instances() -> None:
    empty = sequence("2015-01-02T00:00Z", "days(1)", end="2015-01-01T00:00Z")
    assert empty.size == 0
    assert empty.ceil(parse_datetime("2015-01-01T00:00Z")) is None
    assert list(empty.between(parse_datetime("2014-01-01T00:00Z"), parse_datetime("2016-01-01T00:00Z"))) == []


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("2014-12-31T23:00Z", "outside the validity"),
        ("2015-01-01T03:00Z", "outside the validity"),
        ("2015-01-01T01:30Z", "between two instances, the earlier is 2015-01-01T01:00Z"),
    ],
)
def test_the_number_of_a_time_that_is_no_instance_is_refused_with_the_reason(moment: str, words: str) -> None:
    hourly = sequence("2015-01-01T00:00Z", "hours(1)", end="2015-01-01T03:00Z")
    with pytest.raises(InstanceError, match=words):
        hourly.index(parse_datetime(moment))


def test_an_instance_outside_the_calendar_is_refused() -> None:
    with pytest.raises(InstanceError, match="outside the years"):
        sequence("2015-01-01T00:00Z", "months(12)").at(9000)


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InstanceError, match="no time zone"):
        InstanceSequence(
            start=datetime(2015, 1, 1),  # noqa: DTZ001
            frequency=parse_frequency("days(1)"),
            timezone=ZoneInfo("UTC"),
        )


def test_a_start_in_another_zone_is_the_same_instant_in_utc() -> None:
    zone = ZoneInfo("America/New_York")
    hourly = InstanceSequence(
        start=datetime(2015, 1, 1, tzinfo=zone), frequency=parse_frequency("hours(1)"), timezone=zone
    )
    assert hourly.start == datetime(2015, 1, 1, 5, tzinfo=UTC)
    assert hourly.start.tzinfo is UTC
    assert hourly == sequence("2015-01-01T05:00Z", "hours(1)", "America/New_York")
    assert len({hourly, sequence("2015-01-01T05:00Z", "hours(1)", "America/New_York")}) == 1


@given(seq=sequences(), moment=moments)
def test_the_number_at_or_before_is_the_greatest_that_is_not_later(seq: InstanceSequence, moment: datetime) -> None:
    n = seq.index_at_or_before(moment)
    assert seq.at(n) <= moment < seq.at(n + 1)


@given(seq=sequences(), moment=moments)
def test_the_number_at_or_after_is_the_smallest_that_is_not_earlier(seq: InstanceSequence, moment: datetime) -> None:
    n = seq.index_at_or_after(moment)
    assert seq.at(n - 1) < moment <= seq.at(n)


@given(seq=sequences(), n=st.integers(min_value=-500, max_value=500))
def test_each_instance_has_its_own_number(seq: InstanceSequence, n: int) -> None:
    moment = seq.at(n)
    last_of_twins = n + 1 if seq.at(n + 1) == moment else n
    assert seq.index_at_or_before(moment) == last_of_twins
    assert seq.contains(moment) is (last_of_twins >= 0 and (seq.size is None or last_of_twins < seq.size))


@given(seq=sequences(), moment=moments)
def test_the_instance_after_a_moment_agrees_with_contains(seq: InstanceSequence, moment: datetime) -> None:
    ceil = seq.ceil(moment)
    assert ceil is None or (seq.contains(ceil) and ceil >= moment)
    assert (ceil == moment) is seq.contains(moment)


@given(seq=sequences(), start=moments, days=st.integers(min_value=-5, max_value=60))
def test_the_instances_between_two_moments_are_those_that_a_scan_finds(
    seq: InstanceSequence, start: datetime, days: int
) -> None:
    stop = start + timedelta(days=days)
    scan = range(max(0, seq.index_at_or_before(start)), max(0, seq.index_at_or_before(stop)) + 2)
    expected = [n for n in scan if start <= seq.at(n) < stop and (seq.size is None or n < seq.size)]
    assert list(seq.indices_between(start, stop)) == expected


@given(seq=sequences())
def test_the_size_counts_the_instances_before_the_end(seq: InstanceSequence) -> None:
    if seq.size is None:
        assert seq.end is None
        return
    assert seq.end is not None
    assert seq.size == 0 or seq.at(seq.size - 1) < seq.end
    assert seq.at(seq.size) >= seq.end
