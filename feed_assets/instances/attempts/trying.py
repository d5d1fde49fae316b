"""Try the work of an instance on its real inputs: its outputs are staged, judged, and compared with what is published.

Nothing is published or recorded. What is staged lies where attempts stage, and is removed in the end; what a killed
trial leaves goes with the sweep of stagings.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from feed_assets.clock import Stopwatch
from feed_assets.context.operation import AttemptContext, OperationContext
from feed_assets.engines.data.differences import ColumnDifference, Difference, compare_columns, compare_rows
from feed_assets.engines.data.frames import read_input
from feed_assets.engines.data.tables import read_staged_partition
from feed_assets.engines.errors import EngineError
from feed_assets.engines.failures import render_cause
from feed_assets.engines.port import Engine, InputInstance, OutputReport, Work
from feed_assets.engines.registry import open_engine
from feed_assets.engines.spark.addresses import check_spark_remote
from feed_assets.engines.spark.sessions import YARN_QUEUE, open_session, session_conf, start_session
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.entities.flow_names import describe_process
from feed_assets.entities.workflow import Workflow
from feed_assets.instances.attempts.attempt_inputs import InstanceAddresses, find_batch_events
from feed_assets.instances.attempts.attempts import look_for_inputs, new_instance
from feed_assets.instances.attempts.execution import InstanceRunner, Task
from feed_assets.instances.attempts.staged_outputs import StagedOutput
from feed_assets.instances.attempts.work_data import feed_data, output_target, with_overrides
from feed_assets.instances.errors import OutputOutsideValidityError, TryRefusedError
from feed_assets.instances.steps.engine import Basis, StepLog
from feed_assets.instances.steps.frames import StepFrames
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.json_form import NominalTime, shown
from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import read_entity_files, values_of
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstance
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.location import compile_location
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.plan.transfers import ImportRecord
from feed_assets.releases.store import PinnedWork
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import parse_instance, zone_of_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOKEN = "try-"
"""How the names of stagings of trials begin."""
_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedOutput:
    """What the work has made for an output: rows that would be published, columns, and how it differs from what is.

    `old_type` of a column is what is published, if that can be read. `note` says why there is no `difference`. The
    `quality` is in words, and `is_good` says whether it would be published by that. `message` is what its event would
    tell. It is kept at the `url`, if it is kept.
    """

    output: str
    feed: str
    instance: NominalTime
    rows: int | None
    columns: tuple[ColumnDifference, ...]
    quality: str | None
    is_good: bool
    message: Mapping[str, object]
    url: str | None
    difference: Difference | None
    note: str

    @shown
    def is_same(self) -> bool:
        """Whether it is what is published."""
        found = self.difference
        is_other = found is None or found.only_new or found.only_old or found.changed
        return not is_other and not any(each.change for each in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of an instance that was tried: the instances that it has read by input, its outputs, and what its
    work has said of entities and of itself, which is not recorded. `seconds` are those of the work alone.
    """

    process: str
    cluster: str
    instance: NominalTime
    seconds: float
    inputs: Mapping[str, int]
    outputs: tuple[TriedOutput, ...]
    said: Mapping[str, Any]

    @property
    def notes(self) -> tuple[str, ...]:
        """Where it is kept."""
        kept = [each for each in self.outputs if each.url is not None]
        return tuple(f"kept until stagings are swept: output {each.output} in {each.url}" for each in kept)

    @property
    def has_failed(self) -> bool:
        """Whether it would not be published, because of its rows."""
        return not all(each.is_good for each in self.outputs)

    @property
    def heading(self) -> str:
        """What was tried, in a sentence."""
        read = ", ".join(f"{name} ({counted(number, 'instance')})" for name, number in self.inputs.items()) or "nothing"
        subject = f"{describe_process(self.process)} at {render_datetime(self.instance)} on {self.cluster}"
        return f"{subject} has read {read}, in {self.seconds:.1f} s; nothing of it is published or recorded"


