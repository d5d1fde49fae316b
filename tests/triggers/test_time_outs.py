"""Instances that have waited too long, and run with what is there."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.engines.port import Work
from feed_assets.instances.errors import InputsMissingError
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.log.records import Cause, ProcessInstanceStatus, ProcessKey
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process, read_inputs

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY
SUCCEEDED, FAILED = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED
CREATED = at("01T04:00")
OVER = CREATED + timedelta(hours=2)


def waiting(tmp_path: Path, window: str = "now(0,0) now(2,0)", **more: Any) -> LifecycleHarness:
    """A process of three hours of clicks, of which one has come."""
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", late_arrival={"cut_off": "days(2)"}),
        feed("counts"),
        process(
            "count",
            inputs={"clicks": window},
            outputs={"counts": "now(0,0)"},
            end=START + timedelta(hours=1),
            timeout="hours(2)",
            **{"on_timeout": "run", **more},
        ),
    )
    lifecycle.land("clicks", START, text="a")
    assert lifecycle.tick(CREATED) == []
    assert lifecycle.statuses("count") == {START: WAITING}
    return lifecycle


@pytest.mark.parametrize("window", ["now(0,0) now(2,0)", "latest(-2) latest(0)", "future(0,3) future(2,3)"])
def test_at_the_time_out_an_instance_runs_with_what_is_there(tmp_path: Path, window: str) -> None:
    lifecycle = waiting(tmp_path, window)
    assert lifecycle.tick(OVER - timedelta(minutes=1)) == []
    (request,) = lifecycle.tick(OVER)
    row = lifecycle.instances("count")[START]
    assert (row.status, row.cause) == (READY, Cause.INCOMPLETE)
    seen: dict[str, list[str]] = {}

    def job(work: Work) -> Mapping[str, str]:
        seen.update(read_inputs(work))
        return {"counts": "made"}

    lifecycle.job = job
    lifecycle.launch([request], OVER)
    assert lifecycle.statuses("count") == {START: SUCCEEDED}
    assert seen == {"clicks": ["a"]}


def test_an_input_of_which_nothing_is_there_is_read_as_an_optional_one(tmp_path: Path) -> None:
    lifecycle = waiting(tmp_path, "now(1,0) now(2,0)")
    seen: list[tuple[bool, int]] = []

    def job(work: Work) -> Mapping[str, str]:
        seen.extend((data.optional, len(data.instances)) for data in work.inputs)
        return {"counts": "made"}

    lifecycle.job = job
    lifecycle.launch(lifecycle.tick(OVER), OVER)
    assert seen == [(True, 0)]


def test_a_retry_goes_on_with_what_is_there_and_a_rerun_waits_anew(tmp_path: Path) -> None:
    lifecycle = waiting(tmp_path, retry={"policy": "periodic", "delay": "minutes(5)", "attempts": 1})

    def failing(_: Work) -> Mapping[str, str]:
        raise ArithmeticError

    lifecycle.job = failing
    with pytest.raises(ArithmeticError):
        lifecycle.launch(lifecycle.tick(OVER), OVER)
    lifecycle.job = lambda _: {"counts": "made"}
    assert lifecycle.tick(OVER) == []
    again = OVER + timedelta(minutes=5)
    lifecycle.launch(lifecycle.tick(again), again)
    assert lifecycle.statuses("count") == {START: SUCCEEDED}
    key = ProcessKey("count", "primary", START)
    apply_action(lifecycle.context(again).by("ann"), InstanceAction.RERUN, [key])
    assert lifecycle.tick(again) == []
    assert len(lifecycle.tick(again + timedelta(hours=2))) == 1


def test_late_data_runs_it_again_with_what_is_there_by_then(tmp_path: Path) -> None:
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    lifecycle = waiting(tmp_path, late_process=late)
    lifecycle.launch(lifecycle.tick(OVER), OVER)
    lifecycle.land("clicks", at("01T01:00"), text="b")
    later = OVER + timedelta(hours=2)
    lifecycle.tick(later)
    lifecycle.look_for_late(later)
    seen: dict[str, list[str]] = {}

    def job(work: Work) -> Mapping[str, str]:
        seen.update(read_inputs(work))
        return {"counts": "made"}

    lifecycle.job = job
    lifecycle.launch(lifecycle.tick(later), later)
    assert seen == {"clicks": ["b", "a"]}


@pytest.mark.parametrize("window", ["now(0,0) now(2,0)", "latest(-2) latest(0)"])
def test_no_attempt_reads_less_than_an_earlier_one(tmp_path: Path, window: str) -> None:
    lifecycle = waiting(tmp_path, window)
    lifecycle.land("clicks", *hours(3)[1:], text="b")
    lifecycle.launch(lifecycle.tick(OVER), OVER)
    assert lifecycle.statuses("count") == {START: SUCCEEDED}
    lifecycle.evict("clicks", at("01T02:00"))
    with pytest.raises(InputsMissingError):
        lifecycle.run("count", START, OVER, "by-hand")
    assert lifecycle.content("counts", START) == "made"
