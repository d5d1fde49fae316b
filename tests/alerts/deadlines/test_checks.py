"""What is late, who is told, and how often: one alert a level, one recovery."""

from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.deadlines.checks import LookResult, close_all
from feed_assets.alerts.deadlines.records import Recovery
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus
from tests.alerts.deadlines.looks import late, look, misses, schedule, told
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, process

SLA = {"low": "hours(1)", "high": "hours(3)"}
DONE = {"should_start_in": "hours(1)", "should_end_in": "hours(3)"}
SCHEDULED, SUSPENDED, SUBMITTED = ScheduleState.SCHEDULED, ScheduleState.SUSPENDED, ScheduleState.SUBMITTED


@pytest.fixture
def clicks(tmp_path: Path, state_url: str) -> LifecycleHarness:
    """A feed with an SLA, whose deadlines are watched from its start on."""
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", sla=SLA), state=state_url)
    assert look(lifecycle, START) == LookResult()
    return lifecycle


def test_an_instance_is_told_once_at_each_level_and_once_when_it_comes(clicks: LifecycleHarness) -> None:
    assert look(clicks, "01T01:00") == LookResult()  # at the deadline it is not late yet
    assert look(clicks, "01T01:01", {"clicks": "nobody delivers"}) == LookResult(missed=1)
    assert look(clicks, "01T01:02") == LookResult()
    clicks.land("clicks", at("01T01"))
    clicks.arrive(at("01T01:30"))
    assert look(clicks, "01T03:01") == LookResult(missed=2)  # the first one high, the third one low
    assert late(clicks) == ["01T00 high", "01T00 low", "01T02 low"]
    clicks.land("clicks", at("01T00"), at("01T02"))
    clicks.arrive(at("01T03:40"))
    assert look(clicks, "01T03:41") == LookResult(recovered=3)
    assert look(clicks, "01T03:42") == LookResult()
    assert late(clicks) == []
    assert told(clicks) == [
        "missed low feed clicks: 01T00 (nobody delivers)",
        "missed low feed clicks: 01T02",
        "missed high feed clicks: 01T00",
        "recovered low feed clicks: 01T02 (it has arrived)",
        "recovered high feed clicks: 01T00 (it has arrived)",
    ]
    first = misses(clicks)[1]
    assert (first.due_at, first.missed_at, first.told_at) == (at("01T01"), at("01T01:01"), at("01T01:01"))
    assert (first.recovered_at, first.recovered_by) == (at("01T03:40"), Recovery.ARRIVED)


def test_after_a_stop_what_is_still_missing_is_told_together_and_what_has_come_late_is_only_recorded(
    clicks: LifecycleHarness,
) -> None:
    clicks.land("clicks", at("01T00"), at("01T01"))
    clicks.arrive(at("01T01:30"))  # the first one too late, the second one in time
    assert look(clicks, "01T04:30") == LookResult(missed=2 + 0, recorded=1)
    assert told(clicks) == ["missed low feed clicks: 01T02, 01T03"]
    assert [(f"{each.nominal_time:%H} {each.level}", each.told_at, each.recovered_at) for each in misses(clicks)] == [
        ("00 low", None, at("01T01:30")),
        ("02 low", at("01T04:30"), None),
        ("03 low", at("01T04:30"), None),
    ]


def test_a_clock_that_goes_back_tells_nothing_twice(clicks: LifecycleHarness) -> None:
    look(clicks, "01T05:30")
    before = told(clicks)
    assert len(before) == 2
    assert look(clicks, "01T00:30") == LookResult()
    assert look(clicks, "01T05:30") == LookResult()
    assert told(clicks) == before


