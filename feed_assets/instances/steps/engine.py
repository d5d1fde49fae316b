"""Run the steps of a workflow one after the other, record each as it happens, and keep what a next attempt can use. An
attempt keeps the steps of the one before it that work on the same: the basis of an attempt.

The frames of a step are staged on the cluster's storage and belong to the instance and the attempt that made them. They
count when the row of the step says so, after they are complete: a worker that dies leaves a step that has not finished.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from feed_assets.clock import Stopwatch
from feed_assets.context.operation import AttemptContext
from feed_assets.engines.data.frames import frame_input
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.port import Engine, InputData, OutputReport, StepPlace, Work, WorkReport
from feed_assets.engines.registry import open_engine
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.engines.workflow.files import find_code_digest
from feed_assets.entities.workflow import Step, Workflow, decide_repeated, last_steps, order_steps
from feed_assets.errors import describe_error
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.errors import StepRefusedError
from feed_assets.instances.leasing import Leased
from feed_assets.instances.steps.frames import StepFrames, StepPart, StepResult
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FrozenInput, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.sql.errors import FencedOutError
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.input_windows import InputState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASKED = "a new beginning was asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Digests of what the steps of an attempt work on."""

    definition: str
    inputs: str

    def render(self) -> str:
        return f"{self.definition} {self.inputs}"

    def find_difference(self, former: str) -> str | None:
        """Return in what a former basis differs, as a clause; None if it is the same. It is "" after a person has asked
        for a new beginning.

        >>> Basis(definition="a", inputs="b").find_difference("a c")
        'the inputs have changed'
        """
        definition, _, inputs = former.partition(" ")
        if not former:
            return ASKED
        if definition != self.definition:
            return "the definition has changed"
        return None if inputs == self.inputs else "the inputs have changed"


def find_basis(
    context: AttemptContext, process: ProcessRecord, workflow: Workflow, states: Sequence[InputState], key: ProcessKey
) -> Basis:
    """Return the basis of an attempt whose inputs have just been frozen.

    Content of which the record has no fresh digest, that of external feeds, is told by names, sizes and times of files.
    """
    with context.database.read() as connection:
        row = ProcessInstances(connection).get(*key)
    frozen = () if row is None else row.inputs
    return build_basis(process, workflow, frozen, list(_iter_fingerprints(context, states)))


def build_basis(
    process: ProcessRecord, workflow: Workflow, frozen: Sequence[FrozenInput], fingerprints: Sequence[list[str]] = ()
) -> Basis:
    """Return the basis of an attempt with frozen inputs, and the fingerprints of those without a digest.

    The definition is that of the release, with the files that it pins, and the properties of the attempt.
    """
    inputs = [
        [each.name, [render_datetime(time) for time in each.nominal_times], list(each.digests)] for each in frozen
    ]
    work = workflow.model_dump(mode="json", exclude_defaults=True)
    return Basis(
        definition=_digest([process.fingerprint, work, sorted(process.properties)]),
        inputs=_digest([inputs, list(fingerprints)]),
    )


def _iter_fingerprints(context: AttemptContext, states: Sequence[InputState]) -> Iterator[list[str]]:
    for state in states:
        record = context.plan.feeds[state.edge.feed_key]
        if not record.has_data or not record.is_external or state.edge.is_late:
            continue
        for time, found in find_records(context, record, state.present).items():
            (measure,) = context.stores.get(found.store).measure([found.path(time)])
            yield [state.edge.name, render_datetime(time), measure.fingerprint]


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerSteps:
    """The steps of the newest attempt before, and those of them that have finished, by name; none count any more after
    it has succeeded.
    """

    runs: tuple[StepRun, ...]
    finished: Mapping[str, StepRun]

    @classmethod
    def load(cls, connection: Connection, key: ProcessKey, attempt: int) -> "FormerSteps":
        """Load the steps before an attempt."""
        former = [run for run in Steps(connection).of(key) if run.attempt < attempt]
        newest = tuple(run for run in former if run.attempt == former[-1].attempt)
        ended = {each.attempt: each.status for each in Attempts(connection).of(key)}
        has_succeeded = bool(newest) and ended.get(newest[-1].attempt) is ProcessInstanceStatus.SUCCEEDED
        finished = {run.step: run for run in newest if run.is_done and not has_succeeded}
        return cls(runs=newest, finished=finished)


