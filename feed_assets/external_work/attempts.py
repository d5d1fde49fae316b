"""Follow an attempt elsewhere by the steps that its program names, with the stagings of its outputs.

A call out of turn is refused, and moves nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.operation import AttemptContext
from feed_assets.external_work.taking import find_governing, init_command, refuse
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.json_form import NominalTime
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.masking import get_logger
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import is_content
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import StagingPlace
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.errors import BatchRefusedError

_STARTABLE = (StepStatus.PENDING, StepStatus.FAILED)
_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAtWork:
    """A batch at which a program works elsewhere; `runs` are the steps of all its attempts."""

    active: ActiveRelease
    row: ProcessInstance
    runs: tuple[StepRun, ...]

    @property
    def record(self) -> ProcessRecord:
        """The process."""
        return self.active.record

    @property
    def steps(self) -> tuple[StepRun, ...]:
        """The steps of the attempt, in order."""
        return tuple(run for run in self.runs if run.attempt == self.row.attempt)

    def refuse(self, reason: str, next_step: str) -> BatchRefusedError:
        """Return the refusal of a call about this batch."""
        return refuse(self.record, f"batch {render_datetime(self.row.nominal_time)}: {reason}", next_step)

    def start(self, step: str) -> str:
        """Return the call that begins a step."""
        return command_line("batch", "step-start", self.record.process, step, **self._named)

    def finish(self, step: str) -> str:
        """Return the call that ends a step."""
        return command_line("batch", "step-end", self.record.process, step, **self._named)

    def give_up(self, step: str) -> str:
        """Return the call that says that a step has failed."""
        return command_line("batch", "step-fail", self.record.process, step, **self._named)

    def end(self) -> str:
        """Return the call that ends the batch."""
        return command_line("batch", "end", self.record.process, **self._named)

    def fail(self) -> str:
        """Return the call that says that the batch has failed."""
        return command_line("batch", "fail", self.record.process, **self._named)

    @property
    def _named(self) -> dict[str, str | datetime]:
        """The options that name the batch."""
        of_several: dict[str, str | datetime] = {"batch": self.row.nominal_time} if self.record.parallel > 1 else {}
        return {"cluster": self.record.cluster, **of_several}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStaging:
    """The staging of one output: the feed instance that it becomes, and its store."""

    edge: OutputEdge
    record: FeedRecord
    nominal_time: NominalTime
    store: InstanceStore
    token: str

    @property
    def path(self) -> str:
        """The path of the instance."""
        return self.record.path(self.nominal_time)

    @property
    def url(self) -> str:
        """Where the program puts the files."""
        return self.store.staging_url(self.path, self.token)

    @property
    def place(self) -> StagingPlace:
        """The staging, for its publication or removal."""
        return StagingPlace(path=self.path, token=self.token, url=self.url, local_path=Path())

    @property
    def is_empty(self) -> bool:
        """Whether the program has put nothing there that readers see."""
        staged = self.store.staged_files(self.path, self.token)
        return not any(is_content(file, self.record.flag) for file in staged)


def find_stagings(context: AttemptContext, batch: BatchAtWork, attempt: int | None = None) -> tuple[OutputStaging, ...]:
    """Return the stagings of the attempt at a batch, or of an earlier one."""
    number = batch.row.attempt if attempt is None else attempt
    token = f"batch.{batch.record.process}.{find_origin(batch.runs, number)}"
    plan, stores = batch.active.plan, context.stores
    return tuple(
        OutputStaging(edge=edge, record=feed, nominal_time=time, store=stores.get(feed.store), token=token)
        for edge in batch.record.outputs
        if (time := plan.output_time(edge, batch.row.nominal_time)) is not None and (feed := plan.feeds[edge.feed_key])
    )


def stage_outputs(context: AttemptContext, batch: BatchAtWork) -> tuple[OutputStaging, ...]:
    """Return the stagings of an attempt that has just begun; they are made, unless it goes on in those of another."""
    stagings = find_stagings(context, batch)
    if find_origin(batch.runs, batch.row.attempt) == batch.row.attempt:
        for each in stagings:
            each.store.stage(each.path, each.token)
    return stagings


def discard_stagings(stagings: Iterable[OutputStaging]) -> None:
    """Remove stagings. What cannot be removed now is left to the sweep of stagings."""
    for staging in stagings:
        try:
            staging.store.discard(staging.place)
        except StorageError as exc:
            _logger.warning("the staging of feed '%s' at %s is left: %s", staging.edge.feed, staging.url, exc)


def find_origin(runs: Sequence[StepRun], attempt: int) -> int:
    """Return the attempt that has made the stagings of an attempt: the newest up to it that keeps no steps."""
    keeping = {run.attempt for run in runs if run.status is StepStatus.KEPT}
    return next(number for number in range(attempt, 0, -1) if number not in keeping)


def find_at_work(
    connection: Connection, timeline: ReleaseTimeline, record: ProcessRecord, nominal_time: datetime | None
) -> BatchAtWork:
    """Return the batch of a process at which a program works: the named one, else the only one.

    Raises:
        BatchRefusedError: none is under way, several are and none is named, or the named one is not.
    """
    instances = ProcessInstances(connection)
    at_work = [row for row in instances.unended(*record.key) if row.status is ProcessInstanceStatus.RUNNING]
    if nominal_time is not None:
        at_work = [row for row in at_work if row.nominal_time == nominal_time]
    if len(at_work) == 1:
        row = at_work[0]
        active = find_governing(connection, timeline, record, row.nominal_time)
        return BatchAtWork(active=active, row=row, runs=tuple(Steps(connection).of(row.key)))
    if at_work:
        times = ", ".join(render_datetime(row.nominal_time) for row in at_work)
        raise refuse(record, f"several batches are under way: {times}", "Name one with --batch.")
    begin = f"Take one first: {init_command(record)}"
    if nominal_time is None:
        raise refuse(record, "no batch is under way", begin)
    found = instances.get(*record.key, nominal_time)
    status = "not known" if found is None else f"{found.status.value}, and not under way"
    raise refuse(record, f"batch {render_datetime(nominal_time)} is {status}", begin)


def require_step(record: ProcessRecord, name: str) -> None:
    """Raise BatchRefusedError unless a process has a step of this name."""
    steps = record.workflow.steps if record.workflow is not None else {}
    if name not in steps:
        known = f"Its steps are {', '.join(steps)}." if steps else "Declare it below workflow.steps."
        raise refuse(record, f"it has no step {name!r}", known)


def begin_step(connection: Connection, batch: BatchAtWork, name: str, now: datetime) -> None:
    """Record that a step begins, or begins once more after it has failed in this attempt.

    Raises:
        BatchRefusedError: it has begun or ended already, or a step before it has not been done.
    """
    run = _find(batch, name)
    if run.status is StepStatus.RUNNING:
        raise batch.refuse(f"step {name!r} is already under way", f"End it: {batch.finish(name)}")
    if run.status not in _STARTABLE:
        kept = f", kept from attempt {run.made_in}" if run.status is StepStatus.KEPT else ""
        raise batch.refuse(f"step {name!r} has ended already{kept}", _next_of(batch))
    before = {each.step: each for each in batch.steps}
    for other in batch.record.workflow.steps[name].after if batch.record.workflow is not None else ():
        if not before[other].is_done:
            reason = f"step {name!r} comes after {other!r}, which is {before[other].status.value}"
            raise batch.refuse(reason, f"Begin with that: {batch.start(other)}")
    steps = Steps(connection)
    begin = steps.begin if run.status is StepStatus.PENDING else steps.begin_again
    if not begin(run.key, run.attempt, name, now):
        raise batch.refuse(f"step {name!r} is already under way", "Somebody has begun it just now.")


def end_step(
    connection: Connection, batch: BatchAtWork, name: str, status: StepStatus, now: datetime, reason: str | None = None
) -> None:
    """Record how a step under way ended.

    Raises:
        BatchRefusedError: it is not under way.
    """
    run = _find(batch, name)
    if run.status is not StepStatus.RUNNING or not Steps(connection).end(run, status, now, reason=reason):
        start = f"Begin it first: {batch.start(name)}"
        raise batch.refuse(f"step {name!r} is not under way, it is {run.status.value}", start)


def require_no_step_under_way(batch: BatchAtWork) -> None:
    """Raise BatchRefusedError if a step is under way."""
    for run in batch.steps:
        if run.status is StepStatus.RUNNING:
            end = f"End it with `{batch.finish(run.step)}` or `{batch.give_up(run.step)}`."
            raise batch.refuse(f"step {run.step!r} is still under way", end)


def require_steps_done(batch: BatchAtWork) -> None:
    """Raise BatchRefusedError if a step has failed, or has not been done."""
    for run in batch.steps:
        if run.status is StepStatus.FAILED:
            again = f"Do it again with `{batch.start(run.step)}`, or give up with `{batch.fail()}`."
            raise batch.refuse(f"step {run.step!r} has failed", again)
    for run in batch.steps:
        if not run.is_done:
            raise batch.refuse(f"step {run.step!r} has not been done", _next_of(batch))


def next_step(steps: Collection[StepRun]) -> str | None:
    """Return the step that is to be done next; None if all have been done."""
    return next((run.step for run in steps if not run.is_done), None)


def _find(batch: BatchAtWork, name: str) -> StepRun:
    require_step(batch.record, name)
    found = next((run for run in batch.steps if run.step == name), None)
    if found is None:
        reason = f"step {name!r} is new: this attempt has begun before it was declared"
        raise batch.refuse(reason, f"Take the batch again: {batch.fail()}")
    return found


def _next_of(batch: BatchAtWork) -> str:
    name = next_step(batch.steps)
    return f"Go on: {batch.end() if name is None else batch.start(name)}"
