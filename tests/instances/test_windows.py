"""Falcon's feature list (section 21 of the reference), rows 41 to 44 and 47 to 49: which instances and when."""

from pathlib import Path

import pytest

from feed_assets.instances.errors import InputsMissingError
from feed_assets.log.records import ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY


def test_row_41_latest_is_the_newest_available_at_run_time_whatever_the_nominal_time(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("count", inputs={"clicks": "latest(0)"}))
    lifecycle.land("clicks", START, text="h0")
    lifecycle.land("clicks", at("01T03:00"), text="h3")
    lifecycle.tick(at("01T05:00"))

    assert lifecycle.inputs_of("count", START, at("01T05:00")) == {"clicks": ["h3"]}
    assert lifecycle.inputs_of("count", at("01T05:00"), at("01T05:00")) == {"clicks": ["h3"]}


def test_row_41_latest_waits_until_as_many_instances_are_available(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", inputs={"clicks": "latest(-1) latest(0)"})
    )
    lifecycle.land("clicks", START, text="h0")
    assert lifecycle.tick(START) == []
    with pytest.raises(InputsMissingError, match="clicks cannot be resolved yet"):
        lifecycle.run("count", START, START)

    lifecycle.land("clicks", at("01T01:00"), text="h1")
    assert lifecycle.tick(at("01T01:00"))[0].nominal_times == (START, at("01T01:00"))
    assert lifecycle.inputs_of("count", at("01T01:00"), at("01T01:00")) == {"clicks": ["h1", "h0"]}


def test_row_41_latest_passes_over_times_of_an_earlier_definition(tmp_path: Path) -> None:
    reader = process("count", inputs={"clicks": "latest(-1) latest(0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "minutes(30)"), reader)
    lifecycle.land("clicks", START, at("01T00:30"), at("01T01:00"), at("01T01:30"), text="x")
    lifecycle.tick(at("01T01:59"))

    lifecycle.declare(feed("clicks", "hours(1)"), reader)
    lifecycle.tick(at("01T02:00"))

    assert lifecycle.statuses("count")[at("01T02:00")] is READY


def test_row_42_future_is_the_nth_available_instance_from_the_nominal_time_on(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", inputs={"clicks": "future(1,3)"}, end=at("01T00:30"))
    )
    lifecycle.land("clicks", START, text="h0")
    lifecycle.tick(START)
    assert lifecycle.statuses("count") == {START: WAITING}

    lifecycle.land("clicks", at("01T02:00"), text="h2")
    lifecycle.tick(at("01T02:00"))

    assert lifecycle.statuses("count") == {START: READY}
    assert lifecycle.inputs_of("count", START, at("01T02:00")) == {"clicks": ["h2"]}


def test_row_42_an_instance_beyond_the_limit_does_not_count(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", inputs={"clicks": "future(1,1)"}, end=at("01T00:30"))
    )
    lifecycle.land("clicks", START, at("01T02:00"))
    lifecycle.tick(at("01T02:00"))
    assert lifecycle.statuses("count") == {START: WAITING}


def test_row_43_a_time_between_instances_means_the_one_before(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,59)"}))
    lifecycle.land("clicks", START)
    assert [request.nominal_times for request in lifecycle.tick(START)] == [(START,)]


def test_row_44_a_window_holds_both_its_ends_newest_first(tmp_path: Path) -> None:
    reader = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, start=at("01T01:00"))
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), reader)
    lifecycle.land("clicks", START, text="h0")
    lifecycle.land("clicks", at("01T01:00"), text="h1")
    lifecycle.tick(at("01T01:00"))
    assert lifecycle.inputs_of("count", at("01T01:00"), at("01T01:00")) == {"clicks": ["h1", "h0"]}


def test_row_47_a_daily_process_in_los_angeles_keeps_its_wall_time_across_a_clock_change(tmp_path: Path) -> None:
    zone = "America/Los_Angeles"
    start = at("2013-11-01T07:00")
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", start=start),
        process("daily", "days(1)", inputs={"clicks": "today(0,0) tomorrow(0,-60)"}, start=start, timezone=zone),
    )
    lifecycle.tick(at("2013-11-06"))
    assert list(lifecycle.statuses("daily")) == [
        at("2013-11-01T07:00"),
        at("2013-11-02T07:00"),
        at("2013-11-03T07:00"),
        at("2013-11-04T08:00"),
        at("2013-11-05T08:00"),
    ]
    days = {
        time: len(lifecycle.plan.input_indices(lifecycle.process("daily").inputs[0], time))
        for time in lifecycle.statuses("daily")
    }
    assert list(days.values()) == [24, 24, 25, 24, 24]


def test_row_47_the_day_of_a_clock_change_waits_for_its_25th_hour(tmp_path: Path) -> None:
    start = at("2013-11-03T07:00")
    zone = "America/Los_Angeles"
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", start=start),
        process("daily", "days(1)", inputs={"clicks": "today(0,0) tomorrow(0,-60)"}, start=start, timezone=zone),
    )
    lifecycle.land("clicks", *hours(24, start))
    assert lifecycle.tick(at("2013-11-04T07:30")) == []

    lifecycle.land("clicks", at("2013-11-04T07:00"))

    assert len(lifecycle.tick(at("2013-11-04T07:40"))) == 1


def test_row_47_hourly_feeds_in_utc_are_unaffected(tmp_path: Path) -> None:
    start = at("2013-11-03T00:00")
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", start=start, timezone="America/Los_Angeles"))
    lifecycle.tick(at("2013-11-04T00:00"))
    assert list(lifecycle.statuses("ping")) == hours(25, start)


def test_row_48_months_from_the_31st_clip_and_come_back(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("monthly", "months(1)", start=at("2013-01-31T00:00")))
    lifecycle.tick(at("2013-05-31T00:00"))
    first = list(lifecycle.statuses("monthly"))
    assert [f"{time:%m-%d}" for time in first] == ["01-31", "02-28", "03-31", "04-30", "05-31"]

    lifecycle.tick(at("2013-06-30T00:00"))

    assert list(lifecycle.statuses("monthly")) == [*first, at("2013-06-30T00:00")]


def test_row_49_there_is_no_instance_at_the_end_of_the_validity(tmp_path: Path) -> None:
    end = at("01T03:00")
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks", end=end), process("count", inputs={"clicks": "now(0,0)"}, end=end)
    )
    lifecycle.land("clicks", *hours(6))
    lifecycle.tick(at("02"))
    assert list(lifecycle.statuses("count")) == list(lifecycle.feed_statuses("clicks")) == hours(3)
