"""Take the steps that every attempt at a process instance has, whatever the work: lease, begin, gate, record, end."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from feed_assets.catalog.column_sets import ColumnSet, ColumnSets
from feed_assets.catalog.run_metadata import apply_reported
from feed_assets.catalog.store import MetadataStore
from feed_assets.command_lines import command_line, instance_command
from feed_assets.context.bulkheads import AWAY
from feed_assets.context.operation import AttemptContext
from feed_assets.engines.errors import ServiceAwayError
from feed_assets.engines.port import InputEvent
from feed_assets.engines.run_metadata import FactValue, ReportedMetadata
from feed_assets.entities.content.event_messages import EventMessage
from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import MOST_CHARACTERS, FeedAssetsError, describe_error
from feed_assets.instances.arrival.polling import missing_inputs, poll_missing_inputs
from feed_assets.instances.arrival.store_polls import Candidate, poll_instances, require_unobstructed
from feed_assets.instances.arrival.stored_data import present_inputs, record_vanished
from feed_assets.instances.attempts.attempt_inputs import (
    find_other_versions,
    freeze_inputs,
    plan_late_check,
    scan_late_inputs,
)
from feed_assets.instances.attempts.verdicts import Verdict
from feed_assets.instances.errors import TRIED, InputChangedError, InputsMissingError, NotNeededError
from feed_assets.instances.gates.end_messages import Ended, tell_ends
from feed_assets.instances.leasing import Leased
from feed_assets.json_form import NominalTime
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    COLUMNS,
    CONTENT,
    MESSAGE,
    PROCESS_TIME,
    Attempt,
    Cause,
    FeedEventKind,
    FeedInstanceStatus,
    FeedKey,
    FrozenInput,
    Lease,
    NewFeedEvent,
    ProcessChanges,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import describe_run, is_command, is_elsewhere
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.registration.registering import look_later, try_register
from feed_assets.sql.database import lock_for_lineage, lock_log
from feed_assets.sql.errors import FencedOutError, StateUnreachableError
from feed_assets.sql.totals import Total, TotalKind, Totals, microseconds
from feed_assets.storage.manifests import Publication
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.input_windows import InputState, check_gate, closed_gates, runs_incomplete


class Begun(NamedTuple):
    """An attempt that has begun: its instance with the attempt's number, and its inputs if they were looked at."""

    row: ProcessInstance
    inputs: tuple[InputState, ...] | None


_T = TypeVar("_T")


def repeat_once(attempt: Callable[[ExitStack, Begun], _T], begun: Begun) -> _T:
    """Make an attempt, and once more, with inputs that are found anew, if a current one has changed meanwhile."""
    with suppress(InputChangedError), ExitStack() as stack:
        return attempt(stack, begun)
    with ExitStack() as stack:
        return attempt(stack, begun._replace(inputs=None))


def _wait_again(connection: Connection, key: ProcessKey, now: datetime) -> None:
    ProcessInstances(connection).transition(
        key,
        {ProcessInstanceStatus.RUNNING},
        status=ProcessInstanceStatus.WAITING,
        request_key=None,
        requested_at=None,
        ready_at=None,
        deadline_at=None,
        updated_at=now,
    )


def find_inputs(
    context: AttemptContext, process: ProcessRecord, row: ProcessInstance, stays: str | None = None
) -> tuple[InputState, ...]:
    """Find the inputs of an instance, after polling storage for external inputs that the record lacks, and for all that
    it has: what is gone is recorded. `stays` is what an instance without an attempt is.

    Raises:
        InputsMissingError: a mandatory instance is missing.
    """
    now = context.clock.now()
    with context.database.read() as connection:
        states, closed = check_gate(connection, context.plan, process, row, now)
    is_short = any(state.missing for state in states)
    if is_short:
        poll_missing_inputs(context, context.plan, states, partial(poll_instances, context.stores))
    vanished = record_vanished(context, present_inputs(context.plan, states), context.origin)
    if is_short or vanished:
        with context.database.read() as connection:
            states, closed = check_gate(connection, context.plan, process, row, now)
    if closed:
        raise _inputs_missing(context, process, row, closed, vanished, stays)
    return states


