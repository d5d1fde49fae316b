from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates import readiness
from feed_assets.instances.gates.readiness import decide_materialization
from feed_assets.instances.gates.requests import decide_affected
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import (
    FeedEvent,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    NewFeedEvent,
    ProcessInstanceStatus,
    Watermark,
    WatermarkKind,
)
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import ActiveRelease
from tests.drills import sized
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY
DAY = timedelta(days=1)
WINDOWS = (
    "now(0,0)",
    "now(-3,0) now(1,0)",
    "today(0,0) tomorrow(0,-1)",
    "yesterday(0,0) today(0,0)",
    "currentMonth(0,0,0) now(0,0)",
    "lastWeek('MON',0,0) currentWeek('MON',0,0)",
    "now(-30,17) now(0,-1)",
)
FREQUENCIES = ("minutes(45)", "hours(1)", "hours(5)", "days(1)", "days(2)")
ZONES = ("UTC", "America/New_York")
END = at("2013-11-20")


def plan_of(*entities: Feed | Process) -> Plan:
    return compile_plan(Bundle(entities=(Cluster(name="primary", storage="memory://x"), *entities)))


def arrival(name: str, time: datetime, kind: FeedEventKind = FeedEventKind.ARRIVED) -> FeedEvent:
    return FeedEvent(
        feed=name, cluster="primary", nominal_time=time, kind=kind, origin="test", recorded_at=START, seq=1
    )


@settings(max_examples=150, deadline=None)
@given(
    window=st.sampled_from(WINDOWS),
    of_feed=st.sampled_from(FREQUENCIES),
    of_process=st.sampled_from(FREQUENCIES),
    zone=st.sampled_from(ZONES),
    offset=st.integers(-30, 30),
    picks=st.lists(st.integers(0, 10_000), min_size=1, max_size=6),
)
def test_events_touch_exactly_the_instances_whose_window_holds_one_of_them(
    window: str, of_feed: str, of_process: str, zone: str, offset: int, picks: Sequence[int]
) -> None:
    start = at("05") + timedelta(hours=offset)
    plan = plan_of(
        feed("clicks", of_feed, start=START, end=END),
        process("count", of_process, inputs={"clicks": window}, start=start, end=END, timezone=zone),
    )
    record, edge = plan.processes["count", "primary"], plan.processes["count", "primary"].inputs[0]
    clicks = plan.feeds["clicks", "primary"].sequence
    arrived = {clicks.at(pick % (clicks.size or 1)) for pick in picks}

    affected = decide_affected(plan, "primary", [arrival("clicks", time) for time in arrived])

    expected = {
        index
        for index in range(record.sequence.size or 0)
        if arrived & {clicks.at(n) for n in plan.input_indices(edge, record.sequence.at(index))}
    }
    found = affected.get(record.key, [])
    assert found is not None
    assert {index for run in found for index in run} == expected


@pytest.mark.parametrize("kind", [FeedEventKind.EVICTED, FeedEventKind.VANISHED, FeedEventKind.CHANGED])
def test_events_that_bring_nothing_touch_nothing(kind: FeedEventKind) -> None:
    plan = plan_of(feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}))
    assert decide_affected(plan, "primary", [arrival("clicks", START, kind)]) == {}


def test_events_of_feeds_that_nobody_declares_touch_nothing() -> None:
    plan = plan_of(feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}))
    assert decide_affected(plan, "primary", [arrival("gone", START)]) == {}


def test_an_event_of_a_data_driven_input_touches_all_that_wait() -> None:
    both = {"clicks": "latest(0)", "views": "now(0,0)"}
    plan = plan_of(feed("clicks"), feed("views"), process("count", inputs=both))
    arrivals = [arrival("views", START), arrival("clicks", START)]
    assert (
        decide_affected(plan, "primary", arrivals)
        == decide_affected(plan, "primary", arrivals[::-1])
        == {("count", "primary"): None}
    )


@pytest.mark.sample
@settings(max_examples=sized(15, 150), deadline=None)
@given(landed=st.sets(st.integers(0, 47)), window=st.sampled_from(WINDOWS[:3]), steps=st.integers(1, 5))
def test_in_the_end_ready_is_what_has_all_its_inputs_however_the_data_came(
    tmp_path_factory: pytest.TempPathFactory, landed: set[int], window: str, steps: int
) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path_factory.mktemp("world"),
        feed("clicks", start=at("2013-10-20"), end=at("03")),
        process("count", "hours(2)", inputs={"clicks": window}, end=at("03"), timeout="days(30)"),
    )
    before = hours(12 * 24, at("2013-10-20"))
    with lifecycle.database.begin() as connection:
        record_arrivals(connection, before)
    lifecycle.ready(START)
    times = [START + timedelta(hours=n) for n in sorted(landed)]
    for step in range(steps):
        with lifecycle.database.begin() as connection:
            record_arrivals(connection, times[step::steps])
        lifecycle.ready(START + DAY * (step + 1) if step < steps - 1 else at("09"))

    there = {*before, *times}
    edge, clicks = lifecycle.process("count").inputs[0], lifecycle.feed("clicks").sequence
    for time, status in lifecycle.statuses("count").items():
        wanted = {clicks.at(n) for n in lifecycle.plan.input_indices(edge, time)}
        assert (status is READY) == (wanted <= there), time


