"""Falcon's feature list (section 21 of the reference), rows 30 to 37 and 46: real stores and state."""

from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.engines.port import Work
from feed_assets.instances.errors import InputsMissingError
from feed_assets.log.records import ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY
SUCCEEDED, SKIPPED = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED
TIMEDOUT = ProcessInstanceStatus.TIMEDOUT


def test_row_30_a_process_without_inputs_and_outputs_runs_on_time_alone_and_is_told_none(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    assert lifecycle.tick(START - timedelta(minutes=1)) == []

    (request,) = lifecycle.tick(START)

    assert request.nominal_times == (START,)
    told = lifecycle.properties_of("ping", START, START)
    assert {told[name] for name in ("falconInputs", "falconInPaths", "feedNames", "feedInstancePaths")} == {"NONE"}
    assert lifecycle.statuses("ping") == {START: SUCCEEDED}


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_row_31_never_more_runs_than_parallel_are_in_flight(tmp_path: Path, parallel: int) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=parallel))
    first = lifecycle.tick(at("01T04:00"))
    assert len(first) == parallel

    assert lifecycle.tick(at("01T05:00")) == []

    lifecycle.launch(first[:1], at("01T05:00"))
    assert len(lifecycle.tick(at("01T05:01"))) == 1


def test_row_31_a_rerun_by_hand_counts_as_a_run_in_flight(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=1))
    lifecycle.launch(lifecycle.tick(START), START)
    asked: list[int] = []

    def job(_: Work) -> dict[str, str]:
        asked.append(len(lifecycle.tick(at("01T01:00"))))
        return {}

    lifecycle.job = job
    lifecycle.run("ping", START, at("01T00:30"), "by-hand")

    assert asked == [0]
    assert len(lifecycle.tick(at("01T01:01"))) == 1


def test_row_32_fifo_takes_the_oldest_first(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=2, order="FIFO"))
    requests = lifecycle.tick(at("01T03:00"))
    assert lifecycle.launch(requests, at("01T03:00")) == hours(4)


def test_row_32_lifo_takes_the_newest_first(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=2, order="LIFO"))
    first, second = lifecycle.tick(at("01T03:00"))
    assert first.nominal_times == tuple(hours(4)[2:])
    assert second.nominal_times == tuple(hours(4)[:2])
    assert first.priority > second.priority


def test_row_32_last_only_takes_the_newest_and_skips_the_older_ones(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("ping", inputs={"clicks": "now(0,0)"}, order="LAST_ONLY")
    )
    lifecycle.tick(at("01T03:00"))
    assert lifecycle.statuses("ping") == {**dict.fromkeys(hours(3), SKIPPED), at("01T03:00"): WAITING}

    lifecycle.tick(at("01T04:00"))

    assert lifecycle.times("ping", SKIPPED) == hours(4)
    assert lifecycle.times("ping", WAITING) == [at("01T04:00")]


def test_row_32_last_only_leaves_alone_what_has_been_launched(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", order="LAST_ONLY"))
    requests = lifecycle.tick(START)

    lifecycle.tick(at("01T01:00"))

    assert lifecycle.statuses("ping") == {START: READY, at("01T01:00"): READY}
    assert lifecycle.launch(requests, at("01T01:01")) == [START]
    assert [request.nominal_times for request in lifecycle.tick(at("01T01:02"))] == [(at("01T01:00"),)]


def test_row_33_an_instance_that_lacks_inputs_after_the_timeout_is_timed_out(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}, timeout="minutes(45)")
    )
    lifecycle.tick(START)
    lifecycle.tick(at("01T00:44"))
    assert lifecycle.statuses("count") == {START: WAITING}

    lifecycle.tick(at("01T00:45"))

    assert lifecycle.statuses("count") == {START: TIMEDOUT}
    row = lifecycle.instances("count")[START]
    assert (row.ended_at, row.reason) == (
        at("01T00:45"),
        "its mandatory inputs did not all become available in time",
    )


@pytest.mark.parametrize(("frequency", "minutes"), [("minutes(1)", 30), ("hours(1)", 360), ("days(1)", 8640)])
def test_row_33_the_default_timeout_is_six_periods_and_at_least_half_an_hour(
    tmp_path: Path, frequency: str, minutes: int
) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", frequency, inputs={"clicks": "now(0,0)"})
    )
    lifecycle.tick(START)
    assert lifecycle.instances("count")[START].deadline_at == START + timedelta(minutes=minutes)


def test_row_33_the_timeout_counts_from_when_the_instance_came_into_being(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}, timeout="hours(1)")
    )
    lifecycle.tick(at("09"))
    assert set(lifecycle.statuses("count").values()) == {WAITING}


def test_row_33_data_that_arrive_with_the_timeout_are_still_in_time(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}, timeout="hours(1)")
    )
    lifecycle.tick(START)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T01:00"))
    assert lifecycle.statuses("count")[START] is READY


def test_row_34_an_instance_waits_until_its_last_mandatory_input_exists(tmp_path: Path) -> None:
    reader = process("both", inputs={"clicks": "now(-1,0) now(0,0)", "views": "now(0,0)"}, start=at("01T01:00"))
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("views"), reader)
    time = at("01T01:00")
    lifecycle.land("clicks", START)
    lifecycle.land("views", time)
    assert lifecycle.tick(time) == []
    assert lifecycle.statuses("both")[time] is WAITING
    with pytest.raises(InputsMissingError) as caught:
        lifecycle.run("both", time, time)
    assert dict(caught.value.missing) == {"clicks": (f"file://{lifecycle.folder('clicks', time)}",)}

    lifecycle.land("clicks", at("01T02:00"), time)
    lifecycle.land("views", at("01T02:00"))
    assert [request.nominal_times for request in lifecycle.tick(at("01T02:30"))] == [(time, at("01T02:00"))]


