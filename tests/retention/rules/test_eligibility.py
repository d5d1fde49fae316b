"""Which instances go by age, number and size, and which stay whatever these say."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.entities.common import LocationKind
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import RetainedLocation, RetentionRecord
from feed_assets.retention.rules.eligibility import (
    Candidates,
    Eligible,
    Rule,
    Weight,
    collect_candidates,
    cutoff,
    decide_cuts,
    decide_eligible,
    find_before,
    needs_all,
)
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import parse_path_template

START = datetime(2013, 11, 1, tzinfo=UTC)
NOW = datetime(2013, 11, 11, 12, 30, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def policy(limit: str | None = None, **fields: Any) -> RetentionRecord:
    return RetentionRecord(
        limit=parse_frequency(limit) if limit else None,
        cadence=parse_frequency("hours(6)"),
        trash=parse_frequency("days(7)"),
        **fields,
    )


class Found(NamedTuple):
    kind: LocationKind
    path: str
    nominal_time: datetime
    bytes: int | None = None


def daily(count: int, kind: LocationKind = LocationKind.DATA, sizes: Sequence[int | None] = ()) -> list[Found]:
    """The first days of November 2013, newest first."""
    found = []
    for day in reversed(range(count)):
        size = sizes[day] if sizes else None
        found.append(Found(kind, f"{kind}/{day + 1:02d}", START + day * DAY, size))
    return found


def weigh(data: Sequence[Found]) -> list[Weight]:
    return [(each.nominal_time, each.bytes) for each in data]


def decide_all(
    of: RetentionRecord, found: Mapping[LocationKind, Sequence[Found]], present: Sequence[datetime], as_of: datetime
) -> list[Eligible]:
    columns = {
        kind: Candidates([each.path for each in all_of], [each.nominal_time for each in all_of])
        for kind, all_of in found.items()
    }
    return decide_eligible(of, columns, present, as_of, weigh(found.get(LocationKind.DATA, ())))


def days(eligible: Sequence[Eligible]) -> dict[int, Rule]:
    return {time.day: each.cut.rule for each in eligible for time in each.candidates.times}


def decide(of: RetentionRecord, data: Sequence[Found], as_of: datetime = NOW) -> dict[int, Rule]:
    return days(decide_all(of, {LocationKind.DATA: data}, [each.nominal_time for each in data], as_of))


def test_row_51_an_instance_goes_once_it_is_older_than_the_limit_and_not_before() -> None:
    data = daily(10)
    assert decide(policy("days(4)"), data, START + 6 * DAY) == {1: Rule.AGE, 2: Rule.AGE}
    assert decide(policy("days(4)"), data, START + 6 * DAY + timedelta(seconds=1)) == dict.fromkeys([1, 2, 3], Rule.AGE)
    assert decide(policy("hours(240)"), data, START) == {}


@pytest.mark.parametrize(
    ("limit", "before"),
    [("minutes(90)", NOW - 90 * timedelta(minutes=1)), ("months(2)", NOW - 62 * DAY), ("days(10)", NOW - 10 * DAY)],
)
def test_the_cutoff_is_the_limit_before_the_present(limit: str, before: datetime) -> None:
    assert cutoff(parse_frequency(limit), NOW) == before


def test_a_limit_beyond_the_calendar_keeps_everything() -> None:
    assert cutoff(parse_frequency("months(90000)"), NOW) == datetime.min.replace(tzinfo=UTC)


def test_of_a_number_the_newest_stay() -> None:
    assert decide(policy(max_instances=3), daily(5)) == {1: Rule.COUNT, 2: Rule.COUNT}
    assert decide(policy(max_instances=5), daily(5)) == {}
    assert decide(policy(max_instances=6), daily(5)) == {}


def test_what_is_not_there_is_not_counted() -> None:
    data = daily(5)
    there = [START, START + DAY, START + 3 * DAY]
    found = decide_all(policy(max_instances=2), {LocationKind.DATA: data}, there, NOW)
    assert days(found) == {1: Rule.COUNT}
    twice = decide_all(policy(max_instances=2), {LocationKind.DATA: data}, there * 2, NOW)
    assert twice == found


def test_instances_of_the_future_are_neither_counted_nor_kept_for_nor_weighed() -> None:
    data = daily(5, sizes=[10] * 5)
    as_of = START + 2 * DAY
    assert decide(policy(max_instances=2), data, as_of) == {1: Rule.COUNT}
    assert decide(policy(max_bytes=20), data, as_of) == {1: Rule.SIZE}
    assert decide(policy("hours(1)", keep_newest=2), data, as_of) == {1: Rule.AGE}


@pytest.mark.parametrize(
    ("limit", "gone"),
    [(5, [1, 2, 3]), (10, [1, 2, 3]), (29, [1, 2, 3]), (30, [1, 2]), (59, [1, 2]), (60, [1]), (100, []), (99, [1])],
)
def test_of_a_size_the_newest_stay_and_always_one(limit: int, gone: list[int]) -> None:
    sizes = [40, 30, 20, 10]
    assert decide(policy(max_bytes=limit), daily(4, sizes=sizes)) == dict.fromkeys(gone, Rule.SIZE)


def test_what_is_older_than_the_one_that_does_not_fit_goes_with_it() -> None:
    assert decide(policy(max_bytes=50), daily(4, sizes=[1, 100, 20, 20])) == {1: Rule.SIZE, 2: Rule.SIZE}


def test_what_is_not_measured_weighs_nothing() -> None:
    assert decide(policy(max_bytes=1), daily(4, sizes=[None] * 4)) == {}
    assert decide(policy(max_bytes=50), daily(4, sizes=[60, None, 20, 20])) == {1: Rule.SIZE}


def test_the_newest_that_are_kept_stay_whatever_the_reason() -> None:
    data = daily(6, sizes=[10] * 6)
    for of in (
        policy("hours(1)", keep_newest=4),
        policy(max_instances=1, keep_newest=4),
        policy(max_bytes=1, keep_newest=4),
    ):
        assert sorted(decide(of, data)) == [1, 2]
    assert decide(policy("hours(1)", keep_newest=6), data) == {}
    assert decide(policy("hours(1)", keep_newest=7), data) == {}
    assert sorted(decide(policy("hours(1)", keep_newest=5), data)) == [1]


def test_what_is_older_than_all_that_counts_goes_though_none_of_them_does() -> None:
    data, there = daily(4), [START + 2 * DAY, START + 3 * DAY]
    for of in (policy("hours(1)", keep_newest=2), policy(max_instances=2)):
        found = decide_all(of, {LocationKind.DATA: data}, there, NOW)
        assert sorted(days(found)) == [1, 2]
    assert decide_all(policy("hours(1)", keep_newest=3), {LocationKind.DATA: data}, there, NOW) == []


def test_the_order_is_that_of_the_times_not_of_the_names() -> None:
    data = [Found(LocationKind.DATA, f"{9 - day}", START + day * DAY, 10) for day in range(5)]
    found = decide_all(policy(max_bytes=20), {LocationKind.DATA: data}, [], NOW)
    assert [path for each in found for path in each.candidates.paths] == ["9", "8", "7"]


def test_none_goes_twice_when_a_later_rule_takes_less_than_an_earlier_one() -> None:
    data = daily(10, sizes=[10] * 10)
    of = policy("hours(120)", max_instances=8, max_bytes=60)
    (found,) = decide_all(of, {LocationKind.DATA: data}, [each.nominal_time for each in data], NOW)
    assert len(found.candidates.paths) == 6
    assert decide(of, data) == dict.fromkeys(range(1, 7), Rule.AGE)


def test_sizes_of_which_some_are_unknown_are_put_in_order_by_their_times_alone() -> None:
    weights = [(START, 10), (START + DAY, None), (START + DAY, 10), (START + 2 * DAY, 10)]
    (cut,) = decide_cuts(policy(max_bytes=25), weights, [], NOW)
    assert cut.before == START + DAY


def test_a_feed_without_data_has_no_size() -> None:
    stats = daily(3, LocationKind.STATS)
    found = decide_all(policy("days(9)", max_bytes=1), {LocationKind.STATS: stats}, [], NOW)
    assert days(found) == dict.fromkeys([1, 2], Rule.AGE)


def test_what_is_kept_does_not_change_the_reasons() -> None:
    data = daily(5, sizes=[10] * 5)
    there = [each.nominal_time for each in data]
    for of in (policy("hours(1)"), policy(max_instances=1), policy(max_bytes=9)):
        (plain,) = decide_cuts(of, weigh(data), there, NOW)
        (kept,) = decide_cuts(replace(of, keep_newest=3), weigh(data), there, NOW)
        assert (kept.rule, kept.reason, kept.before) == (plain.rule, plain.reason, START + 2 * DAY)


def test_newer_than_what_is_kept_stays_too_though_it_is_not_counted() -> None:
    data, there = daily(6), [START, START + DAY, START + 2 * DAY]
    found = decide_all(policy("hours(1)", keep_newest=1), {LocationKind.DATA: data}, there, NOW)
    assert sorted(days(found)) == [1, 2]


def test_each_goes_by_the_first_rule_that_takes_it() -> None:
    of = policy("days(9)", max_instances=6, max_bytes=40)
    found = decide_all(of, {LocationKind.DATA: daily(10, sizes=[10] * 10)}, [c.nominal_time for c in daily(10)], NOW)
    assert days(found) == {1: Rule.AGE, 2: Rule.AGE, 3: Rule.COUNT, 4: Rule.COUNT, 5: Rule.SIZE, 6: Rule.SIZE}
    assert [each.cut.rule for each in found] == [Rule.AGE, Rule.COUNT, Rule.SIZE]
    assert [each.cut.reason for each in found] == [
        "it is older than days(9) as of 2013-11-11T12:30Z",
        "6 newer instances exist",
        "it and the newer instances exceed 40B",
    ]


def test_a_number_has_its_commas_and_a_size_its_unit() -> None:
    times = [START + n * timedelta(minutes=1) for n in range(1002)]
    (cut,) = decide_cuts(policy(max_instances=1000), [], times, NOW)
    assert cut.reason == "1,000 newer instances exist"
    assert cut.before == times[2]
    heavy = [Found(LocationKind.DATA, "a", START, 2048), Found(LocationKind.DATA, "b", START + DAY, 2048)]
    (cut,) = decide_cuts(policy(max_bytes=2048), weigh(heavy), [], NOW)
    assert (cut.reason, cut.before) == ("it and the newer instances exceed 2KiB", START + DAY)


def test_row_51_what_belongs_to_an_instance_goes_with_its_age() -> None:
    found = {
        LocationKind.TMP: daily(4, LocationKind.TMP),
        LocationKind.DATA: daily(6),
        LocationKind.STATS: daily(3, LocationKind.STATS),
    }
    eligible = decide_all(policy(max_instances=4), found, [each.nominal_time for each in daily(6)], NOW)
    kinds = (LocationKind.DATA, LocationKind.STATS, LocationKind.TMP)
    assert sorted((each.kind, time.day) for each in eligible for time in each.candidates.times) == [
        (kind, day) for kind in kinds for day in (1, 2)
    ]


def test_row_56_where_retention_stops_with_the_validity_the_tail_stays() -> None:
    of = policy("days(2)", stops_at=START + 6 * DAY)
    assert decide(of, daily(6)) == dict.fromkeys([1, 2, 3, 4], Rule.AGE)
    assert decide(of, daily(6), START + 4 * DAY) == dict.fromkeys([1, 2], Rule.AGE)
    assert decide(policy("days(2)"), daily(6)) == dict.fromkeys(range(1, 7), Rule.AGE)
    assert of.judged_at(NOW) == START + 6 * DAY
    assert of.judged_at(START) == START
    assert policy("days(2)").judged_at(NOW) == NOW


def test_row_54_a_partition_of_a_table_goes_when_all_of_its_period_is_too_old() -> None:
    daily_key, new_york = parse_path_template("ds=${YEAR}${MONTH}${DAY}"), parse_timezone("America/New_York")
    of = policy("days(4)", partition=daily_key)
    assert find_before(of, START + 6 * DAY + 5 * HOUR) == START + 2 * DAY
    assert decide(of, daily(10), START + 6 * DAY + 23 * HOUR) == dict.fromkeys([1, 2], Rule.AGE)
    assert decide(of, daily(10), START + 7 * DAY) == dict.fromkeys([1, 2, 3], Rule.AGE)
    assert find_before(policy("days(4)", partition=daily_key.in_zone(new_york)), NOW) == START + 6 * DAY + 5 * HOUR
    assert find_before(policy("months(90000)", partition=daily_key.in_zone(new_york)), NOW) == datetime.min.replace(
        tzinfo=UTC
    )
    undated = policy("days(4)", partition=parse_path_template("ds=${MONTH}"))
    assert find_before(undated, NOW) == datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("of", "is_needed"),
    [
        (policy("days(2)"), False),
        (policy("days(2)", keep_newest=1), True),
        (policy("days(2)", max_instances=1), True),
        (policy("days(2)", max_bytes=1), True),
    ],
)
def test_all_candidates_are_needed_where_the_newest_count(of: RetentionRecord, is_needed: bool) -> None:
    assert needs_all(of) is is_needed
    assert find_before(of, NOW) == (None if is_needed else NOW - 2 * DAY)


def test_old_candidates_suffice_up_to_where_retention_stops() -> None:
    assert find_before(policy("days(2)", stops_at=START + DAY), NOW) == START - DAY
    assert find_before(policy(), NOW) is None


@settings(max_examples=200)
@given(
    limit=st.one_of(st.none(), st.integers(1, 12)),
    max_instances=st.one_of(st.none(), st.integers(1, 12)),
    max_bytes=st.one_of(st.none(), st.integers(1, 60)),
    keep_newest=st.integers(0, 12),
    sizes=st.lists(st.integers(0, 20), max_size=10),
    hours=st.integers(0, 300),
)
def test_what_goes_is_what_each_instance_by_itself_is_entitled_to(
    limit: int | None,
    max_instances: int | None,
    max_bytes: int | None,
    keep_newest: int,
    sizes: list[int],
    hours: int,
) -> None:
    of = policy(
        f"days({limit})" if limit else None,
        max_instances=max_instances,
        max_bytes=max_bytes,
        keep_newest=keep_newest,
    )
    as_of, data = START + hours * HOUR, daily(len(sizes), sizes=sizes)
    expected = set()
    for each in data:
        if each.nominal_time > as_of:
            continue
        since = [other for other in data if each.nominal_time < other.nominal_time <= as_of]
        is_old = limit is not None and each.nominal_time < as_of - limit * DAY
        is_many = max_instances is not None and len(since) >= max_instances
        total = sum(other.bytes or 0 for other in [each, *since])
        is_large = max_bytes is not None and total > max_bytes and bool(since)
        if (is_old or is_many or is_large) and len(since) >= keep_newest:
            expected.add(each.nominal_time.day)
    assert set(decide(of, data, as_of)) == expected


class _Untouchable:
    def walk_folders(self, *_: object) -> None:
        raise AssertionError("it must not be looked at")


def test_a_location_with_an_obstacle_is_not_even_looked_at() -> None:
    location = RetainedLocation(
        kind=LocationKind.DATA,
        store=StoreAddress(url="file:///none"),
        template=parse_path_template("/d/${YEAR}"),
        obstacle="another feed lies in it",
    )
    sequence = InstanceSequence(start=START, frequency=parse_frequency("days(1)"), timezone=parse_timezone("UTC"))
    store: Any = _Untouchable()
    assert collect_candidates(store, location, sequence, NOW) == ([], [])
