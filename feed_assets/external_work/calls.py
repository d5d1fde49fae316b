"""`batch init` to `batch fail`: what programs that work elsewhere say about the batches that they take.

The calls and their order are BDRE's. Each is refused with a sentence if it comes out of turn, and then moves nothing.
"""

from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from feed_assets.catalog.run_metadata import check_reported
from feed_assets.clock import TimeBudget
from feed_assets.command_lines import command_line
from feed_assets.context.bulkheads import Unconfined
from feed_assets.context.lifecycle import AttemptContext
from feed_assets.context.operation import OperationContext, note_target
from feed_assets.context.safe_mode import Operation, require_mode
from feed_assets.engines.run_metadata import ReportedMetadata, parse_reported
from feed_assets.entities.content.event_messages import MARKING_REMEDY, EventMessage, find_marking_fault
from feed_assets.errors import describe_error
from feed_assets.external_work.attempts import (
    BatchAtWork,
    begin_step,
    end_step,
    find_at_work,
    require_no_step_under_way,
    require_step,
    require_steps_done,
)
from feed_assets.external_work.called_batches import (
    CalledBatch,
    EndedBatch,
    InitBatch,
    PublishedOutput,
    StagedOutput,
    called_fields,
    iter_inputs,
)
from feed_assets.external_work.ending import fail_batch, publish_batch, require_outputs
from feed_assets.external_work.queries import AtWork
from feed_assets.external_work.refusals import refuse
from feed_assets.external_work.stagings import find_stagings, stage_outputs
from feed_assets.external_work.taking import TakenBatch, take_batch
from feed_assets.instances.steps.records import StepStatus
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.log.run_names import name_elsewhere
from feed_assets.plan.records import ProcessRecord
from feed_assets.sql.locks import lock_queues
from feed_assets.storage.errors import StorageError
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import apply_triggers, route_all
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.waiting import describe_queues


def init_batch(
    context: OperationContext,
    process: str,
    *,
    cluster: str | None = None,
    author: str,
    most: int | None = None,
    dry_run: bool = False,
) -> InitBatch:
    """Take a batch: the oldest that is to be done again, with the same events, else a new one.

    `most` limits a new one to the oldest events of each input; it is refused if markings end the batches.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: it is on several clusters, and none is named.
        SafeModeError: safe mode is on.
        BatchRefusedError: its work runs here, it is not scheduled, a batch is under way, or nothing is to be done.
    """
    require_mode(context.database, Operation.BATCH_INIT)
    record = _find(context, process, cluster)
    if most is not None and record.trigger and any(each.until is not None for each in record.trigger.inputs):
        raise refuse(
            record, "the marking of batch.until ends its batches, and --max would cut through", "Leave out --max."
        )
    if not dry_run:
        bulkheads, budget = Unconfined(record.cluster, context.clock), TimeBudget.ample()
        apply_triggers(context.database, context.plan, record.cluster, context.as_of, budget, bulkheads, may_cut=False)
    with context.database.begin() as connection:
        lock_queues(connection)
        if dry_run:
            route_all(connection, context.plan, record.cluster, context.as_of)
        taken = _take(context, connection, record, author, most)
        events = Batches(connection).events_of(taken.key)
        batch = find_at_work(connection, context.timeline, record, taken.key.nominal_time)
        if dry_run:
            connection.rollback()
    attempt = _attempt_context(context, batch)
    try:
        stagings = find_stagings(attempt, batch) if dry_run else stage_outputs(attempt, batch)
        inputs = tuple(iter_inputs(attempt, taken, events))
    except StorageError as exc:
        if not dry_run:
            fail_batch(attempt, batch, author, describe_error(exc))
        raise
    if not dry_run:
        _note(context, batch, author, "init")
    return InitBatch(**called_fields(batch, dry_run=dry_run), inputs=inputs, outputs=tuple(map(StagedOutput, stagings)))


def start_step(context: OperationContext, at: AtWork, step: str, *, dry_run: bool = False) -> CalledBatch:
    """Record that a step of the batch under way begins.

    Raises:
        EntityNotFoundError: there is no such process.
        BatchRefusedError: it has no such step, no batch is under way, the step has begun or ended already, or one
            before it has not been done.
    """

    def change(connection: Connection, batch: BatchAtWork) -> None:
        begin_step(connection, batch, step, context.as_of)

    return _call_step(context, at, step, "begins", change, dry_run=dry_run)


