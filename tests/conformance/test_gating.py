"""Waiting, timing out, skipping and starting against the tests and the code of Oozie and Falcon."""

import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from feed_assets.engines.port import Work
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.process import Order, Process
from feed_assets.instances.gates.readiness import decide_materialization
from feed_assets.instances.gates.requests import decide_launches
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus, Watermark, WatermarkKind
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.sequence import parse_frequency
from feed_assets.triggers.input_windows import InputState, closed_gates
from tests.instances.harness import START, LifecycleHarness, at, feed, process

Case = dict[str, Any]
TABLE = "gating.json"


def record_of(entity: Process) -> ProcessRecord:
    bundle = Bundle(entities=(Cluster(name="primary", storage="memory://x"), feed("clicks"), entity))
    return compile_plan(bundle).processes[entity.name, "primary"]


def first_watermark(record: ProcessRecord) -> Watermark:
    return Watermark(
        kind=WatermarkKind.PROCESS,
        entity=record.process,
        cluster=record.cluster,
        next_index=0,
        next_time=record.sequence.start,
    )


def first_of(record: ProcessRecord, as_of: datetime) -> ProcessInstance:
    """The first instance of a process as it comes into being when it is `as_of`."""
    plan = Plan(digest="", clusters={}, feeds={}, processes={record.key: record})
    return decide_materialization([ActiveRelease.whole(plan, record.key)], first_watermark(record), as_of)[0][0]


def check_input_check(case: Case) -> None:
    times = {name: START + timedelta(hours=n) for n, name in enumerate(case["dependencies"])}
    edge = record_of(process("p", inputs={"clicks": "now(0,0)"})).inputs[0]
    available = frozenset(times[name] for name in case["existing"])
    state = InputState(edge=edge, expected=tuple(times.values()), available=available)
    assert list(state.missing) == [times[name] for name in case["expected_missing"]]
    assert (not closed_gates([state])) == case["ready"]


def check_done_flag(case: Case) -> None:
    flag = case.get("done_flag") or case.get("availability_flag")
    with tempfile.TemporaryDirectory() as root:
        store, path = LocalStore(Path(root)), case["path"]
        folder, sign = Path(root + path), Path(root + case["expected"])
        folder.mkdir(parents=True)
        (folder / "part-0").write_text("data")
        if sign != folder:
            assert store.look([path], flag)[0].availability is Availability.PARTIAL
            sign.touch()
        assert store.look([path], flag)[0].availability is Availability.AVAILABLE


def check_timeout(case: Case) -> None:
    timeout = parse_frequency(f"minutes({case['timeout_minutes']})")
    created, now = datetime.fromisoformat(case["created"]), datetime.fromisoformat(case["now"])
    record = record_of(process("p", "months(1)", start=parse_datetime(case["nominal_time"]), timeout=timeout.render()))
    deadline = first_of(record, created).deadline_at
    assert deadline is not None
    assert (deadline <= now) == case["expected_timed_out"]


def check_action_timeout(case: Case) -> None:
    record = record_of(process("p", timeout=f"minutes({case['job_timeout']})"))
    assert first_of(record, START).deadline_at == START + timedelta(minutes=case["expected"])


def check_skip(case: Case) -> None:
    now, order = at("20"), Order[case["order"]]
    start = now + timedelta(minutes=case["nominal_minutes_from_now"])
    end = now + timedelta(minutes=case.get("job_end_minutes_from_now", 235))
    row = first_of(record_of(process("p", case["frequency"], start=start, end=end, order=order)), now)
    assert (row.status is ProcessInstanceStatus.SKIPPED) == (case["expected"] == "SKIPPED")


def started(order: Order, runs: tuple[range, ...]) -> list[int]:
    """What each run begins with."""
    return [run[-1] if order is Order.LIFO else run[0] for run in runs]


def check_ready_order(case: Case) -> None:
    ready = [action["n"] for action in case["actions"] if action["status"] == "READY"]
    order = Order[case["order"]]
    record = record_of(process("p", order=order, parallel=len(ready)))
    assert started(order, decide_launches(record, ready, 0)) == case["expected"]


def check_start(case: Case) -> None:
    order = Order[case["order"]]
    record = record_of(process("p", order=order, parallel=case["concurrency"]))
    launch = decide_launches(record, case["ready"], case["running_or_submitted"])
    assert started(order, launch) == case["expected"]


def check_may_start(case: Case) -> None:
    record = record_of(process("p", parallel=case["parallel"]))
    assert bool(decide_launches(record, [0], case["running"])) == case["expected"]


def check_process_controls(case: Case) -> None:
    written = {"timeout": case["timeout"]} if "timeout" in case else {}
    record = record_of(process("p", case["frequency"], parallel=case["parallel"], order=case["order"], **written))
    minutes = record.timeout.as_duration() // timedelta(minutes=1)
    expected = case["expected"]
    assert (str(record.parallel), str(record.order), str(minutes)) == (
        expected["concurrency"],
        expected["execution"],
        expected["timeout"],
    )


