from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from feed_assets.context.bulkheads import SHORTEST_PAUSE
from feed_assets.context.tick import Tick
from feed_assets.entities.feed import Feed
from feed_assets.instances.arrival import polling
from feed_assets.instances.arrival.polling import LONGEST_PAUSE, LONGEST_PAUSE_BEGUN, pause_after_poll
from feed_assets.instances.arrival.store_polls import Candidate
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, WatermarkKind
from feed_assets.storage.records import Look
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

MISSING, PARTIAL = FeedInstanceStatus.MISSING, FeedInstanceStatus.PARTIAL
EMPTY, AVAILABLE = FeedInstanceStatus.EMPTY, FeedInstanceStatus.AVAILABLE


def test_an_instance_is_looked_at_from_its_nominal_time_on(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", *hours(2))
    lifecycle.arrive(START - timedelta(seconds=1))
    assert lifecycle.looked == []

    lifecycle.arrive(START)

    assert lifecycle.feed_statuses("clicks") == {START: AVAILABLE}


def test_row_13_a_cluster_with_its_own_locations_has_its_data_there_and_nowhere_else(tmp_path: Path) -> None:
    elsewhere = feed("clicks", clusters=("primary", "backup")).model_dump(mode="json", by_alias=True)
    elsewhere["clusters"]["backup"]["locations"] = {"data": "/copies/${YEAR}-${MONTH}-${DAY}-${HOUR}-${MINUTE}/"}
    lifecycle = LifecycleHarness.of(tmp_path, Feed.model_validate(elsewhere), clusters=("primary", "backup"))
    for folder in (
        "primary/clicks/2013-11-01/00-00",
        "backup/clicks/2013-11-01/00-00",
        "backup/copies/2013-11-01-01-00",
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part-0.csv").write_text("data")

    for cluster in ("primary", "backup"):
        lifecycle.arrive(at("01T01:00"), cluster)

    assert [event.nominal_time for event in lifecycle.events() if event.cluster == "primary"] == [START]
    assert [event.nominal_time for event in lifecycle.events() if event.cluster == "backup"] == [at("01T01:00")]


def test_an_arrival_is_one_event_that_the_instance_points_to(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", START, text="four")

    found = lifecycle.arrive(START)

    (event,) = lifecycle.events()
    assert (found.polled, found.arrived, found.is_complete) == (1, 1, True)
    assert (event.kind, event.nominal_time, event.bytes, event.files) == (FeedEventKind.ARRIVED, START, 4, 1)
    row = lifecycle.feed_instances("clicks")[START]
    assert (row.event_seq, row.available_at, row.manifest_digest) == (event.seq, START, event.manifest_digest)
    assert event.payload == {"path": lifecycle.feed("clicks").path(START)}


def test_what_has_been_found_is_never_looked_at_again(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", *hours(10))
    lifecycle.arrive(at("01T09:00"))
    lifecycle.looked.clear()

    found = lifecycle.arrive(at("01T09:59"))

    assert (found.polled, lifecycle.looked) == (0, [])
    assert len(lifecycle.events()) == 10


def test_the_cost_of_an_idle_tick_does_not_depend_on_how_many_instances_there_are(tmp_path: Path) -> None:
    counts = []
    for days in (1, 20):
        folder = tmp_path / str(days)
        folder.mkdir()
        lifecycle = LifecycleHarness.of(folder, feed("clicks"))
        lifecycle.land("clicks", *hours(24 * days))
        lifecycle.arrive(START + timedelta(days=days, minutes=-1))
        with counted_statements() as statements:
            lifecycle.arrive(START + timedelta(days=days, seconds=-1))
        counts.append(len(statements))
    assert counts[0] == counts[1] <= 6


def test_a_tick_whose_time_is_up_is_continued_by_the_next_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "BATCH", 4)
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", *hours(10))
    as_of = at("01T09:00")

    parts = [lifecycle.arrive(as_of, seconds=0.0) for _ in range(4)]

    assert [part.polled for part in parts] == [4, 4, 2, 0]
    assert [part.is_complete for part in parts] == [False, False, False, True]
    assert len(lifecycle.looked) == 10
    assert set(lifecycle.feed_statuses("clicks")) == set(hours(10))


def test_a_feed_with_a_long_past_does_not_keep_another_from_its_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "BATCH", 4)
    lifecycle = LifecycleHarness.of(tmp_path, feed("old"), feed("young", start=at("20")))
    lifecycle.land("young", at("20"))

    lifecycle.arrive(at("20"), seconds=0.0)

    assert lifecycle.feed_statuses("young") == {at("20"): AVAILABLE}
    assert len(lifecycle.feed_statuses("old")) == 2


def test_missing_instances_are_looked_at_while_a_long_past_is_being_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.arrive(START)
    lifecycle.land("clicks", START)
    monkeypatch.setattr(polling, "BATCH", 2)
    old = feed("old", start=at("2013-10-01"))
    lifecycle.declare(feed("clicks", end=at("01T01:00")), old)

    lifecycle.arrive(at("02"))

    assert lifecycle.feed_statuses("clicks") == {START: AVAILABLE}
    clicks, olds = lifecycle.feed("clicks").path(START), lifecycle.feed("old").path(at("02"))
    assert lifecycle.looked.index(clicks, 1) < lifecycle.looked.index(olds)


def test_missing_instances_are_looked_at_ever_more_rarely_and_at_least_every_six_hours() -> None:
    ages = [timedelta(seconds=10), timedelta(minutes=10), timedelta(hours=10), timedelta(days=10), timedelta(days=1000)]
    pauses = [pause_after_poll(START, START + age) for age in ages]
    assert pauses[0] == SHORTEST_PAUSE
    assert pauses[1] == timedelta(seconds=12)
    assert pauses[-1] == LONGEST_PAUSE
    assert all(earlier <= later for earlier, later in pairwise(pauses))


def test_a_missing_instance_is_left_alone_until_its_pause_is_over(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "days(1)"))
    lifecycle.arrive(at("01T10:00"))
    assert lifecycle.feed_statuses("clicks") == {START: MISSING}
    assert lifecycle.next_poll("clicks", START) == at("01T10:12")

    assert lifecycle.arrive(at("01T10:11")).polled == 0
    assert lifecycle.arrive(at("01T10:12")).polled == 1


def test_looks_at_one_instance_that_never_comes_are_few(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "months(1)"))
    as_of = START
    while as_of < at("20"):
        lifecycle.arrive(as_of)
        as_of += timedelta(minutes=30)
    assert len(lifecycle.looked) < 200