def finish_step(
    context: OperationContext,
    at: AtWork,
    step: str,
    status: StepStatus,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> CalledBatch:
    """Record how a step of the batch under way ended.

    Raises:
        EntityNotFoundError: there is no such process.
        BatchRefusedError: it has no such step, no batch is under way, or the step is not.
    """

    def change(connection: Connection, batch: BatchAtWork) -> None:
        end_step(connection, batch, step, status, context.as_of, reason)

    said = "has been done" if status is StepStatus.SUCCEEDED else "has failed"
    return _call_step(context, at, step, said, change, dry_run=dry_run)


def end_batch(
    context: OperationContext,
    at: AtWork,
    *,
    author: str,
    marking: str | None = None,
    facts: str | bytes = "",
    dry_run: bool = False,
) -> EndedBatch:
    """Publish the outputs of the batch under way; `marking` is that of their events. The batch has succeeded then, and
    `facts` is what the work says of itself and of entities, as JSON.

    Raises:
        MetadataRefusedError: the facts cannot be kept.
        EntityNotFoundError: there is no such process.
        BatchRefusedError: no batch is under way; a step is under way, has failed, or has not been done; an output has
            no files; or the marking cannot be kept.
        LeaseHeldError: another command ends the batch.
    """
    record = _find(context, at.process, at.cluster)
    fault = find_marking_fault(marking)
    if fault is not None:
        raise refuse(record, fault, MARKING_REMEDY)
    with context.read() as connection:
        batch = find_at_work(connection, context.timeline, record, at.nominal_time)
    require_no_step_under_way(batch)
    require_steps_done(batch)
    attempt = _attempt_context(context, batch)
    stagings = require_outputs(attempt, batch)
    message = EventMessage(marking=marking)
    reported = (
        parse_reported(facts, partial(check_reported, context.database, context.plan))
        if facts.strip()
        else ReportedMetadata()
    )
    published = () if dry_run else publish_batch(attempt, batch, stagings, author, message, reported)
    if not dry_run:
        _note(context, batch, author, "end", **({"marking": marking} if marking else {}))
    called = called_fields(batch, "it has succeeded", ProcessInstanceStatus.SUCCEEDED, dry_run=dry_run)
    return EndedBatch(**called, published=tuple(map(PublishedOutput, published)))


def terminate_batch(
    context: OperationContext, at: AtWork, *, author: str, reason: str | None = None, dry_run: bool = False
) -> CalledBatch:
    """Record that the attempt at the batch under way has failed; the next one takes the same events.

    Raises:
        EntityNotFoundError: there is no such process.
        BatchRefusedError: no batch is under way, or a step is.
        LeaseHeldError: another command ends the batch.
    """
    record = _find(context, at.process, at.cluster)
    with context.read() as connection:
        batch = find_at_work(connection, context.timeline, record, at.nominal_time)
    require_no_step_under_way(batch)
    if not dry_run:
        fail_batch(_attempt_context(context, batch), batch, author, reason or f"failed elsewhere, says {author}")
        _note(context, batch, author, "fail", **({"reason": reason} if reason else {}))
    said = "it has failed; the next one takes the same events"
    return CalledBatch(**called_fields(batch, said, ProcessInstanceStatus.FAILED, dry_run=dry_run))


def _find(context: OperationContext, process: str, cluster: str | None) -> ProcessRecord:
    record = context.only_process(process, cluster)
    if not record.is_elsewhere:
        reason = f"its work runs here, with engine {record.engine}: no program takes its batches"
        raise refuse(record, reason, "Write workflow: {engine: external} to let it run elsewhere.")
    return record


def _take(
    context: OperationContext, connection: Connection, record: ProcessRecord, author: str, most: int | None
) -> TakenBatch:
    context.timeline.refresh(connection, context.as_of)
    run_id = name_elsewhere(author)
    taken = take_batch(
        connection,
        context.timeline,
        record,
        run_id,
        context.as_of,
        most=most,
        without_row=context.without_row,
    )
    if taken is None:
        ((queue, _),) = describe_queues(context, connection, [record])
        pending = command_line("queue", "show", record.process, cluster=record.cluster)
        raise refuse(record, f"no batch can be cut yet: {queue.sentence}", f"What is pending: {pending}")
    return taken


def _call_step(
    context: OperationContext,
    at: AtWork,
    step: str,
    said: str,
    change: Callable[[Connection, BatchAtWork], None],
    *,
    dry_run: bool,
) -> CalledBatch:
    record = _find(context, at.process, at.cluster)
    require_step(record, step)
    with context.database.begin() as connection:
        context.timeline.refresh(connection, context.as_of)
        change(connection, find_at_work(connection, context.timeline, record, at.nominal_time))
        batch = find_at_work(connection, context.timeline, record, at.nominal_time)
        if dry_run:
            connection.rollback()
    return CalledBatch(**called_fields(batch, f"step {step} {said}", dry_run=dry_run))


def _attempt_context(context: OperationContext, batch: BatchAtWork) -> AttemptContext:
    return AttemptContext(
        database=context.database,
        stores=context.stores,
        clock=context.clock,
        real_clock=context.real_clock,
        plan=batch.active.plan,
        run_id=batch.row.run_id or "",
        release=batch.active.release,
        current=context.plan,
    )


def _note(context: OperationContext, batch: BatchAtWork, author: str, verb: str, **details: str) -> None:
    target = f"batch {render_datetime(batch.row.nominal_time)} of process {batch.record.process!r}"
    note_target(
        context, author, f"batch {verb}", target, cluster=batch.record.cluster, attempt=batch.row.attempt, **details
    )
