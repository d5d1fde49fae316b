"""The life of instances with their state in a real PostgreSQL, where transactions do not wait in one line."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.engines.port import Work
from feed_assets.instances.leasing import TTL
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.sql.errors import FencedOutError, LeaseHeldError
from tests.databases import create_schema
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process, read_inputs

pytestmark = pytest.mark.server
NOON = at("01T12:00")
SUCCEEDED, WAITING = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.WAITING


@pytest.fixture
def state_url(postgres_url: str) -> str:
    """The URL of an empty schema."""
    return create_schema(postgres_url)


@pytest.fixture
def lifecycle(state_url: str, tmp_path: Path) -> LifecycleHarness:
    """Clicks are counted and reported."""
    return LifecycleHarness.of(
        tmp_path,
        feed("clicks"),
        feed("counts"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, parallel=3),
        process("report", inputs={"counts": "latest(0)"}, order="LAST_ONLY"),
        state=state_url,
    )


def test_data_that_land_are_counted_and_reported(lifecycle: LifecycleHarness) -> None:
    lifecycle.land("clicks", *hours(3))
    requests = lifecycle.tick(at("01T03:00"))
    assert lifecycle.launch(requests, at("01T03:10")) == hours(3)

    (report,) = lifecycle.tick(at("01T03:20"))

    assert (report.process.process, report.nominal_times) == ("report", (at("01T03:00"),))
    assert lifecycle.statuses("count") == {**dict.fromkeys(hours(3), SUCCEEDED), at("01T03:00"): WAITING}
    assert lifecycle.times_of_feed("counts", FeedInstanceStatus.AVAILABLE) == hours(3)
    assert lifecycle.tick(at("01T03:20")) == []


def test_a_changed_definition_is_followed(lifecycle: LifecycleHarness) -> None:
    lifecycle.tick(at("01T02:00"))
    lifecycle.declare(feed("clicks", start=at("2013-10-31T22:00")), process("ping", end=at("01T01:00")))
    lifecycle.tick(at("01T02:00"))
    assert len(lifecycle.feed_statuses("clicks")) == 5
    assert list(lifecycle.statuses("ping")) == [START]


def test_instances_follow_the_release_that_governs_them(lifecycle: LifecycleHarness) -> None:
    lifecycle.land("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:20"))
    lifecycle.tick(at("01T01:10"))
    lifecycle.declare(
        feed("clicks"),
        feed("counts"),
        process("count", "minutes(30)", inputs={"clicks": "now(0,0)"}, parallel=3),
    )
    lifecycle.tick(at("01T02:40"))
    assert list(lifecycle.statuses("count")) == [*hours(2), at("01T01:30"), at("01T02:00"), at("01T02:30")]
    first, second = (lifecycle.active_release("count", time) for time in (at("01T01:00"), at("01T01:30")))
    assert first is not None
    assert second is not None
    assert (first.release, second.release) == (1, 2)


def test_workers_at_once_do_not_hinder_each_other(lifecycle: LifecycleHarness) -> None:
    lifecycle.land("clicks", *hours(12))
    lifecycle.tick(NOON)

    with ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(lifecycle.run, "count", time, NOON, f"run-{n}") for n, time in enumerate(hours(12))]
        ticks = [pool.submit(lifecycle.ready, NOON) for _ in range(3)]
        assert [len(run.result()) for run in runs] == [1] * 12
        assert all(tick.result().is_complete for tick in ticks)

    assert list(lifecycle.statuses("count").values())[:12] == [SUCCEEDED] * 12
    assert [event.seq for event in lifecycle.events()] == list(range(1, 25))


def test_of_two_workers_on_one_instance_one_is_refused_and_one_fenced_out(lifecycle: LifecycleHarness) -> None:
    lifecycle.land("clicks", START)

    def overslept(_: Work) -> Mapping[str, str]:
        with pytest.raises(LeaseHeldError):
            lifecycle.run("count", START, NOON, "too-early")
        lifecycle.job = lambda _: {"counts": "second"}
        lifecycle.run("count", START, NOON + 2 * TTL, "second")
        return {"counts": "first"}

    lifecycle.job = overslept
    with pytest.raises(FencedOutError):
        lifecycle.run("count", START, NOON, "first")

    assert (lifecycle.content("counts", START), lifecycle.statuses("count")) == ("second", {START: SUCCEEDED})


def test_rows_69_73_74_late_data_are_processed_and_flow_down(state_url: str, tmp_path: Path) -> None:
    late = {"policy": "periodic", "delay": "hours(1)"}
    cut_off: dict[str, Any] = {"late_arrival": {"cut_off": "hours(6)"}}
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", **cut_off),
        feed("gate"),
        feed("counts", **cut_off),
        feed("sums"),
        process(
            "count",
            inputs={"clicks": "now(0,0)", "gate": "now(0,0)"},
            outputs={"counts": "now(0,0)"},
            late_process={**late, "inputs": ["clicks"]},
            end=START + timedelta(hours=1),
        ),
        process(
            "sum",
            inputs={"counts": "now(0,0)"},
            outputs={"sums": "now(0,0)"},
            late_process={**late, "inputs": ["counts"]},
            end=START + timedelta(hours=1),
        ),
        state=state_url,
    )
    lifecycle.job = lambda work: {target.name: str(read_inputs(work)) for target in work.outputs}
    lifecycle.land("clicks", START, text="first")
    lifecycle.land("gate", START)
    for _ in range(2):
        lifecycle.launch(lifecycle.tick(START), START)
    lifecycle.land("clicks", START, text="late")
    lifecycle.land("gate", START, text="late")
    for hour in range(1, 4):
        moment = START + timedelta(hours=hour)
        lifecycle.look_for_late(moment)
        lifecycle.launch(lifecycle.tick(moment), moment)
    assert "late" in (lifecycle.content("sums", START) or "")
    assert {name: lifecycle.instances(name)[START].attempt for name in ("count", "sum")} == {"count": 2, "sum": 2}


def test_a_failure_whose_message_has_a_nul_ends_its_instance_with_that_reason(lifecycle: LifecycleHarness) -> None:
    def failing(work: Work) -> Mapping[str, str]:
        raise ValueError("a\0b")

    lifecycle.job = failing
    lifecycle.land("clicks", START)
    (request,) = lifecycle.tick(at("01T00:10"))
    with pytest.raises(ValueError, match="a"):
        lifecycle.launch([request], at("01T00:20"))
    row = lifecycle.instances("count")[START]
    assert (row.status, row.attempt) == (ProcessInstanceStatus.FAILED, 1)
    assert "a\\x00b" in (row.cause_detail or "")
