"""`batch init` to `batch fail`: what programs that work elsewhere say about the batches that they take.

The calls and their order are BDRE's. Each is refused with a sentence if it comes out of turn, and then moves nothing.
Nobody renews a lease while a program works elsewhere. The one on the batch is held by the command that ends it, so of
two only one publishes; and each step of the publication checks that the attempt is still the one under way.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from feed_assets.catalog.column_sets import find_column_set
from feed_assets.catalog.run_metadata import check_reported
from feed_assets.command_lines import command_line
from feed_assets.context.operation import AttemptContext, ChangeContext, OperationContext, note_target
from feed_assets.context.tick import open_tick
from feed_assets.engines.run_metadata import ReportedMetadata, parse_reported
from feed_assets.entities.content.event_messages import MARKING_REMEDY, EventMessage, find_marking_fault
from feed_assets.errors import describe_error
from feed_assets.external_work.attempts import (
    BatchAtWork,
    OutputStaging,
    begin_step,
    discard_stagings,
    end_step,
    find_at_work,
    find_stagings,
    find_taken,
    init_command,
    refuse,
    require_no_step_under_way,
    require_step,
    require_steps_done,
    stage_outputs,
    take_batch,
)
from feed_assets.external_work.called_batches import (
    CalledBatch,
    EndedBatch,
    InitBatch,
    PublishedOutput,
    StagedOutput,
    iter_inputs,
)
from feed_assets.external_work.queries import AtWork
from feed_assets.instances.attempts.attempt_inputs import find_batch_events
from feed_assets.instances.attempts.attempts import HeldInstance, Published
from feed_assets.instances.attempts.displacement import OutputPlace
from feed_assets.instances.attempts.made_from import render_taken
from feed_assets.instances.gates.reconciliation import release_dead
from feed_assets.instances.leasing import Leased
from feed_assets.instances.steps.records import StepStatus
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, Lease, ProcessInstanceStatus, ProcessKey
from feed_assets.log.run_names import name_elsewhere, name_repair
from feed_assets.plan.records import ProcessRecord
from feed_assets.sql.database import lock_for_lineage, lock_queues
from feed_assets.storage.errors import StorageError
from feed_assets.storage.manifests import Publication
from feed_assets.storage.records import Manifest
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import apply_triggers, route_all
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.waiting import describe_queues

_SAID = {
    StepStatus.RUNNING: "begins",
    StepStatus.SUCCEEDED: "has been done",
    StepStatus.FAILED: "has failed",
}


class _LeasedBatch(Leased):
    """Leases that hold only as long as the attempt at the batch is under way."""

    def __init__(self, context: AttemptContext, batch: BatchAtWork, author: str) -> None:
        super().__init__(context.database, context.real_clock, holder=name_repair(author), cluster=batch.record.cluster)
        self._database = context.database
        self._batch = batch
        time = batch.row.nominal_time
        self.instance = HeldInstance(context=context, leased=self, process=batch.record, nominal_time=time)

    def check(self, nominal_time: datetime | None = None) -> None:
        super().check(nominal_time)
        with self._database.read() as connection:
            self._require_under_way(connection)

    def check_in(self, connection: Connection, nominal_time: datetime | None = None) -> None:
        super().check_in(connection, nominal_time)
        self._require_under_way(connection)

    def _require_under_way(self, connection: Connection) -> None:
        row, now = self._batch.row, ProcessInstances(connection).get(*self._batch.row.key)
        if now is None or (now.status, now.run_id) != (ProcessInstanceStatus.RUNNING, row.run_id):
            status = "gone" if now is None else now.status.value
            reason = f"it is {status}: somebody has ended this attempt"
            raise self._batch.refuse(reason, f"Take one again: {init_command(self._batch.record)}")


def require_outputs(context: AttemptContext, batch: BatchAtWork) -> tuple[OutputStaging, ...]:
    """Return the stagings that are to be published: all but those of optional outputs without files.

    Raises:
        BatchRefusedError: another output has no files, or only hidden ones.
    """
    found = []
    for staging in find_stagings(context, batch):
        if not staging.is_empty or _is_published(staging, batch):
            found.append(staging)
        elif not staging.edge.optional:
            reason = f"its output {staging.edge.name!r} has no files, not counting hidden ones"
            raise batch.refuse(reason, f"Put them below {staging.url}, then end the batch.")
    return tuple(found)


def publish_batch(
    context: AttemptContext,
    batch: BatchAtWork,
    stagings: Sequence[OutputStaging],
    author: str,
    message: EventMessage,
    reported: ReportedMetadata,
) -> tuple[Published, ...]:
    """Publish the outputs of a batch, whose events say `message`, and record that it has succeeded and what it has
    `reported`. If this breaks off, a repetition goes on.

    Raises:
        LeaseHeldError: another command ends the batch, or writes one of its outputs.
        BatchRefusedError: somebody has killed the batch meanwhile.
        StorageError: an output cannot be published; the batch is still under way.
    """
    row = batch.row
    with _LeasedBatch(context, batch, author) as leased:
        held, claims = leased.instance, _claim(leased.instance, batch)
        published = tuple(_publish(held, batch, each, claims[each.edge.name], message) for each in stagings)
        urls = {done.output: done.url for done in published}
        held.finish(ProcessInstanceStatus.SUCCEEDED, reported=reported, published=urls)
    discard_stagings(each for attempt in range(1, row.attempt + 1) for each in find_stagings(context, batch, attempt))
    return published


def fail_batch(context: AttemptContext, batch: BatchAtWork, author: str, reason: str) -> None:
    """Record that an attempt has failed; what its finished steps have staged is kept for the next one.

    Raises:
        LeaseHeldError: another command ends the batch.
    """
    with _LeasedBatch(context, batch, author) as leased:
        _claim(leased.instance, batch)
        leased.instance.finish(ProcessInstanceStatus.FAILED, reason)
    if not any(run.is_done for run in batch.steps):
        discard_stagings(find_stagings(context, batch))


def _claim(held: HeldInstance, batch: BatchAtWork) -> dict[str, Lease]:
    """Take the leases on the batch and its outputs; those of commands of this machine that have died are free."""
    context, record, time = held.context, held.process, held.nominal_time
    entity = f"process/{record.process}"
    outputs = [(f"feed/{each.edge.feed}", record.cluster, each.nominal_time) for each in find_stagings(context, batch)]
    release_dead(context.database, [(entity, record.cluster, time), *outputs], context.real_now)
    held.leased.acquire(entity, time)
    claims = held.claim_outputs()
    held.check()
    return claims


def _publish(
    held: HeldInstance, batch: BatchAtWork, staging: OutputStaging, lease: Lease, message: EventMessage
) -> Published:
    context, row, record = held.context, batch.row, staging.record
    overrides = {**dict(batch.record.properties), **row.overrides}
    place = OutputPlace.of(context, context.origin, record, staging.nominal_time, overrides)
    done = Published(
        record=record,
        output=staging.edge.name,
        nominal_time=staging.nominal_time,
        content=Publication.of(_publish_files(held, staging, lease, place)),
        rows=None,
        url=staging.store.url(staging.path),
        inputs={each.name: len(each.nominal_times) for each in row.inputs},
        details=place.details,
        attempt=row.attempt,
        seconds=(context.real_now - (row.started_at or context.real_now)).total_seconds(),
        message=message,
        column_set=find_column_set(batch.record, staging.edge, None),
    )
    payload, status = {"rows": None, **place.details}, FeedInstanceStatus.AVAILABLE
    held.record_published(lease, done, FeedEventKind.PRODUCED, status, payload)
    return done


def _publish_files(held: HeldInstance, staging: OutputStaging, lease: Lease, place: OutputPlace) -> Manifest:
    published = staging.store.published_manifest(staging.path) if staging.is_empty else None
    if published is not None:
        return published
    extra = {"process": held.process.process, "run": held.context.run_id, "fence": str(lease.token)}
    with held.context.database.read() as connection:
        extra |= render_taken(find_batch_events(connection, held.process, held.nominal_time))
    return staging.store.publish(
        staging.place, flag=staging.record.flag, guard=held.check, extra=extra, clearing=place.clearing
    )


def _is_published(staging: OutputStaging, batch: BatchAtWork) -> bool:
    """Return whether a command that broke off has published this output of the attempt."""
    published = staging.store.published_manifest(staging.path)
    return published is not None and published.extra.get("run") == batch.row.run_id


def init_batch(
    context: ChangeContext, process: str, *, cluster: str | None = None, most: int | None = None, key: str | None = None
) -> InitBatch:
    """Take a batch: the oldest that is to be done again, with the same events, else a new one.

    `most` limits a new one to the oldest events of each input; it is refused if markings end the batches. `key` is of
    this call: it is kept with the attempt, in the same transaction. As long as that is under way, the same call again
    takes nothing, and returns the same batch.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: it is on several clusters, and none is named.
        BatchRefusedError: its work runs here, it is not scheduled, a batch is under way, nothing is to be done,
            or the key has taken another batch.
    """
    record = _find(context, process, cluster)
    if most is not None and record.trigger and any(each.until is not None for each in record.trigger.inputs):
        raise refuse(
            record, "the marking of batch.until ends its batches, and --max would cut through", "Leave out --max."
        )
    if not context.dry_run:
        apply_triggers(open_tick(context, record.cluster, is_held=True))
    with context.database.begin() as connection:
        lock_for_lineage(connection)
        lock_queues(connection)
        if context.dry_run:
            route_all(connection, context.plan, record.cluster, context.as_of)
        context.timeline.refresh(connection, context.as_of)
        run_id = name_elsewhere(context.author, key)
        known = find_taken(connection, record, key, run_id) if key is not None else None
        taken = known or _take(context, connection, record, run_id, most)
        events = Batches(connection).events_of(taken)
        batch = find_at_work(connection, context.timeline, record, taken.nominal_time)
        if context.dry_run:
            connection.rollback()
    attempt = _attempt_context(context, batch)
    try:
        stagings = (
            find_stagings(attempt, batch) if context.dry_run else stage_outputs(attempt, batch, is_again=bool(known))
        )
        inputs = tuple(iter_inputs(attempt, batch, events))
    except StorageError as exc:
        if not (context.dry_run or known):
            fail_batch(attempt, batch, context.author, describe_error(exc))
        raise
    if not (context.dry_run or known):
        _note(context, batch, "init")
    status, outputs = ProcessInstanceStatus.RUNNING, tuple(map(StagedOutput, stagings))
    return InitBatch(at=batch, status=status, dry_run=context.dry_run, inputs=inputs, outputs=outputs)


def call_step(
    context: OperationContext,
    at: AtWork,
    step: str,
    status: StepStatus,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> CalledBatch:
    """Record that a step of the batch under way begins (RUNNING), or how it ended.

    Raises:
        EntityNotFoundError: there is no such process.
        BatchRefusedError: it has no such step, no batch is under way; of one that begins, that it has begun or ended
            already, or one before it has not been done; of one that ends, that it is not under way.
    """
    record = _find(context, at.process, at.cluster)
    require_step(record, step)
    with context.database.begin() as connection:
        context.timeline.refresh(connection, context.as_of)
        batch = find_at_work(connection, context.timeline, record, at.nominal_time, at.attempt)
        if status is StepStatus.RUNNING:
            begin_step(connection, batch, step, context.as_of)
        else:
            end_step(connection, batch, step, status, context.as_of, reason)
        batch = find_at_work(connection, context.timeline, record, at.nominal_time, at.attempt)
        if dry_run:
            connection.rollback()
    said = f"step {step} {_SAID[status]}"
    return CalledBatch(at=batch, status=ProcessInstanceStatus.RUNNING, said=said, dry_run=dry_run)


def end_batch(context: ChangeContext, at: AtWork, *, marking: str | None = None, facts: str | bytes = "") -> EndedBatch:
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
        batch = find_at_work(connection, context.timeline, record, at.nominal_time, at.attempt)
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
    published = () if context.dry_run else publish_batch(attempt, batch, stagings, context.author, message, reported)
    if not context.dry_run:
        _note(context, batch, "end", **({"marking": marking} if marking else {}))
    return EndedBatch(
        at=batch,
        status=ProcessInstanceStatus.SUCCEEDED,
        said="it has succeeded",
        dry_run=context.dry_run,
        published=tuple(map(PublishedOutput, published)),
    )


def terminate_batch(context: ChangeContext, at: AtWork, *, reason: str | None = None) -> CalledBatch:
    """Record that the attempt at the batch under way has failed; the next one takes the same events.

    Raises:
        EntityNotFoundError: there is no such process.
        BatchRefusedError: no batch is under way, or a step is.
        LeaseHeldError: another command ends the batch.
    """
    record = _find(context, at.process, at.cluster)
    with context.read() as connection:
        batch = find_at_work(connection, context.timeline, record, at.nominal_time, at.attempt)
    require_no_step_under_way(batch)
    if not context.dry_run:
        fail_batch(
            _attempt_context(context, batch),
            batch,
            context.author,
            reason or f"failed elsewhere, says {context.author}",
        )
        _note(context, batch, "fail", **({"reason": reason} if reason else {}))
    said = "it has failed; the next one takes the same events"
    return CalledBatch(at=batch, status=ProcessInstanceStatus.FAILED, said=said, dry_run=context.dry_run)


def _find(context: OperationContext, process: str, cluster: str | None) -> ProcessRecord:
    record = context.only_process(process, cluster)
    if not record.is_elsewhere:
        reason = f"its work runs here, with engine {record.engine}: no program takes its batches"
        raise refuse(record, reason, "Write workflow: {engine: external} to let it run elsewhere.")
    return record


def _take(
    context: OperationContext, connection: Connection, record: ProcessRecord, run_id: str, most: int | None
) -> ProcessKey:
    taken = take_batch(connection, context.timeline, record, run_id, context.as_of, most=most)
    if taken is None:
        ((queue, _),) = describe_queues(context, connection, [record])
        pending = command_line("queue", "show", record.process, cluster=record.cluster)
        raise refuse(record, f"no batch can be cut yet: {queue.sentence}", f"What is pending: {pending}")
    return taken


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


def _note(context: ChangeContext, batch: BatchAtWork, verb: str, **details: str) -> None:
    target = f"batch {render_datetime(batch.row.nominal_time)} of process {batch.record.process!r}"
    note_target(context, f"batch {verb}", target, cluster=batch.record.cluster, attempt=batch.row.attempt, **details)
