"""A feed moves, or gets other instances, while instances of an older release wait for it as it was."""

from pathlib import Path

from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.arrival.polling import apply_past_polls
from feed_assets.log.records import ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY
CLICKS = feed("clicks", start=at("2013-10-30"))
COUNTS = feed("counts", start=at("2013-10-30"))


def moved() -> Feed:
    content = CLICKS.model_dump(by_alias=True)
    return Feed.model_validate({**content, "locations": {"data": "/new/${YEAR}-${MONTH}-${DAY}/${HOUR}-${MINUTE}"}})


def counting(window: str = "now(-1,0) now(0,0)") -> Process:
    return process("count", inputs={"clicks": window}, outputs={"counts": "now(0,0)"}, parallel=9)


def busy(tmp_path: Path) -> LifecycleHarness:
    """It is 02:10: the first hour has been counted, and the next two wait for clicks."""
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting())
    lifecycle.land("clicks", at("2013-10-31T23:00"), START, text="old")
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:20"))
    lifecycle.tick(at("01T02:10"))
    assert lifecycle.times("count", WAITING) == hours(3)[1:]
    return lifecycle


def land_at_the_old_place(lifecycle: LifecycleHarness, hour: int) -> None:
    folder = lifecycle.root / "primary" / "clicks" / "2013-11-01" / f"{hour:02}-00"
    folder.mkdir(parents=True)
    (folder / "part-0.csv").write_text("old")


def test_what_arrives_at_the_old_place_is_found_by_those_who_wait_for_it_there(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(moved(), COUNTS, counting())
    land_at_the_old_place(lifecycle, 1)
    requests = lifecycle.tick(at("01T02:20"))
    assert [time for request in requests for time in request.nominal_times] == [at("01T01:00")]
    assert lifecycle.inputs_of("count", at("01T01:00"), at("01T02:30")) == {"clicks": ["old", "old"]}


def test_what_arrives_at_the_new_place_is_read_there_by_older_instances_too(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(moved(), COUNTS, counting())
    lifecycle.land("clicks", at("01T01:00"), text="new")
    lifecycle.tick(at("01T02:20"))
    assert lifecycle.inputs_of("count", at("01T01:00"), at("01T02:30")) == {"clicks": ["new", "old"]}


def test_newer_instances_read_what_has_stayed_at_the_old_place(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    land_at_the_old_place(lifecycle, 1)
    land_at_the_old_place(lifecycle, 2)
    lifecycle.tick(at("01T02:30"))
    lifecycle.declare(moved(), COUNTS, counting())
    lifecycle.land("clicks", at("01T03:00"), text="new")
    lifecycle.tick(at("01T03:10"))
    assert lifecycle.inputs_of("count", at("01T03:00"), at("01T03:20")) == {"clicks": ["new", "old"]}


def test_instances_that_a_feed_has_no_more_are_found_by_those_who_wait_for_them(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(feed("clicks", "hours(2)", start=at("2013-10-30")), COUNTS, counting())
    land_at_the_old_place(lifecycle, 1)
    lifecycle.tick(at("01T02:20"))
    assert lifecycle.times("count", READY) == [at("01T01:00")]


def test_what_has_no_older_release_costs_nothing(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting())
    with counted_statements() as statements:
        apply_past_polls(lifecycle.open_tick(at("01T02:20")))
    assert statements == []


def test_old_places_are_looked_at_once_a_minute(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(moved(), COUNTS, counting())
    lifecycle.tick(at("01T02:20"))
    lifecycle.looked.clear()
    lifecycle.tick(at("01T02:20"))
    assert [path for path in lifecycle.looked if path.startswith("clicks/")] == []
    lifecycle.tick(at("01T02:21"))
    assert [path for path in lifecycle.looked if path.startswith("clicks/")] != []


def test_old_places_are_looked_at_although_the_clock_was_set_back(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(moved(), COUNTS, counting())
    lifecycle.tick(at("01T04:20"))
    lifecycle.looked.clear()
    lifecycle.tick(at("01T02:20"))
    assert [path for path in lifecycle.looked if path.startswith("clicks/")] != []
