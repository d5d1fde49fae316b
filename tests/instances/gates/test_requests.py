from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.process import Order
from feed_assets.instances.gates import requests
from feed_assets.instances.gates.requests import INSTANCES_A_RUN, PRIORITY_STEP, decide_launches, decide_requests
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Attempt, Cause, ProcessInstanceStatus
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import ProcessRecord
from tests.instances.harness import START, LifecycleHarness, at, hours, process

READY, SKIPPED = ProcessInstanceStatus.READY, ProcessInstanceStatus.SKIPPED


def record(order: Order = Order.FIFO, parallel: int = 1, **more: Any) -> ProcessRecord:
    entities = (Cluster(name="primary", storage="memory://x"), process("p", order=order, parallel=parallel, **more))
    return compile_plan(Bundle(entities=entities)).processes["p", "primary"]


def test_neighbours_are_coalesced_into_as_many_runs_as_may_run() -> None:
    assert tuple(decide_launches(record(parallel=1), range(10), 0)) == (range(10),)
    assert tuple(decide_launches(record(parallel=2), range(10), 0)) == (range(5), range(5, 10))
    assert tuple(decide_launches(record(parallel=3), range(10), 0)) == (range(4), range(4, 8), range(8, 10))


def test_what_is_in_flight_takes_its_share() -> None:
    assert tuple(decide_launches(record(parallel=3), range(10), 2)) == (range(10),)
    assert decide_launches(record(parallel=3), range(10), 3) == ()
    assert decide_launches(record(parallel=3), range(10), 7) == ()


def test_a_gap_ends_a_run() -> None:
    assert tuple(decide_launches(record(parallel=2), [9, 3, 1, 2], 0)) == (range(1, 3), range(3, 4))
    assert tuple(decide_launches(record(parallel=4), [9, 3, 1, 2], 0)) == (
        range(1, 2),
        range(2, 3),
        range(3, 4),
        range(9, 10),
    )


def test_a_run_has_at_most_a_hundred_instances() -> None:
    assert tuple(decide_launches(record(parallel=2), range(1000), 0)) == (range(100), range(100, 200))
    assert tuple(decide_launches(record(Order.LIFO, parallel=2), range(1000), 0)) == (range(900, 1000), range(800, 900))


def test_last_only_skips_all_but_the_newest() -> None:
    process = record(Order.LAST_ONLY, parallel=3)
    assert decide_launches(process, [4, 2, 3], 0) == (range(4, 5),)
    decision = decide_requests(process, [(process, [2, 3, 4])], 0, None, process.sequence.start)
    assert [request.indices for request in decision.requests] == [range(4, 5)]
    assert decision.skip == tuple(map(process.sequence.at, (2, 3)))


def test_last_only_skips_nothing_while_nothing_can_be_launched() -> None:
    process = record(Order.LAST_ONLY)
    assert decide_requests(process, [(process, [2, 3, 4])], 1, None, process.sequence.start).skip == ()


@given(
    order=st.sampled_from([Order.FIFO, Order.LIFO]),
    parallel=st.integers(1, 12),
    in_flight=st.integers(0, 13),
    ready=st.sets(st.integers(0, 400)),
)
def test_launches_are_ready_disjoint_few_and_in_order(
    order: Order, parallel: int, in_flight: int, ready: set[int]
) -> None:
    launch = decide_launches(record(order, parallel), sorted(ready), in_flight)
    launched = [index for run in launch for index in run]
    assert set(launched) <= ready
    assert len(set(launched)) == len(launched)
    assert len(launch) <= max(0, parallel - in_flight)
    assert all(1 <= len(run) <= INSTANCES_A_RUN for run in launch)
    assert bool(launch) == (bool(ready) and in_flight < parallel)
    oldest_first = [run.start for run in launch]
    assert oldest_first == sorted(oldest_first, reverse=order is Order.LIFO)
    left = ready - set(launched)
    if order is Order.FIFO:
        assert all(index > max(launched, default=-1) for index in left) or not launched
    else:
        assert all(index < min(launched, default=-1) for index in left) or not launched


def test_a_request_marks_its_instances_so_that_nobody_asks_again(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=2))
    requests_made = lifecycle.tick(at("01T03:00"))
    rows = lifecycle.instances("ping")
    assert [rows[time].request_key for time in hours(4)] == [
        requests_made[0].key,
        requests_made[0].key,
        requests_made[1].key,
        requests_made[1].key,
    ]
    assert {row.requested_at for row in rows.values()} == {at("01T03:00")}
    assert lifecycle.request(at("01T03:01")) == []


def test_an_instance_that_has_succeeded_does_not_keep_its_request(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=2))
    lifecycle.launch(lifecycle.tick(at("01T01:00")), at("01T01:00"))
    rows = lifecycle.instances("ping").values()
    assert {(row.status, row.request_key, row.requested_at) for row in rows} == {
        (ProcessInstanceStatus.SUCCEEDED, None, None)
    }