def test_only_what_has_a_flag_has_come_even_if_it_is_empty(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", flag="_SUCCESS", sla=SLA), state=state_url)
    look(lifecycle, START)
    lifecycle.land("clicks", at("01T00"), at("01T01"))
    lifecycle.flag("clicks", at("01T00"), at("01T02"))
    lifecycle.arrive(at("01T02:30"))
    look(lifecycle, "01T03:30")
    assert late(lifecycle) == ["01T01 low"]


def test_the_sla_of_a_cluster_comes_first(tmp_path: Path) -> None:
    clicks = feed("clicks", sla=SLA, clusters=("primary", "backup"))
    own = clicks.clusters["backup"].model_copy(update={"sla": clicks.sla.model_copy(update={"low": SOONER})})  # type: ignore[union-attr]
    clicks = clicks.model_copy(update={"clusters": {**clicks.clusters, "backup": own}})
    lifecycle = LifecycleHarness.of(tmp_path, clicks, clusters=("primary", "backup"))
    for cluster in ("primary", "backup"):
        look(lifecycle, START, cluster=cluster)
        look(lifecycle, "01T00:31", cluster=cluster)
    assert told(lifecycle) == ["missed low feed clicks on backup: 01T00"]


def test_evicted_while_it_is_late_an_instance_has_one_recovery(clicks: LifecycleHarness) -> None:
    look(clicks, "01T01:30")
    evicted = FeedInstance(
        feed="clicks", cluster="primary", nominal_time=START, status=FeedInstanceStatus.EVICTED, updated_at=at("01T02")
    )
    with clicks.database.begin() as connection:
        FeedInstances(connection).put([evicted])
    look(clicks, "01T01:40")
    look(clicks, "01T03:30")
    assert [line for line in told(clicks) if "01T00" in line] == [
        "missed low feed clicks: 01T00",
        "recovered low feed clicks: 01T00 (retention has removed it)",
    ]


def test_deleted_while_it_is_late_a_feed_has_one_recovery_and_no_deadline_any_more(clicks: LifecycleHarness) -> None:
    look(clicks, "01T05:30")
    clicks.declare()
    look(clicks, "01T05:40")
    look(clicks, "01T09:00")
    assert told(clicks) == [
        "missed low feed clicks: 01T00, 01T01, 01T02, 01T03, 01T04",
        "missed high feed clicks: 01T00, 01T01, 01T02",
        "recovered low feed clicks: 01T03, 01T04 (its feed or process was deleted)",
        "recovered high feed clicks: 01T00, 01T01, 01T02 (its feed or process was deleted)",
    ]


def test_without_its_sla_a_feed_is_not_late_and_with_it_again_only_from_then_on(clicks: LifecycleHarness) -> None:
    look(clicks, "01T01:30")
    clicks.declare(feed("clicks"))
    look(clicks, "01T01:40")
    clicks.declare(feed("clicks", sla=SLA))
    look(clicks, "01T02:10")
    look(clicks, "01T02:20")
    assert told(clicks) == [
        "missed low feed clicks: 01T00",
        "recovered low feed clicks: 01T00 (it has no such deadline any more)",
    ]
    look(clicks, "01T03:10")
    assert told(clicks)[2:] == ["missed low feed clicks: 01T02", "missed high feed clicks: 01T00"]


def test_a_deadline_that_is_moved_behind_the_present_is_missed_again_later(clicks: LifecycleHarness) -> None:
    look(clicks, "01T01:30")
    clicks.declare(feed("clicks", sla={"low": "hours(2)", "high": "hours(3)"}))
    look(clicks, "01T01:40")
    assert late(clicks) == []
    look(clicks, "01T02:10")
    look(clicks, "01T02:20")
    assert told(clicks) == [
        "missed low feed clicks: 01T00",
        "recovered low feed clicks: 01T00 (its deadline was moved)",
        "missed low feed clicks: 01T00",
    ]
    assert [each.episode for each in misses(clicks)] == [1, 2]


def test_deadlines_begin_with_the_declaration_or_with_the_time_that_is_declared(tmp_path: Path, state_url: str) -> None:
    since = {**SLA, "since": at("02T22")}
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", sla=SLA), feed("views", sla=since), state=state_url)
    look(lifecycle, "03T00:30")
    assert told(lifecycle) == ["missed low feed views: 02T22, 02T23"]
    look(lifecycle, "03T01:00")
    look(lifecycle, "03T01:05")
    assert told(lifecycle)[1:] == [
        "missed low feed clicks: 03T00",
        "missed low feed views: 03T00",
        "missed high feed clicks: 02T22",
        "missed high feed views: 02T22",
    ]


SOONER = feed("any", sla={"low": "minutes(30)", "high": "hours(3)"}).sla.low  # type: ignore[union-attr]


def test_a_process_must_start_and_then_succeed(tmp_path: Path, state_url: str) -> None:
    entities = (
        feed("clicks"),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, sla=DONE),
    )
    lifecycle = LifecycleHarness.of(tmp_path, *entities, state=state_url)
    look(lifecycle, START)
    lifecycle.tick(at("01T00:10"))
    look(lifecycle, "01T01:10")
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T01:20"))

    def broken(_: object) -> dict[str, str]:
        raise RuntimeError("boom")

    good, lifecycle.job = lifecycle.job, broken
    with pytest.raises(RuntimeError):
        lifecycle.run("count", START, at("01T01:30"))
    look(lifecycle, "01T01:40")  # it has started
    look(lifecycle, "01T03:10")
    lifecycle.job = good
    lifecycle.run("count", START, at("01T03:20"), "run-2")
    look(lifecycle, "01T03:30")
    assert [line for line in told(lifecycle) if "01T00" in line] == [
        "missed low process count: 01T00",
        "recovered low process count: 01T00 (it has started)",
        "missed high process count: 01T00",
        "recovered high process count: 01T00 (it has succeeded)",
    ]