def look_for_inputs(context: AttemptContext, process: ProcessRecord, row: ProcessInstance) -> tuple[InputState, ...]:
    """Find the inputs of an instance as `find_inputs` does, and record nothing of what storage has or has lost.

    Raises:
        InputsMissingError: a mandatory instance is missing.
    """
    now = context.clock.now()
    with context.database.read() as connection:
        states, _ = check_gate(connection, context.plan, process, row, now)
    candidates = missing_inputs(context.plan, states)
    looks = poll_instances(context.stores, candidates)
    require_unobstructed(candidates, looks)
    arrived = {
        (each.record.key, each.nominal_time)
        for each, look in zip(candidates, looks, strict=True)
        if look.availability is Availability.AVAILABLE
    }
    gone = record_vanished(context, present_inputs(context.plan, states), context.origin, dry_run=True)
    seen = tuple(
        replace(
            state,
            available=frozenset(
                time
                for time in state.expected or ()
                if (state.edge.feed_key, time) in arrived
                or (time in state.available and FeedKey(*state.edge.feed_key, time) not in gone)
            ),
        )
        for state in states
    )
    closed = () if runs_incomplete(process, row, now) else closed_gates(seen)
    if closed:
        raise _inputs_missing(context, process, row, closed, gone, TRIED)
    return seen


def _inputs_missing(
    context: AttemptContext,
    process: ProcessRecord,
    row: ProcessInstance,
    closed: Iterable[InputState],
    lost: Mapping[FeedKey, Candidate],
    stays: str | None,
) -> InputsMissingError:
    return InputsMissingError(
        process=process.process,
        cluster=process.cluster,
        nominal_time=row.nominal_time,
        missing={state.edge.name: _missing_urls(context, state) for state in closed},
        makers={state.edge.name: _describe_maker(context.plan.feeds[state.edge.feed_key]) for state in closed},
        lost=tuple(_url(context, each.record, each.nominal_time) for each in lost.values()),
        stays=stays,
    )


def _missing_urls(context: AttemptContext, state: InputState) -> tuple[str, ...]:
    record = context.plan.feeds[state.edge.feed_key]
    return tuple(_url(context, record, time) for time in state.missing)


def _url(context: AttemptContext, record: FeedRecord, nominal_time: datetime) -> str:
    return context.stores.url(record.store, record.path(nominal_time))


def _describe_maker(record: FeedRecord) -> str:
    """Return what makes the instances of a feed."""
    if record.produced_by is not None:
        return f"asset {record.producer} makes it"
    makers = sorted({describe_process(edge.process) for edge in record.outputs_of})
    return f"{' or '.join(makers)} makes it" if makers else "external: others deliver it"


