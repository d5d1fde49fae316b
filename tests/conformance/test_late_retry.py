"""Retries and late data against the tests and the code of Falcon."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed, LateArrival
from feed_assets.entities.process import Retry, RetryPolicy
from feed_assets.instances.gates.decide_retries import decide_retry, retry_delay
from feed_assets.instances.gates.retries import apply_retries
from feed_assets.instances.late.lateness import (
    InputContents,
    LateVerdict,
    decide_check,
    decide_early,
    decide_feed_check,
    find_changes,
    next_check,
    process_cut_off,
)
from feed_assets.instances.late.store import LATE_DATA, LateCheck, LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan
from feed_assets.sql.database import open_database
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.sequence import parse_frequency
from tests.instances.harness import LifecycleHarness, feed, process
from tests.retention.harness import RetentionHarness, kept_feed

Case = dict[str, Any]
TABLE = "late_retry.json"
NOW = datetime.fromisoformat("2016-03-17T05:00+00:00")
_STATUS = {"failed": "FAILED", "timedout": "TIMEDOUT", "killed_by_user": "KILLED", "suspended": "SUSPENDED"}


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def retry_of(case: Case) -> Retry | None:
    fields = case.get("retry")
    if fields is None:
        return None
    return Retry(
        policy=RetryPolicy(fields["policy"]),
        delay=parse_frequency(fields["delay"]),
        attempts=fields["attempts"],
        on_timeout=fields["on_timeout"],
    )


def check_retry_delay(case: Case) -> None:
    delay = parse_frequency(case["delay"]).as_duration()
    assert milliseconds(retry_delay(RetryPolicy(case["policy"]), delay, case["run_id"])) == case["expected_ms"]


def check_retry_decision(case: Case) -> None:
    status = ProcessInstanceStatus(_STATUS[case["event"]])
    retry_at = decide_retry(retry_of(case), status, case["run_id"], NOW).retry_at
    expected = case["expected"] and NOW + timedelta(milliseconds=case["expected"]["retry_after_ms"])
    assert retry_at == expected


def check_retry_when_due(case: Case) -> None:
    with lifecycle(process("p", retry={"policy": "periodic", "delay": "minutes(10)", "attempts": 3})) as made:
        status = ProcessInstanceStatus(case["job_status"])
        made.put_instances("p", [NOW], status)
        with made.database.begin() as connection:
            key = ProcessKey("p", "primary", NOW)
            ProcessInstances(connection).transition(key, {status}, retry_at=NOW, updated_at=NOW)
        apply_retries(made.open_tick(NOW))
        is_again = made.instances("p")[NOW].status is ProcessInstanceStatus.WAITING
        assert is_again == (case["expected"] == "rerun")
        assert "rerun_call_fails" not in case


def check_retry_validation(case: Case) -> None:
    def make() -> None:
        Retry(policy=case["policy"], delay=case["delay"], attempts=case["attempts"])

    if case["valid"]:
        make()
    else:
        with pytest.raises(ValidationError):
            make()


def delays_of(case: Case) -> list[timedelta]:
    """The delays after each failure of an instance that always fails."""
    retry = Retry(
        policy=RetryPolicy(case["policy"]),
        delay=parse_frequency(case["delay"]),
        attempts=case["attempts"],
        on_timeout=False,
    )
    delays: list[timedelta] = []
    while (found := decide_retry(retry, ProcessInstanceStatus.FAILED, len(delays), NOW)).retry_at is not None:
        delays.append(found.retry_at - NOW)
    assert found.is_exhausted
    return delays


def check_retry_schedule(case: Case) -> None:
    delays = delays_of(case)
    assert [milliseconds(delay) for delay in delays] == case["expected_delays_after_each_failure_ms"]
    assert len(delays) == case["expected_final_run_id"]


def check_retry_times(case: Case) -> None:
    minutes = [delay / timedelta(minutes=1) for delay in delays_of(case)]
    assert minutes == case["expected"]["delays_after_each_failure_minutes"]


def check_late_check(case: Case) -> None:
    nominal = parse_datetime(case["nominal_time"])
    found = next_check(
        RetryPolicy(case["policy"]),
        parse_frequency(case["delay"]).as_duration(),
        nominal,
        parse_datetime(case["cutoff"]),
        parse_datetime(case["now"]),
    )
    assert (-1 if found is None else milliseconds(found - nominal)) == case["expected_ms_from_nominal"]
    if found is not None:
        assert found == parse_datetime(case["expected_time"])


def check_feed_cutoff(case: Case) -> None:
    nominal_time = parse_datetime(case["nominal_time"])

    def is_after_now(cut_off: str) -> bool:
        plan = plan_of(feed("clicks", start=nominal_time, late_arrival={"cut_off": cut_off}))
        check = decide_feed_check(plan.feeds["clicks", "primary"], nominal_time, nominal_time)
        assert check is not None
        return check.cut_off_at > NOW

    assert [is_after_now(cut_off) for cut_off in ("days(1)", "days(897)", "days(898)")] == [False, False, True]
    assert is_after_now(case["cut_off"]) == (case["expected"] == "after_now")


def check_process_cutoff(case: Case) -> None:
    names = {item["name"]: item for item in case["inputs"]}
    cut_offs: dict[str, Any] = {
        name: {"late_arrival": {"cut_off": item["feed_cut_off"]}} if item["feed_cut_off"] else {}
        for name, item in names.items()
    }
    start = datetime.fromisoformat("2012-01-01T00:00+00:00")
    reader = process(
        "p",
        inputs={name: f"{item['end']} {item['end']}" for name, item in names.items()},
        start=start,
        late_process={
            "policy": "final",
            "delay": "hours(1)",
            "inputs": [name for name, item in names.items() if item["late_input"]],
        },
    )
    plan = plan_of(*(feed(name, start=start, **more) for name, more in cut_offs.items()), reader)
    found = process_cut_off(plan, plan.processes["p", "primary"], parse_datetime(case["nominal_time"]))
    assert found == parse_datetime(case["expected"])


def plan_of(*entities: Any) -> Plan:
    return compile_plan(Bundle(entities=(Cluster(name="primary", storage="memory://x"), *entities)))


def late_process_plan() -> Plan:
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    return plan_of(
        feed("clicks", start=NOW, late_arrival={"cut_off": "days(1)"}),
        process("p", inputs={"clicks": "now(0,0)"}, start=NOW, late_process=late),
    )


def check_late_when_due(case: Case) -> None:
    status = ProcessInstanceStatus("READY" if case["job_status"] == "PREP" else case["job_status"])
    plan, due_at = late_process_plan(), NOW + timedelta(hours=1)
    check = LateCheck(
        kind=AgendaKind.LATE_INPUTS,
        name="p",
        cluster="primary",
        nominal_time=NOW,
        planned_at=NOW,
        due_at=due_at,
        cut_off_at=NOW + timedelta(days=1),
    )
    decision = decide_early(check, status, plan.processes["p", "primary"], due_at, is_safe_mode=case["safe_mode"])
    if case["expected"] == "requeue_same_delay":
        assert decision is not None
        assert decision.verdict is LateVerdict.PUT_OFF
        assert decision.check is not None
        assert decision.check.due_at == due_at + timedelta(hours=1)
        return
    assert decision is None
    present = {NOW: "sha256:new" if case["changed_inputs"] else "sha256:old"}
    contents = contents_of("clicks", {NOW: "sha256:old"}, present)
    decision = decide_check(check, plan, plan.processes["p", "primary"], [contents], status, due_at)
    assert decision.check is not None
    assert decision.check.due_at == due_at + timedelta(hours=1)
    expected = {"rerun_forced": LateVerdict.RERUN, "schedule_next_check": LateVerdict.UNCHANGED}
    assert decision.verdict is expected[case["expected"]]


def contents_of(
    name: str, used: Mapping[datetime, str | None], present: Mapping[datetime, str | None]
) -> InputContents:
    gone = frozenset(used.keys() - present.keys())
    return InputContents(name=name, feed=name, is_late=True, is_optional=False, used=used, present=present, gone=gone)


def check_detect_changes(case: Case) -> None:
    contents = [
        contents_of(
            name,
            {NOW: f"sha256:{number}"},
            {NOW: f"sha256:{case['current'][name]}"} if name in case["current"] else {},
        )
        for name, number in case["recorded"].items()
    ]
    assert ",".join(change.input for change in find_changes(contents)) == case["expected"]


def check_late_scenario(case: Case) -> None:
    """The first run at the nominal time, a change, and ticks until the cut-off: how often it is run again."""
    if case.get("entity") == "feed replication":
        check_late_replication(case)
        return
    is_window = "window" in case["initial"]
    policy, _, delay = case["late_process"].partition(" ")
    whole: dict[str, Any] = {
        "start": NOW - timedelta(minutes=5),
        "end": NOW + timedelta(minutes=1),
        "flag": "_SUCCESS",
        "late_arrival": CUT_OFF,
    }
    entities = [
        feed("clicks", "minutes(1)", **whole),
        feed("gate", "minutes(1)", **whole),
        process(
            "p",
            "days(1)",
            inputs={"clicks": "now(0,-5) now(0,0)" if is_window else "now(0,0)", "gate": "now(0,0)"},
            start=NOW,
            late_process={"policy": policy, "delay": delay, "inputs": ["clicks"]},
        ),
    ]
    with lifecycle(*entities) as made:
        times = [NOW - timedelta(minutes=number) for number in range(6)]
        made.flag("clicks", *times)
        made.flag("gate", *times)
        if "has data" in case["initial"]:
            made.land("clicks", NOW)
        made.launch(made.tick(NOW), NOW)
        made.land("gate" if "'Gate'" in case["change"] else "clicks", times[2] if is_window else NOW)
        for minute in range(1, 61):
            moment = NOW + timedelta(minutes=minute)
            made.look_for_late(moment)
            made.launch(made.tick(moment), moment)
        assert made.instances("p")[NOW].attempt - 1 == case["expected_reruns"]


def check_late_replication(case: Case) -> None:
    roles = {"primary": "source", "backup": "target"}
    validity = {"start": NOW, "end": NOW + timedelta(minutes=1)}
    replicated = Feed.model_validate(
        {
            "name": "clicks",
            "frequency": "hours(1)",
            "locations": {"data": "/clicks/${YEAR}-${MONTH}-${DAY}-${HOUR}"},
            "clusters": {name: {"type": role, "validity": validity} for name, role in roles.items()},
            "late_arrival": {"cut_off": "hours(12)"},
        }
    )
    if case["initial"] != "source has data":
        raise LookupError(case["initial"])
    with lifecycle(replicated, clusters=list(roles)) as made:
        made.land("clicks", NOW)
        made.arrive(NOW)
        made.launch(made.tick(NOW, "backup"), NOW)
        made.land("clicks", NOW)
        for hour in range(1, 13):
            moment = NOW + timedelta(hours=hour)
            made.look_for_late(moment, "backup")
            made.launch(made.tick(moment, "backup"), moment)
        assert made.instances("clicks@primary", "backup")[NOW].attempt - 1 == case["expected_reruns"]
        counts = {len(list(made.folder("clicks", NOW, name).glob("*.csv"))) for name in roles}
        assert counts == {2}


CUT_OFF = {"cut_off": "hours(1)"}


@contextmanager
def lifecycle(*entities: Any, clusters: Sequence[str] = ("primary",)) -> Iterator[LifecycleHarness]:
    with tempfile.TemporaryDirectory() as root:
        made = LifecycleHarness.of(Path(root), *entities, clusters=clusters)
        yield made
        made.database.close()


def check_late_applicable(case: Case) -> None:
    if case["entity"] == "process":
        check_that_a_failure_plans_nothing()
        return
    if case.get("operation") == "DELETE":
        check_that_an_eviction_is_no_late_data(case["late_arrival"])
        return
    plan = plan_of(feed("clicks", start=NOW, late_arrival={"cut_off": case["late_arrival"]}))
    assert (decide_feed_check(plan.feeds["clicks", "primary"], NOW, NOW) is not None) == case["expected"]


def check_that_an_eviction_is_no_late_data(cut_off: str) -> None:
    """An eviction, which waits for the last check for late data, runs nothing again."""
    kept = kept_feed(limit=cut_off, start=NOW).model_copy(update={"late_arrival": LateArrival(cut_off=cut_off)})
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    reader = process("p", "days(1)", inputs={"clicks": "now(0,0)"}, start=NOW, late_process=late)
    with tempfile.TemporaryDirectory() as root:
        harness = RetentionHarness.of(Path(root), kept, reader)
        lifecycle = harness.lifecycle
        harness.land("clicks", NOW)
        lifecycle.launch(lifecycle.tick(NOW), NOW)
        harness.wait(NOW + parse_frequency(cut_off).as_duration() + timedelta(minutes=1))
        lifecycle.look_for_late(harness.now)  # the last check, for which retention waits
        harness.sweep_now()
        assert lifecycle.feed_statuses("clicks")[NOW] is FeedInstanceStatus.EVICTED
        lifecycle.look_for_late(harness.now)
        lifecycle.launch(lifecycle.tick(harness.now), harness.now)
        assert lifecycle.instances("p")[NOW].attempt == 1
        lifecycle.database.close()


def check_that_a_failure_plans_nothing() -> None:
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    entities = [
        feed("clicks", start=NOW, late_arrival=CUT_OFF),
        process("p", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, start=NOW, late_process=late),
        feed("counts", start=NOW),
    ]
    with lifecycle(*entities) as made:
        made.land("clicks", NOW)
        made.arrive(NOW)
        made.job = lambda _: {}
        with pytest.raises(KeyError):
            made.run("p", NOW, NOW)
        assert made.instances("p")[NOW].status is ProcessInstanceStatus.FAILED
        assert made.late_check("p", NOW) is None


def check_schema_policy(case: Case) -> None:
    assert {value: value in set(RetryPolicy) for value in case["values"]} == case["values"]


def check_delay_queue(case: Case) -> None:
    check = LateCheck(
        kind=AgendaKind.LATE_INPUTS,
        name="p",
        cluster="primary",
        nominal_time=NOW,
        planned_at=NOW,
        due_at=NOW,
        cut_off_at=NOW,
    )
    database = open_database("sqlite://")
    database.migrate()
    with database.begin() as connection:
        for event in case["events"]:
            due_at = NOW + timedelta(milliseconds=event["insert_ms"] + event["delay_ms"])
            LateChecks(connection).put([replace(check, name=event["id"], due_at=due_at)])
        due = LateChecks(connection).due(LATE_DATA, "primary", NOW + timedelta(days=1), 10)
    database.close()
    assert [found.name for found in due] == case["expected_order"]


RUNNERS = {
    "retry_delay": check_retry_delay,
    "retry_decision": check_retry_decision,
    "retry_when_due": check_retry_when_due,
    "retry_validation": check_retry_validation,
    "retry_schedule": check_retry_schedule,
    "doc_contradiction": check_retry_times,
    "late_check": check_late_check,
    "feed_cutoff": check_feed_cutoff,
    "process_cutoff": check_process_cutoff,
    "late_when_due": check_late_when_due,
    "detect_changes": check_detect_changes,
    "late_scenario": check_late_scenario,
    "late_applicable": check_late_applicable,
    "schema_policy": check_schema_policy,
    "delay_queue": check_delay_queue,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
