"""Instances whose time came while nobody looked, and the whole of the native scheduler over a stop (row 123)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.process import CatchUp, Order
from feed_assets.instances.attempts.attempts import begin_attempt
from feed_assets.instances.gates import readiness
from feed_assets.instances.gates.readiness import ON_TIME, decide_catch_up, decide_materialization
from feed_assets.instances.gates.reconciliation import RunState, apply_reconciliation, find_launched
from feed_assets.instances.gates.requests import LaunchRequest
from feed_assets.log import watermarks
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.records import Cause, ProcessInstance, ProcessInstanceStatus, Watermark, WatermarkKind
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan
from feed_assets.releases.store import Releases
from feed_assets.releases.timeline import ActiveRelease
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY
SUCCEEDED, SKIPPED = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED
TIMEDOUT = ProcessInstanceStatus.TIMEDOUT
KEY = ("ping", "primary")
SWITCH = at("01T06:00")
SECOND = timedelta(seconds=1)


def reasons(lifecycle: LifecycleHarness, name: str = "ping") -> dict[datetime, Cause | None]:
    return {time: row.cause for time, row in lifecycle.instances(name).items() if row.status is SKIPPED}


@pytest.mark.parametrize("policy", CatchUp)
@pytest.mark.parametrize("has_successor", [True, False])
def test_what_is_on_time_is_never_left_out(policy: CatchUp, has_successor: bool) -> None:
    assert decide_catch_up(policy, ON_TIME, has_successor=has_successor) is None


@pytest.mark.parametrize(
    ("policy", "kept", "reason"),
    [("all", hours(11), None), ("latest", [at("01T10:00")], Cause.OVERTAKEN), ("none", [], Cause.MISSED)],
)
def test_after_downtime_the_policy_says_what_runs_and_every_instance_is_there(
    tmp_path: Path, policy: str, kept: list[datetime], reason: Cause | None
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", catch_up=policy))

    requests = lifecycle.tick(at("01T10:30"))

    assert list(lifecycle.statuses("ping")) == hours(11)
    assert lifecycle.times("ping", READY) == kept
    assert reasons(lifecycle) == {time: reason for time in hours(11) if time not in kept}
    assert [time for request in requests for time in request.nominal_times] == kept
    row = lifecycle.instances("ping")[START]
    assert row.ended_at == (None if policy == "all" else at("01T10:30"))

    lifecycle.tick(at("01T11:01"))
    assert lifecycle.statuses("ping")[at("01T11:00")] is READY


@pytest.mark.parametrize("policy", ["all", "latest", "none"])
def test_a_slow_tick_loses_nothing_however_short_the_frequency(tmp_path: Path, policy: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", "minutes(1)", catch_up=policy))
    lifecycle.tick(START)
    lifecycle.tick(START + timedelta(minutes=5))
    assert set(lifecycle.statuses("ping").values()) == {READY}
    assert len(lifecycle.statuses("ping")) == 6


@pytest.mark.parametrize(("policy", "kept"), [("all", hours(10)), ("latest", [at("01T09:00")]), ("none", [])])
def test_the_end_of_the_validity_does_not_take_the_newest_instance_away(
    tmp_path: Path, policy: str, kept: list[datetime]
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", end=at("01T10:00"), catch_up=policy))
    lifecycle.tick(at("20"))
    assert lifecycle.times("ping", READY) == kept
    assert len(lifecycle.statuses("ping")) == 10


@pytest.mark.parametrize(
    ("policy", "kept"), [("all", [2, 3, 4, 5]), ("latest", [5]), ("none", [])], ids=["all", "latest", "none"]
)
def test_a_process_that_was_suspended_goes_on_by_its_policy(tmp_path: Path, policy: str, kept: list[int]) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", catch_up=policy))
    for minute in ("01T00:00", "01T01:00"):
        lifecycle.tick(at(minute))
    schedule(lifecycle, ScheduleState.SUSPENDED)
    assert lifecycle.tick(at("01T05:00")) == []
    assert len(lifecycle.statuses("ping")) == 2

    schedule(lifecycle, ScheduleState.SCHEDULED)
    lifecycle.tick(at("01T05:30"))

    assert list(lifecycle.statuses("ping")) == hours(6)
    assert lifecycle.times("ping", READY) == [hours(6)[n] for n in (0, 1, *kept)]


def schedule(lifecycle: LifecycleHarness, state: ScheduleState) -> None:
    row = Schedule(kind="process", name="ping", cluster="primary", state=state, changed_at=START, author="ann")
    with lifecycle.database.begin() as connection:
        Schedules(connection).put([row])


def test_with_last_only_and_latest_the_newest_takes_the_place_of_what_waits(tmp_path: Path) -> None:
    reader = process("ping", inputs={"clicks": "now(0,0)"}, order="LAST_ONLY", catch_up="latest")
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), reader)
    lifecycle.tick(START)
    lifecycle.tick(at("01T03:30"))
    assert reasons(lifecycle) == {
        START: Cause.SUPERSEDED,
        at("01T01:00"): Cause.OVERTAKEN,
        at("01T02:00"): Cause.OVERTAKEN,
    }
    assert lifecycle.times("ping", WAITING) == [at("01T03:00")]


def test_with_last_only_what_was_missed_takes_nobodys_place(tmp_path: Path) -> None:
    reader = process("ping", inputs={"clicks": "now(0,0)"}, order="LAST_ONLY", catch_up="none")
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), reader)
    lifecycle.tick(START)
    lifecycle.tick(at("01T03:30"))
    assert reasons(lifecycle) == dict.fromkeys(hours(4)[1:], Cause.MISSED)
    assert lifecycle.times("ping", WAITING) == [START]

    lifecycle.tick(at("01T04:00"))
    assert lifecycle.times("ping", WAITING) == [at("01T04:00")]
    assert reasons(lifecycle)[START] == Cause.SUPERSEDED


def test_another_policy_changes_in_place_and_concerns_only_what_comes_into_being(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", catch_up="none"))
    lifecycle.tick(at("01T02:30"))
    lifecycle.declare(process("ping", catch_up="all"))
    lifecycle.tick(at("01T04:30"))

    assert lifecycle.times("ping", SKIPPED) == hours(3)
    assert lifecycle.times("ping", READY) == hours(5)[3:]
    with lifecycle.database.read() as connection:
        assert len(Releases(connection).of(*KEY)) == 1


def test_what_an_older_release_governs_follows_the_policy_of_today(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping"))
    lifecycle.launch(lifecycle.tick(START), START)
    lifecycle.now = at("01T03:30")
    lifecycle.declare(process("ping", "hours(2)", properties={"a": "b"}, catch_up="latest"))
    with lifecycle.database.read() as connection:
        assert [each.effective_from for each in Releases(connection).of(*KEY)] == [START, at("01T04:00")]

    lifecycle.tick(at("01T08:30"))

    assert lifecycle.times("ping", READY) == [at("01T08:00")]
    assert reasons(lifecycle) == dict.fromkeys([*hours(4)[1:], at("01T04:00"), at("01T06:00")], Cause.OVERTAKEN)


def test_what_was_left_out_can_be_run_by_hand(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", catch_up="none"))
    lifecycle.tick(at("01T02:30"))
    lifecycle.run("ping", START, at("01T02:40"))
    assert lifecycle.times("ping", SUCCEEDED) == [START]


@pytest.mark.parametrize("policy", ["latest", "none"])
def test_a_long_past_comes_into_being_in_steps_and_asks_for_one_run_at_most(tmp_path: Path, policy: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", catch_up=policy, parallel=12))
    as_of = START + timedelta(hours=349, minutes=30)

    first = lifecycle.ready(as_of, seconds=0.0)
    requests = lifecycle.tick(as_of)

    assert (first.materialized, first.is_complete, first.ready) == (100, False, 0)
    assert len(lifecycle.statuses("ping")) == 350
    assert len(requests) == (policy == "latest")


def test_no_policy_asks_for_more_runs_than_parallel(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", parallel=3), process("pong", parallel=2))
    requests = lifecycle.tick(at("30"))
    assert sorted(request.process.process for request in requests) == ["ping"] * 3 + ["pong"] * 2
    assert lifecycle.tick(at("30T00:01")) == []


def plan_of(frequency: str, policy: CatchUp, order: Order) -> Plan:
    pinging = process("ping", frequency, end=at("02"), catch_up=policy.value, order=order.value)
    return compile_plan(Bundle(entities=(Cluster(name="primary", storage="memory://x"), pinging)))


def walk(spans: Sequence[ActiveRelease], ticks: Sequence[datetime]) -> list[tuple[datetime, list[ProcessInstance]]]:
    """All that comes into being in each tick."""
    watermark = Watermark(kind=WatermarkKind.PROCESS, entity="ping", cluster="primary", next_index=0, next_time=START)
    done = []
    for as_of in ticks:
        rows: list[ProcessInstance] = []
        while watermark.next_time is not None and watermark.next_time <= as_of:
            new, watermark = decide_materialization(spans, watermark, as_of)
            assert new
            rows.extend(new)
        while watermark.past_time is not None:
            new, watermark = decide_materialization(spans, watermark, as_of, of_past=True)
            assert new
            rows.extend(new)
        done.append((as_of, sorted(rows, key=lambda row: row.nominal_time)))
    return done


def expected_statuses(policy: CatchUp, order: Order, as_of: datetime, times: Sequence[datetime]) -> list[bool]:
    """Which of the instances that come into being in one tick are kept."""
    kept = []
    for time in times:
        is_newest, is_on_time = time == times[-1], as_of - time <= ON_TIME
        keeps = is_on_time or policy is CatchUp.ALL or (policy is CatchUp.LATEST and is_newest)
        kept.append(keeps and (is_newest or order is not Order.LAST_ONLY))
    return kept


@settings(max_examples=80, deadline=None)
@given(
    frequencies=st.tuples(*[st.sampled_from(["minutes(1)", "minutes(7)", "minutes(45)", "hours(1)"])] * 2),
    order=st.sampled_from(Order),
    pauses=st.lists(st.sampled_from([5, 30, 60, 299, 300, 301, 3600, 4000, 20_000]), min_size=1, max_size=25),
    step=st.sampled_from([1, 2, 7, 100]),
    newest=st.sampled_from([1, 9, 1_000]),
)
def test_however_ticks_come_every_instance_comes_into_being_once_and_the_policy_decides_what_runs(
    frequencies: tuple[str, str], order: Order, pauses: list[int], step: int, newest: int
) -> None:
    ticks = [START + timedelta(seconds=sum(pauses[: n + 1]) - pauses[0]) for n in range(len(pauses))]
    kept: dict[CatchUp, set[datetime]] = {}
    for policy in CatchUp:
        older, newer = (ActiveRelease.whole(plan_of(each, policy, order), KEY) for each in frequencies)
        spans = [replace(older, stop=SWITCH), replace(newer, start=SWITCH)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readiness, "INSTANCES_A_STEP", step)
            patch.setattr(watermarks, "NEWEST", newest)
            done = walk(spans, ticks)

        come = [row.nominal_time for _, rows in done for row in rows]
        due = [each.record.sequence.at(n) for each in spans for n in each.between(START, ticks[-1] + SECOND)]
        assert come == [time for time in due if time <= ticks[-1]]
        for as_of, rows in done:
            wanted = expected_statuses(policy, order, as_of, [row.nominal_time for row in rows])
            assert [row.status is WAITING for row in rows] == wanted
            assert all((row.reason is None) == (row.status is WAITING) == (row.ended_at is None) for row in rows)
        kept[policy] = {row.nominal_time for _, rows in done for row in rows if row.status is WAITING}
    assert kept[CatchUp.NONE] <= kept[CatchUp.LATEST] <= kept[CatchUp.ALL]


def asked(requests: Sequence[LaunchRequest], name: str) -> list[tuple[datetime, ...]]:
    return [request.nominal_times for request in requests if request.process.process == name]


def test_row_123_the_scheduler_gates_throttles_times_out_catches_up_and_survives_a_restart(
    tmp_path: Path, state_url: str
) -> None:
    reader = process("count", inputs={"clicks": "now(0,0)"}, timeout="hours(8)", parallel=2)
    entities = (feed("clicks"), reader, process("ping", catch_up="latest"))
    lifecycle = LifecycleHarness.of(tmp_path, *entities, state=state_url)
    lifecycle.land("clicks", *hours(3))

    requests = lifecycle.tick(at("01T03:00"))

    assert lifecycle.times("count", WAITING) == [at("01T03:00")]
    first, second = asked(requests, "count")
    assert (first, second) == (tuple(hours(2)), (at("01T02:00"),))
    lifecycle.launch([request for request in requests if request.nominal_times == first], at("01T03:01"))
    with lifecycle.database.begin() as connection:
        begin_attempt(connection, lifecycle.process("count"), second[0], "run-that-dies", at("01T03:01"))

    lifecycle = LifecycleHarness.of(tmp_path, *entities, state=state_url)
    noon = at("01T12:30")
    lifecycle.land("clicks", *hours(4, at("01T09:00")))
    launched = find_launched(lifecycle.database, "primary", noon)
    apply_reconciliation(lifecycle.context(noon), launched, {"run-that-dies": RunState.ENDED}, {})
    requests = lifecycle.tick(noon)

    assert lifecycle.statuses("count") == {
        **dict.fromkeys(hours(2), SUCCEEDED),
        at("01T02:00"): READY,
        at("01T03:00"): TIMEDOUT,
        **dict.fromkeys(hours(5, at("01T04:00")), WAITING),
        **dict.fromkeys(hours(4, at("01T09:00")), READY),
    }
    assert lifecycle.instances("count")[at("01T04:00")].deadline_at == noon + timedelta(hours=8)
    assert asked(requests, "count") == [second, tuple(hours(3, at("01T09:00")))]
    assert lifecycle.times("ping", SKIPPED) == [time for time in hours(12) if time != at("01T03:00")]
    assert {time for times in asked(requests, "ping") for time in times} <= {at("01T03:00"), at("01T12:00")}

    lifecycle.launch(requests, noon)
    assert asked(lifecycle.tick(noon + SECOND), "count") == [(at("01T12:00"),)]
    assert {row.attempt for row in lifecycle.instances("count").values() if row.status is SUCCEEDED} == {1, 2}
