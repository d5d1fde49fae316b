"""Instances of a flow as work: many copies at once, each with its own claims, its own attempt and its own end.

The order is that of every attempt: claims, gate, copy, publication, record. What broke off anywhere is repeated to the
same end, and copies only what is not there yet.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from time import sleep

from sqlalchemy import Connection

from feed_assets.lifecycle.attempt_steps import AttemptSteps, OnPublished, Published
from feed_assets.lifecycle.errors import FilesFailedError, OutputOutsideValidityError, ReplicaLostError
from feed_assets.lifecycle.input_states import InputState
from feed_assets.lifecycle.late_inputs import find_late_inputs
from feed_assets.lifecycle.leasing import Leased, LeasedTime
from feed_assets.lifecycle.places import find_place
from feed_assets.lifecycle.replication.copying import RunTasks, copy_many
from feed_assets.lifecycle.replication.outcomes import Copied, CopyStatus
from feed_assets.lifecycle.replication.plans import Side
from feed_assets.lifecycle.replication.requests import CopyRequest, OnProgress
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.state.errors import FencedOutError, LeaseHeldError
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedEventKind,
    FeedInstanceStatus,
    FeedKey,
    Lease,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.storage.manifests import Publication

FLAG = "_SUCCESS"
"""The availability flag of replicas of feeds that have none (Falcon's)."""
BYTES_AT_ONCE = 1 << 30
"""How many bytes, as far as they are known, are copied before what was copied is written down."""
HELD_FOR = timedelta(minutes=10)
"""How long an instance that somebody else works on, another source of the same target, is waited for."""

_PAUSE = 0.5

_logger = logging.getLogger(__name__)

OnEnded = Callable[[datetime, Published | Exception], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claimed:
    """An attempt that has begun: what it holds, and what it copies."""

    nominal_time: datetime
    held: LeasedTime
    lease: Lease
    attempt: int
    late: tuple[str, ...]
    began: datetime
    states: tuple[InputState, ...]
    is_last: bool
    request: CopyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRunner(AttemptSteps):
    """Runs instances of flows, for one Dagster run or one command.

    `run_tasks` is where copies are made: on the executors of Spark, or here with threads where it is None; `processes`
    share many copies between filesystems of this machine (see `copy_many`).
    `distrusted` has the files of instances that a repair does not believe to be what they should be at the target (see
    `CopyRequest`); of those that are `unfinished` other slices are still to come, whatever the record says. What
    somebody else works on is waited for as long as `patience` says.
    """

    run_tasks: RunTasks | None = None
    processes: int = 1
    on_progress: OnProgress | None = None
    distrusted: Mapping[datetime, frozenset[str]] = field(default_factory=dict)
    unfinished: frozenset[datetime] = frozenset()
    patience: timedelta = HELD_FOR

    def run(self, flow: ProcessRecord, times: Iterable[datetime], on_published: OnPublished, on_ended: OnEnded) -> None:
        """Copy instances, in the order given as far as nobody else holds them; `on_ended` is told what became of each.

        `on_published` is told of each that is a replica now before its end is noted. What fails takes no other along.
        """
        left, since = list(times), self.wall.now()
        while left:
            now, later = self._first(flow, left), []
            with Leased(self.database, self.wall, holder=self.run_id, cluster=flow.cluster) as leased:
                claimed: list[_Claimed] = []
                for nominal_time in now:
                    try:
                        claimed.append(self._claim(leased, flow, nominal_time))
                    except LeaseHeldError as exc:
                        leased.release(nominal_time)
                        if self.wall.now() - since < self.patience:
                            later.append(nominal_time)
                        else:
                            on_ended(nominal_time, exc)
                    except Exception as exc:
                        _logger.debug("%s at %s", flow.process, nominal_time, exc_info=True)
                        self._fail(leased.of(nominal_time), flow, nominal_time, exc)
                        on_ended(nominal_time, exc)
                for is_last in (False, True):
                    self._copy(flow, [each for each in claimed if each.is_last is is_last], on_published, on_ended)
            if claimed:
                since = self.wall.now()
            elif later:
                sleep(_PAUSE)
            left = [*left[len(now) :], *later]

    def _first(self, flow: ProcessRecord, times: Sequence[datetime]) -> Sequence[datetime]:
        """As many as are copied at once."""
        (edge,) = flow.inputs
        with self.database.read() as connection:
            rows = FeedInstances(connection).get_many([FeedKey(*edge.feed_key, each) for each in times])
        size = 0
        for count, each in enumerate(times):
            row = rows.get(FeedKey(*edge.feed_key, each))
            size += (row.bytes or 0) if row is not None else 0
            if count and size > BYTES_AT_ONCE:
                return times[:count]
        return times

    def _claim(self, leased: Leased, flow: ProcessRecord, nominal_time: datetime) -> _Claimed:
        """Begin an attempt, up to what it has to copy."""
        leased.acquire(f"process/{flow.process}", nominal_time)
        (edge,), (out,) = flow.inputs, flow.outputs
        claims = self.claim(leased, flow, nominal_time)
        held = leased.of(nominal_time)
        begun = self.begin(flow, nominal_time)
        if out.name not in claims:
            raise OutputOutsideValidityError(
                process=flow.process, output=out.name, feed=out.feed, nominal_time=nominal_time
            )
        began = self.wall.now()
        states = self.gate(held, flow, nominal_time)
        with self.database.read() as connection:
            late = find_late_inputs(connection, flow, nominal_time)
            is_last = nominal_time not in self.unfinished and is_last_slice(connection, self.plan, flow, nominal_time)
        (source_time,) = states[0].present
        source = find_place(
            self.stores, self.plan.feeds[edge.feed_key], self.places.get(edge.feed_key, ()), source_time
        )
        lease = claims[out.name]
        return _Claimed(
            nominal_time=nominal_time,
            held=held,
            lease=lease,
            attempt=begun.attempt,
            late=late,
            began=began,
            states=states,
            is_last=is_last,
            request=CopyRequest(
                source=source_side(source, source_time),
                target=target_side(self.plan.feeds[out.feed_key], nominal_time),
                guard=held.check,
                extra={"process": flow.process, "run": self.run_id, "fence": str(lease.token)},
                distrusted=self.distrusted.get(nominal_time, frozenset()),
            ),
        )

    def _copy(
        self, flow: ProcessRecord, claimed: Sequence[_Claimed], on_published: OnPublished, on_ended: OnEnded
    ) -> None:
        if not claimed:
            return
        assert flow.copy is not None
        options = replace(flow.copy.options, instance_flag=claimed[0].is_last)
        try:
            outcomes = copy_many(
                self.stores,
                [each.request for each in claimed],
                options,
                self.wall,
                run_tasks=self.run_tasks,
                processes=self.processes,
                on_progress=self.on_progress,
            )
        except Exception as exc:  # what copies has failed as a whole: there is no Spark any more, say
            _logger.debug("%s", flow.process, exc_info=True)
            for each in claimed:
                self._fail(each.held, flow, each.nominal_time, exc)
                on_ended(each.nominal_time, exc)
            return
        except BaseException:
            for each in claimed:
                with suppress(FencedOutError):
                    reason = "the run was interrupted"
                    self.end(each.held, flow, each.nominal_time, ProcessInstanceStatus.KILLED, reason=reason)
            raise
        for each, outcome in zip(claimed, outcomes, strict=True):
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                done = self._finish(flow, each, outcome, on_published)
            except Exception as exc:
                _logger.debug("%s at %s", flow.process, each.nominal_time, exc_info=True)
                self._fail(each.held, flow, each.nominal_time, exc)
                on_ended(each.nominal_time, exc)
            else:
                on_ended(each.nominal_time, done)

    def _fail(self, held: LeasedTime, flow: ProcessRecord, nominal_time: datetime, error: Exception) -> None:
        if isinstance(error, FencedOutError):
            return
        with suppress(FencedOutError):
            reason = f"{type(error).__name__}: {error}"
            self.end(held, flow, nominal_time, ProcessInstanceStatus.FAILED, reason=reason)

    def _finish(self, flow: ProcessRecord, claimed: _Claimed, copied: Copied, on_published: OnPublished) -> Published:
        """Write down what is at the target now, and the end of the attempt."""
        if copied.failures:
            failures = {failure.file: failure.reason for failure in copied.failures}
            raise FilesFailedError(url=copied.source_url, failures=failures)
        record = self.plan.feeds[flow.outputs[0].feed_key]
        done = Published(
            record=record,
            output=flow.outputs[0].name,
            nominal_time=claimed.nominal_time,
            content=self._content(record, claimed.nominal_time, copied),
            rows=None,
            url=copied.target_url,
            inputs={state.edge.name: len(state.present) for state in claimed.states},
            missing={},
            late=claimed.late,
            details=describe_copy(copied),
            attempt=claimed.attempt,
            seconds=(self.wall.now() - claimed.began).total_seconds(),
        )
        status = FeedInstanceStatus.AVAILABLE if claimed.is_last else FeedInstanceStatus.PARTIAL
        if copied.status is not CopyStatus.UNCHANGED or not self._is_known(done, status):
            payload = {"process": flow.process, "copy": describe_copy(copied)}
            self.record(claimed.held, claimed.lease, done, FeedEventKind.REPLICATED, status, payload)
        on_published(done)
        self.end(claimed.held, flow, claimed.nominal_time, ProcessInstanceStatus.SUCCEEDED, reason=None)
        return done

    def _content(self, record: FeedRecord, nominal_time: datetime, copied: Copied) -> Publication:
        if copied.publication is not None:
            return copied.publication
        found = self.stores.get(record.store).published_manifest(record.path(nominal_time))
        if found is None:
            raise ReplicaLostError(url=copied.target_url)
        return Publication.of(found)

    def _is_known(self, done: Published, status: FeedInstanceStatus) -> bool:
        with self.database.read() as connection:
            key = FeedKey(*done.record.key, done.nominal_time)
            row = FeedInstances(connection).get_many([key]).get(key)
        return row is not None and row.status is status and row.manifest_digest == done.content.digest


def source_side(record: FeedRecord, nominal_time: datetime) -> Side:
    """An instance as the source of a copy."""
    return Side(store=record.store, path=record.path(nominal_time), flag=record.flag)


def target_side(record: FeedRecord, nominal_time: datetime) -> Side:
    """An instance as the target of a copy, which always has a flag, as in Falcon."""
    return Side(store=record.store, path=record.path(nominal_time), flag=record.flag or FLAG)


def find_siblings(plan: Plan, flow: ProcessRecord, nominal_time: datetime) -> list[ProcessRecord]:
    """The other flows that bring slices of the same instance."""
    writers = (plan.processes.get(edge.process_key) for edge in plan.feeds[flow.outputs[0].feed_key].outputs_of)
    flows = (each for each in writers if each is not None and each.copy is not None)
    return [each for each in flows if each.key != flow.key and each.sequence.contains(nominal_time)]


def is_last_slice(connection: Connection, plan: Plan, flow: ProcessRecord, nominal_time: datetime) -> bool:
    """Whether the instance is whole with what this flow brings: it was, or the other slices are there."""
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


def describe_copy(copied: Copied) -> dict[str, str | int | float]:
    """The figures of a copy, as partitions, events and `replication status` show them: bytes and files that were
    transferred, seconds, bytes a second, and what was copied.
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
        **({"resumed_bytes": copied.resumed} if copied.resumed else {}),
    }
