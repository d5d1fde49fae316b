"""What people do to instances, and what becomes of the runs that work on them."""

from datetime import datetime
from pathlib import Path

import pytest

from feed_assets.instances.gates.actions import ActionEffects, InstanceAction, apply_action, decide_action
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.sql.errors import FencedOutError
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

KILL, SUSPEND, RESUME, RERUN = InstanceAction
S = ProcessInstanceStatus


def harness_with(tmp_path: Path, count: int = 3, **more: object) -> LifecycleHarness:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", flag="_DONE"),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, **more),
    )
    for time in hours(count):
        lifecycle.land("clicks", time)
        lifecycle.flag("clicks", time)
    return lifecycle


def act(
    lifecycle: LifecycleHarness, action: InstanceAction, times: list[datetime], as_of: datetime, **more: object
) -> ActionEffects:
    keys = [("count", "primary", time) for time in times]
    return apply_action(lifecycle.context(as_of).by("ann"), action, keys, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (
            KILL,
            {S.WAITING: S.KILLED, S.READY: S.KILLED, S.RUNNING: S.KILLED, S.SUSPENDED: S.KILLED, S.FAILED: S.KILLED},
        ),
        (SUSPEND, {S.WAITING: S.SUSPENDED, S.READY: S.SUSPENDED, S.RUNNING: S.SUSPENDED}),
        (RESUME, {S.SUSPENDED: S.WAITING}),
        (RERUN, dict.fromkeys((S.TIMEDOUT, S.FAILED, S.KILLED, S.SUCCEEDED, S.SKIPPED), S.WAITING)),
    ],
)
def test_an_action_acts_on_some_statuses_and_leaves_the_others(
    action: InstanceAction, expected: dict[ProcessInstanceStatus, ProcessInstanceStatus]
) -> None:
    assert {status: decide_action(action, status) for status in S} == {status: status for status in S} | expected


def test_row_108_what_is_killed_stays_so_and_its_siblings_are_asked_for_anew(tmp_path: Path) -> None:
    lifecycle = harness_with(tmp_path)
    (request,) = lifecycle.tick(at("01T02:30"))
    assert request.nominal_times == tuple(hours(3))

    effects = act(lifecycle, KILL, [START], at("01T02:31"))

    assert [(each.before, each.after) for each in effects.results] == [(S.READY, S.KILLED)]
    assert effects.stopped == ()
    assert lifecycle.statuses("count")[START] is S.KILLED
    assert lifecycle.tick(at("01T02:32")) == []


def test_a_request_of_which_nothing_is_left_is_named(tmp_path: Path) -> None:
    lifecycle = harness_with(tmp_path)
    (request,) = lifecycle.tick(at("01T02:30"))
    stopped = act(lifecycle, SUSPEND, hours(3), at("01T02:31")).stopped
    assert [(row.request_key, row.run_id) for row in stopped] == [(request.key, None)]


def test_row_109_suspended_instances_wait_and_go_on_when_they_are_resumed(tmp_path: Path) -> None:
    lifecycle = harness_with(tmp_path)
    lifecycle.tick(at("01T02:30"))
    act(lifecycle, SUSPEND, hours(3), at("01T02:31"))
    assert lifecycle.tick(at("01T02:40")) == []
    assert [each.is_changed for each in act(lifecycle, SUSPEND, hours(3), at("01T02:41")).results] == [False] * 3

    act(lifecycle, RESUME, hours(3), at("01T02:50"))

    (request,) = lifecycle.tick(at("01T02:51"))
    assert lifecycle.launch([request], at("01T02:52")) == hours(3)
    assert set(lifecycle.statuses("count").values()) == {S.SUCCEEDED}


def test_a_killed_worker_publishes_nothing(tmp_path: Path) -> None:
    lifecycle = harness_with(tmp_path, 1)
    (request,) = lifecycle.tick(at("01T00:30"))
    effects: list[ActionEffects] = []

    def killed_at_work(_: object) -> dict[str, str]:
        effects.append(act(lifecycle, KILL, [START], at("01T00:31")))
        return {"counts": "too late"}

    lifecycle.job = killed_at_work
    with pytest.raises(FencedOutError):
        lifecycle.launch([request], at("01T00:31"))

    assert [row.run_id for row in effects[0].stopped] == [lifecycle.instances("count")[START].run_id]
    assert lifecycle.content("counts", START) is None
    assert lifecycle.statuses("count") == {START: S.KILLED}


def test_row_110_what_has_ended_runs_again_and_a_time_out_waits_for_its_data(tmp_path: Path) -> None:
    lifecycle = harness_with(tmp_path, 1, timeout="hours(1)")
    lifecycle.launch(lifecycle.tick(at("01T01:30")), at("01T01:31"))
    lifecycle.tick(at("01T03:00"))
    assert lifecycle.statuses("count") == {
        START: S.SUCCEEDED,
        at("01T01:00"): S.TIMEDOUT,
        at("01T02:00"): S.WAITING,
    } | {at("01T03:00"): S.WAITING}

    act(lifecycle, RERUN, hours(2), at("01T03:01"))

    (request,) = lifecycle.tick(at("01T03:02"))
    assert lifecycle.launch([request], at("01T03:03")) == [START]
    assert lifecycle.statuses("count")[at("01T01:00")] is S.WAITING
    assert lifecycle.instances("count")[START].attempt == 2


def test_properties_that_a_person_gives_reach_the_runs_to_come(tmp_path: Path) -> None:
    lifecycle = harness_with(tmp_path, 1, properties={"depth": "1", "colour": "red"})
    lifecycle.launch(lifecycle.tick(at("01T00:30")), at("01T00:31"))
    act(lifecycle, RERUN, [START], at("01T00:32"), overrides={"depth": "7"})
    seen = lifecycle.properties_of("count", START, at("01T00:33"))
    assert (seen["depth"], seen["colour"]) == ("7", "red")
