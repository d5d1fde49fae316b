"""Run instances of a flow: many copies at once, each with its own leases, attempt and end.

The order is that of every attempt: leases, gate, copy, publication, record. An interrupted copy is repeated, reaches
the same result, and copies only what is still missing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from time import sleep

from sqlalchemy import Connection

from feed_assets.clock import Clock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.context.operation import AttemptContext
from feed_assets.errors import render_some
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.attempts.attempt_inputs import find_late_inputs
from feed_assets.instances.attempts.attempts import (
    HeldInstance,
    OnPublished,
    Published,
    leaves_running,
)
from feed_assets.instances.attempts.displacement import OutputPlace
from feed_assets.instances.errors import OutputOutsideValidityError
from feed_assets.instances.gates.decide_retries import decide_retry
from feed_assets.instances.leasing import Leased
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey, Lease, ProcessInstanceStatus, ProcessKey
from feed_assets.masking import get_logger
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.sql.database import Database
from feed_assets.sql.errors import LeaseHeldError
from feed_assets.sql.totals import Total, TotalKind, microseconds
from feed_assets.storage.manifests import Publication
from feed_assets.transfer.copying import RunTasks, copy_many
from feed_assets.transfer.errors import FilesFailedError, ReplicaLostError
from feed_assets.transfer.plans import source_side, target_side
from feed_assets.transfer.requests import Copied, CopyRequest, CopyStatus, OnProgress
from feed_assets.triggers.input_windows import InputState

BYTES_AT_ONCE = 1 << 30
"""How many bytes, if known, are copied before the copies are recorded."""
LEASE_PATIENCE = timedelta(minutes=10)
"""How long to wait for an instance on which another source of the same target works."""

_PAUSE = 0.5

_logger = get_logger(__name__)

OnEnded = Callable[[datetime, Published | Exception], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BegunCopy:
    """A begun attempt: its leases, and what it copies."""

    held: HeldInstance
    lease: Lease
    attempt: int
    late: tuple[str, ...]
    began: datetime
    states: tuple[InputState, ...]
    is_last: bool
    place: OutputPlace
    request: CopyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRunner:
    """Runs instances of flows, for one Dagster run or one command.

    `run_tasks` makes the copies: on Spark's executors, or with threads of this process if it is None. `distrusted` has
    the files at the target that a repair does not trust (see `CopyRequest`). `gives_way` is asked between copies that
    are made at once whether the rest is left to another run. For `unfinished` instances other slices
    are still to come, whatever the record says. Instances that another worker holds are waited for up to `patience`.
    """

    context: AttemptContext
    run_tasks: RunTasks | None = None
    on_progress: OnProgress | None = None
    distrusted: Mapping[datetime, frozenset[str]] = field(default_factory=dict)
    unfinished: frozenset[datetime] = frozenset()
    patience: timedelta = LEASE_PATIENCE
    gives_way: Callable[[Sequence[datetime]], bool] = lambda _: False

    def run(self, flow: ProcessRecord, times: Iterable[datetime], on_published: OnPublished, on_ended: OnEnded) -> bool:
        """Copy instances in the given order, except that leased ones come later; call `on_ended` with the result of
        each. Return False if the run has given way to others.

        `on_published` is called for each new replica before its end is recorded. A failure affects no other instance.
        """
        remaining, since = list(times), self.context.real_clock.now()
        while remaining:
            if self.gives_way(remaining):
                return False
            now, later = self._first(flow, remaining), []
            with Leased(
                self.context.database, self.context.real_clock, holder=self.context.run_id, cluster=flow.cluster
            ) as leased:
                claimed: list[_BegunCopy] = []
                for nominal_time in now:
                    held = HeldInstance(
                        context=self.context, leased=leased, process=flow, nominal_time=nominal_time, at=nominal_time
                    )
                    try:
                        claimed.append(self._claim(held))
                    except LeaseHeldError as exc:
                        leased.release(nominal_time)
                        if self.context.real_clock.now() - since < self.patience:
                            later.append(nominal_time)
                        else:
                            on_ended(nominal_time, exc)
                    except Exception as exc:
                        _logger.debug("%s at %s", flow.process, nominal_time, exc_info=True)
                        held.fail(exc)
                        on_ended(nominal_time, exc)
                for is_last in (False, True):
                    self._copy(flow, [each for each in claimed if each.is_last is is_last], on_published, on_ended)
            if claimed:
                since = self.context.real_clock.now()
            elif later:
                sleep(_PAUSE)
            remaining = [*remaining[len(now) :], *later]
        return True

    def _first(self, flow: ProcessRecord, times: Sequence[datetime]) -> Sequence[datetime]:
        """Return as many instances as are copied at once."""
        (edge,) = flow.inputs
        with self.context.database.read() as connection:
            rows = FeedInstances(connection).get_many([FeedKey(*edge.feed_key, each) for each in times])
        size = 0
        for count, each in enumerate(times):
            row = rows.get(FeedKey(*edge.feed_key, each))
            size += (row.bytes or 0) if row is not None else 0
            if count and size > BYTES_AT_ONCE:
                return times[:count]
        return times

    def _claim(self, held: HeldInstance) -> _BegunCopy:
        """Begin an attempt: everything before the copy."""
        flow, nominal_time = held.process, held.nominal_time
        held.leased.acquire(f"process/{flow.process}", nominal_time)
        (edge,), (out,) = flow.inputs, flow.outputs
        claims, begun = held.claim_outputs(), held.start()
        if out.name not in claims:
            raise OutputOutsideValidityError(
                process=flow.process, output=out.name, feed=out.feed, nominal_time=nominal_time
            )
        began = self.context.real_clock.now()
        states, _ = held.open_gate(begun.inputs)
        with self.context.database.read() as connection:
            late = find_late_inputs(connection, flow, nominal_time)
            is_last = nominal_time not in self.unfinished and is_last_slice(
                connection, self.context.plan, flow, nominal_time
            )
        (source_time,) = states[0].present
        feed = self.context.plan.feeds[edge.feed_key]
        source = find_records(self.context, feed, [source_time])[source_time]
        lease = claims[out.name]
        record = self.context.plan.feeds[out.feed_key]
        place = OutputPlace.of(self.context, self.context.origin, record, nominal_time, begun.row.overrides)
        return _BegunCopy(
            held=held,
            lease=lease,
            attempt=begun.row.attempt,
            late=late,
            began=began,
            states=states,
            is_last=is_last,
            place=place,
            request=CopyRequest(
                source=source_side(source, source_time),
                target=target_side(self.context.plan.feeds[out.feed_key], nominal_time),
                guard=held.check,
                extra={"process": flow.process, "run": self.context.run_id, "fence": str(lease.token)},
                distrusted=self.distrusted.get(nominal_time, frozenset()),
                clearing=place.clearing,
                is_repeated=begun.row.attempt > 1,
            ),
        )

    def _copy(
        self, flow: ProcessRecord, claimed: Sequence[_BegunCopy], on_published: OnPublished, on_ended: OnEnded
    ) -> None:
        if not claimed:
            return
        options = replace(flow.copied.options, instance_flag=claimed[0].is_last)
        try:
            outcomes = copy_many(
                self.context.stores,
                [each.request for each in claimed],
                options,
                self.context.real_clock,
                run_tasks=self.run_tasks,
                on_progress=self.on_progress,
            )
        except Exception as exc:  # the whole copy failed, for example because Spark has stopped
            _logger.debug("%s", flow.process, exc_info=True)
            for each in claimed:
                each.held.fail(exc)
                on_ended(each.held.nominal_time, exc)
            return
        except BaseException:
            for each in claimed:
                each.held.end_interrupted()
            raise
        for each, outcome in zip(claimed, outcomes, strict=True):
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                done = self._finish(each, outcome, on_published)
            except Exception as exc:
                _logger.debug("%s at %s", flow.process, each.held.nominal_time, exc_info=True)
                each.held.fail(exc)
                on_ended(each.held.nominal_time, exc)
            else:
                on_ended(each.held.nominal_time, done)

    def _finish(self, claimed: _BegunCopy, copied: Copied, on_published: OnPublished) -> Published:
        """Record the content of the target, and the end of the attempt."""
        held, flow = claimed.held, claimed.held.process
        if copied.failures:
            failures = {failure.file: failure.reason for failure in copied.failures}
            raise FilesFailedError(url=copied.source_url, failures=failures)
        record = self.context.plan.feeds[flow.outputs[0].feed_key]
        done = Published(
            record=record,
            output=flow.outputs[0].name,
            nominal_time=held.nominal_time,
            content=self._content(record, held.nominal_time, copied),
            rows=None,
            url=copied.target_url,
            inputs={state.edge.name: len(state.present) for state in claimed.states},
            late=claimed.late,
            details={**describe_copy(copied), **claimed.place.details},
            attempt=claimed.attempt,
            seconds=(self.context.real_clock.now() - claimed.began).total_seconds(),
        )
        status = FeedInstanceStatus.AVAILABLE if claimed.is_last else FeedInstanceStatus.PARTIAL
        if copied.status is not CopyStatus.UNCHANGED or not self._is_known(done, status):
            kind, payload = FeedEventKind.REPLICATED, {"copy": describe_copy(copied), **claimed.place.details}
            held.record_published(claimed.lease, done, kind, status, payload, _totals_of(flow, copied))
        on_published(done)
        held.finish(ProcessInstanceStatus.SUCCEEDED, published={done.output: done.url})
        return done

    def _content(self, record: FeedRecord, nominal_time: datetime, copied: Copied) -> Publication:
        if copied.publication is not None:
            return copied.publication
        found = self.context.stores.get(record.store).published_manifest(record.path(nominal_time))
        if found is None:
            raise ReplicaLostError(url=copied.target_url)
        return Publication.of(found)

    def _is_known(self, done: Published, status: FeedInstanceStatus) -> bool:
        with self.context.database.read() as connection:
            key = FeedKey(*done.record.key, done.nominal_time)
            row = FeedInstances(connection).get_many([key]).get(key)
        return row is not None and row.status is status and row.manifest_digest == done.content.digest


def note_flow(database: Database, flow: ProcessRecord, errors: Mapping[datetime, Exception], real_clock: Clock) -> None:
    """Record that copies of a run have failed, by nominal time, with the first retry of one of them; or that none has.

    An instance on which another worker works decides nothing.
    """
    failed = {
        time: error
        for time, error in errors.items()
        if not (leaves_running(error) or isinstance(error, LeaseHeldError))
    }
    bulkheads = Bulkheads.open(database, flow.cluster, real_clock)
    if failed:
        with database.read() as connection:
            rows = ProcessInstances(connection).get_many([ProcessKey(*flow.key, time) for time in failed])
        ended = [(row, row.ended_at) for row in rows.values() if row.ended_at is not None]
        decided = [(at, decide_retry(flow.retry, row.status, row.retries, at).retry_at) for row, at in ended]
        pause = min((retry_at - at for at, retry_at in decided if retry_at is not None), default=timedelta(0))
        error = next(iter(failed.values()))
        bulkheads.fail(TickStep.REPLICATION, flow.process, error, next_try_at=real_clock.now() + pause)
    elif not errors:
        bulkheads.succeed(TickStep.REPLICATION, flow.process)
    bulkheads.save(database)


def find_siblings(plan: Plan, flow: ProcessRecord, nominal_time: datetime) -> list[ProcessRecord]:
    """Return the other flows that write slices of the same instance."""
    writers = (plan.processes.get(edge.process_key) for edge in plan.feeds[flow.outputs[0].feed_key].outputs_of)
    flows = (each for each in writers if each is not None and each.is_flow)
    return [each for each in flows if each.key != flow.key and each.sequence.contains(nominal_time)]


def is_last_slice(connection: Connection, plan: Plan, flow: ProcessRecord, nominal_time: datetime) -> bool:
    """Return whether the instance is complete with this flow's slice: it was before, or all sibling flows succeeded."""
    siblings = find_siblings(plan, flow, nominal_time)
    if not siblings:
        return True
    key = FeedKey(*flow.outputs[0].feed_key, nominal_time)
    row = FeedInstances(connection).get_many([key]).get(key)
    if row is not None and row.status is FeedInstanceStatus.AVAILABLE:
        return True
    found = ProcessInstances(connection).get_many([ProcessKey(*each.key, nominal_time) for each in siblings])
    return len(found) == len(siblings) and all(
        each.status is ProcessInstanceStatus.SUCCEEDED for each in found.values()
    )


def _totals_of(flow: ProcessRecord, copied: Copied) -> list[Total]:
    key = (flow.outputs[0].feed, flow.cluster, flow.copied.source)
    spent = microseconds(timedelta(seconds=copied.seconds))
    return [Total(TotalKind.COPIED, *key, amount=copied.bytes), Total(TotalKind.COPYING, *key, amount=spent)]


def describe_copy(copied: Copied) -> dict[str, str | int | float]:
    """Return the figures of a copy for partitions, events and `replication status`.

    They are transferred bytes and files, seconds, bytes per second, and what was copied.
    """
    return {
        "copy": copied.status.value,
        "copied_bytes": copied.bytes,
        "copied_files": copied.files,
        "copy_seconds": round(copied.seconds, 3),
        "bandwidth": round(copied.bandwidth),
        "source": copied.source_url,
        "source_digest": copied.source_digest,
        "verification": copied.verification.value,
        **({"removed_files": len(copied.removed)} if copied.removed else {}),
        **({"skipped": render_some(copied.skipped, 3)} if copied.skipped else {}),
        **({"resumed_bytes": copied.resumed} if copied.resumed else {}),
    }
