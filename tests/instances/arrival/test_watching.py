"""Watched locations: what comes as it comes is found at its second, whole, once, and however the folders are cut."""

import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.entities.feed import Feed
from feed_assets.instances.arrival import stored_data
from feed_assets.instances.arrival.polling import ArrivalResult
from feed_assets.instances.arrival.stored_data import OVERLAP, apply_watches
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus
from feed_assets.storage.local.store import LocalStore
from tests.instances.harness import START, LifecycleHarness, at, validity

SPLIT = "/orders/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"


def orders(template: str = SPLIT, *, start: datetime = START, **more: Any) -> Feed:
    return Feed(
        name="orders",
        instances="as-they-come",
        watch="minutes(1)",
        format="csv",
        locations={"data": template},
        clusters={"primary": validity(start, None)},
        **more,
    )


def second(text: str) -> datetime:
    return at(text[:8]) + timedelta(seconds=int(text[9:]))


def look(lifecycle: LifecycleHarness, as_of: datetime, bulkheads: Bulkheads | None = None) -> ArrivalResult:
    """A tick's look, and its polls of what has begun to come."""
    found = apply_watches(lifecycle.open_tick(as_of, bulkheads=bulkheads))
    return ArrivalResult.sum_of(found, lifecycle.arrive(as_of))


def come(lifecycle: LifecycleHarness) -> list[datetime]:
    """The instances that have come, in the order of the log."""
    return [event.nominal_time for event in lifecycle.events("orders") if event.kind is FeedEventKind.ARRIVED]


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_af_46_what_has_come_is_an_event_at_its_second_once(tmp_path: Path, scheme: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders(), scheme=scheme)
    times = [second("01T05:30:07"), second("01T05:31:00")]
    for time in reversed(times):
        write(lifecycle, time)
    assert look(lifecycle, at("01T05:32")).arrived == 2
    assert come(lifecycle) == times
    assert look(lifecycle, at("01T05:34")) == ArrivalResult()
    later = second("01T05:35:59")
    write(lifecycle, later)
    assert look(lifecycle, at("01T05:36")).arrived == 1
    assert come(lifecycle) == [*times, later]


def write(lifecycle: LifecycleHarness, *times: datetime) -> None:
    """Put a file into instances, on any storage."""
    for time in times:
        staging = lifecycle.store().stage(lifecycle.feed("orders").path(time), "by-hand")
        staging.local_path.mkdir(parents=True, exist_ok=True)
        (staging.local_path / "part-0.csv").write_text("1")
        lifecycle.store().publish(staging, flag=None, guard=lambda: None, extra={})


def test_a_location_is_looked_at_once_in_each_watch_and_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders())
    look(lifecycle, at("01T06:00"))
    lifecycle.land("orders", second("01T04:00:01"))
    assert look(lifecycle, at("01T06:00") + timedelta(seconds=59)).arrived == 0
    assert look(lifecycle, at("01T05:00")).arrived == 1


def test_what_is_not_exactly_the_path_of_an_instance_is_none(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders())
    day = lifecycle.folder("orders", START).parent.parent / "2013-11-01"
    for name in ("053007_old", "53007", "246000", "053007.tmp", "_053007", "053060", "0530"):
        (day / name).mkdir(parents=True)
        (day / name / "part-0.csv").write_text("1")
    for odd in ("2013-11-31/053007", "2013-11-1/053007", "2013-10-31/053007", "2013-11-09/053007"):
        (day.parent / odd).mkdir(parents=True)
        (day.parent / odd / "part-0.csv").write_text("1")
    assert look(lifecycle, at("02T00:00")).polled == 0
    assert lifecycle.events() == []


def test_an_instance_that_is_not_whole_is_polled_until_it_is_and_forgotten_if_it_goes(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders(availability_flag="_DONE"))
    whole, gone = second("01T05:30:07"), second("01T05:30:08")
    lifecycle.land("orders", whole, gone)
    assert look(lifecycle, at("01T05:31")).arrived == 0
    assert set(lifecycle.feed_statuses("orders").values()) == {FeedInstanceStatus.PARTIAL}
    (lifecycle.folder("orders", whole) / "_DONE").touch()
    shutil.rmtree(lifecycle.folder("orders", gone))
    assert look(lifecycle, at("01T05:40")).arrived == 1
    assert lifecycle.feed_statuses("orders") == {whole: FeedInstanceStatus.AVAILABLE}
    with lifecycle.database.read() as connection:
        assert ArrivalPolls(connection).due("primary", at("09"), 10) == []