def try_instance(
    context: OperationContext,
    process: str,
    instance: str,
    *,
    cluster: str | None = None,
    entities: str | None = None,
    rows: int,
    keep: bool,
    progress: Callable[[str, int, int], None],
) -> Tried:
    """Try an instance of a process, as its definitions are now in a folder of `entities`, by default in the project.

    `rows` are the most of each kind of difference to show. With `keep`, what was made stays until the sweep of
    stagings.

    Raises:
        DefinitionsError: the folder cannot be read, or the process is not declared there, or has errors.
        InstanceError: the time is no instance of it.
        TryRefusedError: it has effects elsewhere, or there is nothing to try.
        InputsMissingError: an input is not there; nothing was begun.
        EngineError: the work has failed.
    """
    settings = context.settings
    assert settings is not None
    declared, root = (context, settings.root) if entities is None else _declared_in(context, settings, entities)
    try:
        record = declared.only_process(process, cluster)
    except EntityNotFoundError as exc:
        if entities is None:
            raise
        raise DefinitionsError(location=entities, reason=exc.reason, next_step=exc.next_step) from exc
    time = parse_instance(instance, zone_of_keys(record.sequence))
    record.sequence.index(time)
    trial = AttemptContext(
        database=context.database,
        stores=context.stores,
        clock=context.clock,
        real_clock=context.real_clock,
        plan=declared.plan,
        run_id=f"{TOKEN}{uuid4()}",
    )
    with _leaving_nothing(), ExitStack() as stack:
        return _Trial(
            context=trial,
            published=context,
            process=record,
            nominal_time=time,
            root=root,
            rows=rows,
            keep=keep,
            stack=stack,
        ).run(progress)


def _declared_in(context: OperationContext, settings: Settings, folder: str) -> tuple[OperationContext, Path]:
    """Return the context with the definitions of another folder, and the project that has their code. Variables keep
    the values of the settings in force, so that inputs are those of this project.
    """
    root, entities = _find_project(settings, Path(folder).absolute())
    try:
        files = read_entity_files(str(entities))
    except LocationUnreadableError as exc:
        raise LocationUnreadableError(
            location=exc.location, reason=exc.reason, next_step="Name another folder with --entities."
        ) from exc
    values = values_of(settings)
    location = compile_location(load_files(files, values), root, sorted(settings.notify))
    timeline = ReleaseTimeline(location.plan, values)
    return replace(context, timeline=timeline, errors=location.errors), root


def _find_project(settings: Settings, given: Path) -> tuple[Path, Path]:
    """Return the folder of a project, and that of its entities: one of them is given, and they lie as those of this
    project. A folder that lies otherwise is both.
    """
    here = Path(settings.entities_location)
    if here.is_relative_to(settings.root):
        below = here.relative_to(settings.root)
        if (given / below).exists():
            return given, given / below
        if given.parts[-len(below.parts) :] == below.parts:
            return given.parents[len(below.parts) - 1], given
    return given, given


@contextmanager
def _leaving_nothing() -> Iterator[None]:
    """Let Python write no compiled code beside that of the project, here and in workers of Spark; what code prints is
    no result.
    """
    name, before, given = "PYTHONDONTWRITEBYTECODE", sys.dont_write_bytecode, os.environ.get("PYTHONDONTWRITEBYTECODE")
    sys.dont_write_bytecode, os.environ[name] = True, "1"
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.dont_write_bytecode = before
        os.environ.pop(name) if given is None else os.environ.update({name: given})


