from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from feed_assets.instances.gates.plan_changes import apply_plan, decide_watermark
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus, Watermark, WatermarkKind
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

AVAILABLE = FeedInstanceStatus.AVAILABLE
WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY


def sequence(start: datetime = START, end: datetime | None = None, frequency: str = "hours(1)") -> InstanceSequence:
    return InstanceSequence(start=start, end=end, frequency=parse_frequency(frequency), timezone=ZoneInfo("UTC"))


def standing(walked: InstanceSequence, index: int) -> Watermark:
    next_time = None if walked.size is not None and index >= walked.size else walked.at(index)
    return Watermark(kind=WatermarkKind.FEED, entity="f", cluster="c", next_index=index, next_time=next_time)


def test_a_walk_under_the_same_definition_stays_where_it_is() -> None:
    for index in (0, 5, 10):
        walked = sequence(end=at("01T10:00"))
        assert decide_watermark(standing(walked, index), walked, walked) == standing(walked, index)


def test_a_walk_that_had_ended_goes_on_when_the_validity_is_extended() -> None:
    before, after = sequence(end=at("01T10:00")), sequence(end=at("01T20:00"))
    assert decide_watermark(standing(before, 10), before, after) == standing(after, 10)


def test_a_walk_ends_when_the_validity_is_shortened() -> None:
    before, after = sequence(), sequence(end=at("01T04:00"))
    assert decide_watermark(standing(before, 8), before, after).next_time is None


def test_a_walk_skips_to_a_start_that_has_moved_later() -> None:
    before, after = sequence(), sequence(start=at("02"))
    assert decide_watermark(standing(before, 8), before, after) == standing(after, 0)
    assert decide_watermark(standing(before, 30), before, after) == standing(after, 6)


def test_a_walk_begins_anew_when_the_start_moved_earlier_on_the_same_grid() -> None:
    before, after = sequence(start=at("02")), sequence(start=at("01"))
    assert decide_watermark(standing(before, 8), before, after) == standing(after, 0)


def test_a_walk_on_another_grid_goes_on_from_where_it_stood() -> None:
    before, after = sequence(), sequence(start=at("2013-10-01T00:10"), frequency="minutes(30)")
    assert decide_watermark(standing(before, 8), before, after).next_time == at("01T08:10")


@given(
    old=st.tuples(st.integers(0, 50), st.integers(1, 60)),
    new=st.tuples(st.integers(0, 50), st.integers(1, 60)),
    walked_to=st.integers(0, 60),
)
def test_every_instance_is_walked_under_the_old_definition_or_will_be_under_the_new(
    old: tuple[int, int], new: tuple[int, int], walked_to: int
) -> None:
    before, after = (
        sequence(START + timedelta(hours=start), START + timedelta(hours=start + length))
        for start, length in (old, new)
    )
    index = min(walked_to, before.size or 0)
    decided = decide_watermark(standing(before, index), before, after)
    done = {before.at(n) for n in range(index)}
    left = set() if decided.next_time is None else {after.at(n) for n in range(decided.next_index, after.size or 0)}
    assert {after.at(n) for n in range(after.size or 0)} <= done | left
    assert decided.next_time is None or after.index(decided.next_time) == decided.next_index


def test_the_same_plan_costs_one_read(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *(feed(f"feed-{n}") for n in range(20)))
    with counted_statements() as statements:
        apply_plan(lifecycle.database, lifecycle.timeline, START)
    assert len([text for text in statements if "SELECT" in text]) == 1
    assert not any("INSERT" in text for text in statements)


def test_a_plan_with_one_change_reads_the_watermarks_of_what_has_changed_only(tmp_path: Path) -> None:
    feeds = [feed(f"feed-{n}") for n in range(30)]
    lifecycle = LifecycleHarness.of(tmp_path, *feeds)
    with counted_statements() as statements:
        lifecycle.declare(*feeds[1:], feed("feed-0", end=at("09")))
    assert len([text for text in statements if "fa_watermarks" in text]) <= 4


def test_an_extended_validity_is_walked_to_its_new_end(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", end=at("01T03:00")), process("ping", end=at("01T03:00")))
    lifecycle.land("clicks", *hours(8))
    lifecycle.tick(at("02"))
    assert list(lifecycle.feed_statuses("clicks")) == list(lifecycle.statuses("ping")) == hours(3)

    lifecycle.declare(feed("clicks", end=at("01T05:00")), process("ping", end=at("01T05:00")))
    lifecycle.tick(at("02"))

    assert list(lifecycle.feed_statuses("clicks")) == list(lifecycle.statuses("ping")) == hours(5)
    assert len(lifecycle.events()) == 5


def test_an_earlier_start_brings_the_earlier_instances_and_repeats_nothing(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks", start=at("01T03:00")), process("ping", start=at("01T03:00"))
    )
    lifecycle.land("clicks", *hours(6))
    lifecycle.launch(lifecycle.tick(at("01T05:00")), at("01T05:00"))

    lifecycle.declare(feed("clicks"), process("ping"))
    requests = lifecycle.tick(at("01T05:00"))

    assert [time for request in requests for time in request.nominal_times] == hours(3)
    assert set(lifecycle.feed_statuses("clicks")) == set(hours(6))
    assert sorted(event.nominal_time for event in lifecycle.events()) == hours(6)


def test_a_later_start_takes_back_what_is_before_it_as_long_as_nothing_was_begun(tmp_path: Path) -> None:
    inputs = {"clicks": "now(0,0)"}
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("count", inputs=inputs, timeout="hours(2)"))
    lifecycle.tick(at("01T01:00"))
    lifecycle.declare(
        feed("clicks", start=at("01T05:00")), process("count", inputs=inputs, start=at("01T05:00"), timeout="hours(2)")
    )
    lifecycle.land("clicks", *hours(6))
    lifecycle.looked.clear()

    requests = lifecycle.tick(at("01T05:00"))

    assert [request.nominal_times for request in requests] == [(at("01T05:00"),)]
    assert list(lifecycle.statuses("count")) == [at("01T05:00")]
    assert lifecycle.looked == [lifecycle.feed("clicks").path(at("01T05:00"))]


