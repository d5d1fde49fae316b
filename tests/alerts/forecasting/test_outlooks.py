"""What is left of a wait, by counting earlier ones: what must hold whatever the numbers are."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.alerts.forecasting.chains import (
    Group,
    InstanceDuration,
    Waits,
    arrival_waits,
    decide_groups,
    process_waits,
)
from feed_assets.alerts.forecasting.outlooks import ENDLESS, FEWEST, MOST, RECENT, Outlook
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.timing.dates import parse_datetime, parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from tests.alerts.forecasting.seasons import (
    HOUR,
    LIMIT,
    Said,
    Season,
    base_brier,
    brier,
    iter_lateness,
    median_warning,
)

MONDAY = datetime(2013, 11, 4, tzinfo=UTC)

lengths = st.one_of(st.integers(0, 10_000).map(float), st.just(ENDLESS))
groups = st.lists(st.lists(lengths, max_size=MOST), min_size=1, max_size=4)
waited = st.integers(-5_000, 12_000).map(float)
limits = st.integers(0, 20_000).map(float)


def outlooks(is_begun: bool = True) -> st.SearchStrategy[Outlook]:
    return st.builds(Outlook.of_wait, groups, waited if is_begun else st.none())


@given(groups, waited)
def test_the_shares_of_an_outlook_are_a_whole(earlier: list[list[float]], since: float) -> None:
    outlook = Outlook.of_wait(earlier, since)
    assert math.isclose(math.fsum(outlook.shares), 1.0)
    assert list(outlook.seconds) == sorted(set(outlook.seconds))
    assert outlook.seconds[0] >= 0
    assert outlook == Outlook.of_wait([list(reversed(each)) for each in earlier], since)


@given(groups, waited, st.integers(0, 5_000).map(float), limits)
def test_the_longer_it_takes_the_more_probable_is_a_miss(
    earlier: list[list[float]], since: float, longer: float, limit: float
) -> None:
    sooner, later = sorted((since, min(since + longer, limit)))
    at_first = Outlook.of_wait(earlier, sooner).share_after(limit - sooner)
    then = Outlook.of_wait(earlier, later).share_after(limit - later)
    assert sooner > limit or then >= at_first - 1e-9


@given(groups, waited, st.integers(0, 5_000).map(float), limits, outlooks(is_begun=False))
def test_that_holds_too_when_another_wait_follows(
    earlier: list[list[float]], since: float, longer: float, limit: float, following: Outlook
) -> None:
    sooner, later = sorted((since, min(since + longer, limit)))
    at_first = Outlook.of_wait(earlier, sooner).share_after_both(following, limit - sooner)
    then = Outlook.of_wait(earlier, later).share_after_both(following, limit - later)
    assert sooner > limit or then >= at_first - 1e-9


@given(groups, limits, limits)
def test_no_number_of_earlier_ones_says_never_or_always(earlier: list[list[float]], since: float, more: float) -> None:
    assert 0 < Outlook.of_wait(earlier, since).share_after(more) < 1


@given(st.lists(lengths, max_size=MOST), limits, limits)
def test_one_group_is_counted_with_one_more_of_which_half_misses(
    earlier: list[float], since: float, more: float
) -> None:
    as_late = [length for length in earlier if length > since]
    missed = [length for length in as_late if length - since > more]
    found = Outlook.of_wait([earlier], since).share_after(more)
    assert math.isclose(found, (len(missed) + 0.5) / (len(as_late) + 1))


@given(outlooks(), outlooks(), limits)
def test_of_two_that_come_for_one_reason_the_later_counts(one: Outlook, other: Outlook, more: float) -> None:
    both = one.or_later(other)
    assert math.isclose(both.share_after(more), max(one.share_after(more), other.share_after(more)), abs_tol=1e-9)
    assert math.isclose(math.fsum(both.shares), 1.0)


@given(outlooks(), outlooks(is_begun=False), limits)
def test_a_sum_is_never_sooner_than_its_parts(one: Outlook, other: Outlook, more: float) -> None:
    both = one.then(other)
    assert math.isclose(math.fsum(both.shares), 1.0)
    assert both.share_after(more) >= max(one.share_after_both(other, more), other.share_after(more)) - 1e-9
    assert both.share_after(more) < 1 or more < both.seconds[0]


def test_half_has_come_in_the_middle() -> None:
    assert Outlook.of_wait([[60.0, 120.0, 180.0]], None).median == 120.0
    assert Outlook.of_wait([[ENDLESS] * 3], 0.0).median == ENDLESS
    assert Outlook.certain(60.0).median == 60.0


def sequence(frequency: str, zone: str = "UTC", start: str = "2013-01-07T00:00Z") -> InstanceSequence:
    return InstanceSequence(
        start=parse_datetime(start), frequency=parse_frequency(frequency), timezone=parse_timezone(zone)
    )


def test_an_hour_is_compared_with_the_last_ones_the_same_hour_and_the_same_hour_of_the_week() -> None:
    nominal = MONDAY + 5 * HOUR
    found = decide_groups(sequence("hours(1)"), nominal, nominal - 2 * HOUR)
    assert list(found) == [Group.ALL, Group.HOUR, Group.WEEKDAY, Group.RECENT]
    assert found[Group.ALL] == tuple(nominal - n * HOUR for n in range(3, MOST + 3))
    assert found[Group.HOUR] == tuple(nominal - n * 24 * HOUR for n in range(1, MOST + 1))
    assert found[Group.WEEKDAY][:2] == (nominal - 168 * HOUR, nominal - 336 * HOUR)
    assert len(found[Group.WEEKDAY]) == 43, "all since the start"
    assert found[Group.RECENT] == found[Group.ALL][:RECENT]


@pytest.mark.parametrize(
    ("frequency", "names"),
    [
        ("days(1)", [Group.ALL, Group.WEEKDAY, Group.RECENT]),
        ("days(7)", [Group.ALL, Group.RECENT]),
        ("months(1)", [Group.ALL, Group.RECENT]),
    ],
)
def test_a_group_that_says_nothing_of_its_own_is_left_out(frequency: str, names: list[Group]) -> None:
    assert list(decide_groups(sequence(frequency), MONDAY, MONDAY)) == names


def test_the_hour_is_that_of_the_wall_also_after_the_clocks_were_changed() -> None:
    zone = "America/New_York"
    days = sequence("hours(1)", zone, "2013-01-07T05:00Z")
    nominal = datetime(2013, 11, 6, 14, tzinfo=UTC)  # 09:00 there, since Sunday 3 November in winter time
    found = decide_groups(days, nominal, nominal)[Group.HOUR]
    assert {time.astimezone(days.timezone).hour for time in found} == {9}
    assert {time.hour for time in found} == {13, 14}


@given(
    st.sampled_from(["minutes(5)", "minutes(45)", "hours(1)", "hours(5)", "days(1)", "days(3)", "months(1)"]),
    st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata"]),
    st.integers(0, 40_000),
    st.integers(0, 100_000),
)
def test_groups_are_of_earlier_instances_and_bounded(frequency: str, zone: str, index: int, minutes: int) -> None:
    grid = sequence(frequency, zone)
    nominal = grid.at(index % 3_000)
    before = nominal - timedelta(minutes=minutes - 200)
    for group, times in decide_groups(grid, nominal, before).items():
        assert len(times) <= MOST
        assert len(set(times)) == len(times)
        assert list(times) == sorted(times, reverse=True)
        assert all(time < before and grid.contains(time) for time in times)
        wall = {time.astimezone(grid.timezone) for time in (*times, nominal)}
        assert group not in (Group.HOUR, Group.WEEKDAY) or len({time.hour for time in wall}) == 1
        assert group is not Group.WEEKDAY or len({time.weekday() for time in wall}) == 1


def test_what_never_came_counts_and_what_was_before_the_first_event_does_not() -> None:
    times = tuple(MONDAY - n * 24 * HOUR for n in range(1, 31))
    arrivals = {time: time + HOUR for time in times[1:]}
    waits = arrival_waits({Group.ALL: times}, times[20], arrivals)
    assert waits.by_group[Group.ALL] == [ENDLESS, *[3600.0] * 20]
    assert waits.count >= FEWEST
    assert arrival_waits({Group.ALL: times}, times[FEWEST - 2], arrivals).count < FEWEST
    assert waits.compare(2 * HOUR, 3 * HOUR) == "1 of the 1 that were as late as this one missed"
    assert waits.compare(-HOUR, 3 * HOUR) == "1 of the 21 earlier ones missed"


def test_a_process_is_counted_by_what_each_of_its_instances_tells() -> None:
    ready, begun, ended = (timedelta(minutes=minutes) for minutes in (10, 15, 45))

    def duration(time: datetime, status: ProcessInstanceStatus, *spans: timedelta | None) -> InstanceDuration:
        return InstanceDuration(status, time, *(None if each is None else time + each for each in spans))

    times = tuple(MONDAY - n * 24 * HOUR for n in range(1, 8))
    durations = {
        times[0]: duration(times[0], ProcessInstanceStatus.SUCCEEDED, ready, begun, ended),
        times[1]: duration(times[1], ProcessInstanceStatus.FAILED, ready, begun, None),
        times[2]: duration(times[2], ProcessInstanceStatus.TIMEDOUT, None, None, None),
        times[3]: duration(times[3], ProcessInstanceStatus.SUCCEEDED, None, begun, ended),
        times[4]: duration(times[4], ProcessInstanceStatus.SKIPPED, None, None, None),
        times[5]: duration(times[5], ProcessInstanceStatus.SUCCEEDED, ready, begun, ended)._replace(created_at=MONDAY),
        times[6]: duration(times[6], ProcessInstanceStatus.READY, ready, None, None),
    }
    found = process_waits({Group.ALL: times}, HOUR, durations)
    assert found.count == 5, "neither the skipped one nor the one that caught up"
    assert found.inputs.by_group[Group.ALL] == [600.0, 600.0, ENDLESS, 600.0]
    assert found.queue.by_group[Group.ALL] == [300.0, 300.0, ENDLESS]
    assert found.work.by_group[Group.ALL] == [1800.0, ENDLESS, 1800.0]


def test_three_seasons_of_lateness_are_forecast_better_than_by_their_base_rate() -> None:
    """Of each day, at four moments before its deadline, from what was known then."""
    limit, moments = LIMIT * HOUR, [n * timedelta(minutes=30) for n in range(4)]
    days = list(iter_lateness(MONDAY, weeks=26, seed=25))
    arrivals = {day.nominal_time: day.nominal_time + day.late for day in days}
    grid = sequence("days(1)", start="2013-11-04T00:00Z")
    said = []
    for day in days:
        for waited in moments:
            as_of = day.nominal_time + waited
            known = {time: at for time, at in arrivals.items() if at <= as_of}
            waits = arrival_waits(decide_groups(grid, day.nominal_time, as_of - limit), MONDAY, known)
            if waits.count >= FEWEST and day.late > waited:
                before = limit - waited
                probability = waits.outlook(waited).share_after(before.total_seconds())
                missed = day.late > limit
                found = Said(
                    season=day.season, day=day.nominal_time, before=before, probability=probability, missed=missed
                )
                said.append(found)
    for season in Season:
        of_season = [each for each in said if each.season is season]
        assert brier(of_season) < base_brier(of_season), season
    assert brier(said) < 0.85 * base_brier(said)
    lead, right, vain = median_warning(said, 0.7)
    assert lead >= timedelta(minutes=30)
    assert right > 2 * vain


def test_the_waits_of_a_group_of_nothing_say_half() -> None:
    assert Waits(by_group={Group.ALL: []}).outlook(HOUR).share_after(60) == 0.5
