from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from feed_assets.timing.dates import parse_datetime, render_datetime
from feed_assets.timing.errors import WindowError
from feed_assets.timing.expressions import parse_time_expression
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.windows import parse_window
from tests.timing.outputs import output_index, producers
from tests.timing.strategies import expressions, moments, sequences
from tests.timing.test_sequence import sequence


@pytest.mark.parametrize(("day", "hours"), [("2013-03-10", 23), ("2013-07-04", 24), ("2013-11-03", 25)])
def test_a_local_day_over_an_hourly_feed_has_23_24_or_25_instances(day: str, hours: int) -> None:
    hourly = sequence("2013-01-01T00:00Z", "hours(1)", "America/New_York")
    window = parse_window("today(0,0)", "tomorrow(0,-60)")
    assert len(window.indices(parse_datetime(f"{day}T16:00Z"), hourly)) == hours


def test_both_ends_belong_to_the_window_and_are_floored() -> None:
    feed = sequence("2012-01-01T00:00Z", "minutes(20)")
    found = parse_window("now(0,-60)", "now(0,20)").indices(parse_datetime("2012-03-03T00:05Z"), feed)
    assert [render_datetime(feed.at(n)) for n in found] == [
        "2012-03-02T23:00Z",
        "2012-03-02T23:20Z",
        "2012-03-02T23:40Z",
        "2012-03-03T00:00Z",
        "2012-03-03T00:20Z",
    ]


def test_a_window_is_clipped_to_the_validity_of_the_feed() -> None:
    feed = sequence("2012-01-01T00:00Z", "hours(1)", end="2012-01-02T00:00Z")
    window = parse_window("now(-5,0)", "now(5,0)")
    assert window.indices(parse_datetime("2012-01-01T02:00Z"), feed) == range(8)
    assert window.indices(parse_datetime("2012-01-01T22:00Z"), feed) == range(17, 24)
    assert not window.indices(parse_datetime("2012-01-03T22:00Z"), feed)


def test_a_nominal_time_before_the_feed_starts_sees_nothing() -> None:
    feed = sequence("2012-01-01T00:00Z", "hours(1)")
    assert not parse_window("now(0,0)", "now(5,0)").indices(parse_datetime("2011-12-31T23:00Z"), feed)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("latest(-3)", "now(0,0)", "combined with themselves"),
        ("today(0,0)", "future(0,3)", "combined with themselves"),
        ("latest(-1)", "future(0,3)", "combined with themselves"),
        ("latest(0)", "latest(-1)", "0 comes after -1"),
        ("latest(0)", "latest(1)", "counts backwards"),
        ("future(-1,3)", "future(0,3)", "counts forwards"),
        ("future(0,-1)", "future(0,-1)", "counts forwards"),
    ],
)
def test_ends_that_make_no_window_are_refused_with_the_reason(start: str, end: str, words: str) -> None:
    with pytest.raises(WindowError, match=words):
        parse_window(start, end)


def test_a_data_driven_window_has_no_indices_and_an_absolute_one_no_record() -> None:
    feed, now = sequence("2012-01-01T00:00Z", "hours(1)"), parse_datetime("2012-02-01T00:00Z")
    with pytest.raises(WindowError, match="resolve_data_driven"):
        parse_window("latest(-1)", "latest(0)").indices(now, feed)
    with pytest.raises(WindowError, match="resolve_data_driven"):
        parse_window("latest(-1)", "latest(0)").consumers(0, feed, feed)
    with pytest.raises(WindowError, match="Use indices"):
        parse_window("now(0,0)", "now(0,0)").resolve_data_driven(now, feed, SetRecord(set()), now)


class SetRecord:
    """The instances that are available, by number."""

    def __init__(self, available: set[int]) -> None:
        self.available = sorted(available)

    def latest_available(self, not_after_index: int, count: int) -> list[int]:
        return [n for n in self.available[::-1] if n <= not_after_index][:count]

    def available_between(self, first: int, last: int) -> list[int]:
        return [n for n in self.available if first <= n <= last]


def test_latest_looks_back_from_the_run_moment_whatever_the_nominal_time() -> None:
    feed = sequence("2012-01-01T00:00Z", "hours(1)")
    window, record = parse_window("latest(-1)", "latest(0)"), SetRecord({2, 5, 9})
    for nominal_time in ("2012-01-01T00:00Z", "2012-01-01T20:00Z"):
        found = window.resolve_data_driven(
            parse_datetime(nominal_time), feed, record, parse_datetime("2012-01-01T08:59Z")
        )
        assert found == [2, 5]


def test_latest_waits_until_all_positions_are_filled_and_never_looks_past_the_end() -> None:
    feed = sequence("2012-01-01T00:00Z", "hours(1)", end="2012-01-01T05:00Z")
    start, as_of = feed.start, parse_datetime("2013-01-01T00:00Z")
    assert parse_window("latest(-2)", "latest(0)").resolve_data_driven(start, feed, SetRecord({1, 2}), as_of) is None
    assert parse_window("latest(0)", "latest(0)").resolve_data_driven(start, feed, SetRecord({1, 9}), as_of) == [1]
    before = parse_datetime("2011-01-01T00:00Z")
    assert parse_window("latest(0)", "latest(0)").resolve_data_driven(start, feed, SetRecord({1}), before) is None


