"""Falcon's features of retention, row by row."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.entities.feed import LIMIT_PROPERTY, Feed
from feed_assets.lifecycle.retention.evictions import DELETE
from feed_assets.lifecycle.retention.report import render_evicted_paths, render_evicted_times
from feed_assets.lifecycle.retention.turns import apply_turns, find_due, pass_turns
from feed_assets.lifecycle.schedules import ScheduleView
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.records import FeedEventKind
from feed_assets.timing.frequency import parse_frequency
from tests.lifecycle.retention.yard import Yard, hourly, kept_feed
from tests.lifecycle.world import START, at

EVERYTHING_SCHEDULED = ScheduleView(without_row=ScheduleState.SCHEDULED)
KINDS = ("data", "stats", "meta", "tmp")


def turns(yard: Yard, start: datetime, stop: datetime, step: timedelta = timedelta(hours=1)) -> list[datetime]:
    """When retention comes, if it is looked for every hour."""
    found, database, plan = [], yard.world.database, yard.world.plan
    moment = start
    while moment < stop:
        apply_turns(database, plan, "primary", moment)
        with database.begin() as connection:
            due = find_due(connection, plan, EVERYTHING_SCHEDULED, "primary", moment)
            pass_turns(connection, due, moment)
        found += [moment] * len(due)
        moment += step
    return found


def test_row_51_what_is_older_goes_at_every_location_and_what_is_no_instance_stays(
    tmp_path: Path, state_url: str
) -> None:
    locations = {kind: f"/{kind}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}" for kind in KINDS}
    yard = Yard.of(tmp_path, kept_feed(locations=locations), state=state_url)
    times = hourly(at("01T22:00"), 6)
    for kind in KINDS:
        for time in times:
            (yard.root / f"{kind}/{time:%Y-%m-%d/%H}").mkdir(parents=True)
            (yard.root / f"{kind}/{time:%Y-%m-%d/%H}/part").write_text("x")
        (yard.root / f"{kind}/2013-11-01/22_backup").mkdir()
        (yard.root / f"{kind}/somewhere").mkdir()
    yard.arrive(at("04"))
    yard.sweep_now()
    left = {f"{kind}/{time:%Y-%m-%d/%H}" for kind in KINDS for time in times if time >= at("02")}
    stays = {f"{kind}/{name}" for kind in KINDS for name in ("2013-11-01/22_backup", "somewhere")}
    found = {
        path for path, (what, _, _) in yard.tree().items() if what == "folder" and path.count("/") + path.count("some")
    }
    assert {path for path in found if not path.endswith(("2013-11-01", "2013-11-02"))} == left | stays


def test_row_52_parents_that_are_empty_go_up_to_the_text_before_the_first_variable(tmp_path: Path) -> None:
    yard = Yard.of(tmp_path, kept_feed(locations={"data": "/a/b/${YEAR}/${MONTH}/${DAY}/${HOUR}"}))
    yard.now = at("2014-02-01")
    for month, other in ((10, False), (11, True)):
        folder = yard.root / f"a/b/2013/{month}/05/00"
        folder.mkdir(parents=True)
        (folder / "part").write_text("x")
        if other:
            (folder.parents[1] / "notes").write_text("mine")
    yard.sweep_now()
    assert set(yard.tree()) == {"a", "a/b", "a/b/2013", "a/b/2013/11", "a/b/2013/11/notes"}


def test_row_53_there_is_a_report_and_one_message_for_each_path(tmp_path: Path, state_url: str) -> None:
    yard = Yard.of(tmp_path, state=state_url)
    yard.land("clicks", *hourly(START, 50))
    yard.arrive(at("04"))
    sweep = yard.sweep_now()
    items = [item for chunk in yard.chunks(sweep) for item in chunk.items]
    record = yard.world.feed("clicks")
    assert render_evicted_paths([f"/{item.path}" for item in items]) == (
        "instancePaths=" + ",".join(f"/clicks/2013-11-01/{hour:02d}" for hour in range(24))
    )
    times = render_evicted_times([item.nominal_time for item in items], record.sequence.timezone)
    assert times == "instances=" + ",".join(f"20131101{hour:02d}00" for hour in range(24))
    messages = [message.payload for message in yard.messages()]
    assert [message["operation"] for message in messages] == [DELETE] * 24
    assert [message["path"] for message in messages] == [item.path for item in items]
    assert len(yard.events(FeedEventKind.EVICTED)) == 24


@pytest.mark.parametrize(
    ("frequency", "limit", "every"),
    [("hours(1)", "hours(20)", 6), ("days(7)", "days(30)", 24), ("hours(1)", "days(3)", 24)],
)
def test_row_55_retention_comes_every_six_hours_or_daily_by_the_limit(
    tmp_path: Path, frequency: str, limit: str, every: int
) -> None:
    yard = Yard.of(tmp_path, kept_feed(frequency=frequency, limit=limit))
    assert turns(yard, at("10"), at("14")) == [at("10") + timedelta(hours=n) for n in range(0, 96, every)]


def test_row_55_a_feed_that_has_ended_and_stops_has_one_turn(tmp_path: Path) -> None:
    yard = Yard.of(tmp_path, kept_feed(end=at("05"), after_validity=False))
    assert turns(yard, at("10"), at("20")) == [at("10")]


def test_row_56_the_last_data_go_after_the_validity_has_ended(tmp_path: Path) -> None:
    yard = Yard.of(tmp_path, kept_feed(end=at("03")))
    yard.land("clicks", *hourly(at("02T20:00"), 4))
    assert turns(yard, at("10"), at("13")) == [at("10"), at("11"), at("12")]
    yard.arrive(at("05T00:01"))
    yard.sweep_now()
    assert set(yard.tree()) == {"clicks"}


def test_row_56_the_last_data_stay_where_retention_ends_with_the_validity(tmp_path: Path) -> None:
    yard = Yard.of(tmp_path, kept_feed(end=at("05"), after_validity=False))
    yard.land("clicks", *hourly(at("01T00:00"), 2), *hourly(at("04T20:00"), 4))
    yard.arrive(at("20"))
    yard.sweep_now()
    assert {path for path in yard.tree() if path.count("/") == 2} == {
        f"clicks/2013-11-04/{hour}" for hour in range(20, 24)
    }


def test_row_57_the_stage_of_a_lifecycle_says_when_retention_comes_and_what_it_keeps(tmp_path: Path) -> None:
    feed = kept_feed(limit="days(10000)")
    properties = {LIMIT_PROPERTY: "days(2)"}
    stage = {"frequency": "hours(12)", "queue": "local", "priority": "HIGH", "properties": properties}
    document = feed.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    lifecycle = {"retention_stage": stage}
    yard = Yard.of(tmp_path, Feed(**{**document, "lifecycle": lifecycle}))
    policy = yard.world.feed("clicks").retention
    assert policy is not None
    assert (policy.limit, policy.queue, policy.priority) == (parse_frequency("days(2)"), "local", 1)
    assert turns(yard, at("10"), at("12")) == [at("10"), at("10T12:00"), at("11"), at("11T12:00")]