def test_a_late_arrival_of_an_old_instance_is_found(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", *hours(24 * 10)[1:])
    lifecycle.arrive(at("10T23:00"))
    assert lifecycle.feed_statuses("clicks")[START] is MISSING

    lifecycle.land("clicks", START)
    lifecycle.arrive(at("10T23:00") + LONGEST_PAUSE)

    assert lifecycle.feed_statuses("clicks")[START] is AVAILABLE
    assert lifecycle.events()[-1].nominal_time == START


def test_a_part_becomes_available_with_its_flag(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", flag="_DONE"))
    lifecycle.land("clicks", START)
    lifecycle.arrive(START)
    assert lifecycle.feed_statuses("clicks") == {START: PARTIAL}
    assert lifecycle.events() == []

    lifecycle.flag("clicks", START)
    lifecycle.arrive(at("01T00:01"))

    assert lifecycle.feed_statuses("clicks") == {START: AVAILABLE}


def test_an_empty_directory_without_a_flag_is_still_being_written(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.land("clicks", START, text="")
    lifecycle.arrive(START)
    assert lifecycle.feed_statuses("clicks") == {START: EMPTY}

    lifecycle.land("clicks", START)
    lifecycle.arrive(at("01T00:01"))

    assert lifecycle.feed_statuses("clicks") == {START: AVAILABLE}


def test_an_instance_that_is_known_already_has_no_second_event_when_the_walk_comes_to_it(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}))
    lifecycle.land("clicks", START)
    lifecycle.run("count", START, START)
    assert len(lifecycle.events("clicks")) == 1

    found = lifecycle.arrive(START)

    assert (found.polled, found.arrived) == (1, 0)
    assert len(lifecycle.events("clicks")) == 1


def test_clusters_do_not_mix(tmp_path: Path) -> None:
    both = ("east", "west")
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", clusters=both), clusters=both)
    lifecycle.land("clicks", START, cluster="east")
    lifecycle.arrive(START, "east")
    assert lifecycle.feed_statuses("clicks", "east") == {START: AVAILABLE}
    assert lifecycle.feed_statuses("clicks", "west") == {}

    lifecycle.arrive(START, "west")

    assert lifecycle.feed_statuses("clicks", "west") == {START: MISSING}


def test_what_a_process_writes_is_not_looked_for(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts"), process("count", outputs={"counts": "now(0,0)"}))
    lifecycle.arrive(at("02"))
    assert lifecycle.looked == []
    assert lifecycle.watermark(WatermarkKind.FEED, "counts") is None


def test_missing_instances_of_a_feed_that_a_process_writes_now_are_put_off(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts"))
    lifecycle.arrive(START)
    lifecycle.declare(feed("counts"), process("count", outputs={"counts": "now(0,0)"}))
    lifecycle.looked.clear()
    lifecycle.land("counts", START)

    as_of = at("01T00:30")
    lifecycle.arrive(as_of)

    assert (lifecycle.looked, lifecycle.events()) == ([], [])
    assert lifecycle.next_poll("counts", START) == as_of + LONGEST_PAUSE


def test_an_instance_that_has_begun_to_arrive_is_not_left_alone_for_long(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "days(1)", flag="_DONE"))
    lifecycle.land("clicks", START)
    as_of = at("20")
    lifecycle.arrive(as_of)
    assert lifecycle.feed_statuses("clicks")[START] is PARTIAL
    assert lifecycle.next_poll("clicks", START) == as_of + LONGEST_PAUSE_BEGUN


def test_what_arrived_is_looked_at_no_more(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", "days(1)"))
    lifecycle.arrive(START)
    lifecycle.land("clicks", START)
    lifecycle.arrive(at("01T01:00"))
    assert lifecycle.feed_statuses("clicks") == {START: AVAILABLE}
    assert lifecycle.next_poll("clicks", START) is None


def test_a_plan_that_is_applied_during_a_poll_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    lifecycle.arrive(at("02"))
    real, earlier = polling.poll_confined, START - timedelta(hours=10)

    def poll(tick: Tick, candidates: Sequence[Candidate]) -> list[Look]:
        monkeypatch.undo()
        lifecycle.declare(feed("clicks", start=earlier))
        return real(tick, candidates)

    monkeypatch.setattr(polling, "poll_confined", poll)
    lifecycle.arrive(at("02T01:00"))
    lifecycle.arrive(at("02T01:00"))

    assert list(lifecycle.feed_statuses("clicks")) == hours(36, earlier)
