"""The grace period of a retention that became stricter: when the schedule acts, and what people are told."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.definitions.store import record_declared
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.locations.overlaps import NO_OVERLAPS
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView
from feed_assets.plan.location import declare_location
from feed_assets.plan.records import RetentionRecord
from feed_assets.plan.retention import compile_retention, find_stricter
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.retention.rules.schedule import (
    Grace,
    apply_retention_schedule,
    decide_grace,
    find_due,
    reschedule_retention,
)
from feed_assets.settings import Settings
from feed_assets.timing.sequence import parse_frequency
from tests.instances.harness import START, at
from tests.retention.harness import RetentionHarness, hourly, kept_feed

DAY = timedelta(days=1)
PRIMARY = Cluster(name="primary", storage="file:///data")
EVERYTHING_SCHEDULED = ScheduleView(without_row=ScheduleState.SCHEDULED)


def retention(days: int) -> RetentionRecord:
    return RetentionRecord(
        limit=parse_frequency(f"days({days})"), cadence=parse_frequency("days(1)"), trash=parse_frequency("days(7)")
    )


def test_the_grace_begins_when_the_last_milder_retention_was_replaced() -> None:
    ninety, thirty, ten = retention(90), retention(30), retention(10)
    steps = [(ninety, at("01T06:00")), (thirty, at("01T18:00")), (ten, at("02"))]
    assert decide_grace(ten, steps, at("02"), DAY) == Grace(until=at("02T18:00"), fields=("limit",))
    assert decide_grace(thirty, [*steps[:2], (thirty, at("02"))], at("02"), DAY) == Grace(
        until=at("02T06:00"), fields=("limit",)
    )
    assert decide_grace(ninety, steps, at("02"), DAY) is None
    assert decide_grace(ten, steps, at("02T18:00"), DAY) is None


def test_a_retention_that_was_not_there_kept_everything() -> None:
    assert decide_grace(retention(10), [(None, START)], START, DAY) == Grace(until=at("02"), fields=("limit",))
    assert decide_grace(None, [(retention(10), START)], START, DAY) is None


@pytest.mark.parametrize(
    ("milder", "stricter", "field"),
    [
        ({"limit": "days(9)"}, {"limit": "days(8)"}, "limit"),
        ({"limit": "months(1)"}, {"limit": "days(30)"}, "limit"),
        ({"max_instances": 9}, {"max_instances": 8}, "max_instances"),
        ({}, {"max_instances": 8}, "max_instances"),
        ({"max_bytes": "2GiB"}, {"max_bytes": "1GiB"}, "max_bytes"),
        ({"keep_newest": 3}, {}, "keep_newest"),
        ({"until_read_by": ["count", "join"]}, {"until_read_by": ["join"]}, "until_read_by"),
        ({"until_replicated_to": ["backup"]}, {}, "until_replicated_to"),
        ({"after_validity": False, "end": at("05")}, {"end": at("05")}, "after_validity"),
        ({"after_validity": False, "end": at("05")}, {"after_validity": False, "end": at("09")}, "after_validity"),
        ({"action": "archive", "archive_to": "/old/${YEAR}/${MONTH}/${DAY}/${HOUR}"}, {}, "action"),
        ({"action": "archive"}, {"action": "archive", "archive_to": "/old/${YEAR}/${MONTH}/${DAY}/${HOUR}"}, "action"),
    ],
)
def test_each_field_can_make_a_retention_stricter(milder: dict[str, Any], stricter: dict[str, Any], field: str) -> None:
    found = [
        compile_retention(kept_feed(**{"limit": "days(40)", **each}), PRIMARY, NO_OVERLAPS)
        for each in (milder, stricter)
    ]
    assert find_stricter(*found) == (field,)
    assert field == "action" or find_stricter(*reversed(found)) == ()


def test_another_location_is_stricter_because_what_lies_there_has_not_expired_yet() -> None:
    templates = {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}", "stats": "/stats/${YEAR}-${MONTH}-${DAY}"}
    before, after = (
        compile_retention(kept_feed(locations=places), PRIMARY, NO_OVERLAPS)
        for places in ({"data": templates["data"]}, templates)
    )
    assert (find_stricter(before, after), find_stricter(after, before)) == (("locations",), ())


@pytest.fixture
def harness(tmp_path: Path) -> RetentionHarness:
    """Three days of clicks of which nothing has expired, on the schedule since the beginning."""
    harness = RetentionHarness.of(tmp_path, kept_feed(limit="days(9)"), kept_feed("views"))
    harness.land("clicks", *hourly(START, 72))
    harness.arrive(at("04"))
    assert due(harness, at("04")) == ["clicks", "views"]
    return harness


def due(harness: RetentionHarness, moment: datetime, grace: timedelta = DAY) -> list[str]:
    """The feeds that the schedule sweeps at a moment."""
    database, timeline = harness.lifecycle.database, harness.lifecycle.timeline
    apply_retention_schedule(database, timeline, "primary", moment, grace)
    with database.begin() as connection:
        found = find_due(connection, timeline.plan, EVERYTHING_SCHEDULED, "primary", moment)
        reschedule_retention(connection, found, moment)
    return [each.record.feed for each in found]


def declare(harness: RetentionHarness, moment: datetime, limit: str) -> None:
    harness.lifecycle.now = harness.now = moment
    harness.lifecycle.declare(kept_feed(limit=limit), kept_feed("views"))


def test_the_schedule_acts_on_a_shorter_limit_when_the_grace_is_over(harness: RetentionHarness) -> None:
    declare(harness, at("04T02:00"), "days(2)")
    assert due(harness, at("04T02:00")) == []
    assert due(harness, at("05T01:59")) == ["views"]
    assert due(harness, at("05T02:00")) == ["clicks"]


def test_the_schedule_acts_at_once_on_a_longer_limit_and_without_a_grace(harness: RetentionHarness) -> None:
    declare(harness, at("04T02:00"), "days(12)")
    assert due(harness, at("04T02:00")) == ["clicks"]
    declare(harness, at("04T03:00"), "days(2)")
    assert due(harness, at("04T03:00"), grace=timedelta(0)) == ["clicks"]


def test_another_change_within_the_grace_neither_ends_nor_prolongs_it(harness: RetentionHarness) -> None:
    declare(harness, at("04T02:00"), "days(2)")
    assert due(harness, at("04T02:00")) == []
    declare(harness, at("04T12:00"), "days(3)")
    assert due(harness, at("05T01:59")) == ["views"]
    assert due(harness, at("05T02:00")) == ["clicks"]


def test_a_limit_that_is_taken_back_within_the_grace_is_as_if_it_had_not_been(harness: RetentionHarness) -> None:
    declare(harness, at("04T02:00"), "days(2)")
    assert due(harness, at("04T02:00")) == []
    declare(harness, at("04T03:00"), "days(9)")
    assert due(harness, at("04T03:00")) == ["clicks"]


def test_a_shorter_limit_that_is_loaded_before_it_is_recorded_waits_too(harness: RetentionHarness) -> None:
    edited = kept_feed(limit="days(2)"), kept_feed("views")
    clusters = [Cluster(name="primary", storage=f"file://{harness.root}")]
    harness.lifecycle.timeline = ReleaseTimeline(declare_location([*clusters, *edited]).plan)
    assert due(harness, at("04T02:00")) == []
    assert sorted(due(harness, at("05T02:00"))) == ["clicks", "views"]


def test_a_wrong_definition_that_was_recorded_meanwhile_is_passed_over(harness: RetentionHarness) -> None:
    wrong = kept_feed(limit="days(9)", locations={"data": "/clicks/${YEAR}-${YEER}"})
    moment = at("04T02:00")
    record_declared(harness.lifecycle.database, [PRIMARY, wrong, kept_feed("views")], moment, Settings())
    declare(harness, at("04T03:00"), "days(2)")
    assert due(harness, at("05T01:59")) == ["views"]
    assert due(harness, at("05T02:00")) == ["clicks"]


def test_a_run_that_ends_after_the_change_does_not_end_the_grace(harness: RetentionHarness) -> None:
    database, old = harness.lifecycle.database, harness.lifecycle.timeline
    with database.read() as connection:
        running = find_due(connection, old.plan, EVERYTHING_SCHEDULED, "primary", at("05"))
    declare(harness, at("05T02:00"), "days(2)")
    assert due(harness, at("05T02:00")) == ["views"]
    with database.begin() as connection:
        reschedule_retention(connection, running, at("05"))
    assert due(harness, at("06T01:59")) == ["views"]
    assert due(harness, at("06T02:00")) == ["clicks"]


def test_a_feed_whose_sweep_is_superseded_waits_for_the_end_of_its_grace(harness: RetentionHarness) -> None:
    declare(harness, at("04T02:00"), "days(2)")
    assert due(harness, at("04T02:00")) == []
    harness.land("views", *hourly(START, 72))
    harness.arrive(at("04T03:00"))
    both = harness.planned(grace=DAY)
    assert {count.feed for count in both.counts} == {"clicks", "views"}
    planned = harness.plan("views", grace=DAY)
    assert [sweep.sweep_id for sweep in planned.superseded] == [both.sweep_id]
    assert "clicks" not in due(harness, at("05T01:59"))
    assert "clicks" in due(harness, at("05T02:00"))


def test_people_plan_at_once_and_are_told_of_the_grace(harness: RetentionHarness) -> None:
    declare(harness, at("04T02:00"), "days(2)")
    planned = harness.plan(grace=DAY)
    assert planned.sweeps[0].paths == 26
    assert {each.record.feed: each.grace for each in planned.feeds} == {
        "clicks": Grace(until=at("05T02:00"), fields=("limit",)),
        "views": None,
    }