def test_future_looks_at_the_instance_of_the_nominal_time_and_as_many_more_as_the_limit() -> None:
    feed = sequence("2012-01-01T00:00Z", "hours(1)")
    nominal_time, as_of = parse_datetime("2012-01-01T03:30Z"), parse_datetime("2013-01-01T00:00Z")
    window = parse_window("future(0,2)", "future(1,2)")
    assert window.resolve_data_driven(nominal_time, feed, SetRecord({3, 5}), as_of) == [3, 5]
    assert window.resolve_data_driven(nominal_time, feed, SetRecord({3, 6}), as_of) is None
    assert window.resolve_data_driven(parse_datetime("2011-01-01T00:00Z"), feed, SetRecord({0}), as_of) == []


def test_an_output_resolves_to_one_instance_and_back() -> None:
    feed = sequence("2012-02-27T11:00Z", "days(1)")
    process = sequence("2012-02-28T10:00Z", "days(1)")
    expression = parse_time_expression("now(0,0)")
    assert output_index(expression, process.at(0), feed) == 0
    assert producers(expression, 0, feed, process) == range(1)
    assert output_index(expression, parse_datetime("2012-02-01T00:00Z"), feed) is None


def test_several_process_instances_may_write_one_feed_instance() -> None:
    daily, hourly = sequence("2012-01-01T00:00Z", "days(1)"), sequence("2012-01-01T00:00Z", "hours(1)")
    assert producers(parse_time_expression("today(0,0)"), 3, daily, hourly) == range(72, 96)


def test_a_window_that_runs_backwards_at_times_is_empty_then() -> None:
    hourly = sequence("2012-01-01T00:00Z", "hours(1)")
    window = parse_window("today(12,0)", "now(0,0)")
    assert not window.indices(parse_datetime("2012-01-03T06:00Z"), hourly)
    assert len(window.indices(parse_datetime("2012-01-03T13:00Z"), hourly)) == 2
    assert list(window.consumers(60, hourly, hourly)) == list(range(60, 72))


@st.composite
def edges(draw: st.DrawFn) -> tuple[InstanceSequence, InstanceSequence, int]:
    """A feed, a process around it, and a number around which to look at the process."""
    feed = draw(sequences())
    process = draw(st.one_of(st.just(feed), sequences()))
    return feed, process, process.index_at_or_before(draw(moments))


@given(edge=edges(), start=expressions(), end=expressions())
def test_consumers_are_exactly_the_process_instances_whose_window_holds_the_feed_instance(
    edge: tuple[InstanceSequence, InstanceSequence, int], start: str, end: str
) -> None:
    feed, process, centre = edge
    window = parse_window(start, end)
    numbers = process.clip(range(centre - 30, centre + 30))
    assume(numbers)
    seen = {n: window.indices(process.at(n), feed) for n in numbers}
    candidates = {m for found in seen.values() for m in (*found[:3], *found[-3:])}
    candidates |= {m + step for m in candidates for step in (-1, 1)}
    for m in sorted(candidates)[:40]:
        consumers = window.consumers(m, feed, process)
        assert [n for n in numbers if m in seen[n]] == [n for n in numbers if n in consumers]


@given(edge=edges(), start=expressions(), end=expressions(), length=st.integers(min_value=1, max_value=50))
def test_the_consumers_of_a_run_cover_those_of_each_instance_and_nothing_else_if_never_backwards(
    edge: tuple[InstanceSequence, InstanceSequence, int], start: str, end: str, length: int
) -> None:
    feed, process, centre = edge
    window = parse_window(start, end)
    numbers = process.clip(range(centre - 30, centre + 30))
    assume(numbers)
    anchor = window.indices(process.at(numbers[len(numbers) // 2]), feed)
    assume(anchor)
    run = feed.clip(range(anchor.start - 3, anchor.start - 3 + length))
    consumers = window.consumers_of_range(run, feed, process)
    for n in numbers:
        moment, found = process.at(n), window.indices(process.at(n), feed)
        backwards = window.start.evaluate(moment, feed.timezone) > window.end.evaluate(moment, feed.timezone)
        holds = bool(found) and found.start < run.stop and run.start < found.stop
        assert holds is (n in consumers) or (backwards and n in consumers)


@given(edge=edges(), text=expressions())
def test_producers_are_exactly_the_process_instances_that_write_the_feed_instance(
    edge: tuple[InstanceSequence, InstanceSequence, int], text: str
) -> None:
    feed, process, centre = edge
    expression = parse_time_expression(text)
    numbers = process.clip(range(centre - 10, centre + 10))
    written = {n: output_index(expression, process.at(n), feed) for n in numbers}
    for m in {m for m in written.values() if m is not None}:
        found = producers(expression, m, feed, process)
        assert [n for n in numbers if n in found] == [n for n in numbers if written[n] == m]


def test_the_consumers_of_an_instance_long_ago_are_found_without_a_search() -> None:
    hourly = InstanceSequence(
        start=datetime(1900, 1, 1, tzinfo=UTC), frequency=parse_frequency("minutes(1)"), timezone=ZoneInfo("UTC")
    )
    far = hourly.index_at_or_before(datetime(2900, 1, 1, tzinfo=UTC))
    assert parse_window("now(0,-1)", "now(0,0)").consumers(far, hourly, hourly) == range(far, far + 2)
    assert hourly.at(far) - hourly.start > timedelta(days=365_000)
