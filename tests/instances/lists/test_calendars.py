"""The calendar of a feed or process: counts of days and hours, clock changes, and what is only arithmetic."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.deadlines.records import SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.catalog.run_metadata import Facts
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.feed import Feed
from feed_assets.errors import FeedAssetsError
from feed_assets.instances.lists.calendars import Calendar, CalendarCell, show_calendar
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import (
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    NewFeedEvent,
    ProcessInstanceStatus,
    ProcessKey,
)
from tests.context.contexts import context_of, put, row
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process, validity
from tests.replication.test_flows import harness_of, replicated

NEW_YORK = "America/New_York"
BEGUN = at("2013-10-31T04:00")


LETTERS = Feed(
    name="letters",
    instances="as-they-come",
    frequency="seconds(1)",
    format="json",
    locations={"data": "/letters/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"},
    clusters={"primary": validity(START, None)},
)


def calendar_of(
    lifecycle: LifecycleHarness, name: str, as_of: datetime, *, year: int | None = None, day: str | None = None
) -> Calendar:
    context = context_of(lifecycle, as_of)
    return show_calendar(context, resolve_subject(context, name), year, day)


def cells(found: Calendar) -> dict[str, dict[str, int]]:
    return {cell.label: dict(cell.counts) for cell in found.cells}


def record(lifecycle: LifecycleHarness, name: str, *times: datetime, status: str = "AVAILABLE") -> None:
    rows = [
        FeedInstance(
            feed=name, cluster="primary", nominal_time=time, status=FeedInstanceStatus(status), updated_at=time
        )
        for time in times
    ]
    with lifecycle.database.begin() as connection:
        FeedInstances(connection).put(rows)


@pytest.mark.both_databases
def test_days_are_those_of_the_zone_and_holes_are_counted_without_rows(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("weather", start=BEGUN, timezone=NEW_YORK, path_timezone="UTC"), state=state_url
    )
    record(lifecycle, "weather", *hours(26, at("03T04:00"))[2:])
    record(lifecycle, "weather", at("03T04:00"), status="PARTIAL")
    found = calendar_of(lifecycle, "weather", at("05T06:30"), year=2013)
    days = cells(found)
    assert list(days)[:6] == ["2013-10-31", *(f"2013-11-0{day}" for day in range(1, 6))]
    assert days["2013-10-31"] == {"MISSING": 24}
    assert days["2013-11-03"] == {"AVAILABLE": 23, "MISSING": 1, "PARTIAL": 1}
    assert days["2013-11-04"] == {"AVAILABLE": 1, "MISSING": 23}
    assert days["2013-11-05"] == {"MISSING": 2, "UNSCHEDULED": 22}
    assert days["2013-12-31"] == {"UNSCHEDULED": 24}
    assert (found.timezone, found.since, len(days)) == (NEW_YORK, BEGUN, 62)
    assert cells(calendar_of(lifecycle, "weather", at("05T06:30"), year=2014))["2014-03-09"] == {"UNSCHEDULED": 23}


def test_a_day_of_a_clock_change_has_an_hour_twice(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("weather", start=BEGUN, timezone=NEW_YORK, path_timezone="UTC"))
    record(lifecycle, "weather", at("03T05:00"))
    found = calendar_of(lifecycle, "weather", at("05T06:30"), day="2013-11-03").cells
    assert [cell.label for cell in found[:4]] == ["00:00 EDT", "01:00 EDT", "01:00 EST", "02:00 EST"]
    assert [(cell.instance, dict(cell.counts)) for cell in found[:2]] == [
        (at("03T04:00"), {"MISSING": 1}),
        (at("03T05:00"), {"AVAILABLE": 1}),
    ]
    assert len(found) == 25


def test_days_without_an_instance_are_left_out_and_an_only_instance_is_named(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("weekly", "days(7)"), feed("monthly", "months(1)"))
    weekly = calendar_of(lifecycle, "weekly", at("10T00:00")).cells
    assert [(cell.label, cell.instance) for cell in weekly[:2]] == [
        ("2013-11-01", at("01T00:00")),
        ("2013-11-08", at("08T00:00")),
    ]
    assert list(cells(calendar_of(lifecycle, "monthly", at("10T00:00")))) == ["2013-11-01", "2013-12-01"]


def test_of_what_comes_as_it_comes_it_counts_what_came(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, LETTERS)
    record(lifecycle, "letters", *(at("02T07:00") + timedelta(seconds=n) for n in (1, 5, 3_700)))
    assert cells(calendar_of(lifecycle, "letters", at("10T00:00"))) == {"2013-11-02": {"AVAILABLE": 3}}
    found = calendar_of(lifecycle, "letters", at("10T00:00"), day="2013-11-02")
    assert [(cell.label, cell.expected, cell.instance) for cell in found.cells] == [
        ("07:00 UTC", 2, None),
        ("08:00 UTC", 1, at("02T08:01") + timedelta(seconds=40)),
    ]


@pytest.mark.both_databases
def test_a_process_is_counted_by_its_states(tmp_path: Path, state_url: str) -> None:
    counting = process("count", inputs={"clicks": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), counting, state=state_url)
    lifecycle.tick(at("01T02:10"))
    put(lifecycle, row("count", at("01T23:00"), ProcessInstanceStatus.SUCCEEDED, attempt=2))
    found = calendar_of(lifecycle, "count", at("01T02:10"), year=2013)
    assert cells(found)["2013-11-01"] == {"SUCCEEDED": 1, "UNSCHEDULED": 21, "WAITING": 3}
    assert cells(found)["2013-11-02"] == {"UNSCHEDULED": 24}
    assert dict(found.cells[0].marks) == {"made again": 1}


@pytest.mark.both_databases
def test_what_is_late_came_again_or_has_bad_rows_is_marked(tmp_path: Path, state_url: str) -> None:
    counts = feed("counts", quality={"rules": {"has-id": "id is not null"}, "threshold": 90})
    counting = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), counts, counting, state=state_url)
    one, two, three = hours(3, at("02T00:00"))
    of = {"cluster": "primary", "nominal_time": one}
    made = NewFeedEvent(feed="counts", kind=FeedEventKind.PRODUCED, origin="x", recorded_at=three, **of)
    evicted, restored = (
        replace(made, nominal_time=two, kind=kind) for kind in (FeedEventKind.EVICTED, FeedEventKind.RESTORED)
    )
    miss = SlaMiss(kind="feed", name="counts", level=SlaLevel.LOW, due_at=one, missed_at=one, **of)
    late = replace(miss, nominal_time=two)
    with lifecycle.database.begin() as connection:
        EventLog(connection).append([made, made, replace(made, nominal_time=two), evicted, restored])
        SlaMisses(connection).add([replace(miss, recovered_at=three), late, replace(late, level=SlaLevel.HIGH)])
        for time, verdicts in ((two, ("false", "true")), (three, ("true", "false"))):
            for attempt, verdict in enumerate(verdicts, start=1):
                said = {"did.dq.pass": verdict}
                Facts(connection).add(ProcessKey("count", "primary", time), attempt, "quality/counts", said, three)
    days = calendar_of(lifecycle, "counts", at("03T00:00"), year=2013).cells
    assert [dict(cell.marks) for cell in days[:3]] == [{}, {"late": 1, "made again": 1, "with bad rows": 1}, {}]
    times = calendar_of(lifecycle, "counts", at("03T00:00"), day="2013-11-02").cells
    assert [dict(cell.marks) for cell in times[:3]] == [{"made again": 1}, {"late": 1}, {"with bad rows": 1}]


def test_a_replica_stands_behind_its_source(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated())
    record(lifecycle, "clicks", at("01T00:00"))
    found = calendar_of(lifecycle, "clicks", at("01T00:30"), day="2013-11-01").cells[:2]

    def told(cell: CalendarCell) -> tuple[object, ...]:
        return cell.label, cell.cluster, cell.source_cluster, dict(cell.counts)

    assert [told(cell) for cell in found] == [
        ("00:00 UTC", "primary", None, {"AVAILABLE": 1}),
        ("00:00 UTC", "backup", "primary", {"MISSING": 1}),
    ]


def test_a_year_of_a_feed_is_few_statements_whatever_its_size(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("often", "minutes(5)"))
    with counted_statements() as statements:
        found = calendar_of(lifecycle, "often", at("2015-01-01T00:00"), year=2014)
    assert (len(found.cells), sum(cell.expected for cell in found.cells)) == (365, 105_120)
    assert len([text for text in statements if "FROM fa_" in text or "JOIN fa_" in text]) < 10


@pytest.mark.parametrize(("year", "day"), [(2013, "2013-11-03"), (None, "yesterday"), (20_130, None), (9_999, None)])
def test_what_is_no_year_and_no_day_is_refused(tmp_path: Path, year: int | None, day: str | None) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    with pytest.raises(FeedAssetsError, match=r"year|not a day"):
        calendar_of(lifecycle, "clicks", at("02T00:00"), year=year, day=day)
