"""What people ask about steps, what they do to them, and what is read in their code before they run."""

from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.operation import resolve_subject
from feed_assets.definitions.checks.code_checks import check_code
from feed_assets.definitions.checks.code_trials import try_code
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import control_instances
from feed_assets.instances.lists.runs import find_steps
from feed_assets.instances.steps.records import StepStatus
from feed_assets.issues import SourceMap
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from tests.context.contexts import about, context_of
from tests.entities.samples import BASE, bundle
from tests.instances.harness import LifecycleHarness, at
from tests.instances.stepping import TIME, Jobs, failing, jobs, ready, run, vanish, vanishing

__all__ = ["jobs"]

DAILY = ("process", "daily")
LITERAL = "def extract(clicks):\n    if clicks:\n        return {'paid': clicks}\n    return {'refunds': clicks}\n"
OPAQUE = "def extract(clicks):\n    return clicks\n"


def test_the_steps_of_each_attempt_are_told(tmp_path: Path, jobs: Jobs) -> None:
    lifecycle = LifecycleHarness.of(tmp_path)
    ready(lifecycle)
    jobs.fails = {"load"}
    failing(lifecycle)
    jobs.fails = set()
    run(lifecycle)
    found = about(find_steps, context_of(lifecycle, TIME), "load", TIME).items
    assert [(each.attempt, each.step, each.status.value, each.made_in, dict(each.frames)) for each in found] == [
        (1, "extract", "SUCCEEDED", 1, {"extract": 1}),
        (1, "clean", "SUCCEEDED", 1, {"clean": 1}),
        (1, "load", "FAILED", 1, {}),
        (2, "extract", "KEPT", 1, {"extract": 1}),
        (2, "clean", "SUCCEEDED", 2, {"clean": 1}),
        (2, "load", "SUCCEEDED", 2, {"loaded": 1}),
    ]
    assert [(each.state, each.written) for each in found[2:4]] == [("FAILED", ""), ("KEPT from 1", "extract (1 row)")]
    nothing = about(find_steps, context_of(lifecycle, TIME), "load", at("01T02:00"))
    assert (nothing.items, nothing.remarks) == ((), ("load at 2013-11-01T02:00Z: no attempt with steps has begun",))


def test_a_step_that_was_running_when_its_worker_died_has_ended_with_its_attempt(tmp_path: Path, jobs: Jobs) -> None:
    lifecycle = LifecycleHarness.of(tmp_path)
    ready(lifecycle)
    jobs.fails, jobs.how = {"clean"}, vanish
    vanishing(lifecycle)
    with lifecycle.database.begin() as connection:
        key = ProcessKey("load", "primary", TIME)
        Attempts(connection).end(key, ProcessInstanceStatus.FAILED, at("01T01:30"), "its worker died")
    found = {each.step: each for each in about(find_steps, context_of(lifecycle, TIME), "load", TIME).items}
    assert (found["clean"].status, found["clean"].reason) == (StepStatus.FAILED, "its worker died")
    assert found["load"].status is StepStatus.PENDING


@pytest.mark.parametrize("action", [InstanceAction.KILL, InstanceAction.RERUN])
def test_frames_go_when_an_instance_is_killed_or_run_again_from_the_start(
    tmp_path: Path, jobs: Jobs, action: InstanceAction
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path)
    ready(lifecycle)
    jobs.fails = {"load"}
    failing(lifecycle)
    context = context_of(lifecycle, TIME)
    for dry_run, left in ((True, 2), (False, 0)):
        control_instances(
            context.by("ann", dry_run=dry_run),
            action,
            resolve_subject(context, "load"),
            TIME,
            at("01T02:00"),
            from_start=action is InstanceAction.RERUN,
        )
        assert len([*lifecycle.root.rglob(".feed-assets/staging/**/*.csv")]) == left
    jobs.fails = set()
    run(lifecycle)
    assert jobs.ran.count("extract") == 2


def stepping(clean: dict[str, Any]) -> dict[str, Any]:
    steps = {"extract": {"path": "jobs.py:extract"}, "clean": {**clean, "after": ["extract"]}}
    return {"process daily": {**BASE["process daily"], "workflow": {"steps": steps}}}


@pytest.mark.parametrize(
    ("extract", "clean", "fault"),
    [
        (LITERAL, "def clean(paid, refunds): ...", ""),
        (LITERAL, "def clean(): ...", ""),
        (LITERAL, "def clean(paids): ...", "error: clean does not match the inputs: no argument matches"),
        (OPAQUE, "def clean(extract): ...", ""),
        (OPAQUE, "def clean(paid): ...", "warning: clean does not match the inputs: no argument matches"),
        (LITERAL, "SELECT * FROM paid JOIN clicks", ""),
        (LITERAL, "SELECT * FROM paids", "error: there is no view 'paids'; the inputs are clicks, paid, refunds"),
        (
            LITERAL,
            "-- output: summary\nSELECT 1;\n-- output: summary\nSELECT 2",
            "error: output 'summary' (feed 'summary') is made by 2 statements",
        ),
    ],
)
def test_the_code_of_a_step_is_read_with_the_frames_before_it(
    tmp_path: Path, extract: str, clean: str, fault: str
) -> None:
    is_sql = not clean.startswith("def")
    (tmp_path / "jobs.py").write_text(extract + ("" if is_sql else clean))
    (tmp_path / "clean.sql").write_text(clean if is_sql else "SELECT 1")
    step = {"engine": "sql", "path": "clean.sql"} if is_sql else {"path": "jobs.py:clean"}
    issues = check_code(bundle(stepping(step)), [DAILY], sources=SourceMap(), root=tmp_path)
    assert [f"{issue.severity.value}: {issue.message}"[: len(fault)] for issue in issues] == ([fault] if fault else [])


def test_a_step_is_tried_with_the_frames_before_it(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(f"{LITERAL}\n\ndef clean(paids): ...\n")
    issues = try_code(
        bundle(stepping({"path": "jobs.py:clean"})), [DAILY], sources=SourceMap(), root=tmp_path, seconds=60.0
    )
    assert [issue.message.partition(";")[0] for issue in issues] == [
        "clean does not match the inputs: no argument matches the parameter 'paids'"
    ]
