"""When a run gives way to an instance that goes before the rest of it."""

from datetime import datetime
from pathlib import Path

import pytest

from feed_assets.log import watermarks
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessInstanceStatus
from feed_assets.orchestration.runs.remaining import give_way
from tests.instances.gates.test_requests import run_again
from tests.instances.harness import START, LifecycleHarness, at, hours, process

READY = ProcessInstanceStatus.READY


def give_way_before(lifecycle: LifecycleHarness, key: str, coming: datetime) -> tuple[datetime, list[datetime]] | None:
    """To whom a run gives way before an instance, and what it leaves."""
    ping = lifecycle.process("ping")
    given = give_way(lifecycle.database, ping, key, coming, at("01T03:30"))
    return None if given is None else (given[0].nominal_time, [key.nominal_time for key in given[1]])


def test_a_run_gives_way_to_the_newest_day(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", order="LIFO"))
    (request,) = lifecycle.tick(at("01T02:00"))
    newest, *rest = request.nominal_times[::-1]
    lifecycle.run("ping", newest, at("01T02:10"))
    assert give_way_before(lifecycle, request.key, rest[0]) is None
    lifecycle.ready(at("01T03:00"))
    assert give_way_before(lifecycle, request.key, rest[0]) == (at("01T03:00"), rest[::-1])
    assert [each.last for each in lifecycle.request(at("01T03:31"))] == [at("01T03:00")]


def test_a_run_of_the_oldest_gives_way_to_what_runs_again_and_only_once(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    (request,) = lifecycle.tick(at("01T02:00"))
    first, *rest = request.nominal_times
    lifecycle.run("ping", first, at("01T02:10"))
    lifecycle.ready(at("01T03:00"))
    assert give_way_before(lifecycle, request.key, rest[0]) is None
    run_again(lifecycle, at("01T03:00"), Cause.RUN_LOST)
    assert give_way_before(lifecycle, request.key, rest[0]) is None
    run_again(lifecycle, at("01T03:00"))
    assert give_way_before(lifecycle, "of another run", rest[0]) is None
    assert give_way_before(lifecycle, request.key, rest[0]) == (at("01T03:00"), rest)
    with lifecycle.database.begin() as connection:  # by another tick, for which that one was not to be requested
        ProcessInstances(connection).transition_many(
            [("ping", "primary", time) for time in rest], {READY}, request_key="next", updated_at=at("01T03:31")
        )
    assert give_way_before(lifecycle, "next", rest[0]) is None


def test_a_run_of_a_long_past_gives_way_to_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "NEWEST", 1)
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    (today,) = lifecycle.tick(at("01T03:00"))
    assert lifecycle.launch([today], at("01T03:10")) == [at("01T03:00")]
    (request,) = lifecycle.request(at("01T03:20"))
    first, *rest = request.nominal_times
    lifecycle.run("ping", first, at("01T03:25"))
    assert give_way_before(lifecycle, request.key, rest[0]) is None
    lifecycle.ready(at("01T04:00"))
    assert give_way_before(lifecycle, request.key, rest[0]) == (at("01T04:00"), rest)


def test_no_run_gives_way_while_another_may_begin(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", order="LIFO", parallel=2))
    lifecycle.put_instances("ping", hours(3)[:2], READY)
    lifecycle.request(at("01T02:00"))
    rows = lifecycle.instances("ping")
    lifecycle.run("ping", hours(3)[1], at("01T02:10"))
    lifecycle.ready(at("01T03:00"))
    assert give_way_before(lifecycle, rows[START].request_key or "", START) is None