def test_row_34_the_gate_opens_in_the_tick_in_which_the_last_input_arrives(tmp_path: Path) -> None:
    reader = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, start=at("01T01:00"))
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), reader)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T01:00"))
    assert lifecycle.statuses("count") == {at("01T01:00"): WAITING}

    lifecycle.land("clicks", at("01T01:00"))

    assert [request.nominal_times for request in lifecycle.tick(at("01T01:10"))] == [(at("01T01:00"),)]


def test_row_35_a_directory_without_its_flag_keeps_waiting_and_the_flag_releases(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks", flag="_DONE"), process("count", inputs={"clicks": "now(0,0)"})
    )
    lifecycle.land("clicks", START)
    assert lifecycle.tick(START) == []
    assert lifecycle.tick(at("01T00:10")) == []

    lifecycle.flag("clicks", START)

    assert [request.nominal_times for request in lifecycle.tick(at("01T00:20"))] == [(START,)]


def test_row_36_absent_optional_data_do_not_block_and_what_is_there_is_passed(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks"),
        feed("weather"),
        feed("counts"),
        process(
            "count",
            inputs={"clicks": "now(0,0)", "weather": "now(-2,0) now(0,0)"},
            outputs={"counts": "now(0,0)"},
            optional=["weather"],
            start=at("01T02:00"),
        ),
    )
    time = at("01T02:00")
    lifecycle.land("clicks", time, text="c")
    lifecycle.land("weather", START, text="w0")
    lifecycle.land("weather", time, text="w2")
    assert [request.nominal_times for request in lifecycle.tick(time)] == [(time,)]
    assert lifecycle.inputs_of("count", time, time) == {"clicks": ["c"], "weather": ["w2", "w0"]}


def test_row_36_a_process_with_optional_inputs_only_runs_on_time_with_nothing(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("weather"), process("ping", inputs={"weather": "now(0,0)"}, optional=["weather"])
    )
    assert len(lifecycle.tick(START)) == 1
    assert lifecycle.inputs_of("ping", START, START) == {"weather": []}


def test_row_37_each_path_carries_the_partition_with_its_variables_filled_in(tmp_path: Path) -> None:
    time = at("01T01:00")
    counting = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, start=time, properties={"region": "emea"})
    partition = {"clicks": counting.inputs["clicks"].model_copy(update={"partition": "${region}/${cluster.colo}"})}
    counting = counting.model_copy(update={"inputs": partition})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", partitions=["region", "colo"]), counting)
    lifecycle.land("clicks", START, text="old", below="emea/primary-colo")
    lifecycle.land("clicks", time, text="new", below="emea/primary-colo")
    lifecycle.tick(time)

    assert lifecycle.inputs_of("count", time, time) == {"clicks": ["new", "old"]}
    paths = [lifecycle.folder("clicks", moment) / "emea/primary-colo" for moment in (time, START)]
    assert lifecycle.properties_of("count", time, time)["clicks"] == ",".join(path.as_uri() for path in paths)


def test_row_46_the_users_properties_reach_the_job_and_win_over_those_of_the_system(tmp_path: Path) -> None:
    counting = process(
        "count",
        inputs={"clicks": "now(0,0)"},
        outputs={"counts": "now(0,0)"},
        properties={
            "queueName": "fast",
            "nominalTime": "mine",
            "day": "${YEAR}/${MONTH}/${DAY}",
            "place": "${cluster.name}",
            "again": "${queueName}",
            "us": "${dataIn('clicks', 'us')}",
        },
    )
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), counting)
    lifecycle.land("clicks", START)
    lifecycle.tick(START)

    told = lifecycle.properties_of("count", START, START)

    assert (told["queueName"], told["nominalTime"]) == ("fast", "mine")
    assert (told["day"], told["place"], told["again"]) == ("2013/11/01", "primary", "fast")
    url = lifecycle.folder("clicks", START).as_uri()
    assert (told["clicks"], told["falconInPaths"], told["us"]) == (url, url, f"{url}/us")
    assert (told["falconInputs"], told["falconInputFeeds"], told["feedNames"]) == ("clicks", "clicks", "counts")
    assert told["feedInstancePaths"] == told["counts"]


def test_row_46_the_systems_own_properties_say_when_it_is(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    assert lifecycle.properties_of("ping", at("01T05:00"), at("02"))["nominalTime"] == "2013-11-01-05-00"
    second = at("01T05:00") + timedelta(seconds=7)
    assert lifecycle.properties_of("ping", second, at("02"))["nominalTime"] == "2013-11-01-05-00-07"


def test_instances_on_storage_that_spark_cannot_open_are_copied_to_where_it_can(tmp_path: Path) -> None:
    reader = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), reader, scheme="memory")
    folder = lifecycle.feed("clicks").path(START)
    staging = lifecycle.store().stage(folder, "by-hand")
    staging.local_path.mkdir(parents=True, exist_ok=True)
    (staging.local_path / "a.csv").write_text("far away")
    lifecycle.store().publish(staging, flag=None, guard=lambda: None, extra={})
    assert len(lifecycle.tick(START)) == 1

    assert lifecycle.inputs_of("count", START, START) == {"clicks": ["far away"]}

    manifest = lifecycle.store().manifest(lifecycle.feed("counts").path(START))
    assert [entry.path for entry in manifest.entries] == ["part-0.csv"]
    assert lifecycle.statuses("count") == {START: SUCCEEDED}