_ANY = frozenset(ProcessInstanceStatus)
_ENDED_BY = {ProcessInstanceStatus.FAILED: Cause.FAILURE, ProcessInstanceStatus.KILLED: Cause.INTERRUPTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published output of an attempt: its feed instance, its content, and what it was made from.

    `late` names the inputs whose late data caused a re-run. `columns` are those that were written, as (name, type);
    None if they are not known. `events` are those of a batch, by the names of its trigger. `message` is what its own
    event says. `verdict` is what was found about its rows, if they were held to a quality, `facts` what the work has
    said of itself. `column_set` tells what its columns were made of, if that was looked at.
    """

    record: FeedRecord
    output: str
    nominal_time: NominalTime
    content: Publication
    rows: int | None
    url: str
    inputs: Mapping[str, int]
    details: Mapping[str, str | int | float]
    attempt: int
    seconds: float
    missing: Mapping[str, tuple[datetime, ...]] = field(default_factory=dict)
    late: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] | None = None
    events: Mapping[str, tuple[InputEvent, ...]] = field(default_factory=dict)
    message: EventMessage = field(default_factory=EventMessage)
    verdict: Verdict | None = None
    facts: Mapping[str, FactValue] = field(default_factory=dict)
    column_set: ColumnSet | None = None


OnPublished = Callable[[Published], None]


def leaves_running(error: Exception) -> bool:
    """Return whether an attempt ends as if its worker had died: the lease was taken over, or the record or Dagster's
    storage is away, perhaps for the code of the work. Its instance stays RUNNING, and is repeated. Or none has begun.
    """
    if isinstance(error, InputsMissingError):
        return error.stays is not None
    unended = FencedOutError | NotNeededError | StateUnreachableError
    return any(isinstance(each, unended) for each in (error, error.__cause__))


def offer_approval(process: ProcessRecord, nominal_time: datetime, error: Exception) -> str:
    """Return the command that allows what was refused to an instance, in a sentence; empty if nothing may. For a mirror
    also the one that shows what a run would do.
    """
    approval = error.approval if isinstance(error, FeedAssetsError) else None
    if approval is None:
        return ""
    plan = command_line("mirror", "plan", process.process, cluster=process.cluster)
    shown = f" `{plan}` shows the files." if process.directories else ""
    rerun = instance_command("rerun", process.process, nominal_time, process.cluster, property=approval)
    return f"{shown} To allow it: {rerun}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldInstance:
    """An instance of a process under its leases, with what is the same in every attempt at it.

    If several instances are held together, its own leases are those `at` its time.
    """

    context: AttemptContext
    leased: Leased
    process: ProcessRecord
    nominal_time: datetime
    at: datetime | None = None

    @property
    def key(self) -> ProcessKey:
        """The instance."""
        return ProcessKey(*self.process.key, self.nominal_time)

    def check(self) -> None:
        """Check its leases as `Leased.check` does."""
        self.leased.check(self.at)

    def check_in(self, connection: Connection) -> None:
        """Check its leases as `Leased.check_in` does."""
        self.leased.check_in(connection, self.at)

    def claim_outputs(self) -> dict[str, Lease]:
        """Take the leases on the feed instances to write; return them by output, but for those outside their feed's
        validity. Their registrations are looked at later.
        """
        times = {edge: self.context.plan.output_time(edge, self.nominal_time) for edge in self.process.outputs}
        there = {edge: time for edge, time in times.items() if time is not None}
        claims = {edge.name: self.leased.acquire(f"feed/{edge.feed}", time) for edge, time in there.items()}
        for edge, time in there.items():
            look_later(self.context, self.context.declared.feeds.get(edge.feed_key), [time])
        return claims

    def start(self) -> Begun:
        """Record that an attempt begins. One that no tick has requested begins only if its inputs are there.

        Raises:
            InputsMissingError: they are not; the instance stays as it is.
            NotNeededError: the instance does not need the run any more.
        """
        context, process, nominal_time = self.context, self.process, self.nominal_time
        if not context.is_needed(nominal_time):
            raise NotNeededError(process=process.process, nominal_time=nominal_time)
        now, inputs = context.clock.now(), None
        with context.database.read() as connection:
            row = ProcessInstances(connection).get(*process.key, nominal_time)
        if row is None or row.status is not ProcessInstanceStatus.READY or row.request_key is None:
            stays = "NEW" if row is None else row.status
            inputs = find_inputs(context, process, row or new_instance(process, nominal_time, now), stays)
        with context.database.begin() as connection:
            lock_for_lineage(connection)
            row = begin_attempt(connection, process, nominal_time, context.run_id, now, context.release)
        return Begun(row, inputs)

    def open_gate(
        self, states: tuple[InputState, ...] | None
    ) -> tuple[tuple[InputState, ...], tuple[FrozenInput, ...]]:
        """Freeze the inputs of an attempt: those that were found before it began, or else what `find_inputs` finds.
        Return them, and what is recorded of them as read.

        Raises:
            InputsMissingError: a mandatory instance is missing.
        """
        context, process, key, now = self.context, self.process, self.key, self.context.clock.now()
        if states is None:
            with context.database.read() as connection:
                row = ProcessInstances(connection).get(*key)
            assert row is not None
            states = find_inputs(context, process, row)
        scanned = scan_late_inputs(context, key, states)
        with context.database.begin() as connection:
            self.check_in(connection)
            row = ProcessInstances(connection).get(*key) if scanned else None
            held = check_gate(connection, context.plan, process, row, now).closed if row is not None else ()
            if held:  # what has changed is judged before anybody reads it
                _wait_again(connection, key, now)
            else:
                frozen = freeze_inputs(connection, key, states, scanned, now)
        if row is not None and held:
            raise _inputs_missing(context, process, row, held, {}, None)
        return states, frozen

    def require_same_versions(self, states: Sequence[InputState], frozen: Sequence[FrozenInput]) -> None:
        """Require that the current instances that an attempt has read have still the content that was frozen.

        Raises:
            InputChangedError: one has other content.
        """
        if others := find_other_versions(self.context, states, frozen):
            raise InputChangedError(process=self.process.process, nominal_time=self.nominal_time, feeds=others)

    def find_newer(self, record: FeedRecord) -> datetime | None:
        """Return the nominal time of the newer instance of a process that has made the present version of a current
        instance; None if none has. One that an undo has brought back is still that of its maker.
        """
        if not record.is_current:
            return None
        with self.context.database.read() as connection:
            log = EventLog(connection)
            event = log.newest(*record.key, CONTENT)
            row = FeedInstances(connection).get(*event.key) if event is not None else None  # by another release, too
            if event is None or row is None or row.event_seq != event.seq:
                return None
            made = log.for_feed(*record.key, FeedEventKind.PRODUCED) if "sweep" in event.payload else [event]
        maker = next((each.maker for each in reversed(made) if each.manifest_digest == event.manifest_digest), None)
        is_newer = maker is not None and maker.process == self.key.process and maker.nominal_time > self.nominal_time
        return maker.nominal_time if maker is not None and is_newer else None

    def record_published(
        self,
        lease: Lease,
        done: Published,
        kind: FeedEventKind,
        status: FeedInstanceStatus,
        payload: Mapping[str, Any],
        totals: Iterable[Total] = (),
    ) -> None:
        """Record a publication of the instance: the event, also in the attempt that has made it, what its columns were
        made of, the new row of the feed instance, and its part in `totals`. The registration in the table of a catalog
        is tried before.
        """
        context, key, record, content = self.context, self.key, done.record, done.content
        now = context.clock.now()
        if status is FeedInstanceStatus.AVAILABLE:
            try_register(context, context.declared.feeds.get(record.key), record, [done.nominal_time])
        event = NewFeedEvent(
            feed=record.feed,
            cluster=record.cluster,
            nominal_time=done.nominal_time,
            kind=kind,
            origin=context.origin,
            manifest_digest=content.digest,
            bytes=content.bytes,
            files=content.files,
            payload={
                "path": record.path(done.nominal_time),
                "process": key.process,
                **({PROCESS_TIME: render_datetime(key.nominal_time)} if key.nominal_time != done.nominal_time else {}),
                "output": done.output,
                **payload,
                "attempt": done.attempt,
                "seconds": round(done.seconds, 3),
                **({"late": list(done.late)} if done.late else {}),
                **({MESSAGE: done.message.payload} if done.message.payload else {}),
                **({COLUMNS: done.column_set.digest} if done.column_set is not None else {}),
            },
            recorded_at=now,
            marking=done.message.marking,
        )
        with context.database.begin() as connection:
            (seq,) = EventLog(connection).append([event])
            if done.column_set is not None:
                ColumnSets(connection).add(done.column_set)
            self.check_in(connection)
            Attempts(connection).add_output(key, done.attempt, seq)
            Totals(connection).add(totals)
            FeedInstances(connection).put([event.row(status, seq, fence=lease.token, place=record.place)])
            if record.is_current:
                Sweeps(connection).end_versions(*record.key, record.versions, now)

    def finish(
        self,
        status: ProcessInstanceStatus,
        reason: str | None = None,
        reported: ReportedMetadata | None = None,
        published: Mapping[str, str] | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Record how an attempt ended, and tell it, unless an outage ended it. After a success, also write what it has
        `reported`, and plan the first late check; `published` are the URLs of its outputs.
        """
        context, process, key, now = self.context, self.process, self.key, self.context.clock.now()
        with context.database.begin() as connection:
            lock_log(connection)
            if reported:
                apply_reported(connection, context.declared, key, reported, now)
            self.check_in(connection)
            row = ProcessInstances(connection).get(*key)
            end_attempt(connection, key, status, reason, now, cause)
            if row is not None and row.status is ProcessInstanceStatus.RUNNING and cause is not Cause.OUTAGE:
                ended = Ended(row=row, status=status, error=reason, published=published)
                tell_ends(connection, context.plan, process, [ended], now, context.declared)
            if status is ProcessInstanceStatus.SUCCEEDED:
                plan_late_check(connection, context.plan, process, self.nominal_time, now)

    def end_interrupted(self) -> None:
        """Record that somebody has cancelled the run of an attempt. If only its worker is being ended, the instance
        stays RUNNING, and is repeated.
        """
        if self.context.is_cancelled():
            with suppress(FencedOutError):
                self.finish(ProcessInstanceStatus.KILLED, "its run was cancelled")

    def fail(self, error: Exception) -> None:
        """Record that an attempt failed and why in one line, with the command that allows what was refused, if there is
        one; nothing if its instance stays RUNNING. An address that is away is the cause by itself.
        """
        if leaves_running(error):
            return
        is_outage = any(isinstance(each, (*AWAY, ServiceAwayError)) for each in (error, error.__cause__))
        offer = offer_approval(self.process, self.nominal_time, error)
        reason = describe_error(error)[: MOST_CHARACTERS - len(offer)] + offer
        with suppress(FencedOutError):
            self.finish(ProcessInstanceStatus.FAILED, reason, cause=Cause.OUTAGE if is_outage else None)


def begin_attempt(
    connection: Connection,
    process: ProcessRecord,
    nominal_time: datetime,
    run_id: str | None,
    now: datetime,
    release: int | None = None,
    cause: Cause | None = None,
) -> ProcessInstance:
    """Make an instance RUNNING, whatever its status, and record the attempt; return the instance with the attempt's
    number.

    `release` is the number of the release that governs the attempt. Without a `cause`, the instance tells it.
    """
    row = _find_or_create(connection, process, nominal_time, now)
    ProcessInstances(connection).transition(
        row.key,
        _ANY,
        status=ProcessInstanceStatus.RUNNING,
        attempt=row.attempt + 1,
        run_id=run_id,
        started_at=now,
        ended_at=None,
        cause=None,
        cause_detail=None,
        definition_digest=process.definition_digest,
        release=release,
        retry_at=None,
        notice_at=None,
        notice_digest=None,
        updated_at=now,
    )
    Totals(connection).add(_delays(row, cause, now))
    cause, detail = (cause, None) if cause is not None else decide_trigger(row, run_id or "")
    Attempts(connection).begin(
        Attempt(
            process=process.process,
            cluster=process.cluster,
            nominal_time=nominal_time,
            attempt=row.attempt + 1,
            run_id=run_id,
            status=ProcessInstanceStatus.RUNNING,
            started_at=now,
            cause=cause,
            cause_detail=detail or "",
            release=release,
            metadata_seq=MetadataStore(connection).last_change(),
        )
    )
    return replace(row, status=ProcessInstanceStatus.RUNNING, attempt=row.attempt + 1, run_id=run_id)


def _delays(before: ProcessInstance, cause: Cause | None, now: datetime) -> Iterator[Total]:
    """Yield how late an attempt begins: the first one after its nominal time, each after its instance was READY."""
    if before.attempt == 0 and cause is not Cause.REBUILT:
        amount = microseconds(now - before.nominal_time)
        yield Total(TotalKind.START_DELAY, before.process, before.cluster, amount=amount)
    if before.status is ProcessInstanceStatus.READY and before.ready_at is not None:
        yield Total(TotalKind.QUEUE, before.process, before.cluster, amount=microseconds(now - before.ready_at))


def _find_or_create(
    connection: Connection, process: ProcessRecord, nominal_time: datetime, now: datetime
) -> ProcessInstance:
    instances, key = ProcessInstances(connection), ProcessKey(*process.key, nominal_time)
    row = instances.get(*key)
    if row is None:
        instances.add_waiting([new_instance(process, nominal_time, now)])
        row = instances.get(*key)
    assert row is not None
    return row


def new_instance(process: ProcessRecord, nominal_time: datetime, now: datetime) -> ProcessInstance:
    """Return an instance that waits from now on."""
    return ProcessInstance(
        process=process.process,
        cluster=process.cluster,
        nominal_time=nominal_time,
        status=ProcessInstanceStatus.WAITING,
        updated_at=now,
        materialized_at=now,
        definition_digest=process.definition_digest,
    )


def decide_trigger(before: ProcessInstance, run_id: str) -> tuple[Cause, str | None]:
    """Decide what triggered an attempt, from the instance as it was before: the reason why it was READY, or a person.

    Returns the cause and its detail, if any.
    """
    if is_command(run_id):
        return Cause.ELSEWHERE if is_elsewhere(run_id) else Cause.REPAIR, describe_run(run_id)
    if before.status is not ProcessInstanceStatus.READY or before.request_key is None:
        return Cause.BY_HAND, None
    return before.cause or Cause.INPUTS, before.cause_detail


def end_attempt(
    connection: Connection,
    key: ProcessKey,
    status: ProcessInstanceStatus,
    reason: str | None,
    now: datetime,
    cause: Cause | None = None,
) -> None:
    """Record how an attempt ended, if its instance is still RUNNING. Without a `cause`, the status tells it."""
    cause = cause or _ENDED_BY.get(status)
    changes = ProcessChanges(status=status, deaths=0, ended_at=now, cause=cause, cause_detail=reason, updated_at=now)
    if status is ProcessInstanceStatus.SUCCEEDED:
        changes["request_key"] = changes["requested_at"] = None
    running = {ProcessInstanceStatus.RUNNING}
    ProcessInstances(connection).transition(key, running, **changes)
    Attempts(connection).end(key, status, now, reason)
