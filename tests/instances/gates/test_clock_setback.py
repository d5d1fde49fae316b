"""Somebody sets the clock: what a wrong one has done, and planned, does not outlive it."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from feed_assets.entities.process import Process
from feed_assets.instances.attempts.attempts import begin_attempt, end_attempt
from feed_assets.instances.gates.reconciliation import (
    CHECK_INTERVAL,
    REQUEST_PATIENCE,
    ClockSetback,
    apply_clock,
    decide_poll,
    find_launched,
)
from feed_assets.instances.gates.requests import LaunchRequest
from feed_assets.instances.late.lateness import plan_update
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    ArrivalPoll,
    Cause,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

WAITING, READY, SUCCEEDED = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY, ProcessInstanceStatus.SUCCEEDED
FAILED, TIMEDOUT, SKIPPED = ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.SKIPPED
HOUR = timedelta(hours=1)
CLICKS = feed("clicks", start=at("2013-10-30"))
COUNTS = feed("counts", start=at("2013-10-30"))
RIGHT, WRONG = at("01T01:30"), at("03T01:30")


def counting(**more: Any) -> Process:
    return process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, parallel=9, **more)


def tick(lifecycle: LifecycleHarness, as_of: datetime) -> tuple[ClockSetback | None, list[LaunchRequest]]:
    """What a sensor does in a tick, after what it does about the clock."""
    found = apply_clock(lifecycle.open_tick(as_of))
    return found, lifecycle.tick(as_of)


def row(lifecycle: LifecycleHarness, time: datetime) -> ProcessInstance:
    return lifecycle.instances("count")[time]


def test_instances_of_a_time_that_is_to_come_again_come_into_being_again(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(timeout="hours(10)"), state=state_url)
    tick(lifecycle, RIGHT)
    tick(lifecycle, WRONG)
    assert len(lifecycle.times("count", WAITING)) + len(lifecycle.times("count", TIMEDOUT)) == 50
    found, _ = tick(lifecycle, RIGHT + HOUR)
    assert found is not None
    assert (found.by, found.removed, found.instances) == (47 * HOUR, 48, 2)
    assert lifecycle.times("count", WAITING) == hours(3)
    watermark = lifecycle.watermark(WatermarkKind.PROCESS, "count")
    assert watermark is not None
    assert watermark.next_time == at("01T03:00")
    assert row(lifecycle, at("01T02:00")).deadline_at == RIGHT + 11 * HOUR


def test_what_only_a_wrong_clock_has_timed_out_waits_on(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(timeout="hours(10)"))
    tick(lifecycle, RIGHT)
    deadline = row(lifecycle, START).deadline_at
    tick(lifecycle, WRONG)
    assert row(lifecycle, START).status is TIMEDOUT
    tick(lifecycle, RIGHT + HOUR)
    assert (row(lifecycle, START).status, row(lifecycle, START).deadline_at, row(lifecycle, START).reason) == (
        WAITING,
        deadline,
        None,
    )
    lifecycle.land("clicks", START)
    _, requests = tick(lifecycle, RIGHT + 2 * HOUR)
    assert [request.nominal_times for request in requests] == [(START,)]


def test_what_was_out_of_time_by_the_right_clock_too_stays_so(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(timeout="minutes(30)"))
    tick(lifecycle, RIGHT)
    tick(lifecycle, WRONG)
    tick(lifecycle, RIGHT + HOUR)
    assert row(lifecycle, START).status is TIMEDOUT


def test_nothing_is_left_out_because_its_time_seemed_to_have_passed(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", catch_up="none"))
    tick(lifecycle, START)
    tick(lifecycle, at("03T00:02"))
    assert {row.cause for row in lifecycle.instances("ping").values() if row.status is SKIPPED} == {Cause.MISSED}
    tick(lifecycle, START + timedelta(minutes=30))
    assert list(lifecycle.instances("ping")) == [START]
    tick(lifecycle, START + HOUR)
    assert lifecycle.times("ping", READY) == [START, START + HOUR]


def test_who_was_overtaken_by_instances_that_had_come_too_early_is_not_left_out(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(order="LAST_ONLY"))
    tick(lifecycle, START)
    tick(lifecycle, WRONG)
    assert row(lifecycle, START).status is SKIPPED
    tick(lifecycle, START + timedelta(minutes=30))
    assert lifecycle.statuses("count") == {START: WAITING}


def test_what_was_begun_by_a_wrong_clock_is_not_done_again(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    _, requests = tick(lifecycle, START + 3 * HOUR)
    lifecycle.launch(requests, START + 3 * HOUR)
    tick(lifecycle, START)
    assert set(lifecycle.statuses("ping").values()) == {SUCCEEDED}
    assert tick(lifecycle, START + 3 * HOUR) == (None, [])
    _, requests = tick(lifecycle, START + 4 * HOUR)
    assert [time for request in requests for time in request.nominal_times] == [START + 4 * HOUR]


def test_a_retry_is_as_far_away_as_it_was(tmp_path: Path) -> None:
    retry = {"policy": "periodic", "delay": "hours(1)", "attempts": 3}
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(retry=retry))
    lifecycle.land("clicks", START)
    tick(lifecycle, START)
    key = ProcessKey("count", "primary", START)
    with lifecycle.database.begin() as connection:
        begin_attempt(connection, lifecycle.process("count"), START, "run-1", WRONG)
        end_attempt(connection, key, FAILED, "it broke", WRONG)
    tick(lifecycle, WRONG)
    assert row(lifecycle, START).retry_at == WRONG + HOUR
    tick(lifecycle, RIGHT)
    assert row(lifecycle, START).retry_at == RIGHT + HOUR
    _, requests = tick(lifecycle, RIGHT + HOUR)
    assert [request.nominal_times for request in requests] == [(START,)]


def test_the_end_of_an_attempt_that_is_to_come_puts_no_retry_off(tmp_path: Path) -> None:
    retry = {"policy": "periodic", "delay": "hours(1)", "attempts": 3}
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(retry=retry))
    lifecycle.land("clicks", START)
    tick(lifecycle, RIGHT)
    with lifecycle.database.begin() as connection:
        begin_attempt(connection, lifecycle.process("count"), START, "run-1", WRONG)
        end_attempt(connection, ProcessKey("count", "primary", START), FAILED, "it broke", WRONG)
    tick(lifecycle, RIGHT + timedelta(minutes=5))
    assert row(lifecycle, START).retry_at == RIGHT + timedelta(minutes=65)


def test_a_request_that_was_lost_is_noticed_as_soon_as_ever(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting())
    lifecycle.land("clicks", START)
    tick(lifecycle, RIGHT)
    assert row(lifecycle, START).request_key is not None
    early = RIGHT - timedelta(minutes=50)
    tick(lifecycle, early)
    assert find_launched(lifecycle.database, "primary", early).requested == ()
    (found,) = find_launched(lifecycle.database, "primary", early + REQUEST_PATIENCE).requested
    assert found.nominal_time == START


def test_what_is_missing_is_looked_for_at_once_and_what_is_to_come_when_it_comes(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting())
    tick(lifecycle, WRONG)
    lifecycle.looked.clear()
    lifecycle.land("clicks", START)
    _, requests = tick(lifecycle, RIGHT)
    assert [request.nominal_times for request in requests] == [(START,)]
    assert lifecycle.next_poll("clicks", at("02T00:00")) == at("02T00:00")
    lifecycle.looked.clear()
    tick(lifecycle, RIGHT + timedelta(minutes=1))
    assert not [path for path in lifecycle.looked if "2013-11-02" in path]


def test_late_data_are_found_by_the_right_clock(tmp_path: Path) -> None:
    clicks = feed("clicks", start=at("2013-10-30"), late_arrival={"cut_off": "hours(30)"})
    late = {"policy": "periodic", "delay": "hours(6)", "inputs": ["clicks"]}
    lifecycle = LifecycleHarness.of(tmp_path, clicks, COUNTS, counting(late_process=late))
    lifecycle.land("clicks", START)
    _, requests = tick(lifecycle, RIGHT)
    lifecycle.launch(requests, RIGHT)
    tick(lifecycle, WRONG)
    lifecycle.look_for_late(WRONG)
    assert lifecycle.late_check("count", START) is None  # its cut-off has passed, says the clock
    tick(lifecycle, RIGHT + HOUR)
    check = lifecycle.late_check("count", START)
    assert check is not None
    assert check.due_at == at("01T06:00")
    lifecycle.land("clicks", START, text="more")
    lifecycle.look_for_late(at("01T06:00"))
    assert row(lifecycle, START).status is READY


def test_feeds_that_no_process_watches_are_checked_by_the_right_clock(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", start=START, late_arrival={"cut_off": "hours(30)"}))
    lifecycle.land("clicks", START)
    tick(lifecycle, RIGHT)
    tick(lifecycle, WRONG)
    lifecycle.look_for_late(WRONG)
    assert lifecycle.late_check("clicks", START, AgendaKind.LATE_FEED) is None
    tick(lifecycle, RIGHT + HOUR)
    assert lifecycle.late_check("clicks", START, AgendaKind.LATE_FEED) is not None


def test_what_was_planned_before_stays_as_it_is(tmp_path: Path) -> None:
    poll = ArrivalPoll("clicks", "primary", START, "", RIGHT, RIGHT + HOUR)
    assert decide_poll(poll, RIGHT) is None


def test_several_steps_back_are_as_good_as_one(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(timeout="hours(10)"))
    tick(lifecycle, START)
    (before,) = lifecycle.instances("count").values()
    for as_of in (WRONG, at("02T12:00"), at("02T01:00"), START):
        tick(lifecycle, as_of)
    (after,) = lifecycle.instances("count").values()
    assert replace(after, notice_at=before.notice_at) == before


def test_a_clock_that_goes_as_it_should_costs_a_question_and_a_row_a_minute(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting())
    tick(lifecycle, RIGHT)
    with counted_statements() as statements:
        assert apply_clock(lifecycle.open_tick(RIGHT + CHECK_INTERVAL / 2)) is None
    assert len([each for each in statements if each.startswith("SELECT")]) <= 2
    assert not [each for each in statements if each.startswith(("INSERT", "UPDATE"))]
    with counted_statements() as statements:
        assert apply_clock(lifecycle.open_tick(RIGHT + CHECK_INTERVAL)) is None
    assert len([each for each in statements if each.startswith(("INSERT", "UPDATE"))]) == 1


def test_other_clusters_have_clocks_of_their_own(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, process("ping", clusters=("primary", "backup")), clusters=("primary", "backup")
    )
    tick(lifecycle, WRONG)
    assert apply_clock(lifecycle.open_tick(RIGHT, "backup")) is None
    assert apply_clock(lifecycle.open_tick(RIGHT)) is not None


def test_a_check_that_a_run_is_to_process_is_kept(tmp_path: Path) -> None:
    clicks = feed("clicks", start=at("2013-10-30"), late_arrival={"cut_off": "days(30)"})
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    lifecycle = LifecycleHarness.of(tmp_path, clicks, COUNTS, counting(late_process=late))
    lifecycle.land("clicks", START)
    lifecycle.launch(tick(lifecycle, RIGHT)[1], RIGHT)
    lifecycle.land("clicks", START, text="more")
    tick(lifecycle, WRONG)
    lifecycle.look_for_late(WRONG)
    assert row(lifecycle, START).status is READY
    tick(lifecycle, RIGHT + HOUR)
    with lifecycle.database.read() as connection:
        (check,) = (
            LateChecks(connection).get_many([AgendaKey(AgendaKind.LATE_INPUTS, "count", "primary", START)]).values()
        )
        assert check.changed == ("clicks",)
        assert ProcessInstances(connection).get("count", "primary", START) is not None


def test_an_update_that_waits_is_looked_at_again_by_the_right_clock(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(trigger={"on_update": "rerun"}))
    tick(lifecycle, WRONG)
    with lifecycle.database.begin() as connection:
        LateChecks(connection).put([plan_update(ProcessKey("count", "primary", START), WRONG)])
    tick(lifecycle, RIGHT)
    assert (
        lifecycle.late_check("count", START, AgendaKind.UPDATE) is None
    )  # it was looked at: the instance has read nothing
