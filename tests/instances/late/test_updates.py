"""Instances that run again because what they have read was updated: `trigger.on_update`, without a look at storage."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.engines.port import Work
from feed_assets.entities.bundle import AnyEntity
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.instances.late import detection
from feed_assets.instances.late.detection import apply_updates
from feed_assets.instances.late.lateness import CheckDecision, decide_update
from feed_assets.instances.late.store import LateCheck
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import Cause, ProcessInstanceStatus, ProcessKey
from feed_assets.retention.rules.protections import ProtectionKind, ProtectionQuery, find_protections
from tests.instances.harness import (
    START,
    LifecycleHarness,
    counted_statements,
    feed,
    hours,
    process,
    read_inputs,
)

READY, RUNNING, SUCCEEDED, FAILED = (
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.FAILED,
)
NOON = START + timedelta(hours=12)
FIRST, SECOND = hours(2)
END = START + timedelta(hours=2)


def entities(on_update: str = "rerun", **more: Any) -> list[AnyEntity]:
    """Hours are made of clicks; each hour is summed, and two hours are rolled up. `deaf` reads the hours, too."""
    trigger = {"trigger": {"on_update": on_update}}
    return [
        *(feed(name) for name in ("clicks", "hours", "sums")),
        feed("rolls", "hours(2)"),
        process("make", inputs={"clicks": "now(0,0)"}, outputs={"hours": "now(0,0)"}, end=END, parallel=4),
        process("sum", inputs={"hours": "now(0,0)"}, outputs={"sums": "now(0,0)"}, end=END, **trigger),
        process("deaf", inputs={"hours": "now(0,0)"}, end=END),
        process(
            "roll",
            "hours(2)",
            inputs={"hours": "now(0,0) now(1,0)"},
            outputs={"rolls": "now(0,0)"},
            end=END,
            **{**trigger, **more},
        ),
    ]


def joined(work: Work) -> Mapping[str, str]:
    """What a job sees is what it makes."""
    text = "+".join(text for texts in read_inputs(work).values() for text in texts)
    return {target.name: text for target in work.outputs}


def done(tmp_path: Path, *own: AnyEntity, state: str | None = None, **more: Any) -> LifecycleHarness:
    """Two hours of clicks have come, and everything has run once."""
    lifecycle = LifecycleHarness.of(tmp_path, *(own or entities(**more)), state=state)
    lifecycle.job = joined
    lifecycle.land("clicks", FIRST, SECOND, text="a")
    work(lifecycle)
    return lifecycle


def work(lifecycle: LifecycleHarness, as_of: datetime = NOON) -> list[tuple[str, datetime]]:
    """Run what ticks ask for, until they ask for nothing: the instances that ran, in order."""
    ran: list[tuple[str, datetime]] = []
    while requests := lifecycle.tick(as_of):
        lifecycle.launch(requests, as_of)
        ran += [(request.process.process, time) for request in requests for time in request.nominal_times]
    return ran


def rerun(lifecycle: LifecycleHarness, *times: datetime, process: str = "make", as_of: datetime = NOON) -> None:
    """Let a person run instances again."""
    keys = [ProcessKey(process, "primary", time) for time in times]
    apply_action(lifecycle.context(as_of).by("ann"), InstanceAction.RERUN, keys)


def rewritten(lifecycle: LifecycleHarness, *times: datetime, text: str = "b") -> None:
    """Correct the clicks of hours: the same files with other content, which nothing looks for."""
    for time in times:
        (file,) = lifecycle.folder("clicks", time).iterdir()
        file.write_text(text)


def test_af_61_a_rerun_of_an_instance_runs_again_what_reads_it_and_nothing_else_once(
    tmp_path: Path, state_url: str
) -> None:
    lifecycle = done(tmp_path, state=state_url)
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    assert sorted(work(lifecycle)) == [("make", SECOND), ("roll", FIRST), ("sum", SECOND)]
    assert lifecycle.content("sums", SECOND) == "b"
    assert lifecycle.content("rolls", FIRST) == "b+a"
    assert work(lifecycle) == []
    row = lifecycle.instances("sum")[SECOND]
    assert (row.status, row.attempt) == (SUCCEEDED, 2)
    assert lifecycle.instances("sum")[FIRST].attempt == 1


def test_af_61_a_rerun_with_equal_content_runs_nothing_again(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rerun(lifecycle, SECOND)
    assert work(lifecycle) == [("make", SECOND)]
    assert lifecycle.late_check("sum", SECOND, AgendaKind.UPDATE) is None


@pytest.mark.parametrize(("policy", "times"), [("rerun", 2), ("hold", 1), ("ignore", 0)])
def test_af_55_hold_waits_until_nobody_makes_a_part_of_the_window_again(
    tmp_path: Path, policy: str, times: int
) -> None:
    lifecycle = done(tmp_path, on_update=policy)
    rewritten(lifecycle, FIRST, SECOND)
    rerun(lifecycle, FIRST, SECOND)
    requests = lifecycle.tick(NOON)
    ran = []
    for request in requests:
        for time in request.nominal_times:
            lifecycle.run("make", time, NOON, lifecycle.run_id())
            ran += work_of(lifecycle, "roll", NOON)
    later = NOON + timedelta(seconds=2)
    ran += work_of(lifecycle, "roll", later)
    assert ran == [("roll", FIRST)] * times
    assert work_of(lifecycle, "roll", later + timedelta(hours=1)) == []
    assert lifecycle.content("rolls", FIRST) == ("a+a" if policy == "ignore" else "b+b")


def work_of(lifecycle: LifecycleHarness, name: str, as_of: datetime) -> list[tuple[str, datetime]]:
    return [each for each in work(lifecycle, as_of) if each[0] == name]


def test_the_reason_says_what_was_updated_and_begins_the_attempt(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    lifecycle.launch(lifecycle.tick(NOON), NOON)
    lifecycle.tick(NOON)
    row = lifecycle.instances("sum")[SECOND]
    assert (row.status, row.cause, row.reason) == (READY, Cause.UPDATED, "updated: hours 2013-11-01T01:00Z changed")


def test_an_instance_that_runs_is_decided_when_its_run_has_ended(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rerun(lifecycle, SECOND, process="sum")
    (request,) = lifecycle.tick(NOON)

    def interrupted(work: Work) -> Mapping[str, str]:
        texts = joined(work)
        if work.process == "sum":
            rewritten(lifecycle, SECOND)
            lifecycle.run("make", SECOND, NOON, lifecycle.run_id())
            lifecycle.tick(NOON)
            assert lifecycle.statuses("sum")[SECOND] is RUNNING
        return texts

    lifecycle.job = interrupted
    lifecycle.launch([request], NOON)
    lifecycle.job = joined
    assert lifecycle.content("sums", SECOND) == "a"
    assert ("sum", SECOND) in work(lifecycle, NOON + timedelta(seconds=2))
    assert lifecycle.content("sums", SECOND) == "b"
    assert lifecycle.instances("sum")[SECOND].attempt == 3


def test_an_instance_that_waits_or_is_suspended_reads_it_when_it_runs(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rerun(lifecycle, SECOND, process="sum")
    key = ProcessKey("sum", "primary", SECOND)
    apply_action(lifecycle.context(NOON).by("ann"), InstanceAction.SUSPEND, [key])
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    assert work(lifecycle) == [("make", SECOND), ("roll", FIRST)]
    apply_action(lifecycle.context(NOON).by("ann"), InstanceAction.RESUME, [key])
    assert work(lifecycle) == [("sum", SECOND)]
    assert lifecycle.content("sums", SECOND) == "b"


def test_an_instance_that_failed_runs_again_although_no_retry_is_left(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)

    def failing(_: Work) -> Mapping[str, str]:
        raise ArithmeticError

    lifecycle.job = failing
    with pytest.raises(ArithmeticError):
        lifecycle.run("sum", SECOND, NOON, lifecycle.run_id())
    lifecycle.job = joined
    assert lifecycle.statuses("sum")[SECOND] is FAILED
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    assert ("sum", SECOND) in work(lifecycle)
    assert lifecycle.statuses("sum")[SECOND] is SUCCEEDED


def test_in_safe_mode_an_update_waits(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    lifecycle.launch(lifecycle.tick(NOON), NOON)
    lifecycle.ready(NOON)
    assert lifecycle.update(NOON, is_held=True) == 0
    assert lifecycle.update(NOON + timedelta(seconds=2), is_held=True) == 0
    assert lifecycle.update(NOON + timedelta(hours=1)) == 2


def test_an_instance_that_cannot_read_all_of_it_again_stays_and_says_why(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    lifecycle.evict("hours", FIRST)
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    assert ("roll", FIRST) not in work(lifecycle)
    row = lifecycle.instances("roll")[FIRST]
    assert (row.status, row.cause) == (SUCCEEDED, Cause.UPDATE_REFUSED)
    assert row.reason == (
        "updated: hours 2013-11-01T01:00Z changed; not run again: hours 2013-11-01T00:00Z was evicted since"
    )


@pytest.mark.parametrize(("policy", "contents"), [("rerun", ["a", "a+a", "a+a+a"]), ("hold", ["a", "a+a+a"])])
def test_af_55_what_comes_after_a_minimum_was_there_counts_and_hold_waits_for_the_whole(
    tmp_path: Path, policy: str, contents: list[str]
) -> None:
    window = {"feed": "clicks", "start": "now(0,0)", "end": "now(2,0)", "at_least": 1}
    roll = process("roll", "hours(3)", outputs={"rolls": "now(0,0)"}, end=END, trigger={"on_update": policy})
    roll = type(roll).model_validate(roll.model_dump(by_alias=True, exclude_defaults=True) | {"inputs": {"c": window}})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("rolls", "hours(3)"), roll)
    lifecycle.job = joined
    seen = []
    for number, time in enumerate(hours(3)):
        lifecycle.land("clicks", time, text="a")
        work(lifecycle, NOON + timedelta(hours=number))
        seen.append(lifecycle.content("rolls", FIRST))
    assert list(dict.fromkeys(seen)) == contents


def test_an_update_that_late_data_brought_to_light_reaches_those_who_do_not_look_themselves(tmp_path: Path) -> None:
    window = {"clicks": "now(0,0)"}
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", late_arrival={"cut_off": "days(2)"}),
        process("looking", inputs=window, end=END, late_process=late, trigger={"on_update": "rerun"}),
        process("told", inputs=window, end=END, trigger={"on_update": "rerun"}),
    )
    lifecycle.land("clicks", FIRST, text="a")
    assert work(lifecycle, FIRST + timedelta(minutes=5)) == [("looking", FIRST), ("told", FIRST)]
    rewritten(lifecycle, FIRST, text="b")
    later = FIRST + timedelta(hours=1)
    lifecycle.look_for_late(later)
    assert sorted(work(lifecycle, later)) == [("looking", FIRST), ("told", FIRST)]
    lifecycle.look_for_late(later + timedelta(hours=1))
    assert work(lifecycle, later + timedelta(hours=1)) == []


def test_readers_follow_the_windows_of_the_release_that_governs_them(tmp_path: Path) -> None:
    own = entities()
    lifecycle = done(tmp_path, *own)
    one = process("roll", "hours(2)", inputs={"hours": "now(0,0)"}, outputs={"rolls": "now(0,0)"}, end=END)
    lifecycle.now = NOON
    lifecycle.declare(*own[:-1], one.model_copy(update={"trigger": own[-1].trigger}))  # type: ignore[union-attr]
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    assert ("roll", FIRST) in work(lifecycle)
    assert lifecycle.content("rolls", FIRST) == "b+a"


def test_a_policy_takes_effect_at_once_and_for_what_has_come_before(tmp_path: Path) -> None:
    lifecycle = done(tmp_path, on_update="ignore")
    lifecycle.declare(*entities())
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    lifecycle.launch(lifecycle.tick(NOON), NOON)
    lifecycle.ready(NOON)
    assert lifecycle.late_check("sum", SECOND, AgendaKind.UPDATE) is not None
    lifecycle.declare(*entities(on_update="ignore"))
    assert work(lifecycle) == []


def test_a_window_that_is_held_is_kept_from_retention(tmp_path: Path) -> None:
    lifecycle = done(tmp_path, on_update="hold")
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, FIRST, SECOND)
    lifecycle.tick(NOON)
    lifecycle.run("make", SECOND, NOON, lifecycle.run_id())
    lifecycle.tick(NOON)
    query = ProtectionQuery(as_of=NOON, real_now=NOON, holder=None)
    with lifecycle.database.read() as connection:
        found = find_protections(connection, lifecycle.timeline, lifecycle.feed("hours"), [FIRST], query)
    (only,) = found[FIRST]
    assert only.kind is ProtectionKind.LATE_DATA


def test_updates_that_cannot_be_decided_do_not_hold_up_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = done(tmp_path)
    rewritten(lifecycle, SECOND)
    rerun(lifecycle, SECOND)
    lifecycle.launch(lifecycle.tick(NOON), NOON)
    lifecycle.ready(NOON)

    def refusing(check: LateCheck, *args: Any, **more: Any) -> CheckDecision:
        if check.name == "sum":
            raise ArithmeticError("no")
        return decide_update(check, *args, **more)

    monkeypatch.setattr(detection, "decide_update", refusing)
    monkeypatch.setattr(detection.UpdateChecks, "at_once", 1)
    bulkheads = Bulkheads("primary", FrozenClock(NOON))
    apply_updates(lifecycle.open_tick(NOON, bulkheads=bulkheads))
    assert [failure.reason for failure in bulkheads.failures] == ["ArithmeticError: no"]
    assert lifecycle.statuses("roll")[FIRST] is READY
    check = lifecycle.late_check("sum", SECOND, AgendaKind.UPDATE)
    assert check is not None
    assert check.due_at is not None
    assert check.due_at > NOON


@pytest.mark.parametrize("policy", ["ignore", "rerun"])
def test_without_an_update_and_a_rerun_a_tick_asks_one_question(tmp_path: Path, policy: str) -> None:
    lifecycle = done(tmp_path, on_update=policy)
    with counted_statements() as statements:
        lifecycle.update(NOON)
    assert len([each for each in statements if each.startswith("SELECT")]) == 1
