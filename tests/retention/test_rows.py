"""Falcon's features of retention, row by row."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.entities.feed import LIMIT_PROPERTY, Feed
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView
from feed_assets.log.messages.payloads import EvictionOperation
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.retention.rules.schedule import apply_retention_schedule, find_due, reschedule_retention
from feed_assets.retention.running import render_evicted_paths, render_evicted_times
from feed_assets.timing.sequence import parse_frequency
from tests.instances.harness import START, at
from tests.retention.harness import RetentionHarness, hourly, kept_feed

EVERYTHING_SCHEDULED = ScheduleView(without_row=ScheduleState.SCHEDULED)
KINDS = ("data", "stats", "meta", "tmp")


def turns(
    harness: RetentionHarness, start: datetime, stop: datetime, step: timedelta = timedelta(hours=1)
) -> list[datetime]:
    """When retention comes, if it is looked for every hour."""
    found, database, timeline = [], harness.lifecycle.database, harness.lifecycle.timeline
    moment = start
    while moment < stop:
        apply_retention_schedule(database, timeline, "primary", moment, timedelta(days=1))
        with database.begin() as connection:
            due = find_due(connection, timeline.plan, EVERYTHING_SCHEDULED, "primary", moment)
            reschedule_retention(connection, due, moment)
        found += [moment] * len(due)
        moment += step
    return found


def test_row_51_what_is_older_goes_at_every_location_and_what_is_no_instance_stays(
    tmp_path: Path, state_url: str
) -> None:
    locations = {kind: f"/{kind}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}" for kind in KINDS}
    harness = RetentionHarness.of(tmp_path, kept_feed(locations=locations), state=state_url)
    times = hourly(at("01T22:00"), 6)
    for kind in KINDS:
        for time in times:
            (harness.root / f"{kind}/{time:%Y-%m-%d/%H}").mkdir(parents=True)
            (harness.root / f"{kind}/{time:%Y-%m-%d/%H}/part").write_text("x")
        (harness.root / f"{kind}/2013-11-01/22_backup").mkdir()
        (harness.root / f"{kind}/somewhere").mkdir()
    harness.arrive(at("04"))
    harness.sweep_now()
    left = {f"{kind}/{time:%Y-%m-%d/%H}" for kind in KINDS for time in times if time >= at("02")}
    stays = {f"{kind}/{name}" for kind in KINDS for name in ("2013-11-01/22_backup", "somewhere")}
    found = {
        path
        for path, (what, _, _) in harness.tree().items()
        if what == "folder" and path.count("/") + path.count("some")
    }
    assert {path for path in found if not path.endswith(("2013-11-01", "2013-11-02"))} == left | stays


def test_row_52_parents_that_are_empty_go_up_to_the_text_before_the_first_variable(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(locations={"data": "/a/b/${YEAR}/${MONTH}/${DAY}/${HOUR}"}))
    harness.now = at("2014-02-01")
    for month, other in ((10, False), (11, True)):
        folder = harness.root / f"a/b/2013/{month}/05/00"
        folder.mkdir(parents=True)
        (folder / "part").write_text("x")
        if other:
            (folder.parents[1] / "notes").write_text("mine")
    harness.sweep_now()
    assert set(harness.tree()) == {"a", "a/b", "a/b/2013", "a/b/2013/11", "a/b/2013/11/notes"}


def test_row_53_there_is_a_report_and_one_message_for_each_path(tmp_path: Path, state_url: str) -> None:
    harness = RetentionHarness.of(tmp_path, state=state_url)
    harness.land("clicks", *hourly(START, 50))
    harness.arrive(at("04"))
    sweep = harness.sweep_now()
    items = [item for chunk in harness.chunks(sweep) for item in chunk.items]
    record = harness.lifecycle.feed("clicks")
    assert render_evicted_paths([f"/{item.path}" for item in items]) == (
        "instancePaths=" + ",".join(f"/clicks/2013-11-01/{hour:02d}" for hour in range(24))
    )
    times = render_evicted_times([item.nominal_time for item in items], record.sequence.timezone)
    assert times == "instances=" + ",".join(f"20131101{hour:02d}00" for hour in range(24))
    messages = harness.messages()
    assert [message.operation for message in messages] == [EvictionOperation.DELETE] * 24
    assert [message.path for message in messages] == [item.path for item in items]
    assert len(harness.events(FeedEventKind.EVICTED)) == 24


@pytest.mark.parametrize(
    ("frequency", "limit", "every"),
    [("hours(1)", "hours(20)", 6), ("days(7)", "days(30)", 24), ("hours(1)", "days(3)", 24)],
)
def test_row_55_retention_comes_every_six_hours_or_daily_by_the_limit(
    tmp_path: Path, frequency: str, limit: str, every: int
) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(frequency=frequency, limit=limit))
    assert turns(harness, at("10"), at("14")) == [at("10") + timedelta(hours=n) for n in range(0, 96, every)]


def test_row_55_a_feed_that_has_ended_and_stops_has_one_turn(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(end=at("05"), after_validity=False))
    assert turns(harness, at("10"), at("20")) == [at("10")]


def test_row_56_the_last_data_go_after_the_validity_has_ended(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(end=at("03")))
    harness.land("clicks", *hourly(at("02T20:00"), 4))
    assert turns(harness, at("10"), at("13")) == [at("10"), at("11"), at("12")]
    harness.arrive(at("05T00:01"))
    harness.sweep_now()
    assert set(harness.tree()) == {"clicks"}


def test_row_56_the_last_data_stay_where_retention_ends_with_the_validity(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(end=at("05"), after_validity=False))
    harness.land("clicks", *hourly(at("01T00:00"), 2), *hourly(at("04T20:00"), 4))
    harness.arrive(at("20"))
    harness.sweep_now()
    assert {path for path in harness.tree() if path.count("/") == 2} == {
        f"clicks/2013-11-04/{hour}" for hour in range(20, 24)
    }


def test_row_57_the_stage_of_a_lifecycle_says_when_retention_comes_and_what_it_keeps(tmp_path: Path) -> None:
    feed = kept_feed(limit="days(10000)")
    properties = {LIMIT_PROPERTY: "days(2)"}
    stage = {"frequency": "hours(12)", "queue": "local", "priority": "HIGH", "properties": properties}
    document = feed.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    lifecycle = {"retention_stage": stage}
    harness = RetentionHarness.of(tmp_path, Feed(**{**document, "lifecycle": lifecycle}))
    policy = harness.lifecycle.feed("clicks").retention
    assert policy is not None
    assert (policy.limit, policy.queue, policy.priority) == (parse_frequency("days(2)"), "local", 1)
    harness.land("clicks", *hourly(START, 50))
    harness.arrive(at("03T23:00"))
    harness.sweep_now()
    assert harness.lifecycle.times_of_feed("clicks", FeedInstanceStatus.EVICTED) == hourly(START, 23)
    assert turns(harness, at("10"), at("12")) == [at("10"), at("10T12:00"), at("11"), at("11T12:00")]
