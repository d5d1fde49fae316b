"""Work elsewhere: take a batch in one transaction, and follow its attempt by the steps that its program names, with the
stagings of its outputs.

A batch is one that is to be done again, with the same events, or a new one, cut by the same decision as the batches
that a tick cuts. A call out of turn is refused, and moves nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from feed_assets.command_lines import command_line, instance_command
from feed_assets.context.operation import AttemptContext
from feed_assets.entities.common import Kind
from feed_assets.entities.workflow import Workflow
from feed_assets.errors import Fault
from feed_assets.instances.attempts.attempt_inputs import freeze_inputs
from feed_assets.instances.attempts.attempts import begin_attempt
from feed_assets.instances.errors import OutputOutsideValidityError
from feed_assets.instances.steps.engine import FormerSteps, build_basis, plan_steps
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.json_form import NominalTime
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import Schedules, state_without_row
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Attempt, EntityKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.log.run_names import describe_run
from feed_assets.masking import get_logger
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord, steps_of
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.storage.errors import StorageError
from feed_assets.storage.paths import is_content
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import StagingPlace
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import decide_batch, find_routed, is_followed
from feed_assets.triggers.cuts import apply_cuts
from feed_assets.triggers.decide_firing import describe_lacking
from feed_assets.triggers.errors import BatchRefusedError
from feed_assets.triggers.input_windows import InputState, check_gate, closed_gates, input_states
from feed_assets.triggers.queue.inputs import PendingEvents, TriggerInputs
from feed_assets.triggers.queue.store import Triggers

_AT_WORK = (ProcessInstanceStatus.RUNNING, ProcessInstanceStatus.SUSPENDED)
_TAKEN_AGAIN = (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY)


def refuse(record: ProcessRecord, reason: str, next_step: str, fault: Fault = Fault.STATE) -> BatchRefusedError:
    """Return the refusal of a call about a batch of a process."""
    return BatchRefusedError(
        process=record.process, cluster=record.cluster, reason=reason, next_step=next_step, fault=fault
    )


def init_command(record: ProcessRecord) -> str:
    """Return the call that takes a batch of a process."""
    return command_line("batch", "init", record.process, cluster=record.cluster)


def take_batch(
    connection: Connection,
    timeline: ReleaseTimeline,
    record: ProcessRecord,
    run_id: str,
    as_of: datetime,
    *,
    most: int | None = None,
) -> ProcessKey | None:
    """Begin an attempt at the oldest batch that is to be done again, else at a new one; None if none may be cut yet.

    Args:
        connection: a write transaction with the lock of the queues.
        timeline: the releases, of the same moment.
        record: the current declaration of the process.
        run_id: the name of the attempt's program.
        as_of: the time of the data.
        most: a new batch takes so many of the oldest events of each input; None for what the trigger says.

    Raises:
        BatchRefusedError: the process is not scheduled, as many batches as may be are under way, or an instance of a
            window is missing.
        OutputOutsideValidityError: an output's feed has no instance for the batch.
    """
    _require_schedule(connection, record)
    instances = ProcessInstances(connection)
    unended = instances.unended(*record.key)
    at_work = [row for row in unended if row.status in _AT_WORK]
    _require_free(record, at_work)
    again = [row for row in unended if row.status in _TAKEN_AGAIN and row.request_key is None]
    again += instances.with_status(ProcessInstanceStatus.FAILED, *record.key, limit=1)
    closed: list[InputState] = []
    for row in sorted(again, key=lambda row: row.nominal_time):
        active = find_governing(connection, timeline, record, row.nominal_time)
        states, lacking = check_gate(connection, active.plan, active.record, row, as_of)
        closed += lacking
        ready = ProcessInstanceStatus.READY  # so that nobody else changes it before the transaction ends
        if not lacking and instances.transition(row.key, {row.status}, status=ready, updated_at=as_of):
            return _begin(connection, active, row.key, states, run_id, as_of)
    if len(again) + len(at_work) >= record.parallel:
        raise _missing(record, closed)
    key = _cut(connection, timeline.plan, record, most, as_of)
    if key is None:
        return None
    active = find_governing(connection, timeline, record, key.nominal_time)
    states = input_states(connection, active.plan, active.record, [key.nominal_time], as_of)[key.nominal_time]
    if missing := closed_gates(states):
        raise _missing(record, missing)
    return _begin(connection, active, key, states, run_id, as_of)


def _require_schedule(connection: Connection, record: ProcessRecord) -> None:
    schedule = Schedules(connection).of(Kind.PROCESS, record.process).get(record.cluster)
    state = schedule.state if schedule is not None else state_without_row(connection)
    if state is not ScheduleState.SCHEDULED:
        subject = (Kind.PROCESS.value, record.process)
        is_suspended = state is ScheduleState.SUSPENDED
        command = (
            command_line("entity", "resume", *subject) if is_suspended else command_line("entity", "schedule", *subject)
        )
        raise refuse(record, f"it is {state.value.lower()}, so no batch is taken", f"Let it go on: {command}")


def _require_free(record: ProcessRecord, at_work: Sequence[ProcessInstance]) -> None:
    if len(at_work) < record.parallel:
        return
    row = at_work[0]
    who = f"{describe_run(row.run_id)}, attempt {row.attempt}"
    more = f" ({len(at_work)} of {record.parallel})" if record.parallel > 1 else ""
    end = command_line("batch", "fail", record.process, cluster=record.cluster, batch=row.nominal_time)
    kill = instance_command("kill", record.process, row.nominal_time, record.cluster)
    raise refuse(
        record,
        f"batch {render_datetime(row.nominal_time)} is already under way: {who}, {row.status.value}{more}",
        f"End it first. If its program is gone, `{end}` lets the next one take its events, and `{kill}` gives it up.",
    )


def _missing(record: ProcessRecord, closed: Sequence[InputState]) -> BatchRefusedError:
    reason = describe_lacking(closed) or "as many batches as may be wait for their runs"
    return refuse(record, reason, f"Take a batch when that is over: {command_line('why', record.process)}")


def find_governing(
    connection: Connection, timeline: ReleaseTimeline, record: ProcessRecord, nominal_time: datetime
) -> ActiveRelease:
    """Return the definitions that govern a batch; the current ones, if those did not let it run elsewhere."""
    active = timeline.find_or_declared(connection, record.key, nominal_time)
    if active is None or not active.record.is_elsewhere:
        return ActiveRelease.whole(timeline.plan, record.key)
    return active


def _cut(
    connection: Connection, plan: Plan, record: ProcessRecord, most: int | None, as_of: datetime
) -> ProcessKey | None:
    """Cut a batch from what is pending; None if the trigger does not let one be cut."""
    consumer = EntityKey(*record.key)
    state = Triggers(connection).of([consumer]).get(consumer)
    if state is None or not is_followed(record, state):
        return None
    marks = TriggerInputs(connection).of([consumer]).get(consumer, {})
    events = PendingEvents(connection, find_routed(connection, record.cluster), [consumer])
    times, cut = decide_batch(record, state, marks, 0, events, as_of, is_called=True, most=most)
    if cut is None:
        return None
    Triggers(connection).set_times([times])
    (key,) = apply_cuts(connection, plan, [cut], as_of)
    return key


def _begin(
    connection: Connection,
    active: ActiveRelease,
    key: ProcessKey,
    states: tuple[InputState, ...],
    run_id: str,
    as_of: datetime,
) -> ProcessKey:
    record = active.record
    for edge in record.outputs:
        if active.plan.output_time(edge, key.nominal_time) is None:
            raise OutputOutsideValidityError(
                process=edge.process, output=edge.name, feed=edge.feed, nominal_time=key.nominal_time
            )
    attempt = begin_attempt(connection, record, key.nominal_time, run_id, as_of, active.release).attempt
    frozen = freeze_inputs(connection, key, states, {}, as_of)
    workflow = record.work
    if isinstance(workflow, Workflow) and workflow.steps:
        former = FormerSteps.load(connection, key, attempt)
        basis = build_basis(record, workflow, frozen)
        Steps(connection).add(plan_steps(workflow.steps, key, attempt, basis, former))
    return key


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

    @property
    def next_step(self) -> str | None:
        """The step that is to be done next; None if all have been done."""
        return next((run.step for run in self.steps if not run.is_done), None)

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


def stage_outputs(context: AttemptContext, batch: BatchAtWork, *, is_again: bool) -> tuple[OutputStaging, ...]:
    """Return the stagings of an attempt that has just begun; they are made, unless it goes on in those of another. If
    they may have been made already, `is_again`, their files are kept.
    """
    stagings = find_stagings(context, batch)
    if find_origin(batch.runs, batch.row.attempt) == batch.row.attempt:
        for each in stagings:
            each.store.stage(each.path, each.token, is_again=is_again)
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
    connection: Connection,
    timeline: ReleaseTimeline,
    record: ProcessRecord,
    nominal_time: datetime | None,
    attempt: int | None = None,
) -> BatchAtWork:
    """Return the batch of a process at which a program works: the named one, else the only one; in the named attempt.

    Raises:
        BatchRefusedError: none is under way, several are and none is named, or the named one is not.
    """
    instances = ProcessInstances(connection)
    at_work = [row for row in instances.unended(*record.key) if row.status is ProcessInstanceStatus.RUNNING]
    if nominal_time is not None:
        at_work = [row for row in at_work if row.nominal_time == nominal_time]
    if attempt is not None:
        at_work = [row for row in at_work if row.attempt == attempt]
    if len(at_work) == 1:
        row = at_work[0]
        active = find_governing(connection, timeline, record, row.nominal_time)
        return BatchAtWork(active=active, row=row, runs=tuple(Steps(connection).of(row.key)))
    if at_work:
        times = ", ".join(render_datetime(row.nominal_time) for row in at_work)
        raise refuse(record, f"several batches are under way: {times}", "Name one with --batch.")
    begin = f"Take one first: {init_command(record)}"
    if nominal_time is None:
        raise refuse(record, f"no batch is under way{'' if attempt is None else f' in attempt {attempt}'}", begin)
    found = instances.get(*record.key, nominal_time)
    status = "not known" if found is None else _describe_ended(connection, found, attempt)
    fault = Fault.MISSING if found is None else Fault.STATE
    raise refuse(record, f"batch {render_datetime(nominal_time)} is {status}", begin, fault)


def _describe_ended(connection: Connection, row: ProcessInstance, attempt: int | None) -> str:
    number, is_at_work = attempt or row.attempt, row.status is ProcessInstanceStatus.RUNNING
    found = next((each for each in Attempts(connection).of(row.key) if each.attempt == number), None)
    how = f"attempt {number} has not begun" if found is None else _describe_attempt(found)
    return f"{row.status.value}, and {f'under way in attempt {row.attempt}' if is_at_work else 'not under way'}; {how}"


def _describe_attempt(attempt: Attempt) -> str:
    why = f" ({attempt.reason})" if attempt.reason else ""
    return f"attempt {attempt.attempt}, {describe_run(attempt.run_id)}, is {attempt.status.value}{why}"


def find_taken(connection: Connection, record: ProcessRecord, key: str, run_id: str) -> ProcessKey | None:
    """Return the batch that a call with a key has taken, as an attempt with this name; None if it has taken none.

    Raises:
        BatchRefusedError: it is one of another process, or that attempt has ended.
    """
    attempt = next(iter(Attempts(connection).of_run(run_id)), None)
    if attempt is None:
        return None
    if attempt.ended_at is None and attempt.key[:2] == record.key:
        return attempt.key
    batch = f"batch {render_datetime(attempt.nominal_time)} of process {attempt.process!r} on {attempt.cluster}"
    reason = f"the key {key!r} has taken {batch}: {_describe_attempt(attempt)}"
    raise refuse(record, reason, "Give the next one another key.")


def require_step(record: ProcessRecord, name: str) -> None:
    """Raise BatchRefusedError unless a process has a step of this name."""
    steps = steps_of(record.work)
    if name not in steps:
        known = f"Its steps are {', '.join(steps)}." if steps else "Declare it below workflow.steps."
        raise refuse(record, f"it has no step {name!r}", known, Fault.MISSING)


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
    for other in steps_of(batch.record.work)[name].after:
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


def _find(batch: BatchAtWork, name: str) -> StepRun:
    require_step(batch.record, name)
    found = next((run for run in batch.steps if run.step == name), None)
    if found is None:
        reason = f"step {name!r} is new: this attempt has begun before it was declared"
        raise batch.refuse(reason, f"Take the batch again: {batch.fail()}")
    return found


def _next_of(batch: BatchAtWork) -> str:
    name = batch.next_step
    return f"Go on: {batch.end() if name is None else batch.start(name)}"
