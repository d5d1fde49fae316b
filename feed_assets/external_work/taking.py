"""Take a batch for work elsewhere: one that is to be done again, with the same events, or a new one.

A new one is cut from what is pending, by the same decision as the batches that a tick cuts. Everything is one
transaction: a refusal moves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.command_lines import command_line, instance_command
from feed_assets.entities.common import Kind
from feed_assets.instances.attempts.attempt_inputs import freeze_inputs
from feed_assets.instances.attempts.attempts import begin_attempt
from feed_assets.instances.errors import OutputOutsideValidityError
from feed_assets.instances.steps.plans import FormerSteps, build_basis, plan_steps
from feed_assets.instances.steps.store import Steps
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.log.run_names import describe_run
from feed_assets.plan.records import ProcessRecord
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import pending_of
from feed_assets.triggers.cuts import apply_cuts, decide_cut
from feed_assets.triggers.decide_firing import decide_fire, describe_lacking
from feed_assets.triggers.errors import BatchRefusedError
from feed_assets.triggers.input_windows import InputState, check_gate, closed_gates, input_states
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.store import Triggers
from feed_assets.triggers.routing import find_routed

_AT_WORK = (ProcessInstanceStatus.RUNNING, ProcessInstanceStatus.SUSPENDED)
_TAKEN_AGAIN = (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY)


def refuse(record: ProcessRecord, reason: str, next_step: str) -> BatchRefusedError:
    """Return the refusal of a call about a batch of a process."""
    return BatchRefusedError(process=record.process, cluster=record.cluster, reason=reason, next_step=next_step)


def init_command(record: ProcessRecord) -> str:
    """Return the call that takes a batch of a process."""
    return command_line("batch", "init", record.process, cluster=record.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBatch:
    """A batch at which an attempt has begun elsewhere, by the definitions that govern it; `states` are its inputs."""

    active: ActiveRelease
    key: ProcessKey
    attempt: int
    run_id: str
    states: tuple[InputState, ...]


def take_batch(
    connection: Connection,
    timeline: ReleaseTimeline,
    record: ProcessRecord,
    run_id: str,
    as_of: datetime,
    *,
    most: int | None = None,
    without_row: ScheduleState,
) -> TakenBatch | None:
    """Begin an attempt at the oldest batch that is to be done again, else at a new one; None if none may be cut yet.

    Args:
        connection: a write transaction with the lock of the queues.
        timeline: the releases, of the same moment.
        record: the current declaration of the process.
        run_id: the name of the attempt's program.
        as_of: the time of the data.
        most: a new batch takes so many of the oldest events of each input; None for what the trigger says.
        without_row: the state of processes that have no schedule.

    Raises:
        BatchRefusedError: the process is not scheduled, as many batches as may be are under way, or an instance of a
            window is missing.
        OutputOutsideValidityError: an output's feed has no instance for the batch.
    """
    _require_schedule(connection, record, without_row)
    unended = ProcessInstances(connection).unended(*record.key)
    at_work = [row for row in unended if row.status in _AT_WORK]
    _require_free(record, at_work)
    again = [row for row in unended if row.status in _TAKEN_AGAIN and row.request_key is None]
    again += ProcessInstances(connection).with_status(ProcessInstanceStatus.FAILED, *record.key, limit=1)
    closed: list[InputState] = []
    for row in sorted(again, key=lambda row: row.nominal_time):
        active = find_governing(connection, timeline, record, row.nominal_time)
        states, lacking = check_gate(connection, active.plan, active.record, row, as_of)
        closed += lacking
        if not lacking and _claim(connection, row, as_of):
            return _begin(connection, active, row.key, states, run_id, as_of)
    if len(again) + len(at_work) >= record.parallel:
        raise _missing(record, closed)
    key = _cut(connection, record, most, as_of)
    if key is None:
        return None
    active = find_governing(connection, timeline, record, key.nominal_time)
    states = input_states(connection, active.plan, active.record, [key.nominal_time], as_of)[key.nominal_time]
    if missing := closed_gates(states):
        raise _missing(record, missing)
    return _begin(connection, active, key, states, run_id, as_of)


def _require_schedule(connection: Connection, record: ProcessRecord, without_row: ScheduleState) -> None:
    schedule = (
        Schedules(connection).of_many(Kind.PROCESS.value, {record.process}).get((Kind.PROCESS.value, *record.key))
    )
    state = schedule.state if schedule is not None else without_row
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


def _claim(connection: Connection, row: ProcessInstance, as_of: datetime) -> bool:
    """Let nobody else change a batch before the transaction ends; return whether somebody has just done so."""
    ready = ProcessInstanceStatus.READY
    return ProcessInstances(connection).transition(row.key, {row.status}, status=ready, updated_at=as_of)


def _cut(connection: Connection, record: ProcessRecord, most: int | None, as_of: datetime) -> ProcessKey | None:
    """Cut a batch from what is pending; None if the trigger does not let one be cut."""
    trigger, consumer = record.trigger, EntityKey(*record.key)
    state = Triggers(connection).of([consumer]).get(consumer)
    if trigger is None or state is None or state.sign != trigger.sign:
        return None
    marks = TriggerInputs(connection).of([consumer]).get(consumer, {})
    events = PendingEvents(connection, find_routed(connection, record.cluster), [consumer])
    pending = pending_of(record, trigger, marks, events, as_of)
    decision = decide_fire(record, trigger, pending, state, as_of)
    if decision.fire is None:
        return None
    shares = [(each, pending[each.name].mark) for each in trigger.inputs if each.name in pending]
    limited = trigger if most is None else replace(trigger, max_events=most)
    cut = decide_cut(record, limited, shares, events)
    wake_at = as_of if cut.leaves_any else decision.wake_at
    times = replace(state, next_at=decision.next_at, by_at=decision.by_at, wake_at=wake_at)
    Triggers(connection).set_times([times])
    (key,) = apply_cuts(connection, [cut], as_of)
    return key


def _begin(
    connection: Connection,
    active: ActiveRelease,
    key: ProcessKey,
    states: tuple[InputState, ...],
    run_id: str,
    as_of: datetime,
) -> TakenBatch:
    record = active.record
    for edge in record.outputs:
        if active.plan.output_time(edge, key.nominal_time) is None:
            raise OutputOutsideValidityError(
                process=edge.process, output=edge.name, feed=edge.feed, nominal_time=key.nominal_time
            )
    attempt = begin_attempt(connection, record, key.nominal_time, run_id, as_of, active.release).attempt
    frozen = freeze_inputs(connection, key, states, {}, as_of)
    workflow = record.workflow
    if workflow is not None and workflow.steps:
        former = FormerSteps.load(connection, key, attempt)
        basis = build_basis(record, workflow, frozen)
        Steps(connection).add(plan_steps(workflow.steps, key, attempt, basis, former))
    return TakenBatch(active=active, key=key, attempt=attempt, run_id=run_id, states=states)