def plan_steps(
    steps: Mapping[str, Step],
    key: ProcessKey,
    attempt: int,
    basis: Basis,
    former: FormerSteps,
    find_loss: Callable[[StepRun], str | None] = lambda _: None,
) -> list[StepRun]:
    """Return the steps of a new attempt in order: those that it keeps, and those that it has to run, with the reason if
    they have finished before. `find_loss` says why what a finished step has yielded is not there any more.
    """
    faults = {name: basis.find_difference(run.basis) or find_loss(run) for name, run in former.finished.items()}
    repeated = decide_repeated(steps, {name for name, fault in faults.items() if fault is None})
    runs = []
    for position, name in enumerate(order_steps(steps)):
        run = StepRun(
            **key._asdict(),
            attempt=attempt,
            step=name,
            position=position,
            status=StepStatus.PENDING,
            basis=basis.render(),
            made_in=attempt,
        )
        before = former.finished.get(name)
        if before is not None and name in repeated:
            again = "a step before it runs again" if steps[name].recoverable else "it is not recoverable"
            reason = faults[name] or again
            run = replace(run, reason=f"again, although attempt {before.made_in} has finished it: {reason}")
        elif before is not None:
            run = replace(before, attempt=attempt, position=position, status=StepStatus.KEPT, reason=None)
        runs.append(run)
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """The steps of an attempt whose record nobody needs: none has been finished before, and none is written down."""

    def former(self, key: ProcessKey, attempt: int) -> FormerSteps:  # noqa: ARG002
        """Return the steps of the attempt before."""
        return FormerSteps(runs=(), finished={})

    def add(self, runs: Sequence[StepRun]) -> None:
        """Note the steps of the attempt."""

    def begin(self, run: StepRun) -> bool:  # noqa: ARG002
        """Note that a step begins; return False if it must not."""
        return True

    def end(self, run: StepRun, status: StepStatus, **changes: object) -> None:
        """Note how a step has ended, with its `frames` or a `reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps(StepLog):
    """The steps of an attempt in the record, as long as it holds its leases."""

    context: AttemptContext
    leased: Leased

    def former(self, key: ProcessKey, attempt: int) -> FormerSteps:
        with self.context.database.read() as connection:
            return FormerSteps.load(connection, key, attempt)

    def add(self, runs: Sequence[StepRun]) -> None:
        with self._checked_in() as connection:
            Steps(connection).add(runs)

    def begin(self, run: StepRun) -> bool:
        with self._checked_in() as connection:
            return Steps(connection).begin(run.key, run.attempt, run.step, self.context.clock.now())

    def end(self, run: StepRun, status: StepStatus, **changes: object) -> None:
        with self._checked_in() as connection:
            Steps(connection).end(run, status, self.context.clock.now(), **changes)

    @contextmanager
    def _checked_in(self) -> Iterator[Connection]:
        with self.context.database.begin() as connection:
            self.leased.check_in(connection)
            yield connection


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsEngine(Engine):
    """Runs the steps of one attempt. `on_end` is told the seconds, frames and name of each step, kept ones too."""

    frames: StepFrames
    log: StepLog
    workflow: Workflow
    basis: Basis
    on_end: Callable[[float, Sequence[StepPart], str], None]

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        done: dict[str, StepResult] = {}
        reports: dict[str, OutputReport] = {}
        details: dict[str, str] = {}
        reported = ReportedMetadata()
        for run in self._begin_attempt(work):
            if run.status is StepStatus.KEPT:
                done[run.step] = StepResult.of(run)
                self.on_end(_seconds(run), done[run.step].parts, f"{run.step}, kept from attempt {run.made_in},")
                details[f"step {run.step}"] = f"kept from attempt {run.made_in}"
                reported = reported.then(done[run.step].reported)
                continue
            watch = Stopwatch()
            part = self._work_of(run, work, done)
            report = self._run_step(run, part, reports, session)
            reports |= {output.name: output for output in report.outputs} if _is_last(part) else {}
            done[run.step] = self._finish(run, part, report)
            reported = reported.then(report.reported)
            self.on_end(watch.seconds, done[run.step].parts, run.step)
            details[f"step {run.step}"] = f"{watch.seconds:.1f} s, {_describe(done[run.step])}"
            if (code := find_code_digest(part)) is not None:
                details[f"code of {run.step}"] = code
        return WorkReport(outputs=self._all_outputs(work, reports), details=details, reported=reported)

    def _begin_attempt(self, work: Work) -> list[StepRun]:
        """Record the steps of the attempt: those that are kept, and those to run; return them in order."""
        key = ProcessKey(work.process, work.cluster, work.nominal_time)
        former = self.log.former(key, work.attempt)
        runs = plan_steps(self.workflow.steps, key, work.attempt, self.basis, former, self.frames.find_loss)
        self.log.add(runs)
        kept = {run.step for run in runs if run.status is StepStatus.KEPT}
        self.frames.discard(run for run in former.runs if run.step not in kept)
        return runs

    def _work_of(self, run: StepRun, work: Work, done: Mapping[str, StepResult]) -> Work:
        """Return a step as a work, with a new staging for its frames unless it is a last one."""
        step = self.workflow.steps[run.step]
        is_last = run.step in last_steps(self.workflow.steps)
        place = StepPlace(name=run.step, frames_url=None if is_last else self.frames.stage(run))
        frames = [
            frame_input(work, before, name, done[before].url, done[before].made_of(name))
            for before in step.after
            for name in done[before].rows
        ]
        _refuse_equal_names(run, work.inputs, frames)
        return replace(
            work,
            inputs=(*work.inputs, *frames),
            outputs=work.outputs if is_last else (),
            engine=step.engine.value,
            path=step.path,
            libs=tuple(step.lib),
            step=place,
        )

    def _run_step(
        self, run: StepRun, part: Work, earlier: Mapping[str, OutputReport], session: "Callable[[], SparkSession]"
    ) -> WorkReport:
        if not self.log.begin(run):
            raise StepRefusedError(process=run.process, nominal_time=run.nominal_time, step=run.step)
        try:
            report = open_engine(part.engine).run(part, session)
            for output in report.outputs if _is_last(part) else ():
                if output.name in earlier:
                    raise _mismatch(run, f"it yields {output.name!r}, which another step has yielded")
        except FencedOutError:
            raise
        except Exception as exc:
            self._end(run, StepStatus.FAILED, describe_error(exc))
            raise
        except BaseException:
            self._end(run, StepStatus.KILLED, "the run was interrupted")
            raise
        return report

    def _end(self, run: StepRun, status: StepStatus, reason: str) -> None:
        with suppress(FencedOutError):
            self.log.end(run, status, reason=reason)
        self.frames.discard([replace(run, status=status)])

    def _finish(self, run: StepRun, part: Work, report: WorkReport) -> StepResult:
        """Record that a step has finished. Its frames are complete now, and count from now on."""
        result = self.frames.describe(run, part, report)
        self.log.end(run, StepStatus.SUCCEEDED, frames=result.render())
        return result

    def _all_outputs(self, work: Work, reports: Mapping[str, OutputReport]) -> tuple[OutputReport, ...]:
        missing = [target.name for target in work.outputs if target.name not in reports and not target.optional]
        if missing:
            last = ", ".join(name for name in self.workflow.steps if name in last_steps(self.workflow.steps))
            reason = f"its last steps ({last}) have not yielded the output {', '.join(missing)}"
            raise work.mismatch(reason, "Let one of them yield a frame of this name.")
        return tuple(reports[target.name] for target in work.outputs if target.name in reports)


def _refuse_equal_names(run: StepRun, inputs: Sequence[InputData], frames: Sequence[InputData]) -> None:
    """Refuse frames that a step could not tell from another frame or from an input of the process."""
    known: dict[str, str] = {data.name.replace("-", "_"): f"the input {data.name!r}" for data in inputs}
    for frame in frames:
        other = known.setdefault(frame.name.replace("-", "_"), f"the frame {frame.name!r} of step {frame.feed!r}")
        if other != f"the frame {frame.name!r} of step {frame.feed!r}":
            raise _mismatch(run, f"the frame {frame.name!r} of step {frame.feed!r} has the name of {other}")


def _mismatch(run: StepRun, reason: str) -> OutputMismatchError:
    return OutputMismatchError(
        subject=f"step {run.step!r} of process {run.process!r}",
        reason=reason,
        next_step="Give one of them another name: return {name: DataFrame}, or mark it with '-- output: name'.",
    )


def _is_last(part: Work) -> bool:
    return part.step is not None and part.step.frames_url is None


def _seconds(run: StepRun) -> float:
    assert run.started_at is not None
    assert run.ended_at is not None
    return (run.ended_at - run.started_at).total_seconds()


def _describe(result: StepResult) -> str:
    parts = (f"{name} ({counted(rows, 'row')})" if rows is not None else name for name, rows in result.rows.items())
    return ", ".join(parts) or "no frame"