def test_an_instance_up_to_an_hour_older_than_the_newest_is_found_and_an_older_one_by_a_notice(
    tmp_path: Path,
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders())
    newest = second("01T05:30:07")
    lifecycle.land("orders", newest)
    look(lifecycle, at("01T05:31"))
    lifecycle.land("orders", newest - OVERLAP, newest - OVERLAP - timedelta(seconds=1))
    look(lifecycle, at("01T05:33"))
    assert come(lifecycle) == [newest, newest - OVERLAP]


def test_a_look_enters_only_the_folders_since_the_newest_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders("/orders/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}${SECOND}"))
    lifecycle.land("orders", *(at(f"{day:02}T{hour:02}:00") for day in range(1, 9) for hour in range(24)))
    assert look(lifecycle, at("09")).arrived == 8 * 24
    entered: list[str] = []
    walk = LocalStore.walk_folders

    def noted(self: LocalStore, base: str, depth: int, choose: Any) -> Any:
        for found in walk(self, base, depth, choose):
            entered.append(found.folder)
            yield found

    monkeypatch.setattr(LocalStore, "walk_folders", noted)
    lifecycle.land("orders", at("09T00:01"))
    assert look(lifecycle, at("09T00:02")).arrived == 1
    assert len(entered) <= 27, entered  # the hours of the last day, and a day on each side for time zones


def test_a_look_that_the_budget_ends_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders())
    times = [second(f"01T05:30:{number:02}") for number in range(25)]
    lifecycle.land("orders", *times)
    monkeypatch.setattr(stored_data, "BATCH", 10)
    results = [apply_watches(lifecycle.open_tick(at("01T05:31"), seconds=0.0)) for _ in range(3)]
    assert [(each.arrived, each.is_complete) for each in results] == [(10, False), (10, False), (5, True)]
    assert come(lifecycle) == times


@pytest.mark.parametrize(
    "moved", [orders(SPLIT.replace("/orders", "/moved")), orders(path_timezone="Etc/GMT+5")], ids=["path", "zone"]
)
def test_a_location_that_is_changed_is_looked_at_from_the_start_of_its_validity(tmp_path: Path, moved: Feed) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders())
    lifecycle.land("orders", second("03T05:30:07"))
    look(lifecycle, at("03T06:00"))
    lifecycle.declare(moved)
    lifecycle.land("orders", second("01T00:00:01"))
    look(lifecycle, at("03T06:00") + timedelta(seconds=1))
    assert come(lifecycle) == [second("03T05:30:07"), second("01T00:00:01")]


@pytest.mark.parametrize("status", [FeedInstanceStatus.EVICTED, FeedInstanceStatus.MISSING])
def test_an_evicted_instance_does_not_come_again_and_one_that_is_gone_does(
    tmp_path: Path, status: FeedInstanceStatus
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders())
    time = second("01T05:30:07")
    lifecycle.land("orders", time)
    look(lifecycle, at("01T05:31"))
    row = lifecycle.feed_instances("orders")[time]
    with lifecycle.database.begin() as connection:
        FeedInstances(connection).put([replace(row, status=status)])
    assert look(lifecycle, at("01T05:33")).arrived == (status is FeedInstanceStatus.MISSING)


def test_a_location_that_cannot_be_listed_is_a_failure_of_its_feed_and_nothing_is_lost(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders())
    record, time = lifecycle.feed("orders"), second("01T05:30:07")
    root = Path(record.store.url.removeprefix("file://"))
    root.mkdir()
    (root / "orders").symlink_to(tmp_path)
    bulkheads = Bulkheads("primary", FrozenClock(START))
    assert look(lifecycle, at("01T05:31"), bulkheads).arrived == 0
    assert [(each.step, each.subject) for each in bulkheads.failures] == [(TickStep.WATCHES, "orders")]
    (root / "orders").unlink()
    lifecycle.land("orders", time)
    assert look(lifecycle, at("01T05:32"), Bulkheads("primary", FrozenClock(START))).arrived == 1
