"""Run the steps of a workflow one after the other, record each as it happens, and keep what a next attempt can use.

The frames of a step are staged on the cluster's storage and belong to the instance and the attempt that made them. They
count when the row of the step says so, after they are complete: a worker that dies leaves a step that has not finished.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from feed_assets.clock import Stopwatch
from feed_assets.context.operation import AttemptContext
from feed_assets.engines.data.frames import frame_input
from feed_assets.engines.errors import OutputMismatchError
from feed_assets.engines.port import Engine, InputData, OutputReport, StepPlace, Work, WorkReport
from feed_assets.engines.registry import open_engine
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.engines.workflow.files import find_code_digest
from feed_assets.entities.workflow import Workflow, last_steps
from feed_assets.errors import describe_error
from feed_assets.instances.errors import StepRefusedError
from feed_assets.instances.leasing import Leased
from feed_assets.instances.steps.frames import StepFrames, StepPart, StepResult
from feed_assets.instances.steps.plans import Basis, FormerSteps, plan_steps
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.log.records import ProcessKey
from feed_assets.plan.rendering import counted
from feed_assets.sql.errors import FencedOutError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsEngine(Engine):
    """Runs the steps of one attempt. `on_end` is told each step, kept ones too, with its seconds and its frames."""

    context: AttemptContext
    leased: Leased
    workflow: Workflow
    basis: Basis
    on_end: Callable[[str, float, Sequence[StepPart]], None]

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        done: dict[str, StepResult] = {}
        reports: dict[str, OutputReport] = {}
        details: dict[str, str] = {}
        reported = ReportedMetadata()
        for run in self._begin_attempt(work):
            if run.status is StepStatus.KEPT:
                done[run.step] = StepResult.of(run)
                self.on_end(f"{run.step}, kept from attempt {run.made_in},", _seconds(run), done[run.step].parts)
                details[f"step {run.step}"] = f"kept from attempt {run.made_in}"
                reported = reported.then(done[run.step].reported)
                continue
            watch = Stopwatch()
            part = self._work_of(run, work, done)
            report = self._run_step(run, part, reports, session)
            reports |= {output.name: output for output in report.outputs} if _is_last(part) else {}
            done[run.step] = self._finish(run, part, report)
            reported = reported.then(report.reported)
            self.on_end(run.step, watch.seconds, done[run.step].parts)
            details[f"step {run.step}"] = f"{watch.seconds:.1f} s, {_describe(done[run.step])}"
            if (code := find_code_digest(part)) is not None:
                details[f"code of {run.step}"] = code
        return WorkReport(outputs=self._all_outputs(work, reports), details=details, reported=reported)

    def _begin_attempt(self, work: Work) -> list[StepRun]:
        """Record the steps of the attempt: those that are kept, and those to run; return them in order."""
        key, frames = ProcessKey(work.process, work.cluster, work.nominal_time), StepFrames.of(self.context)
        with self.context.database.read() as connection:
            former = FormerSteps.load(connection, key, work.attempt)
        runs = plan_steps(self.workflow.steps, key, work.attempt, self.basis, former, frames.find_loss)
        with self.context.database.begin() as connection:
            self.leased.check_in(connection)
            Steps(connection).add(runs)
        kept = {run.step for run in runs if run.status is StepStatus.KEPT}
        frames.discard(run for run in former.runs if run.step not in kept)
        return runs

    def _work_of(self, run: StepRun, work: Work, done: Mapping[str, StepResult]) -> Work:
        """Return a step as a work, with a new staging for its frames unless it is a last one."""
        step = self.workflow.steps[run.step]
        is_last = run.step in last_steps(self.workflow.steps)
        place = StepPlace(name=run.step, frames_url=None if is_last else StepFrames.of(self.context).stage(run))
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
        with self.context.database.begin() as connection:
            self.leased.check_in(connection)
            if not Steps(connection).begin(run.key, run.attempt, run.step, self.context.clock.now()):
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
        with suppress(FencedOutError), self.context.database.begin() as connection:
            self.leased.check_in(connection)
            Steps(connection).end(run, status, self.context.clock.now(), reason=reason)
        StepFrames.of(self.context).discard([replace(run, status=status)])

    def _finish(self, run: StepRun, part: Work, report: WorkReport) -> StepResult:
        """Record that a step has finished. Its frames are complete now, and count from now on."""
        result = StepFrames.of(self.context).describe(run, part, report)
        with self.context.database.begin() as connection:
            self.leased.check_in(connection)
            Steps(connection).end(run, StepStatus.SUCCEEDED, self.context.clock.now(), frames=result.render())
        return result

    def _all_outputs(self, work: Work, reports: Mapping[str, OutputReport]) -> tuple[OutputReport, ...]:
        missing = [target.name for target in work.outputs if target.name not in reports and not target.optional]
        if missing:
            last = ", ".join(name for name in self.workflow.steps if name in last_steps(self.workflow.steps))
            raise OutputMismatchError(
                subject=f"process {work.process!r}",
                reason=f"its last steps ({last}) have not yielded the output {', '.join(missing)}",
                next_step="Let one of them yield a frame of this name.",
            )
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
