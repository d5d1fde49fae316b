"""Run one attempt at one process instance: lease, gate, work, publication, record.

The order is the guarantee. Nothing becomes visible before the work is complete. A worker whose lease was taken over
publishes nothing. An attempt that was interrupted at any point is repeated and reaches the same result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from feed_assets.catalog.column_sets import find_column_set
from feed_assets.catalog.run_metadata import check_reported
from feed_assets.clock import Stopwatch
from feed_assets.context.operation import AttemptContext
from feed_assets.engines.errors import EngineError
from feed_assets.engines.port import (
    Engine,
    InputData,
    InputEvent,
    SubmitOptions,
    Work,
    WorkReport,
)
from feed_assets.engines.registry import open_engine
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.engines.workflow.files import find_code_digest
from feed_assets.entities.content.event_messages import EventMessage
from feed_assets.entities.process import OnTimeout
from feed_assets.entities.workflow import Workflow
from feed_assets.instances.attempts.attempt_inputs import (
    InstanceAddresses,
    find_batch_events,
    find_late_inputs,
    find_newest_event,
)
from feed_assets.instances.attempts.attempts import (
    Begun,
    HeldInstance,
    OnPublished,
    Published,
    repeat_once,
)
from feed_assets.instances.attempts.displacement import OutputPlace
from feed_assets.instances.attempts.exporting import open_export
from feed_assets.instances.attempts.marks import RecordedMarks
from feed_assets.instances.attempts.staged_outputs import (
    StagedOutput,
    Target,
    judge_targets,
    output_targets,
    publish_target,
    stage_target,
)
from feed_assets.instances.attempts.verdicts import Verdict, find_refusal
from feed_assets.instances.attempts.work_data import (
    input_data,
    job_properties,
    made_up_rows,
    text_context,
    with_inputs,
    with_overrides,
)
from feed_assets.instances.late.lateness import choose_work
from feed_assets.instances.leasing import Leased
from feed_assets.instances.steps.engine import Basis, RecordedSteps, StepLog, StepsEngine, find_basis
from feed_assets.instances.steps.frames import (
    AttemptStep,
    OnStep,
    StepFrames,
    StepKind,
    StepPart,
    discard_frames,
    measure_inputs,
)
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, Lease, ProcessInstanceStatus
from feed_assets.plan.copy_records import MirrorRecord
from feed_assets.plan.records import EngineWork, ProcessRecord, steps_of
from feed_assets.plan.transfers import ExportRecord, ImportRecord
from feed_assets.releases.store import PinnedWork, load_pinned_work
from feed_assets.storage.manifests import Publication
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.text import TextContext, render_text
from feed_assets.transfer.mirroring import MirrorEngine
from feed_assets.transfer.requests import OnProgress
from feed_assets.triggers.input_windows import InputState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ALL_TIMES = datetime(1970, 1, 1, tzinfo=UTC)
"""The nominal time of the lease that all instances of a mirror share, because they write one directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What an instance is made from: the process with the properties of this attempt, its inputs and its events.

    `states` are those of all inputs, `data` of those that have data; `late` names those whose late data count. `access`
    says how each input is read. With `pinned`, files of the release replace those that have changed.
    """

    process: ProcessRecord
    nominal_time: datetime
    attempt: int
    work: EngineWork
    states: Sequence[InputState]
    late: tuple[str, ...]
    data: tuple[InputData, ...]
    values: TextContext
    addresses: InstanceAddresses
    access: Mapping[str, str]
    events: Mapping[str, tuple[InputEvent, ...]]
    pinned: PinnedWork


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRunner:
    """Runs process instances one after the other, for one Dagster run or one simulation.

    `session` opens Spark on first use. Relative workflow files are below `root`. `engines` opens an engine by name and
    replaces the real engines. `on_report` receives the report of each successful attempt, `on_progress` the progress of
    copies, `on_step` each step of an attempt, `on_verdict` what was found about each output that is held to a quality.
    """

    context: AttemptContext
    root: Path
    session: "Callable[[], SparkSession]"
    engines: Callable[[str], Engine] | None = None
    on_report: Callable[[datetime, WorkReport], None] = lambda *_: None
    on_progress: OnProgress | None = None
    on_step: OnStep | None = None
    on_verdict: Callable[[Verdict], None] = lambda _: None

    def run(self, process: ProcessRecord, nominal_time: datetime, on_published: OnPublished) -> tuple[Published, ...]:
        """Run one instance to its end and publish its outputs.

        `on_published` is called for each output before the end of the attempt is recorded.

        Raises:
            LeaseHeldError: another run works on the instance or on one of its outputs; nothing was changed.
            NotNeededError: another run has made the instance meanwhile; nothing was changed.
            InputsMissingError: a mandatory input instance is missing; the error names the instance and its URL. What no
                tick has requested stays as it is.
            OutputOutsideValidityError: an output's feed has no instance for this nominal time.
            EngineError: the work failed. The instance is FAILED; its old outputs are unchanged.
            QualityError: the rows of an output are not good enough. The same holds, except for quarantines.
            FencedOutError: another worker took over; nothing of this attempt became visible after that.
            StateUnreachableError: the record or Dagster's storage is away. The instance stays RUNNING.
        """
        with ExitStack() as stack:
            leased = stack.enter_context(
                Leased(
                    self.context.database, self.context.real_clock, holder=self.context.run_id, cluster=process.cluster
                )
            )
            leased.acquire(f"process/{process.process}", nominal_time)
            if isinstance(process.work, MirrorRecord):
                leased.acquire(f"mirror/{process.process}", ALL_TIMES)
            held = HeldInstance(context=self.context, leased=leased, process=process, nominal_time=nominal_time)
            claims, begun = held.claim_outputs(), held.start()
            held = replace(held, process=with_overrides(process, begun.row.overrides))
            try:
                published, reported = repeat_once(partial(self._attempt, held, claims, on_published), begun)
            except Exception as exc:
                held.fail(exc)
                raise
            except BaseException:
                held.end_interrupted()
                raise
            urls = {done.output: done.url for done in published}
            held.finish(ProcessInstanceStatus.SUCCEEDED, reported=reported, published=urls)
            if process.has_steps:
                discard_frames(self.context, held.key)
            return published

    def _attempt(
        self,
        held: HeldInstance,
        claims: Mapping[str, Lease],
        on_published: OnPublished,
        stack: ExitStack,
        begun: Begun,
    ) -> tuple[tuple[Published, ...], ReportedMetadata]:
        process, nominal_time, attempt = held.process, held.nominal_time, begun.row.attempt
        began, watch = self.context.real_clock.now(), Stopwatch()
        with self.context.database.read() as connection:
            late = find_late_inputs(connection, process, nominal_time)
            pinned = load_pinned_work(connection, process, nominal_time, self.root)
            events = find_batch_events(connection, process, nominal_time)
        inputs, frozen = held.open_gate(begun.inputs)
        require_same = partial(held.require_same_versions, inputs, frozen)
        task = self.prepare(stack, process, nominal_time, attempt, inputs, late, events, pinned)
        if self.on_step is not None and process.inputs:
            with self.context.database.read() as connection:
                parts = measure_inputs(connection, inputs)
            self._tell(nominal_time, StepKind.INPUTS, watch.seconds, parts)
        targets = [stage_target(held, stack, edge, claims.get(edge.name), attempt) for edge in process.outputs]
        own = [target for target in targets if target.edge.quarantine_of is None]
        report = WorkReport(outputs=())
        if not all(target.is_adopted or target.newer for target in own) or not own:
            try:
                report = self.make(task, targets, partial(self._engine, held, task))
            except EngineError:
                require_same()  # what it was reading may have been replaced
                raise
        require_same()
        return self._publish_all(held, task, began, report, targets, on_published), report.reported

    def prepare(
        self,
        stack: ExitStack,
        process: ProcessRecord,
        nominal_time: datetime,
        attempt: int,
        inputs: Sequence[InputState],
        late: tuple[str, ...],
        events: Mapping[str, tuple[InputEvent, ...]],
        pinned: PinnedWork,
    ) -> Task:
        """Return what an instance is made from, for the `late` data of some inputs if there are any. What Spark cannot
        reach is copied, and `stack` removes the copies.
        """
        feeds, values = self.context.plan.feeds, text_context(self.context.plan, process, nominal_time)
        addresses = InstanceAddresses(self.context)
        stack.callback(addresses.close)
        data = tuple(  # newest first, as in Falcon
            input_data(state.edge, record, addresses.find(state.edge.name, record, state.present[::-1]), values)
            for state in inputs
            if (record := feeds[state.edge.feed_key]).has_data
        )
        if process.on_timeout is OnTimeout.RUN:
            data = tuple(replace(each, optional=True) for each in data)
        return Task(
            process=process,
            nominal_time=nominal_time,
            attempt=attempt,
            work=choose_work(process, late),
            states=inputs,
            late=late,
            data=data,
            values=with_inputs(values, data),
            addresses=addresses,
            access=addresses.access_modes(),
            events=events,
            pinned=pinned,
        )

    def make(self, task: Task, targets: Sequence[StagedOutput], open_with: Callable[[Work], Engine]) -> WorkReport:
        """Run the work of an instance: its outputs are staged then. Nothing is recorded or published.

        Raises:
            EngineError: the work failed.
        """
        watch = Stopwatch()
        newest = partial(find_newest_event, self.context, task.process, task.nominal_time)
        check = partial(check_reported, self.context.database, self.context.declared)
        work = replace(self._work(task, targets), newest_event=newest, check_reported=check)
        report = self._run_work(open_with(work), work, task.pinned)
        staged = (StepPart(name=output.name, rows=output.rows) for output in report.outputs)
        if not steps_of(task.work):
            self._tell(task.nominal_time, StepKind.WORK, watch.seconds, staged)
        return report

    def _publish_all(
        self,
        held: HeldInstance,
        task: Task,
        began: datetime,
        report: WorkReport,
        targets: Sequence[Target],
        on_published: OnPublished,
    ) -> tuple[Published, ...]:
        """Publish the outputs of a work that has ended: all of them, or the quarantines only.

        Raises:
            QualityError: the rows of an output are not good enough.
        """
        process, nominal_time = task.process, task.nominal_time
        reports = {output.name: output for output in report.outputs}
        left_out = [target.edge for target in targets if target.is_left_out(reports)]
        names = [edge.name for edge in left_out if edge.quarantine_of is None]
        if names:
            self._tell(nominal_time, StepKind.LEFT_OUT, 0, [StepPart(name=name) for name in names])
            newer = {f"newer {each.edge.name}": render_datetime(each.newer) for each in targets if each.newer}
            report = replace(report, details={**report.details, "left_out": ", ".join(names), **newer})
        verdicts = judge_targets(held, task.attempt, targets, reports)
        refusal = find_refusal(process.process, process.cluster, nominal_time, verdicts)
        published = []
        for target in targets:
            if target.edge in left_out or (refusal is not None and target.edge.quarantine_of is None):
                continue
            own = None if target.is_adopted else target.find_report(reports)
            if own is not None and own.judged is not None:
                target.keep(own.judged)
            message = own.message if own is not None else EventMessage()
            notes, tell = {**(own.notes if own is not None else {}), **message.notes}, partial(self._tell, nominal_time)
            manifest = publish_target(held, target, tell, task.events, notes)
            done = Published(
                record=target.record,
                output=target.edge.name,
                nominal_time=target.nominal_time,
                content=Publication.of(manifest),
                rows=own.rows if own else None,
                columns=own.columns if own else None,
                url=target.store.url(target.path),
                inputs={state.edge.name: len(state.present) for state in task.states},
                missing={state.edge.name: state.missing for state in task.states if state.missing},
                late=task.late,
                details={
                    **report.details,
                    **task.access,
                    **target.place.details,
                    **({"existing": "adopted"} if target.is_adopted else {}),
                },
                attempt=task.attempt,
                seconds=(self.context.real_clock.now() - began).total_seconds(),
                events=task.events,
                message=message,
                verdict=verdicts.get(target.edge.name),
                facts=report.reported.facts,
                column_set=find_column_set(process, target.edge, own.lineage if own else None),
            )
            payload = {"rows": done.rows, **target.place.details, **notes}
            kind, status = FeedEventKind.PRODUCED, FeedInstanceStatus.AVAILABLE
            held.record_published(target.lease, done, kind, status, payload)
            on_published(done)
            published.append(done)
        for verdict in verdicts.values():
            self.on_verdict(verdict)
        if refusal is not None:
            raise refusal
        self.on_report(nominal_time, report)
        return tuple(published)

    def _run_work(self, engine: Engine, work: Work, pinned: PinnedWork) -> WorkReport:
        """Run the work with the files of its release; the report says which code has run."""
        report = engine.run(work, self.session)
        code = find_code_digest(work)
        run = {"code": code} if code is not None else {}
        changed = {"changed_since_release": ", ".join(pinned.changed)} if pinned.changed else {}
        return replace(report, details={**report.details, **run, **changed})

    def open_steps(self, task: Task, workflow: Workflow, frames: StepFrames, log: StepLog, basis: Basis) -> Engine:
        """Return the engine of a work with steps."""
        on_end = partial(self._tell, task.nominal_time, StepKind.STEP)
        return StepsEngine(frames=frames, log=log, workflow=workflow, basis=basis, on_end=on_end)

    def _engine(self, held: HeldInstance, task: Task, work: Work) -> Engine:
        process, context, time = held.process, self.context, held.nominal_time
        if self.engines is not None:
            return self.engines(work.engine)
        match task.work:
            case Workflow(steps=steps) as workflow if steps:
                basis = find_basis(context, process, workflow, task.states, held.key)
                log = RecordedSteps(context=context, leased=held.leased)
                return self.open_steps(task, workflow, StepFrames.of(context), log, basis)
            case Workflow():
                return open_engine(work.engine)
            case MirrorRecord() as mirror:
                return MirrorEngine(
                    mirror=mirror,
                    stores=context.stores,
                    clock=context.real_clock,
                    guard=held.check,
                    clearing_of=lambda target: OutputPlace.of_mirror(context, process, time, target).clearing,
                    is_remote=context.plan.clusters[process.cluster].uses_connect,
                    on_progress=self.on_progress,
                )
            case ImportRecord() as record:
                return self._import(held, task, record)
            case ExportRecord():
                return open_export(held, self.root)
            case _:
                assert_never(task.work)

    def _import(self, held: HeldInstance, task: Task, record: ImportRecord) -> Engine:
        from feed_assets.engines.databases.reading import ImportEngine

        context, process, time = self.context, task.process, task.nominal_time
        feed = context.plan.feeds[process.outputs[0].feed_key]
        marks = RecordedMarks(held=held, attempt=task.attempt, feed=feed, addresses=task.addresses)
        return ImportEngine(
            record=record,
            datasource=context.datasource(record.datasource),
            root=self.root,
            period=(time, process.sequence.at(process.sequence.index(time) + 1)),
            marks=marks if process.reads_in_turn else None,
        )

    def _work(self, task: Task, targets: Sequence[StagedOutput]) -> Work:
        process, nominal_time, data, values = task.process, task.nominal_time, task.data, task.values
        cluster = self.context.plan.clusters[process.cluster]
        outputs = output_targets(self.context, targets, task.addresses)
        work = Work(
            process=process.process,
            cluster=process.cluster,
            nominal_time=nominal_time,
            timezone=process.sequence.timezone,
            run_id=self.context.run_id,
            attempt=task.attempt,
            inputs=data,
            outputs=outputs,
            engine=task.work.engine,
            root=self.root,
            properties=job_properties(process, values, data, outputs),
            catalog=cluster.catalog,
            pinned=task.pinned.contents,
            events=task.events,
        )
        if not isinstance(workflow := task.work, Workflow):
            return work
        submit = SubmitOptions(
            master=workflow.master or cluster.spark_master,
            deploy_mode=workflow.deploy_mode,
            main_class=workflow.main_class,
            queue=process.queue,
            args=tuple(render_text(text, values) for text in workflow.args),
            conf=dict(workflow.conf),
            more={**dict(cluster.spark_submit), **workflow.submit},
        )
        made_up = made_up_rows(workflow, [target.nominal_time for target in targets])
        return replace(work, path=workflow.path, libs=tuple(workflow.lib), submit=submit, made_up=made_up)

    def _tell(
        self, nominal_time: datetime, kind: StepKind, seconds: float, parts: Iterable[StepPart], name: str = ""
    ) -> None:
        if self.on_step is not None:
            found = tuple(parts)
            self.on_step(AttemptStep(kind=kind, nominal_time=nominal_time, seconds=seconds, parts=found, name=name))
