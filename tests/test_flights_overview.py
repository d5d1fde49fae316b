from pathlib import Path

from examples.flights.overview import feed_overview, iter_ran_without, process_overview
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

SUCCEEDED, WAITING = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.WAITING


def a_harness(tmp_path: Path) -> LifecycleHarness:
    counting = process(
        "count",
        inputs={"clicks": "now(0,0)", "weather": "now(0,0)"},
        outputs={"counts": "now(0,0)"},
        optional=["weather"],
        parallel=4,
    )
    return LifecycleHarness.of(tmp_path, feed("clicks"), feed("weather"), feed("counts"), counting)


def test_a_feed_in_numbers_counts_the_instance_of_this_moment_too(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T01:00"))
    overview = feed_overview(lifecycle.database, lifecycle.feed("clicks"), at("01T01:00"))
    assert (overview.instances, overview.available, overview.missing) == (2, 1, (at("01T01:00"),))
    assert overview.rows is None


def test_a_feed_before_its_start_has_no_instances(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    overview = feed_overview(lifecycle.database, lifecycle.feed("clicks"), at("2013-10-01"))
    assert (overview.instances, overview.missing) == (0, ())


def test_rows_of_an_instance_that_was_made_twice_count_once(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    lifecycle.land("clicks", *hours(2))
    for time in (*hours(2), START):
        lifecycle.run("count", time, at("01T02:00"), lifecycle.run_id())
    assert feed_overview(lifecycle.database, lifecycle.feed("counts"), at("01T01:30")).rows == 2


def test_what_was_evicted_is_not_missing(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    evicted = FeedInstance(
        feed="clicks",
        cluster="primary",
        nominal_time=START,
        status=FeedInstanceStatus.EVICTED,
        updated_at=START,
    )
    with lifecycle.database.begin() as connection:
        FeedInstances(connection).put([evicted])
    overview = feed_overview(lifecycle.database, lifecycle.feed("clicks"), START)
    assert (overview.available, overview.missing) == (0, ())


def test_a_process_in_numbers(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    lifecycle.land("clicks", *hours(2))
    lifecycle.launch(lifecycle.tick(at("01T02:00")), at("01T02:00"))
    overview = process_overview(lifecycle.database, lifecycle.process("count"), at("01T02:00"))
    assert (overview.instances, overview.succeeded, overview.seconds) == (3, 2, 0.0)
    assert overview.statuses == {SUCCEEDED: 2, WAITING: 1}


def test_what_ran_without_optional_inputs_is_told_oldest_first(tmp_path: Path) -> None:
    lifecycle = a_harness(tmp_path)
    lifecycle.land("clicks", *hours(3))
    lifecycle.land("weather", at("01T01:00"))
    lifecycle.launch(lifecycle.tick(at("01T02:00")), at("01T02:00"))
    found = list(iter_ran_without(lifecycle.database, lifecycle.plan, lifecycle.process("count")))
    assert [(item.nominal_time, item.input, item.missing) for item in found] == [
        (START, "weather", (START,)),
        (at("01T02:00"), "weather", (at("01T02:00"),)),
    ]
