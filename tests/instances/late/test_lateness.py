"""What differs between the inputs that were read and those that are there, and what follows."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.instances.late.lateness import (
    FEED_DELAY,
    UNSETTLED,
    ChangeKind,
    InputChange,
    InputContents,
    LateVerdict,
    choose_work,
    count,
    decide_check,
    decide_early,
    decide_feed_check,
    decide_later,
    decide_process_check,
    find_changes,
    find_unreadable,
    process_cut_off,
)
from feed_assets.instances.late.store import LateCheck
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan
from tests.instances.harness import feed, process

ONE, TWO, THREE = (datetime.fromisoformat(f"2024-01-0{day}T00:00+00:00") for day in (1, 2, 3))
HOUR = timedelta(hours=1)
CUT_OFF = ONE + 6 * HOUR
SUCCEEDED, FAILED = ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED


def contents(**fields: Any) -> InputContents:
    given: dict[str, Any] = {
        "name": "views",
        "feed": "clicks",
        "is_late": True,
        "is_optional": False,
        "used": {ONE: "sha256:1"},
        "present": {ONE: "sha256:1"},
    }
    return InputContents(**given | fields)


def check(**fields: Any) -> LateCheck:
    given: dict[str, Any] = {
        "kind": AgendaKind.LATE_INPUTS,
        "name": "p",
        "cluster": "primary",
        "nominal_time": ONE,
        "planned_at": ONE,
        "due_at": ONE + 2 * HOUR,
        "cut_off_at": CUT_OFF,
    }
    return LateCheck(**given | fields)


def plan_of(*entities: Any) -> Plan:
    return compile_plan(Bundle(entities=(Cluster(name="primary", storage="memory://x"), *entities)))


def late_plan(inputs: Any = ("views",), **more: Any) -> Plan:
    entity = process("p", start=ONE, late_process={"policy": "periodic", "delay": "hours(2)", "inputs": inputs})
    windows = {name: {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"} for name in ("views", "other")}
    entity = entity.model_validate({**entity.model_dump(), "inputs": windows})
    return plan_of(feed("clicks", start=ONE, late_arrival={"cut_off": "hours(6)"}, **more), entity)


DECLARED = late_plan().processes["p", "primary"]


def decide(*inputs: InputContents, as_of: datetime = ONE + 2 * HOUR, status: Any = SUCCEEDED, **fields: Any) -> Any:
    plan = late_plan()
    return decide_check(check(**fields), plan, plan.processes["p", "primary"], inputs, status, as_of)


def kinds(**fields: Any) -> list[ChangeKind]:
    return [change.kind for change in find_changes([contents(**fields)])]


def test_equal_digests_are_no_change() -> None:
    assert kinds() == []


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"present": {ONE: "sha256:2"}}, ChangeKind.CHANGED),
        ({"used": {}, "present": {ONE: "sha256:1"}}, ChangeKind.ARRIVED),
        ({"used": {ONE: UNSETTLED}}, ChangeKind.CHANGED),
        ({"present": {}, "gone": frozenset({ONE}), "is_optional": True}, ChangeKind.VANISHED),
    ],
)
def test_another_content_another_instance_and_what_was_being_written_are_changes(
    fields: dict[str, Any], kind: ChangeKind
) -> None:
    assert kinds(**fields) == [kind]


@pytest.mark.parametrize(
    "fields",
    [
        {"present": {ONE: "sha256:2"}, "is_late": False},
        {"used": {ONE: "look:1"}, "present": {ONE: "sha256:2"}},
        {"used": {ONE: None}},
        {"present": {ONE: None}},
        {"present": {}, "gone": frozenset({ONE})},
        {"present": {}, "evicted": frozenset({ONE})},
    ],
)
def test_unlisted_inputs_digests_that_say_nothing_and_evictions_are_no_change(fields: dict[str, Any]) -> None:
    assert kinds(**fields) == []


def test_what_was_read_and_cannot_be_read_again_is_named_for_every_input() -> None:
    found = find_unreadable(
        [
            contents(is_late=False, evicted=frozenset({TWO, ONE})),
            contents(is_optional=True, gone=frozenset({ONE})),
            contents(gone=frozenset({THREE})),
        ]
    )
    assert found == (
        "clicks 2024-01-01T00:00Z was evicted since",
        "clicks 2024-01-02T00:00Z was evicted since",
        "clicks 2024-01-03T00:00Z is not there any more",
    )


def test_a_change_is_named_by_its_feed_and_instance() -> None:
    change = InputChange(input="views", feed="clicks", nominal_time=ONE, kind=ChangeKind.ARRIVED)
    assert change.render() == "clicks 2024-01-01T00:00Z arrived"


def test_without_a_change_the_next_check_comes_by_policy() -> None:
    decision = decide(contents())
    assert decision.verdict is LateVerdict.UNCHANGED
    assert (decision.check.due_at, decision.check.checks) == (ONE + 4 * HOUR, 1)


def test_the_check_at_the_cut_off_is_followed_by_none() -> None:
    assert decide(contents(), as_of=CUT_OFF).check is None
    assert decide(contents(), as_of=CUT_OFF + HOUR).check is None
    last = decide(contents(present={ONE: "sha256:2"}), as_of=CUT_OFF)
    assert (last.verdict, last.check.due_at, last.check.changed) == (LateVerdict.RERUN, None, ("views",))


def test_what_no_run_has_processed_yet_stays_with_what_is_found_now() -> None:
    changed = contents(present={ONE: "sha256:2"})
    assert decide(changed, status=FAILED, changed=("other",)).check.changed == ("other", "views")
    assert decide(changed, changed=("other",)).check.changed == ("views",)
    assert decide(contents(), as_of=CUT_OFF, status=FAILED, changed=("other",)).check.changed == ("other",)


def test_a_rerun_without_what_was_read_is_refused_and_looked_at_again() -> None:
    decision = decide(contents(present={ONE: "sha256:2"}), contents(is_late=False, evicted=frozenset({TWO})))
    assert decision.verdict is LateVerdict.REFUSED
    assert decision.check.due_at == ONE + 4 * HOUR
    assert decision.check.changed == ()
    assert decision.reason == (
        "late data: clicks 2024-01-01T00:00Z changed; not run again: clicks 2024-01-02T00:00Z was evicted since"
    )


@pytest.mark.parametrize("status", ["WAITING", "READY", "RUNNING", "SUSPENDED"])
def test_an_instance_at_work_is_looked_at_after_the_same_delay_again(status: str) -> None:
    as_of = ONE + 3 * HOUR
    decision = decide_early(check(), ProcessInstanceStatus(status), DECLARED, as_of, is_safe_mode=False)
    assert decision is not None
    assert decision.check is not None
    assert (decision.verdict, decision.check.due_at) == (LateVerdict.PUT_OFF, as_of + 2 * HOUR)


@pytest.mark.parametrize("status", ["TIMEDOUT", "SKIPPED", None])
def test_an_instance_that_cannot_have_run_is_not_looked_at_any_more(status: str | None) -> None:
    found = ProcessInstanceStatus(status) if status else None
    decision = decide_early(check(), found, DECLARED, ONE, is_safe_mode=False)
    assert decision is not None
    assert (decision.verdict, decision.check) == (LateVerdict.DROPPED, None)


def test_what_is_not_declared_is_put_off_until_its_cut_off() -> None:
    before = decide_early(check(), SUCCEEDED, None, ONE + 2 * HOUR, is_safe_mode=False)
    after = decide_early(check(), SUCCEEDED, None, CUT_OFF, is_safe_mode=False)
    assert before is not None
    assert after is not None
    assert (before.verdict, after.verdict) == (LateVerdict.PUT_OFF, LateVerdict.DROPPED)


def test_putting_off_does_not_pass_over_the_cut_off_and_is_a_minute_at_least() -> None:
    def put_off(standing: LateCheck, as_of: datetime) -> datetime | None:
        again = decide_later(standing, as_of).check
        return again and again.due_at

    assert put_off(check(), ONE + 5 * HOUR) == CUT_OFF
    assert put_off(check(), CUT_OFF) == CUT_OFF + 2 * HOUR
    assert put_off(check(due_at=ONE), ONE) == ONE + timedelta(minutes=1)


def test_a_workflow_for_late_data_is_run_if_all_that_changed_declare_the_same() -> None:
    late, other = {"path": "jobs:late"}, {"path": "jobs:other"}
    same = late_plan({"views": late, "other": late}).processes["p", "primary"]
    apart = late_plan({"views": late, "other": other}).processes["p", "primary"]
    one = late_plan({"views": late, "other": None}).processes["p", "primary"]
    assert choose_work(same, ["views", "other"]).path == "jobs:late"
    assert choose_work(apart, ["views", "other"]).path == "jobs:run"
    assert choose_work(apart, ["other"]).path == "jobs:other"
    assert choose_work(one, ["views"]).path == "jobs:late"
    assert choose_work(one, ["views", "other"]).path == "jobs:run"
    assert choose_work(one, []).path == "jobs:run"


def test_a_workflow_for_late_data_that_cannot_run_here_is_passed_over() -> None:
    plan = late_plan({"views": {"engine": "oozie", "path": "/apps/late"}})
    assert choose_work(plan.processes["p", "primary"], ["views"]).path == "jobs:run"


def test_the_first_check_of_a_process_instance_comes_by_policy_after_its_end() -> None:
    plan = late_plan()
    found = decide_process_check(plan, plan.processes["p", "primary"], ONE, ONE + 3 * HOUR)
    assert found == replace(check(), planned_at=ONE + 3 * HOUR, due_at=ONE + 4 * HOUR)
    assert decide_process_check(plan, plan.processes["p", "primary"], ONE, CUT_OFF + HOUR) is None


def test_without_late_inputs_or_cut_offs_there_is_nothing_to_check() -> None:
    plan = plan_of(feed("clicks", start=ONE), process("p", inputs={"clicks": "now(0,0)"}, start=ONE))
    record = plan.processes["p", "primary"]
    assert process_cut_off(plan, record, ONE) is None
    assert decide_process_check(plan, record, ONE, ONE) is None


def test_a_feed_is_checked_itself_only_if_it_has_a_cut_off_and_no_process_watches_it() -> None:
    alone = plan_of(feed("clicks", start=ONE, late_arrival={"cut_off": "hours(6)"})).feeds["clicks", "primary"]
    assert decide_feed_check(alone, ONE, ONE) == check(kind=AgendaKind.LATE_FEED, name="clicks", due_at=ONE)
    assert decide_feed_check(alone, ONE, CUT_OFF + HOUR) is None
    assert decide_feed_check(late_plan().feeds["clicks", "primary"], ONE, ONE) is None
    plain = plan_of(feed("clicks", start=ONE)).feeds["clicks", "primary"]
    assert decide_feed_check(plain, ONE, ONE) is None
    assert timedelta(hours=3) == FEED_DELAY


def test_a_summary_counts_what_came_out() -> None:
    assert count([LateVerdict.REFUSED]) == "1 late check: 1 refused"
    assert count([]) == "0 late checks"