def test_a_process_that_was_removed_waits_and_goes_on_when_it_comes_back(tmp_path: Path) -> None:
    clicks, reader = feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}, timeout="hours(2)")
    lifecycle = LifecycleHarness.of(tmp_path, clicks, reader)
    lifecycle.tick(START)
    lifecycle.declare(clicks)
    lifecycle.land("clicks", START, at("01T04:00"))
    lifecycle.tick(at("01T04:00"))
    assert lifecycle.statuses("count") == {START: WAITING}
    assert lifecycle.instances("count")[START].deadline_at is None

    lifecycle.declare(clicks, reader)
    lifecycle.tick(at("01T04:10"))

    assert lifecycle.times("count", READY) == [START, at("01T04:00")]
    assert lifecycle.times("count", WAITING) == [at("01T01:00"), at("01T02:00"), at("01T03:00")]


def test_ready_instances_of_a_removed_process_wait_and_are_ready_when_it_comes_back(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    lifecycle.arrive(START)
    lifecycle.ready(START)
    lifecycle.declare(process("other"))

    assert all(request.process.process == "other" for request in lifecycle.tick(at("01T00:10")))
    assert lifecycle.statuses("ping") == {START: WAITING}

    lifecycle.declare(process("ping"))
    assert [request.nominal_times for request in lifecycle.tick(at("01T00:20"))] == [(START,)]


def test_a_feed_that_was_removed_is_walked_on_when_it_comes_back(tmp_path: Path) -> None:
    clicks, other = feed("clicks"), feed("other")
    lifecycle = LifecycleHarness.of(tmp_path, clicks, other)
    lifecycle.arrive(START)
    lifecycle.declare(other)
    lifecycle.arrive(at("01T03:00"))
    assert (watermark := lifecycle.watermark(WatermarkKind.FEED, "clicks")) is not None
    assert watermark.next_time is None

    lifecycle.declare(clicks, other)
    lifecycle.land("clicks", *hours(4))
    lifecycle.arrive(at("01T10:00"))

    assert lifecycle.times_of_feed("clicks", AVAILABLE) == hours(4)


def test_a_process_with_one_input_less_is_ready_when_the_others_are_there(tmp_path: Path) -> None:
    clicks, views = feed("clicks"), feed("views")
    lifecycle = LifecycleHarness.of(
        tmp_path, clicks, views, process("count", inputs={"clicks": "now(0,0)", "views": "now(0,0)"})
    )
    lifecycle.land("clicks", START)
    assert lifecycle.tick(START) == []

    lifecycle.declare(clicks, views, process("count", inputs={"clicks": "now(0,0)"}))

    assert [request.nominal_times for request in lifecycle.tick(at("01T00:10"))] == [(START,)]
    with counted_statements() as statements:
        lifecycle.ready(at("01T00:11"))
    assert not any("UPDATE" in text for text in statements)


def test_a_changed_frequency_makes_no_instances_before_its_effective_time(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", "hours(1)"))
    lifecycle.tick(at("01T02:00"))

    lifecycle.declare(process("ping", "minutes(30)"))
    lifecycle.tick(at("01T03:00"))

    assert list(lifecycle.statuses("ping")) == [*hours(3), at("01T02:30"), at("01T03:00")]


def test_instances_off_the_new_grid_are_taken_back_as_long_as_nothing_was_begun(tmp_path: Path) -> None:
    clicks, inputs = feed("clicks", "minutes(30)"), {"clicks": "now(0,0)"}
    lifecycle = LifecycleHarness.of(tmp_path, clicks, process("count", "minutes(30)", inputs=inputs))
    lifecycle.tick(at("01T00:30"))
    lifecycle.declare(clicks, process("count", inputs=inputs))
    lifecycle.land("clicks", START, at("01T00:30"))

    requests = lifecycle.tick(at("01T00:40"))

    assert [request.nominal_times for request in requests] == [(START,)]
    assert list(lifecycle.statuses("count")) == [START]


def test_a_server_with_an_older_plan_does_no_lasting_harm(tmp_path: Path) -> None:
    clicks, views = feed("clicks"), feed("views", start=at("02"))
    lifecycle = LifecycleHarness.of(tmp_path, clicks)
    older = lifecycle.plan
    lifecycle.declare(clicks, views, process("ping"))
    newer = lifecycle.plan
    lifecycle.land("views", at("02"))

    lifecycle.use(older)
    lifecycle.tick(at("02"))
    lifecycle.use(newer)
    lifecycle.tick(at("02"))

    assert lifecycle.feed_statuses("views") == {at("02"): AVAILABLE}
    assert len(lifecycle.statuses("ping")) == 25
