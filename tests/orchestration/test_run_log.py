"""The log of a run: lines for each step of the first instances, one line for each of the others."""

from datetime import UTC, datetime, timedelta

from feed_assets.engines.port import OutputReport, WorkReport
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.instances.steps.frames import AttemptStep, StepKind, StepPart
from feed_assets.orchestration.runs.instance_runs import DETAILED, RunLog, describe_beyond

START = datetime(2026, 1, 1, tzinfo=UTC)


def step(kind: StepKind, hour: int, seconds: float = 1.0, **figures: int) -> AttemptStep:
    part = StepPart(name="sums", **figures)
    return AttemptStep(kind=kind, nominal_time=START + timedelta(hours=hour), seconds=seconds, parts=(part,))


def test_the_release_is_told_when_it_changes_and_the_session_once() -> None:
    lines: list[str] = []
    log = RunLog(lines.append)
    for hour, release in enumerate(["follows release 1", "follows release 1", "follows release 2"]):
        log.begin(START + timedelta(hours=hour), release)
        log.session(20.0)
        log.step(step(StepKind.WORK, hour, 25.0, rows=2))
        log.end()
    assert lines == [
        "2026-01-01T00:00Z follows release 1",
        "2026-01-01T00:00Z Spark session started in 20.0 s",
        "2026-01-01T00:00Z staged sums (2 rows) in 5.0 s",
        "2026-01-01T01:00Z staged sums (2 rows) in 25.0 s",
        "2026-01-01T02:00Z follows release 2",
        "2026-01-01T02:00Z staged sums (2 rows) in 25.0 s",
    ]


def test_each_later_instance_of_a_long_run_has_one_line_also_if_it_fails() -> None:
    lines: list[str] = []
    log = RunLog(lines.append)
    for hour in range(DETAILED + 2):
        log.begin(START + timedelta(hours=hour), None)
        log.step(step(StepKind.INPUTS, hour, instances=1, files=2, bytes=2048))
        if hour > DETAILED:
            log.end()
            break
        log.step(step(StepKind.WORK, hour, rows=1))
        log.step(step(StepKind.PUBLICATION, hour, files=1, bytes=1))
    assert len(lines) == 3 * DETAILED + 2
    assert lines[-2:] == [
        "2026-01-01T10:00Z reads sums (1 instance, 2 files, 2,048 bytes) in 1.0 s; staged sums (1 row) in 1.0 s; "
        "published sums (1 file, 1 byte) in 1.0 s",
        "2026-01-01T11:00Z reads sums (1 instance, 2 files, 2,048 bytes) in 1.0 s",
    ]


def test_each_declared_step_has_a_line_the_first_without_the_start_of_the_session() -> None:
    lines: list[str] = []
    log = RunLog(lines.append)
    log.begin(START, None)
    log.session(20.0)
    for name, seconds in (("extract", 25.0), ("clean", 3.0)):
        part = StepPart(name="paid", rows=2)
        log.step(AttemptStep(kind=StepKind.STEP, nominal_time=START, seconds=seconds, parts=(part,), name=name))
    log.end()
    assert lines[1:] == [
        "2026-01-01T00:00Z step extract made paid (2 rows) in 5.0 s",
        "2026-01-01T00:00Z step clean made paid (2 rows) in 3.0 s",
    ]


def test_what_was_read_and_is_no_input_is_told_once_with_the_next_step() -> None:
    lineages = (
        ColumnLineage(beyond=("external/file:///b", "external/db.t")),
        ColumnLineage(beyond=("external/db.t",)),
        None,
    )
    report = WorkReport(outputs=tuple(OutputReport(name="sums", rows=1, lineage=each) for each in lineages))
    assert describe_beyond("sum-up", report) == [
        f"process 'sum-up' has read {address}, which is none of its inputs: no run waits for it, and none follows "
        "when it changes. Declare a feed for it, and an input."
        for address in ("db.t", "file:///b")
    ]