def test_a_coalesced_run_counts_as_one_until_its_last_instance_is_done(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=1))
    (request,) = lifecycle.tick(at("01T02:00"))
    assert len(request.nominal_times) == 3
    for time in request.nominal_times:
        assert lifecycle.tick(at("01T03:00")) == []
        lifecycle.run("ping", time, at("01T03:00"), "the-run")
    assert [again.nominal_times for again in lifecycle.tick(at("01T03:10"))] == [(at("01T03:00"),)]


def test_a_tick_asks_for_at_most_as_many_runs_as_it_may(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *(process(f"p{n}", parallel=2) for n in range(5)))
    lifecycle.ready(at("01T03:00"))
    first = lifecycle.request(at("01T03:00"), limit=3)
    second = lifecycle.request(at("01T03:01"), limit=50)
    assert (len(first), len(second)) == (3, 7)
    assert {request.key for request in first}.isdisjoint(request.key for request in second)


def test_a_huge_backlog_of_one_process_keeps_no_other_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "READY_A_TICK", 20)
    late = START + timedelta(hours=60)
    lifecycle = LifecycleHarness.of(tmp_path, process("big"), process("small", start=late))
    lifecycle.ready(late)
    assert {request.process.process for request in lifecycle.request(late)} == {"big", "small"}


@pytest.mark.parametrize("order", ["LIFO", "LAST_ONLY"])
def test_the_newest_of_a_huge_backlog_is_taken_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(requests, "READY_A_TICK", 20)
    monkeypatch.setattr(requests, "INSTANCES_A_RUN", 5)
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", order=order))
    lifecycle.put_instances("ping", hours(60), READY)
    (request,) = lifecycle.request(at("09"))
    assert request.last == hours(60)[-1]


def test_keys_of_requests_never_repeat(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    (first,) = lifecycle.tick(START)
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).transition(
            ("ping", "primary", START), {READY}, request_key=None, requested_at=None, updated_at=START
        )
    (second,) = lifecycle.request(at("01T00:01"))
    assert (first.nominal_times, first.key != second.key) == (second.nominal_times, True)


@pytest.mark.parametrize(
    ("properties", "order", "expected"),
    [
        ({}, "FIFO", 0),
        ({"jobPriority": "VERY_HIGH"}, "FIFO", 2 * PRIORITY_STEP),
        ({"jobPriority": "VERY_LOW"}, "FIFO", -2 * PRIORITY_STEP),
        ({"jobPriority": "urgent"}, "FIFO", 0),
        ({"jobPriority": "LOW"}, "LIFO", int(START.timestamp()) // 60 - PRIORITY_STEP),
    ],
)
def test_runs_have_the_priority_of_their_process(
    tmp_path: Path, properties: dict[str, str], order: str, expected: int
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", properties=properties, order=order))
    (request,) = lifecycle.tick(START)
    assert request.priority == expected
    assert abs(request.priority) < 2**31


def test_the_newest_of_a_priority_is_below_the_oldest_of_a_higher_one() -> None:
    assert int(datetime(2150, 1, 1, tzinfo=UTC).timestamp()) // 60 < PRIORITY_STEP


@pytest.mark.parametrize(("order", "expected"), [("FIFO", 5), ("LIFO", 8)])
def test_fifo_takes_first_what_ran_before(tmp_path: Path, order: str, expected: int) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", order=order))
    lifecycle.put_instances("ping", hours(9), READY)
    run_again(lifecycle, hours(9)[5])
    (request,) = lifecycle.request(at("02"))
    assert request.last == hours(9)[expected]
    assert (len(request.indices) == 1) is (order == "FIFO")


def run_again(lifecycle: LifecycleHarness, time: datetime, cause: Cause = Cause.RETRY) -> None:
    """Let a READY instance have run before."""
    with lifecycle.database.begin() as connection:
        ProcessInstances(connection).transition(
            ("ping", "primary", time), {READY}, attempt=1, cause=cause, updated_at=START
        )


@pytest.mark.parametrize("cause", [Cause.RETRY, Cause.RUN_LOST])
def test_what_ran_before_is_not_skipped_for_a_newer_one(tmp_path: Path, cause: Cause) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", order="LAST_ONLY"))
    lifecycle.put_instances("ping", hours(3), READY)
    run_again(lifecycle, START, cause)
    lifecycle.request(at("02"))
    assert list(lifecycle.statuses("ping").values()) == [READY, SKIPPED, READY]


def test_a_run_takes_ten_minutes_by_the_median_of_earlier_instances(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    lifecycle.put_instances("ping", hours(20), READY)
    with lifecycle.database.begin() as connection:
        for number, minutes in enumerate((1, 4, 200)):
            tried = Attempt(
                process="ping",
                cluster="primary",
                nominal_time=START - timedelta(hours=number),
                attempt=1,
                run_id=None,
                status=ProcessInstanceStatus.RUNNING,
                started_at=START,
            )
            Attempts(connection).begin(tried)
            ended_at = START + timedelta(minutes=minutes)
            Attempts(connection).end(tried.key, ProcessInstanceStatus.SUCCEEDED, ended_at, None)
    (request,) = lifecycle.request(at("02"))
    assert request.nominal_times == tuple(hours(2))