def record_arrivals(connection, times: Sequence[datetime]) -> None:  # type: ignore[no-untyped-def]
    """Instances of clicks that came somehow."""
    events = [
        NewFeedEvent(
            feed="clicks",
            cluster="primary",
            nominal_time=time,
            kind=FeedEventKind.ARRIVED,
            origin="test",
            recorded_at=START,
        )
        for time in times
    ]
    EventLog(connection).append(events)
    FeedInstances(connection).put(
        FeedInstance(
            feed="clicks",
            cluster="primary",
            nominal_time=time,
            status=FeedInstanceStatus.AVAILABLE,
            updated_at=START,
        )
        for time in times
    )


def test_a_second_tick_changes_nothing(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}))
    lifecycle.land("clicks", START)
    first = lifecycle.tick(at("01T00:30"))
    before = lifecycle.instances("count")
    with counted_statements() as statements:
        second = lifecycle.tick(at("01T00:30"))
    assert (len(first), second) == (1, [])
    assert lifecycle.instances("count") == before
    assert not [text for text in statements if text.startswith(("INSERT", "UPDATE"))]


def test_what_a_process_publishes_opens_the_gates_of_its_readers(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks"),
        feed("counts"),
        process("count", outputs={"counts": "now(0,0)"}),
        process("report", inputs={"counts": "now(0,0)"}),
    )
    (count,) = lifecycle.tick(START)
    assert lifecycle.statuses("report") == {START: WAITING}

    lifecycle.launch([count], at("01T00:10"))

    assert [request.process.process for request in lifecycle.tick(at("01T00:20"))] == ["report"]


def test_clusters_have_their_own_instances_events_and_requests(tmp_path: Path) -> None:
    both = ("east", "west")
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", clusters=both),
        process("count", inputs={"clicks": "now(0,0)"}, clusters=both),
        clusters=both,
    )
    lifecycle.land("clicks", START, cluster="east")

    (request,) = lifecycle.tick(START, "east")
    assert request.process.cluster == "east"
    assert lifecycle.statuses("count", "west") == {}
    assert lifecycle.tick(START, "west") == []
    assert lifecycle.statuses("count", "west") == {START: WAITING}

    lifecycle.land("clicks", START, cluster="west")
    assert [request.process.cluster for request in lifecycle.tick(at("01T00:10"), "west")] == ["west"]


def test_many_events_are_read_in_steps_and_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "EVENTS_A_STEP", 3)
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}))
    lifecycle.ready(at("01T09:00"))
    lifecycle.land("clicks", *hours(10))
    lifecycle.arrive(at("01T09:00"))

    assert not lifecycle.ready(at("01T09:00"), seconds=0.0).is_complete
    assert lifecycle.ready(at("01T09:00")).is_complete

    assert set(lifecycle.statuses("count").values()) == {READY}


def test_catching_up_makes_all_instances_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "INSTANCES_A_STEP", 7)
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))

    first = lifecycle.ready(at("03"), seconds=0.0)
    rest = lifecycle.ready(at("03"))

    assert (first.materialized, first.is_complete) == (7, False)
    assert (rest.materialized, rest.is_complete) == (42, True)
    assert list(lifecycle.statuses("ping")) == hours(49)


def test_the_number_of_statements_follows_the_events_not_the_waiting(tmp_path: Path) -> None:
    counts = []
    for backlog in (10, 200):
        folder = tmp_path / str(backlog)
        folder.mkdir()
        lifecycle = LifecycleHarness.of(
            folder, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}, timeout="days(90)")
        )
        as_of = START + timedelta(hours=backlog, minutes=-30)
        lifecycle.ready(as_of)
        with lifecycle.database.begin() as connection:
            record_arrivals(connection, [START])
        with counted_statements() as statements:
            assert lifecycle.ready(as_of).ready == 1
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_materialization_is_decided_without_a_database() -> None:
    plan = plan_of(process("ping", end=at("01T03:00")))
    record = plan.processes["ping", "primary"]
    watermark = Watermark(
        kind=WatermarkKind.PROCESS, entity="ping", cluster="primary", next_index=1, next_time=hours(2)[1]
    )

    rows, following = decide_materialization([ActiveRelease.whole(plan, record.key)], watermark, at("09"))

    assert [row.nominal_time for row in rows] == hours(3)[1:]
    assert (following.next_index, following.next_time) == (3, None)
    assert {row.definition_digest for row in rows} == {record.definition_digest}
