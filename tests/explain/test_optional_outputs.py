"""An optional output that is left out: the instance succeeds, nothing is published, and everybody is told."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import Explanation, ReasonCode
from feed_assets.instances.lists.runs import LEFT_OUT, find_logs
from feed_assets.instances.steps.frames import AttemptStep, StepKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey, ProcessInstanceStatus
from feed_assets.rebuild.rebuilding import rebuild_instances
from tests.context.contexts import about, context_of, query_of
from tests.instances.harness import START, LifecycleHarness, feed, process

NOON = START + timedelta(hours=12)
END = START + timedelta(hours=1)
ENTITIES = (
    feed("orders"),
    feed("loaded"),
    feed("rejected"),
    process(
        "load",
        inputs={"orders": "now(0,0)"},
        outputs={"loaded": "now(0,0)", "rejected": "now(0,0)"},
        optional=["rejected"],
        end=END,
    ),
    process("tell", inputs={"rejected": "now(0,0)"}, end=END),
)


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    """Orders have come, of which none is to be rejected."""
    made = LifecycleHarness.of(tmp_path, *ENTITIES)
    made.land("orders", START)
    made.job = lambda _: {"loaded": "one"}
    return made


def tick(lifecycle: LifecycleHarness, as_of: datetime) -> int:
    """A tick, and the runs that it requests."""
    return len(lifecycle.launch(lifecycle.tick(as_of), as_of))


def why(lifecycle: LifecycleHarness, kind: Kind, name: str) -> Explanation:
    (only,) = about(explain, context_of(lifecycle, NOON), name, START, kind=kind).items
    return only


@pytest.mark.parametrize("made", [{"loaded": "one"}, {"loaded": "one", "rejected": ""}])
def test_af_63_64_an_optional_output_left_out_writes_no_event_and_the_run_is_green(
    lifecycle: LifecycleHarness, made: dict[str, str]
) -> None:
    lifecycle.job = lambda _: made
    assert tick(lifecycle, NOON) == 1
    assert lifecycle.statuses("load") == {START: ProcessInstanceStatus.SUCCEEDED}
    assert [event.feed for event in lifecycle.events() if event.feed != "orders"] == ["loaded"]
    assert (lifecycle.feed_statuses("rejected"), lifecycle.content("rejected", START)) == ({}, None)
    assert lifecycle.staged() == []
    assert tick(lifecycle, NOON) == 0
    assert lifecycle.statuses("tell") == {START: ProcessInstanceStatus.WAITING}


def test_a_run_tells_what_its_work_has_left_out(lifecycle: LifecycleHarness) -> None:
    told: list[AttemptStep] = []
    runner = lifecycle.runner(NOON)
    object.__setattr__(runner, "on_step", told.append)
    (loaded,) = runner.run(lifecycle.process("load"), START, lambda _: None)
    assert [part.name for step in told if step.kind is StepKind.LEFT_OUT for part in step.parts] == ["rejected"]
    assert (loaded.output, loaded.details["left_out"]) == ("loaded", "rejected")


def test_why_says_of_process_instance_and_reader_that_it_was_left_out(lifecycle: LifecycleHarness) -> None:
    tick(lifecycle, NOON)
    tick(lifecycle, NOON)
    said = "left out its optional output rejected, feed rejected 2013-11-01T00:00Z"
    own = [each for each in why(lifecycle, Kind.PROCESS, "load").reasons if each.code is ReasonCode.LEFT_OUT]
    assert [(each.text, each.blocks) for each in own] == [(f"it {said}", False)]
    (first, *_) = why(lifecycle, Kind.FEED, "rejected").reasons
    assert (first.code, first.text) == (ReasonCode.LEFT_OUT, f"process load has succeeded, and has {said}")
    reader = why(lifecycle, Kind.PROCESS, "tell")
    (root,) = reader.root_causes()
    assert (root.name, root.reasons) == ("rejected", (first,))
    assert reader.root_sentence == f"tell 2013-11-01T00:00Z for rejected 2013-11-01T00:00Z: {first.text}"


def test_what_an_earlier_attempt_wrote_stays_and_logs_and_why_say_so(lifecycle: LifecycleHarness) -> None:
    lifecycle.job = lambda _: {"loaded": "one", "rejected": "two"}
    lifecycle.run("load", START, NOON, "run-1")
    lifecycle.job = lambda _: {"loaded": "one"}
    lifecycle.run("load", START, NOON, "run-2")
    assert lifecycle.content("rejected", START) == "two"
    (reason,) = [each for each in why(lifecycle, Kind.PROCESS, "load").reasons if each.code is ReasonCode.LEFT_OUT]
    assert reason.text.endswith("; what attempt 1 wrote stays")
    context = context_of(lifecycle, NOON)
    actions = [
        [(action.name, action.status) for action in row.actions or ()]
        for attempt in (1, 2)
        for row in find_logs(context, query_of(context, "load"), attempt).instances
    ]
    own = [("load", "SUCCEEDED"), ("load/loaded", "PRODUCED")]
    assert actions == [[*own, ("load/rejected", "PRODUCED")], [*own, ("load/rejected", LEFT_OUT)]]


def test_an_instance_that_left_out_an_output_is_finished_after_a_rebuild(lifecycle: LifecycleHarness) -> None:
    tick(lifecycle, NOON)
    lost = LifecycleHarness.of(lifecycle.root, *ENTITIES, state=f"sqlite:///{lifecycle.root / 'empty.db'}")
    rebuild_instances(context_of(lost, NOON))
    assert lost.statuses("load") == {START: ProcessInstanceStatus.SUCCEEDED}
    lost.job = lambda _: {"loaded": "one"}
    assert tick(lost, NOON) == 0


def test_an_output_that_was_written_and_evicted_long_ago_was_not_left_out(lifecycle: LifecycleHarness) -> None:
    lifecycle.job = lambda _: {"loaded": "one", "rejected": "two"}
    assert tick(lifecycle, NOON) == 1
    key = FeedKey("rejected", "primary", START)
    with lifecycle.database.begin() as connection:
        row = FeedInstances(connection).get_many([key])[key]
        log = EventLog(connection)
        log.remove([event.seq for event in log.for_instances([key])[key]])  # as the clean-up does
        FeedInstances(connection).put([replace(row, status=FeedInstanceStatus.EVICTED)])
    assert "left out" not in why(lifecycle, Kind.PROCESS, "load").render()
    assert "left out" not in why(lifecycle, Kind.FEED, "rejected").render()