def _require_possible(process: ProcessRecord, time: datetime, row: ProcessInstance | None) -> None:
    """Raise TryRefusedError if the work would have effects elsewhere by itself, or there is nothing to do."""
    refusals = (
        (process.is_flow, "it copies a feed as it is", "Try the process that makes the feed."),
        (bool(process.directories), "a mirror writes straight to its target", "Its plan says what it would do."),
        (isinstance(process.work, ImportRecord), "its rows come from a database", "Rerun it: the old instance stays."),
        (process.is_elsewhere, "its work runs elsewhere", "Try it there."),
        (not process.outputs, "it has no output: whatever it does, it does elsewhere", "Declare an output."),
        (not process.is_enumerated and row is None, "no batch of this time has been cut", "Name one that has been."),
    )
    for is_refused, reason, next_step in refusals:
        if is_refused:
            raise TryRefusedError(process=process.process, nominal_time=time, reason=reason, next_step=next_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TriedSteps(StepLog):
    """The steps of a trial, whose frames are discarded with its stack."""

    frames: StepFrames
    stack: ExitStack

    def add(self, runs: Sequence[StepRun]) -> None:
        self.stack.callback(self.frames.discard, [replace(run, status=StepStatus.FAILED) for run in runs])


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """A trial of one instance. `published` has the plan of what is published, `stack` removes what it stages, and
    `starts` has the seconds in which the session started.
    """

    context: AttemptContext
    published: OperationContext
    process: ProcessRecord
    nominal_time: datetime
    root: Path
    rows: int
    keep: bool
    stack: ExitStack
    starts: list[float] = field(default_factory=list)

    def run(self, progress: Callable[[str, int, int], None]) -> Tried:
        progress("looking at inputs", 0, _PARTS)
        process, time, context = self.process, self.nominal_time, self.context
        with context.database.read() as connection:
            row = ProcessInstances(connection).get(*process.key, time)
            _require_possible(process, time, row)
            events = find_batch_events(connection, process, time)
        row = row or new_instance(process, time, context.clock.now())
        states = look_for_inputs(context, process, row)
        staged = tuple(map(self._stage, process.outputs))
        runner = InstanceRunner(context=context, root=self.root, session=lambda: self.session)
        own, number = with_overrides(process, row.overrides), row.attempt + 1
        task = runner.prepare(self.stack, own, time, number, states, (), events, PinnedWork())
        progress("at work", 1, _PARTS)
        watch = Stopwatch()
        with ExitStack() as unmade:  # what fails is not kept
            for each in staged if self.keep else ():
                unmade.callback(each.store.discard, each.staging)
            report = runner.make(task, staged, partial(self._open_engine, runner, task))
            unmade.pop_all()
        seconds = round(watch.seconds - sum(self.starts), 3)
        progress("comparing", 2, _PARTS)
        reports = {output.name: output for output in report.outputs}
        return Tried(
            process=process.process,
            cluster=process.cluster,
            instance=time,
            seconds=seconds,
            inputs={state.edge.name: len(state.present) for state in states},
            outputs=tuple(self._describe(output, reports) for output in staged),
            said=report.reported.render() if report.reported else {},
        )

    def _stage(self, edge: OutputEdge) -> StagedOutput:
        """Make the staging of an output, where an attempt would make its own."""
        time = self.context.plan.output_time(edge, self.nominal_time)
        if time is None:
            raise OutputOutsideValidityError(
                process=edge.process, output=edge.name, feed=edge.feed, nominal_time=self.nominal_time
            )
        record = self.context.plan.feeds[edge.feed_key]
        store = self.context.stores.get(record.store)
        staging = store.stage(record.path(time), self.context.run_id)
        if not self.keep:
            self.stack.callback(store.discard, staging)
        return StagedOutput(edge=edge, record=record, store=store, staging=staging, nominal_time=time)

    def _open_engine(self, runner: InstanceRunner, task: Task, work: Work) -> Engine:
        if not isinstance(task.work, Workflow) or not task.work.steps:
            return open_engine(work.engine)
        frames = replace(StepFrames.of(self.context), token=self.context.run_id)
        log = _TriedSteps(frames=frames, stack=self.stack)
        return runner.open_steps(task, task.work, frames, log, Basis(definition="", inputs=""))

    @cached_property
    def session(self) -> "SparkSession":
        """The session of the work and of the comparison. If it is its own, it ends before what is staged is removed."""
        from pyspark import SparkContext

        cluster, had_one = self.context.plan.clusters[self.process.cluster], SparkContext._active_spark_context
        if cluster.spark_remote is not None:
            check_spark_remote(cluster.spark_remote)
        conf = session_conf(
            master=cluster.spark_master,
            remote=cluster.spark_remote,
            conf={**({YARN_QUEUE: self.process.queue} if self.process.queue else {}), **dict(cluster.spark_conf)},
            run_id=self.context.run_id.removeprefix(TOKEN),
            root=self.root,
            catalog=cluster.catalog,
        )
        watch = Stopwatch()
        session = start_session(conf)
        self.starts.append(watch.seconds)
        if had_one is None:
            self.stack.callback(session.stop)
        return session

    def _describe(self, output: StagedOutput, reports: Mapping[str, OutputReport]) -> TriedOutput:
        report, verdict = output.find_report(reports), output.judge(reports)
        is_left_out = output.is_left_out(reports)
        columns: tuple[ColumnDifference, ...] = ()
        difference, note = None, "the work has left it out" if is_left_out else ""
        if not is_left_out:
            if report is not None and report.judged is not None:
                output.keep(report.judged)
            try:
                spark = open_session(lambda: self.session, self.context.run_id)
                made = self._read_made(spark, output)
                columns = compare_columns(made, None)
                columns, difference = self._compare(made, self._read_published(spark, output), output.record)
                note = "" if difference is not None else "nothing is published to compare with"
            except Exception as exc:  # noqa: BLE001 - the classes of Spark's errors are many, and the work has been done
                why = str(exc) if isinstance(exc, EngineError) else f"{render_cause(exc)}."
                note = f"it cannot be compared with what is published: {why}"
        return TriedOutput(
            output=output.edge.name,
            feed=output.edge.feed,
            instance=output.nominal_time,
            rows=report.rows if report is not None else None,
            columns=columns,
            quality=verdict.summary if verdict is not None else None,
            is_good=verdict is None or verdict.is_published,
            message=report.message.payload if report is not None else {},
            url=output.staging.url if self.keep else None,
            difference=difference,
            note=note,
        )

    def _read_made(self, spark: "SparkSession", output: StagedOutput) -> "DataFrame":
        record, edge, url = output.record, output.edge, output.staging.url
        if record.table is None:
            here = InputInstance(nominal_time=output.nominal_time, url=url)
            return read_input(spark, feed_data(edge.name, record, [here]))
        target = output_target(edge.name, record, output.nominal_time, url)
        return read_staged_partition(spark, target)

    def _compare(
        self, made: "DataFrame", old: "DataFrame | None", record: FeedRecord
    ) -> tuple[tuple[ColumnDifference, ...], Difference | None]:
        """Return the columns of an output, and how it differs from what is published, if anything is."""
        columns = compare_columns(made, old)
        unique = record.quality.unique if record.quality is not None else ()
        return columns, compare_rows(made, old, columns, unique, self.rows) if old is not None else None

    def _read_published(self, spark: "SparkSession", output: StagedOutput) -> "DataFrame | None":
        edge, time = output.edge, output.nominal_time
        record = self.published.plan.feeds.get(edge.feed_key)
        with self.context.database.read() as connection:
            row = FeedInstances(connection).get(edge.feed, edge.cluster, time)
        if record is None or row is None or row.status is not FeedInstanceStatus.AVAILABLE:
            return None
        addresses = InstanceAddresses(self.context)
        self.stack.callback(addresses.close)
        found = addresses.find(edge.name, record, [time])
        keys = [name for each in found if each.partition is not None for name, _ in each.partition.values]
        return read_input(spark, feed_data(edge.name, record, found)).drop(*keys)
