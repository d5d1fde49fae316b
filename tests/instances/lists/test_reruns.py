"""Reruns with what hangs on them: what the plan says, and what runs afterwards, to the instance."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import resolve_subject
from feed_assets.engines.port import Work
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.explain.explanations import explain_instance
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.instances.errors import RerunOutdatedError
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import Controlled, control_instances
from feed_assets.instances.lists.reruns import Downstream, RerunPlan, rerun_downstream
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import ProcessInstanceStatus
from tests.context.contexts import listed
from tests.instances.harness import START, LifecycleHarness, feed, hours, process, read_inputs

NOON = START + timedelta(hours=12)
END = START + timedelta(hours=4)
TIMES = hours(4)
SUCCEEDED, FAILED = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED


def entities() -> list[AnyEntity]:
    """A diamond: hours are made of clicks, summed and counted, and both are joined; a roll of two joins, and what reads
    the newest roll. `aside` hangs on clicks alone.
    """
    return [
        *(feed(name) for name in ("clicks", "made", "sums", "counts", "joins", "news", "asides")),
        feed("rolls", "hours(2)"),
        process("make", inputs={"clicks": "now(0,0)"}, outputs={"made": "now(0,0)"}, end=END, parallel=4),
        process("sum", inputs={"made": "now(0,0)"}, outputs={"sums": "now(0,0)"}, end=END, parallel=2),
        process("count", inputs={"made": "now(0,0)"}, outputs={"counts": "now(0,0)"}, end=END),
        process(
            "join",
            inputs={"sums": "now(0,0)", "counts": "now(0,0)"},
            outputs={"joins": "now(0,0)"},
            end=END,
            parallel=3,
        ),
        process("roll", "hours(2)", inputs={"joins": "now(0,0) now(1,0)"}, outputs={"rolls": "now(0,0)"}, end=END),
        process("news", inputs={"rolls": "latest(0)"}, outputs={"news": "now(0,0)"}, end=END),
        process("aside", inputs={"clicks": "now(0,0)"}, outputs={"asides": "now(0,0)"}, end=END),
    ]


def work_of(work: Work) -> Mapping[str, str]:
    """What a job sees is what it makes, but for counts: these are always alike."""
    text = "+".join(text for texts in read_inputs(work).values() for text in texts)
    return {target.name: "7" if target.name == "counts" else text for target in work.outputs}


def done(tmp_path: Path, state: str | None = None) -> LifecycleHarness:
    lifecycle = LifecycleHarness.of(tmp_path, *entities(), state=state)
    lifecycle.job = work_of
    lifecycle.land("clicks", *TIMES, text="a")
    play(lifecycle, NOON)
    return lifecycle


def play(lifecycle: LifecycleHarness, as_of: datetime, ticks: int = 12) -> list[tuple[str, datetime]]:
    """Tick each minute and run what is asked for: the instances that ran, in order."""
    ran: list[tuple[str, datetime]] = []
    for number in range(ticks):
        now = as_of + timedelta(minutes=number)
        for request in lifecycle.tick(now):
            lifecycle.launch([request], now)
            ran += [(request.process.process, time) for time in request.nominal_times]
    return ran


def rewrite(lifecycle: LifecycleHarness, *times: datetime, text: str = "b") -> None:
    for time in times:
        (file,) = lifecycle.folder("clicks", time).iterdir()
        file.write_text(text)


def rerun(lifecycle: LifecycleHarness, *times: datetime, as_of: datetime = NOON, **more: Any) -> RerunPlan:
    how = {name: more.pop(name) for name in ("levels", "even_unchanged") if name in more}
    context = lifecycle.context(as_of + timedelta(hours=1))
    subject = resolve_subject(context, more.pop("process", "make"), preferred=Kind.PROCESS)
    end = times[-1] + timedelta(seconds=1)
    by_ann = context.by("ann", dry_run=more.pop("dry_run", False))
    return rerun_downstream(by_ann, subject, times[0], end, Downstream(**how), **more)


def planned(plan: RerunPlan) -> Counter[tuple[str, datetime]]:
    return Counter((key[0], key[2]) for key in (*(row.key for row in plan.rows), *plan.hanging))


LATER = NOON + timedelta(hours=1)


def why(lifecycle: LifecycleHarness, name: str, time: datetime) -> Sequence[Reason]:
    with lifecycle.context(LATER).read() as connection:
        return explain_instance(lifecycle.context(LATER), connection, Kind.PROCESS, name, "primary", time).reasons


def kill(lifecycle: LifecycleHarness, name: str, time: datetime) -> Controlled:
    context = lifecycle.context(LATER)
    subject = resolve_subject(context, name, f"{time:%FT%RZ}", preferred=Kind.PROCESS)
    return control_instances(context.by("ann"), InstanceAction.KILL, subject)


def both(lifecycle: LifecycleHarness, as_of: datetime) -> list[tuple[str, datetime]]:
    """As `play`, on both clusters."""
    ran: list[tuple[str, datetime]] = []
    for number in range(20):
        now = as_of + timedelta(minutes=number)
        for cluster in ("primary", "backup"):
            for request in lifecycle.tick(now, cluster):
                lifecycle.launch([request], now)
                ran += [(request.process.process, time) for time in request.nominal_times]
    return ran


def test_the_plan_says_what_a_rerun_does_to_the_instance(tmp_path: Path, state_url: str) -> None:
    lifecycle = done(tmp_path, state_url)
    rewrite(lifecycle, *TIMES[1:3])
    plan = rerun(lifecycle, *TIMES[1:3], dry_run=True)
    assert play(lifecycle, LATER) == []
    rerun(lifecycle, *TIMES[1:3], digest=plan.digest[:8])
    ran = play(lifecycle, LATER)
    assert Counter(ran) == planned(plan)
    assert Counter(name for name, _ in ran) == {"make": 2, "sum": 2, "count": 2, "join": 2, "roll": 2, "news": 4}
    assert [each for each in ran if each[0] in ("make", "join")][:2] == [("make", time) for time in TIMES[1:3]]
    assert lifecycle.content("rolls", TIMES[0]) == "b+7+a+7"
    assert play(lifecycle, LATER + timedelta(hours=2)) == []
    assert lifecycle.late_check("join", TIMES[1], AgendaKind.RERUN) is None


def test_what_comes_out_unchanged_stops_the_chain_unless_it_is_to_go_on(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    plan = rerun(lifecycle, TIMES[0], dry_run=True)
    rerun(lifecycle, TIMES[0], digest=plan.digest)
    assert play(lifecycle, LATER) == [("make", TIMES[0])]
    reason = lifecycle.instances("sum")[TIMES[0]].reason or ""
    assert "unchanged" in reason, reason
    going = rerun(lifecycle, TIMES[0], even_unchanged=True, dry_run=True, as_of=LATER)
    rerun(lifecycle, TIMES[0], even_unchanged=True, digest=going.digest, as_of=LATER)
    assert Counter(play(lifecycle, LATER + timedelta(hours=1))) == planned(going) == planned(plan)


def test_levels_end_the_chain(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewrite(lifecycle, TIMES[0])
    plan = rerun(lifecycle, TIMES[0], levels=1, dry_run=True)
    assert planned(plan) == {("make", TIMES[0]): 1, ("sum", TIMES[0]): 1, ("count", TIMES[0]): 1}
    rerun(lifecycle, TIMES[0], levels=1, is_confirmed=True)
    assert Counter(play(lifecycle, LATER)) == planned(plan)


def test_a_plan_that_nobody_has_seen_or_that_is_another_one_now_changes_nothing(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    with pytest.raises(InstanceQueryError, match="18 other instances hang"):
        rerun(lifecycle, *TIMES)
    seen = rerun(lifecycle, TIMES[0], dry_run=True)
    lifecycle.declare(*entities(), process("late", inputs={"sums": "now(0,0)"}, end=END))
    play(lifecycle, NOON)
    with pytest.raises(RerunOutdatedError, match="it has 6 processes now, not 5"):
        rerun(lifecycle, TIMES[0], digest=seen.digest)
    with pytest.raises(RerunOutdatedError, match="eight characters"):
        rerun(lifecycle, TIMES[0], digest=rerun(lifecycle, TIMES[0], dry_run=True).digest[:7])
    two = rerun(lifecycle, *TIMES[:2], dry_run=True)
    with pytest.raises(RerunOutdatedError, match=r"of process 'count' on primary \(1 instance\), process 'join'"):
        rerun(lifecycle, TIMES[0], digest=two.digest)
    assert play(lifecycle, LATER) == []
    told: list[str] = []
    rerun(lifecycle, TIMES[0], confirm=told.append)
    assert "join on primary: 2013-11-01T00:00Z (1)" in told[0]
    assert ("make", TIMES[0]) in play(lifecycle, LATER)


def test_what_fails_stops_its_branch_alone_and_a_rerun_of_it_goes_on(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewrite(lifecycle, *TIMES[:2])

    def fails(work: Work) -> Mapping[str, str]:
        if any(target.name == "sums" for target in work.outputs) and "b" in str(read_inputs(work)):
            raise ValueError("no sum today")
        return work_of(work)

    lifecycle.job = fails
    rerun(lifecycle, *TIMES[:2], is_confirmed=True)
    ran: list[tuple[str, datetime]] = []
    for number in range(10):
        now = LATER + timedelta(minutes=number)
        for request in lifecycle.tick(now):
            with suppress(ValueError):
                lifecycle.launch([request], now)
            ran += [(request.process.process, time) for time in request.nominal_times]
    assert Counter(name for name, _ in ran) == {"make": 2, "sum": 2, "count": 2}
    assert lifecycle.statuses("sum")[TIMES[0]] is FAILED
    lifecycle.job = work_of
    rerun(lifecycle, *TIMES[:2], process="sum", levels=1, is_confirmed=True, as_of=LATER)
    ran = play(lifecycle, LATER + timedelta(hours=1))
    assert Counter(name for name, _ in ran) == {"sum": 2, "join": 2, "roll": 1}
    assert lifecycle.content("rolls", TIMES[0]) == "b+7+b+7"


def test_nothing_starts_with_what_is_yet_to_be_made_again_and_why_says_so(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewrite(lifecycle, TIMES[0])
    context = lifecycle.context(LATER)
    control_instances(
        context.by("bob"),
        InstanceAction.RERUN,
        resolve_subject(context, "join", f"{TIMES[0]:%FT%RZ}", preferred=Kind.PROCESS),
    )
    rerun(lifecycle, TIMES[0], is_confirmed=True)
    (request,) = lifecycle.tick(LATER)
    assert request.process.process == "make"
    assert lifecycle.statuses("join")[TIMES[0]] is ProcessInstanceStatus.READY
    texts = [each.text for each in why(lifecycle, "join", TIMES[0]) if each.code is ReasonCode.RERUN_AWAITED]
    of = "2013-11-01T00:00Z (it waits itself)"
    assert texts == [
        f"it waits until what it reads was made again, as somebody has asked: process 'count' {of}, process 'sum' {of}"
    ]
    lifecycle.launch([request], LATER)
    ran = play(lifecycle, LATER)
    assert Counter(ran)["join", TIMES[0]] == 1
    assert lifecycle.content("joins", TIMES[0]) == "b+7"


def test_why_names_the_rerun_and_kill_calls_it_off(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewrite(lifecycle, TIMES[0])
    plan = rerun(lifecycle, TIMES[0], is_confirmed=True)
    (told,) = [each for each in why(lifecycle, "sum", TIMES[0]) if each.code is ReasonCode.RERUN]
    assert f"a part of rerun {plan.digest[:8]} of ann" in told.text
    assert "process 'make' 2013-11-01T00:00Z (WAITING)" in told.text
    assert told.command == "feed-assets instance kill sum --instance 2013-11-01T00:00Z --clusters primary"
    page = listed(lifecycle.context(LATER), "sum", start=TIMES[0], end=TIMES[1])
    reason = f"it is to run again, as a part of rerun {plan.digest[:8]} of ann"
    assert [row.reason for row in page.instances] == [reason]
    killed = kill(lifecycle, "sum", TIMES[0])
    assert (killed.changed, killed.obstacles) == (0, ("1 rerun that was asked for will not be",))
    ran = play(lifecycle, LATER)
    assert Counter(name for name, _ in ran) == {"make": 1, "count": 1}
    assert lifecycle.statuses("sum")[TIMES[0]] is SUCCEEDED


def test_the_plan_says_what_was_suspended_or_killed_before_and_which_named_instance_has_not_ended(
    tmp_path: Path,
) -> None:
    lifecycle = done(tmp_path)
    context = lifecycle.context(LATER)
    for time, action in ((TIMES[0], InstanceAction.SUSPEND), (TIMES[1], InstanceAction.KILL)):
        subject = resolve_subject(context, "sum", f"{time:%FT%RZ}", preferred=Kind.PROCESS)
        for each in (InstanceAction.RERUN, action):
            control_instances(context.by("bob"), each, subject)
    plan = rerun(lifecycle, *TIMES[:3], dry_run=True)
    told = [each.remark for each in plan.ranges if each.process == "sum"]
    assert [(text or "")[:16] for text in told] == ["it is suspended:", "it was killed: i", ""]
    rerun(lifecycle, TIMES[0], digest=rerun(lifecycle, TIMES[0], dry_run=True).digest)
    assert rerun(lifecycle, TIMES[0], dry_run=True).summary.endswith("; 1 named instance WAITING: not run again")


def test_which_instances_are_named_is_a_part_of_the_digest(tmp_path: Path) -> None:
    totals = process("total", inputs={"clicks": "now(0,0)"}, outputs={"totals": "now(0,0)"}, end=END)
    before = {"before": {"feed": "totals", "start": "now(-1,0)", "end": "now(-1,0)", "optional": True}}
    written = totals.model_dump(mode="json", exclude_unset=True)
    totals = Process.model_validate({**written, "inputs": written["inputs"] | before})
    earlier = START - timedelta(hours=1)
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("totals", start=earlier), totals)
    lifecycle.job = work_of
    lifecycle.land("clicks", *TIMES, text="a")
    play(lifecycle, NOON)
    one, all_ = (rerun(lifecycle, *times, process="total", dry_run=True) for times in (TIMES[:1], TIMES))
    assert planned(one) == planned(all_) == Counter(("total", time) for time in TIMES)
    with pytest.raises(RerunOutdatedError):
        rerun(lifecycle, *TIMES, process="total", digest=one.digest)
    rewrite(lifecycle, TIMES[0])
    rerun(lifecycle, TIMES[0], process="total", digest=one.digest)
    assert play(lifecycle, LATER) == [("total", time) for time in TIMES]


def test_a_killed_instance_ends_its_branch(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewrite(lifecycle, TIMES[0])
    rerun(lifecycle, TIMES[0], is_confirmed=True)
    assert kill(lifecycle, "make", TIMES[0]).changed == 1
    assert play(lifecycle, LATER) == []
    assert lifecycle.late_check("roll", TIMES[0], AgendaKind.RERUN) is None


def test_what_has_read_something_that_is_gone_is_left_out_with_what_hangs_on_it_alone(tmp_path: Path) -> None:
    lifecycle = done(tmp_path)
    rewrite(lifecycle, *TIMES[:2])
    lifecycle.evict("counts", TIMES[0])
    plan = rerun(lifecycle, *TIMES[:2], dry_run=True)
    (out,) = [each for each in plan.ranges if each.left_out]
    assert (out.process, out.instance, out.hours) == ("join", "2013-11-01T00:00Z", None)
    assert out.remark == "left out: of counts, what it has read was evicted"
    rerun(lifecycle, *TIMES[:2], digest=plan.digest)
    assert Counter(play(lifecycle, LATER)) == planned(plan)


def test_the_chain_goes_on_when_another_process_ticks(tmp_path: Path, state_url: str) -> None:
    lifecycle = done(tmp_path, state_url)
    rewrite(lifecycle, *TIMES)
    plan = rerun(lifecycle, *TIMES, is_confirmed=True)
    ran: list[tuple[str, datetime]] = []
    for number in range(30):
        now = LATER + timedelta(minutes=number)
        lifecycle.use(lifecycle.plan)  # as a process that has just begun
        for request in lifecycle.tick(now):
            lifecycle.launch([request], now)
            ran += [(request.process.process, time) for time in request.nominal_times]
    assert Counter(ran) == planned(plan)


def test_copies_are_a_part_of_the_chain(tmp_path: Path) -> None:
    written = feed("sums", clusters=("primary", "backup")).model_dump(mode="json", exclude_unset=True)
    written["clusters"]["primary"]["type"], written["clusters"]["backup"]["type"] = "source", "target"
    sums = Feed.model_validate(written)
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", end=END),
        process("sum", inputs={"clicks": "now(0,0)"}, outputs={"sums": "now(0,0)"}, end=END),
        sums,
        feed("ends", clusters=("backup",)),
        process("end", inputs={"sums": "now(0,0)"}, outputs={"ends": "now(0,0)"}, end=END, clusters=("backup",)),
        clusters=("primary", "backup"),
    )
    lifecycle.job = work_of
    lifecycle.land("clicks", *TIMES, text="a")
    both(lifecycle, NOON)
    rewrite(lifecycle, TIMES[0])
    plan = rerun(lifecycle, TIMES[0], process="sum", dry_run=True)
    assert planned(plan) == {("sum", TIMES[0]): 1, ("sums@primary", TIMES[0]): 1, ("end", TIMES[0]): 1}
    rerun(lifecycle, TIMES[0], process="sum", digest=plan.digest)
    assert Counter(both(lifecycle, LATER)) == planned(plan)