def check_native_data(case: Case) -> None:
    count = len(case["paths"])
    start = START + timedelta(hours=count - 1)
    reader = process("p", inputs={"clicks": f"now({1 - count},0) now(0,0)"}, start=start, timeout="hours(1)")
    with tempfile.TemporaryDirectory() as root:
        lifecycle = LifecycleHarness.of(Path(root), feed("clicks"), reader)
        lifecycle.ready(start)
        if case.get("unregistered"):
            lifecycle.declare(feed("clicks"))
        lifecycle.land("clicks", *(START + timedelta(hours=n) for n in range(len(case["existing"]))))
        lifecycle.tick(start + timedelta(minutes=60 if case.get("timed_out") else 30))
        is_ready = lifecycle.statuses("p")[start] is ProcessInstanceStatus.READY
    assert is_ready == (case["expected"] == "AVAILABLE")


def check_input_check_time(case: Case) -> None:
    assert (case["when"], case["expected"]) == ("nominal one second ahead of now", "wait")
    with tempfile.TemporaryDirectory() as root:
        lifecycle = LifecycleHarness.of(Path(root), feed("clicks"), process("p", inputs={"clicks": "now(0,0)"}))
        lifecycle.land("clicks", START)
        assert lifecycle.tick(START - timedelta(seconds=1)) == []
        assert lifecycle.looked == []


def check_data_in(case: Case) -> None:
    with tempfile.TemporaryDirectory() as root:
        count = len(case["dependencies"])
        start = START + timedelta(hours=count - 1)
        lifecycle = LifecycleHarness.of(
            Path(root),
            feed("clicks"),
            process("p", inputs={"clicks": f"now({1 - count},0) now(0,0)"}, start=start),
        )
        times = [START + timedelta(hours=n) for n in range(count)]
        lifecycle.land("clicks", *times)
        told: list[str] = []

        def job(work: Work) -> dict[str, str]:
            told.append(work.properties["clicks"])
            return {}

        lifecycle.job = job
        lifecycle.run("p", start, start)
        names = dict(zip(reversed(times), case["dependencies"], strict=True))
        text = told[0]
        for time, name in names.items():
            text = text.replace(lifecycle.folder("clicks", time).as_uri(), name)
    assert text == case["expected"]


def check_materialize(case: Case) -> None:
    """All instances that have come into being when a process without instances is looked at until nothing is due."""
    job, now = case["job"], parse_datetime(case["now"])
    start, end = parse_datetime(job["start"]), parse_datetime(job["end"])
    more = {"timezone": job["timezone"], "order": job["order"]}
    record = record_of(process("p", job["frequency"], start=start, end=end, **more))
    plan = Plan(digest="", clusters={}, feeds={}, processes={record.key: record})
    watermark, spans = first_watermark(record), [ActiveRelease.whole(plan, record.key)]
    times: list[datetime] = []
    while watermark.next_time is not None and watermark.next_time <= now:
        rows, watermark = decide_materialization(spans, watermark, now)
        times += [row.nominal_time for row in rows]
    while watermark.past_time is not None:
        rows, watermark = decide_materialization(spans, watermark, now, of_past=True)
        times += [row.nominal_time for row in rows]
    times.sort()
    assert len(times) == case["expected_count"]
    if "expected_actions" in case:
        assert times == [parse_datetime(text) for text in case["expected_actions"]]
    if "expected_next" in case:  # Oozie names a next time also where the end of the job comes first
        following = parse_datetime(case["expected_next"])
        assert watermark.next_time == (following if following < end else None)


def check_scheduler_scenario(case: Case) -> None:
    """Which instances have been started after each step: of one process, or one of each process."""
    words = [step.split() for step in case["steps"]]
    names = [name for verb, name, *_ in words if verb == "register"]
    is_one = "parallel" in case
    of = {name: "p" if is_one else name for name in names}
    times = {name: START + timedelta(hours=n) if is_one else START for n, name in enumerate(names)}
    labels = {(of[name], time): name for name, time in times.items()}
    started: list[str] = []
    seen: list[list[str]] = []
    now = START
    with tempfile.TemporaryDirectory() as root:
        lifecycle = LifecycleHarness.of(
            Path(root), *(process(name, parallel=case.get("parallel", 1)) for name in set(of.values()))
        )
        for first, second, *_ in words:
            match first, second:
                case "register", name:
                    now = times[name]
                case "unregister", name:
                    lifecycle.put_instances(of[name], [times[name]], ProcessInstanceStatus.KILLED)
                case name, _:
                    lifecycle.run(of[name], times[name], now)
            for request in lifecycle.tick(now):
                started += [labels[request.process.process, time] for time in request.nominal_times]
            seen.append(list(started))
        lifecycle.database.close()
    if "expected_started" in case:
        assert sorted(started) == case["expected_started"]
    else:
        assert seen == case["expected_started_after_each"]


RUNNERS = {
    "input_check": check_input_check,
    "done_flag": check_done_flag,
    "timeout": check_timeout,
    "action_timeout": check_action_timeout,
    "skip": check_skip,
    "ready_order": check_ready_order,
    "start": check_start,
    "may_start": check_may_start,
    "process_controls": check_process_controls,
    "native_data_check": check_native_data,
    "input_check_time": check_input_check_time,
    "data_in": check_data_in,
    "materialize": check_materialize,
    "scheduler_scenario": check_scheduler_scenario,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