def test_a_rerun_of_what_has_succeeded_in_time_is_not_late(tmp_path: Path) -> None:
    entities = (
        feed("clicks"),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, sla=DONE),
    )
    lifecycle = LifecycleHarness.of(tmp_path, *entities)
    look(lifecycle, START)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T00:10"))
    lifecycle.run("count", START, at("01T00:20"))

    def broken(_: object) -> dict[str, str]:
        look(lifecycle, "01T03:30")  # while it runs again
        raise RuntimeError("boom")

    lifecycle.job = broken
    with pytest.raises(RuntimeError):
        lifecycle.run("count", START, at("01T02:59"), "run-2")
    assert [line for line in told(lifecycle) if "01T00" in line] == []


def test_suspended_a_process_is_not_late_and_resumed_it_is_later_by_the_time_of_the_suspension(
    tmp_path: Path, state_url: str
) -> None:
    daily = process("count", "days(1)", inputs={"clicks": "now(0,0)"}, sla=DONE)
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), daily, state=state_url)
    look(lifecycle, START)
    lifecycle.tick(at("01T00:10"))
    schedule(lifecycle, "count", SUSPENDED, "01T00:30")
    look(lifecycle, "01T02:00")
    look(lifecycle, "01T09:00")
    assert told(lifecycle) == []
    schedule(lifecycle, "count", SCHEDULED, "01T10:30")
    look(lifecycle, "01T11:00")
    assert told(lifecycle) == []
    look(lifecycle, "01T11:01")
    assert told(lifecycle) == ["missed low process count: 01T00"]
    look(lifecycle, "01T13:00")
    assert late(lifecycle) == ["01T00 low"]
    look(lifecycle, "01T13:01")
    assert late(lifecycle) == ["01T00 high", "01T00 low"]
    look(lifecycle, "02T01:01")  # the next one is not moved
    assert told(lifecycle)[2:] == ["missed low process count: 02T00"]


def test_deadlines_of_a_process_count_once_it_is_scheduled_and_those_of_feeds_at_once(tmp_path: Path) -> None:
    daily = process("count", "days(1)", inputs={"clicks": "now(0,0)"}, sla=DONE)
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "days(1)", sla=SLA), daily)
    lifecycle.database.is_explicit = True
    look(lifecycle, START)
    look(lifecycle, "01T01:30")
    assert told(lifecycle) == ["missed low feed clicks: 01T00"]
    schedule(lifecycle, "count", SCHEDULED, "01T02:00")
    look(lifecycle, "01T03:00")
    assert told(lifecycle)[1:] == []
    look(lifecycle, "01T03:01")
    assert told(lifecycle)[1:] == ["missed high feed clicks: 01T00", "missed low process count: 01T00"]


def test_what_is_left_out_of_the_plan_keeps_its_place_and_its_misses(clicks: LifecycleHarness) -> None:
    look(clicks, "01T01:30")
    whole = clicks.plan
    facts = {key: value for key, value in whole.facts.items() if key[0] != "feed"}
    clicks.use(type(whole)(digest="broken", clusters=whole.clusters, feeds={}, processes={}, facts=facts))
    assert look(clicks, "01T02:30") == LookResult()
    assert late(clicks) == ["01T00 low"]
    clicks.use(whole)
    look(clicks, "01T02:40")
    assert told(clicks) == ["missed low feed clicks: 01T00", "missed low feed clicks: 01T01"]


def test_with_its_cluster_everything_that_was_late_there_ends(clicks: LifecycleHarness) -> None:
    look(clicks, "01T01:30")
    assert close_all(clicks.database, "primary", at("01T02"), Recovery.DELETED) == 1
    assert close_all(clicks.database, "primary", at("01T02"), Recovery.DELETED) == 0
    assert told(clicks)[1:] == ["recovered low feed clicks: 01T00 (its feed or process was deleted)"]


def test_a_look_without_news_asks_the_same_questions_however_many_feeds_there_are(tmp_path: Path) -> None:
    counts = []
    for number in (2, 40):
        (tmp_path / str(number)).mkdir()
        lifecycle = LifecycleHarness.of(tmp_path / str(number), *(feed(f"feed{n}", sla=SLA) for n in range(number)))
        look(lifecycle, START)
        with counted_statements() as asked:
            assert look(lifecycle, "01T00:30") == LookResult()
        counts.append(len(asked))
    assert counts[0] == counts[1] < 20


def test_one_message_names_at_most_so_many_instances_and_the_next_look_goes_on(tmp_path: Path) -> None:
    fast = feed("clicks", "minutes(1)", sla={"low": "minutes(1)", "high": "days(9)"})
    lifecycle = LifecycleHarness.of(tmp_path, fast)
    look(lifecycle, START)
    assert look(lifecycle, "01T10:01") == LookResult(missed=500)
    assert look(lifecycle, "01T10:01") == LookResult(missed=100)
    assert sorted({each.nominal_time for each in misses(lifecycle)}) == [
        START + timedelta(minutes=n) for n in range(600)
    ]
