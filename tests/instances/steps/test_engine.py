"""Steps of a workflow: which run, which are kept, and what is left on storage; without Spark."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.catalog.run_metadata import Facts
from feed_assets.engines.errors import OutputMismatchError, WorkflowFailedError
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.instances.gates.staging_sweep import ABANDONED_AFTER, apply_staging_sweep
from feed_assets.instances.steps.frames import AttemptStep, StepFrames
from feed_assets.instances.steps.records import StepRun
from feed_assets.instances.steps.store import Steps
from feed_assets.log.leases import Leases
from feed_assets.log.records import ProcessKey
from feed_assets.plan.release_fingerprint import Step
from feed_assets.sql.errors import FencedOutError
from feed_assets.triggers.apply_triggers import apply_triggers
from tests.instances.harness import LifecycleHarness, feed
from tests.instances.stepping import (
    CHAIN,
    RECOVERABLE,
    TIME,
    WIDE,
    Jobs,
    declare,
    failing,
    jobs,
    ready,
    run,
    vanish,
    vanishing,
)

__all__ = ["jobs"]


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    return LifecycleHarness.of(tmp_path)


def statuses(lifecycle: LifecycleHarness) -> list[list[tuple[str, str]]]:
    """The steps of each attempt with their statuses."""
    with lifecycle.database.read() as connection:
        runs = Steps(connection).of(ProcessKey("load", "primary", TIME))
    attempts = sorted({each.attempt for each in runs})
    return [[(each.step, each.status.value) for each in runs if each.attempt == number] for number in attempts]


def reasons(lifecycle: LifecycleHarness) -> list[str | None]:
    with lifecycle.database.read() as connection:
        runs = Steps(connection).of(ProcessKey("load", "primary", TIME))
    return [each.reason for each in runs if each.attempt == runs[-1].attempt]


def staged(lifecycle: LifecycleHarness) -> set[str]:
    """What the stagings hold."""
    return {file.read_text() for file in lifecycle.root.rglob(".feed-assets/staging/**/*.csv")}


def test_each_step_reads_the_inputs_and_the_frames_before_it_and_all_frames_go(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    ready(lifecycle)
    told: list[AttemptStep] = []
    run(lifecycle, on_step=told.append)
    assert jobs.read == {
        "extract": {"orders": "ann"},
        "clean": {"orders": "ann", "extract": "extract of extract in attempt 1"},
        "load": {"orders": "ann", "clean": "clean of clean in attempt 1"},
    }
    assert [step.name for step in told if step.name] == ["extract", "clean", "load"]
    assert statuses(lifecycle) == [[(name, "SUCCEEDED") for name in CHAIN]]
    assert staged(lifecycle) == set()
    (file,) = lifecycle.folder("loaded", TIME).glob("*.csv")
    assert file.read_text() == "loaded of load in attempt 1"


def test_bd_16_a_rerun_goes_on_behind_the_newest_finished_step_that_is_recoverable(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    ready(lifecycle)
    jobs.fails = {"load"}
    failing(lifecycle)
    assert staged(lifecycle) == {"extract of extract in attempt 1", "clean of clean in attempt 1"}
    failing(lifecycle)
    jobs.fails = set()
    run(lifecycle)
    assert jobs.ran == ["extract", "clean", "load", "clean", "load", "clean", "load"]
    assert jobs.read["clean"]["extract"] == "extract of extract in attempt 1"
    assert statuses(lifecycle) == [
        [("extract", "SUCCEEDED"), ("clean", "SUCCEEDED"), ("load", "FAILED")],
        [("extract", "KEPT"), ("clean", "SUCCEEDED"), ("load", "FAILED")],
        [("extract", "KEPT"), ("clean", "SUCCEEDED"), ("load", "SUCCEEDED")],
    ]
    again = "again, although attempt 2 has finished it: it is not recoverable"
    assert reasons(lifecycle) == [None, again, None]
    assert staged(lifecycle) == set()


def test_what_a_step_has_said_that_is_kept_counts_in_the_attempt_that_succeeds(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    ready(lifecycle)
    jobs.fails = {"load"}
    failing(lifecycle)
    jobs.fails = set()
    run(lifecycle)
    with lifecycle.database.read() as connection:
        facts = Facts(connection).of(ProcessKey("load", "primary", TIME))
    assert {(fact.attempt, fact.name, fact.value) for fact in facts} == {
        (2, "extract in attempt", "1"),
        (2, "clean in attempt", "2"),
        (2, "load in attempt", "2"),
    }


def test_bd_15_a_rerun_of_a_batch_has_the_same_events_whatever_has_come_since(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    lifecycle.declare(
        feed("orders"),
        Feed.model_validate(
            {
                "name": "loaded",
                "instances": "as-they-come",
                "format": "csv",
                "locations": {"data": "/loaded/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"},
                "clusters": {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}},
            }
        ),
        Process.model_validate(
            {
                "name": "load",
                "clusters": {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}},
                "trigger": {"when": "orders"},
                "inputs": {"orders": {"feed": "orders", "take": "new"}},
                "outputs": {"loaded": {"feed": "loaded", "instance": "now(0,0)"}},
                "workflow": {"steps": CHAIN},
            }
        ),
    )

    def cut(as_of: datetime) -> list[ProcessKey]:
        return list(apply_triggers(lifecycle.open_tick(as_of)).batches)

    def come(name: str, as_of: datetime) -> None:
        lifecycle.land("orders", as_of, text=name)
        lifecycle.tick(as_of)

    cut(TIME - timedelta(hours=1))
    come("ann", TIME)
    (batch,) = cut(TIME)
    jobs.fails = {"load"}
    runner = replace(lifecycle.runner(TIME, "run"), engines=None)
    with pytest.raises(WorkflowFailedError):
        runner.run(lifecycle.process("load"), batch.nominal_time, lambda _: None)
    first = dict(jobs.events)
    come("bob", TIME + timedelta(hours=1))
    jobs.fails, jobs.ran = set(), []
    runner.run(lifecycle.process("load"), batch.nominal_time, lambda _: None)
    assert jobs.ran == ["clean", "load"]
    assert jobs.read["clean"]["orders"] == "ann"
    assert jobs.events == first
    assert {tuple(events) for events in first.values()} == {(("orders", 1),)}
    assert len(cut(TIME + timedelta(hours=2))) == 1


def test_bd_30_a_finished_branch_is_kept_while_the_other_runs_again(lifecycle: LifecycleHarness, jobs: Jobs) -> None:
    ready(lifecycle, WIDE)
    jobs.fails = {"right"}
    failing(lifecycle)
    assert statuses(lifecycle) == [[("left", "SUCCEEDED"), ("right", "FAILED"), ("join", "PENDING")]]
    jobs.fails = set()
    run(lifecycle)
    assert jobs.ran == ["left", "right", "right", "join"]
    assert jobs.read["join"] == {
        "orders": "ann",
        "left": "left of left in attempt 1",
        "right": "right of right in attempt 2",
    }


@pytest.mark.parametrize("change", ["inputs", "steps", "properties", "start", "success", "lost", "killed"])
def test_steps_begin_anew_after_a_change(lifecycle: LifecycleHarness, jobs: Jobs, change: str) -> None:
    steps = RECOVERABLE
    ready(lifecycle, steps)
    jobs.fails = set() if change == "success" else {"load"}
    if change == "success":
        run(lifecycle)
    else:
        failing(lifecycle)
    reason: str | None = "the definition has changed"
    keys = [ProcessKey("load", "primary", TIME)]
    match change:
        case "inputs":
            lifecycle.land("orders", TIME, text="bob and cy")
            reason = "the inputs have changed"
        case "steps":
            declare(lifecycle, {**steps, "load": {"path": "jobs:other", "after": ["clean"]}})
        case "properties":
            declare(lifecycle, steps, properties={"limit": "3"})
        case "start":
            apply_action(lifecycle.context(TIME).by("ann"), InstanceAction.RERUN, keys, from_start=True)
            reason = "a new beginning was asked for"
        case "killed":
            for action in (InstanceAction.KILL, InstanceAction.RERUN):
                apply_action(lifecycle.context(TIME).by("ann"), action, keys)
            reason = "a new beginning was asked for"
        case "lost":
            for file in lifecycle.root.rglob(".feed-assets/staging/**/*.csv"):
                file.unlink()
            reason = "its frames are gone"
        case _:
            reason = None
    jobs.fails = set()
    jobs.ran.clear()
    run(lifecycle)
    assert jobs.ran == ["extract", "clean", "load"]
    assert reasons(lifecycle)[0] == (reason and f"again, although attempt 1 has finished it: {reason}")
    assert staged(lifecycle) == set()


def test_bd_30_a_last_step_that_yields_nothing_is_kept(lifecycle: LifecycleHarness, jobs: Jobs) -> None:
    ready(lifecycle, {"tell": {"path": "jobs:tell", "after": ["extract"]}, **CHAIN})
    jobs.yields = {"tell": []}
    jobs.fails = {"load"}
    failing(lifecycle)
    jobs.fails = set()
    run(lifecycle)
    assert jobs.ran == ["extract", "tell", "clean", "load", "clean", "load"]


def test_af_64_an_optional_output_that_no_last_step_makes_is_left_out(lifecycle: LifecycleHarness, jobs: Jobs) -> None:
    ready(lifecycle, optional=["loaded"])
    jobs.yields["load"] = []
    run(lifecycle)
    assert jobs.ran[-1] == "load"
    assert lifecycle.events("loaded") == []


def test_bd_31_a_last_step_runs_again_because_its_outputs_go_with_the_attempt(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    ready(lifecycle, {**RECOVERABLE, "tell": {"path": "jobs:tell", "after": ["extract"]}})
    jobs.yields = {"tell": []}
    jobs.fails = {"tell"}
    failing(lifecycle)
    jobs.fails = set()
    run(lifecycle)
    assert jobs.ran == ["extract", "clean", "load", "tell", "load", "tell"]
    again = "again, although attempt 1 has finished it: outputs go with their attempt"
    assert reasons(lifecycle) == [None, None, again, None]


@pytest.mark.parametrize(
    ("steps", "yields", "reason"),
    [
        (CHAIN, {"load": []}, "its last steps (load) have not yielded the output loaded"),
        (CHAIN, {"load": ["loadd"]}, "it yields loadd, but no step comes after it, and the outputs are loaded"),
        (CHAIN, {"extract": ["a b"]}, "a frame cannot be called 'a b'"),
        (CHAIN, {"extract": ["orders"]}, "the frame 'orders' of step 'extract' has the name of the input 'orders'"),
        (WIDE, {"left": ["x"], "right": ["x"]}, "the frame 'x' of step 'right' has the name of the frame 'x' of step"),
        ({"a": {"path": "j:a"}, "b": {"path": "j:b"}}, {}, "it yields 'loaded', which another step has yielded"),
    ],
)
def test_a_frame_that_nobody_could_place_or_tell_from_another_fails_the_instance(
    lifecycle: LifecycleHarness, jobs: Jobs, steps: Mapping[str, Any], yields: dict[str, list[str]], reason: str
) -> None:
    ready(lifecycle, steps)
    jobs.yields = yields
    with pytest.raises(OutputMismatchError, match=re.escape(reason)):
        run(lifecycle)
    assert lifecycle.content("loaded", TIME) is None


def test_bd_20_a_step_does_not_run_when_another_worker_has_taken_over(
    lifecycle: LifecycleHarness, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(lifecycle)

    def take_over(run: StepRun) -> None:
        if run.step == "clean":
            with lifecycle.database.begin() as connection:
                Leases(lifecycle.database).release_all(connection, "run")

    real = StepFrames.stage
    monkeypatch.setattr(StepFrames, "stage", lambda self, run: (take_over(run), real(self, run))[1])
    with pytest.raises(FencedOutError):
        run(lifecycle)
    assert jobs.ran == ["extract"]
    assert statuses(lifecycle) == [[("extract", "SUCCEEDED"), ("clean", "PENDING"), ("load", "PENDING")]]


def test_a_changed_file_of_a_step_is_a_new_release_and_an_instance_before_it_keeps_its_own(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    steps = {**CHAIN, "clean": {"engine": "sql", "path": "clean.sql", "after": ["extract"]}}
    (lifecycle.root / "clean.sql").write_text("first")
    ready(lifecycle, steps)
    before = lifecycle.process("load")
    jobs.fails = {"load"}
    failing(lifecycle)
    (lifecycle.root / "clean.sql").write_text("second")
    declare(lifecycle, steps)
    (decision,) = lifecycle.decisions
    assert (decision.step, lifecycle.process("load").fingerprint == before.fingerprint) == (Step.SUCCEEDED, False)
    jobs.fails = set()
    active = lifecycle.active_release("load", TIME)
    assert active is not None
    run(lifecycle, record=active.record)
    assert (jobs.ran[3:], jobs.files) == (["load"], {"clean": "first"})


def test_frames_that_no_attempt_uses_again_go_with_the_abandoned_stagings(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    ready(lifecycle)
    jobs.fails = {"load"}
    failing(lifecycle)
    swept = [
        apply_staging_sweep(lifecycle.open_tick(now))
        for now in (datetime.now(UTC), datetime.now(UTC) + ABANDONED_AFTER + timedelta(days=1))
    ]
    assert (swept, staged(lifecycle)) == ([0, 2], set())


def test_an_interrupted_step_is_killed_and_runs_again(lifecycle: LifecycleHarness, jobs: Jobs) -> None:
    ready(lifecycle, RECOVERABLE)
    jobs.fails, jobs.how = {"clean"}, lambda _: sys.exit()
    with pytest.raises(SystemExit):
        run(lifecycle)
    assert statuses(lifecycle) == [[("extract", "SUCCEEDED"), ("clean", "KILLED"), ("load", "PENDING")]]
    jobs.fails = set()
    run(lifecycle)
    assert jobs.ran == ["extract", "clean", "clean", "load"]


def test_a_killed_worker_leaves_its_finished_steps_and_a_frame_that_nobody_reads(
    lifecycle: LifecycleHarness, jobs: Jobs
) -> None:
    ready(lifecycle, RECOVERABLE)
    jobs.fails, jobs.how = {"clean"}, vanish
    vanishing(lifecycle)
    assert statuses(lifecycle) == [[("extract", "SUCCEEDED"), ("clean", "RUNNING"), ("load", "PENDING")]]
    assert staged(lifecycle) == {"extract of extract in attempt 1", "clean of clean in attempt 1"}
    jobs.fails = set()
    run(lifecycle, TIME + timedelta(minutes=2))
    assert jobs.ran == ["clean", "load"]
    assert jobs.read["clean"]["extract"] == "extract of extract in attempt 1"
    assert jobs.read["load"]["clean"] == "clean of clean in attempt 2"
    assert staged(lifecycle) == set()
