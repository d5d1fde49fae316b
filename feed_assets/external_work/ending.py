"""End an attempt elsewhere: publish what its program has staged, as a run would, or record that it failed.

Nobody renews a lease while a program works elsewhere. The one on the batch is held by the command that ends it, so of
two only one publishes; and each step of the publication checks that the attempt is still the one under way.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.context.lifecycle import AttemptContext
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.entities.content.event_messages import EventMessage
from feed_assets.external_work.attempts import BatchAtWork
from feed_assets.external_work.refusals import init_command
from feed_assets.external_work.stagings import OutputStaging, discard_stagings, find_stagings
from feed_assets.instances.attempts.attempt_inputs import find_batch_events
from feed_assets.instances.attempts.attempts import Published, claim_outputs, finish_attempt, record_published
from feed_assets.instances.attempts.displacement import OutputPlace
from feed_assets.instances.attempts.made_from import render_taken
from feed_assets.instances.gates.reconciliation import release_dead
from feed_assets.instances.leasing import Leased
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, Lease, ProcessInstanceStatus
from feed_assets.log.run_names import name_repair
from feed_assets.storage.manifests import Publication
from feed_assets.storage.records import Manifest


class _LeasedBatch(Leased):
    """Leases that hold only as long as the attempt at the batch is under way."""

    def __init__(self, context: AttemptContext, batch: BatchAtWork, author: str) -> None:
        super().__init__(context.database, context.real_clock, holder=name_repair(author), cluster=batch.record.cluster)
        self._database = context.database
        self._batch = batch

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
    record, row = batch.record, batch.row
    with _LeasedBatch(context, batch, author) as leased:
        claims = _claim(context, leased, batch)
        published = tuple(_publish(context, leased, batch, each, claims[each.edge.name], message) for each in stagings)
        succeeded, urls = ProcessInstanceStatus.SUCCEEDED, {done.output: done.url for done in published}
        finish_attempt(context, leased, record, row.nominal_time, succeeded, None, reported, urls)
    discard_stagings(each for attempt in range(1, row.attempt + 1) for each in find_stagings(context, batch, attempt))
    return published


def fail_batch(context: AttemptContext, batch: BatchAtWork, author: str, reason: str) -> None:
    """Record that an attempt has failed; what its finished steps have staged is kept for the next one.

    Raises:
        LeaseHeldError: another command ends the batch.
    """
    with _LeasedBatch(context, batch, author) as leased:
        _claim(context, leased, batch)
        failed = ProcessInstanceStatus.FAILED
        finish_attempt(context, leased, batch.record, batch.row.nominal_time, failed, reason=reason)
    if not any(run.is_done for run in batch.steps):
        discard_stagings(find_stagings(context, batch))


def _claim(context: AttemptContext, leased: _LeasedBatch, batch: BatchAtWork) -> dict[str, Lease]:
    """Take the leases on the batch and its outputs; those of commands of this machine that have died are free."""
    record, time = batch.record, batch.row.nominal_time
    entity = f"process/{record.process}"
    outputs = [(f"feed/{each.edge.feed}", record.cluster, each.nominal_time) for each in find_stagings(context, batch)]
    release_dead(context.database, [(entity, record.cluster, time), *outputs], context.real_now)
    leased.acquire(entity, time)
    claims = claim_outputs(context, leased, record, time)
    leased.check()
    return claims


def _publish(
    context: AttemptContext,
    leased: _LeasedBatch,
    batch: BatchAtWork,
    staging: OutputStaging,
    lease: Lease,
    message: EventMessage,
) -> Published:
    row, record = batch.row, staging.record
    place = OutputPlace.of(context, record, staging.nominal_time, {**dict(batch.record.properties), **row.overrides})
    done = Published(
        record=record,
        output=staging.edge.name,
        nominal_time=staging.nominal_time,
        content=Publication.of(_publish_files(context, leased, batch, staging, lease, place)),
        rows=None,
        url=staging.store.url(staging.path),
        inputs={each.name: len(each.nominal_times) for each in row.inputs},
        missing={},
        late=(),
        details=place.details,
        attempt=row.attempt,
        seconds=(context.real_now - (row.started_at or context.real_now)).total_seconds(),
        message=message,
    )
    payload, status = {"rows": None, **place.details}, FeedInstanceStatus.AVAILABLE
    record_published(context, leased, lease, row.key, done, FeedEventKind.PRODUCED, status, payload)
    return done


def _publish_files(
    context: AttemptContext,
    leased: _LeasedBatch,
    batch: BatchAtWork,
    staging: OutputStaging,
    lease: Lease,
    place: OutputPlace,
) -> Manifest:
    published = staging.store.published_manifest(staging.path) if staging.is_empty else None
    if published is not None:
        return published
    extra = {"process": batch.record.process, "run": context.run_id, "fence": str(lease.token)}
    with context.database.read() as connection:
        extra |= render_taken(find_batch_events(connection, batch.record, batch.row.nominal_time))
    return staging.store.publish(
        staging.place, flag=staging.record.flag, guard=leased.check, extra=extra, clearing=place.clearing
    )


def _is_published(staging: OutputStaging, batch: BatchAtWork) -> bool:
    """Return whether a command that broke off has published this output of the attempt."""
    published = staging.store.published_manifest(staging.path)
    return published is not None and published.extra.get("run") == batch.row.run_id
