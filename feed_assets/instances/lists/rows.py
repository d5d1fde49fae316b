"""Rows of instance lists: state, times, run and missing inputs of an instance, from the record."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.records import LateInstance
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.context.consolidation import Lifecycle
from feed_assets.context.operation import OperationContext
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import ClusterRole
from feed_assets.entities.flow_names import parse_transfer, source_of
from feed_assets.errors import render_some
from feed_assets.json_form import Hidden, NominalTime, shown, shows
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import (
    Attempt,
    FeedEvent,
    FeedInstance,
    FeedInstanceStatus,
    FrozenInput,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.triggers.input_windows import InputState, closed_gates, input_states_many

CHUNK = 500
_DETAILS = 3
_MOMENT = timedelta(microseconds=1)
UNRESOLVED = "{name}: its instances are not yet known ({feed} has too few)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One step of an attempt: the work itself, or the publication of an output."""

    name: str
    status: str
    ended_at: datetime | None
    log: str | None


@shows("row", "feed, nominal_time, event=seq, kind, published_at=recorded_at, digest=manifest_digest")
@dataclass(frozen=True, slots=True)
class AttemptOutput:
    """One publication of an attempt; `event` is its number in the event log."""

    row: Hidden[FeedEvent]

    @shown
    def name(self) -> str:
        """The output."""
        return str(self.row.payload["output"])


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """An instance of a feed or process, or one attempt at it.

    `lifecycle` is set for copies and evictions. `details` are the URLs of the missing mandatory inputs of a WAITING
    instance. `log` is the URL of the run in Dagster. For feeds, `ended_at` is the time of availability, and `url` the
    location. `sla` is the highest deadline by which it is late now. `tags` and `actions` are None if they were not
    requested, `inputs` and `outputs` if it is no attempt.
    """

    kind: Kind
    name: str
    cluster: str
    nominal_time: NominalTime
    status: str
    source_cluster: str | None = None
    lifecycle: Lifecycle | None = None
    details: tuple[str, ...] = ()
    reason: str | None = None
    attempt: int | None = None
    run_id: str | None = None
    log: str | None = None
    trigger: str | None = None
    release: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline_at: datetime | None = None
    retry_at: datetime | None = None
    bytes: int | None = None
    files: int | None = None
    url: str | None = None
    sla: SlaLevel | None = None
    tags: tuple[str, ...] | None = None
    actions: tuple[Action, ...] | None = None
    inputs: tuple[FrozenInput, ...] | None = None
    outputs: tuple[AttemptOutput, ...] | None = None

    @property
    def copied_from(self) -> str | None:
        """The source of a copy."""
        return self.source_cluster if self.lifecycle is Lifecycle.REPLICATION else None

    @property
    def remark(self) -> str | None:
        """What is to be said of it, for people: why it waits or failed, what an attempt has read and published."""
        texts = [f"late ({self.sla.value.upper()})"] if self.sla is not None else []
        texts += [render_some(self.details, _DETAILS)] if self.details else []
        texts += [self.reason] if self.reason else []
        if self.inputs:
            read = (f"{each.name} ({counted(len(each.instances), 'instance')})" for each in self.inputs)
            texts.append(f"read {', '.join(read)}")
        if self.outputs:
            texts.append(f"wrote {', '.join(f'{each.name} (event {each.row.seq})' for each in self.outputs)}")
        return "; ".join(texts) or self.url

    @property
    def run(self) -> str | None:
        """Where its run is in Dagster, or else the id of it."""
        return self.log or self.run_id

    @property
    def steps(self) -> Iterator[tuple[object, ...]]:
        """Instance, attempt, step, status, times, run, remark and log: of the whole attempt, and of each step."""
        at = (self.cluster, render_datetime(self.nominal_time), self.attempt)
        times = (rendered(self.started_at), rendered(self.ended_at))
        yield (*at, None, self.status, *times, self.run_id, self.remark, self.log)
        for step in self.actions or ():
            yield (*at, step.name, step.status, None, rendered(step.ended_at), self.run_id, None, step.log)


def rendered(moment: datetime | None) -> str | None:
    """Return a recorded time to the second, None for none.

    >>> from datetime import UTC
    >>> rendered(datetime(2013, 11, 3, 5, 0, 7, 250, tzinfo=UTC))
    '2013-11-03T05:00:07Z'
    """
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def lifecycle_of(name: str) -> Lifecycle | None:
    """Return the lifecycle of a flow or transfer; None for a process."""
    transfer = parse_transfer(name)
    if transfer is not None:
        return Lifecycle(transfer[1].value)
    return None if source_of(name) is None else Lifecycle.REPLICATION


def process_row(context: OperationContext, instance: ProcessInstance, details: tuple[str, ...] = ()) -> InstanceRow:
    """Return the row of an instance of a process, flow or transfer."""
    is_waiting = instance.status is ProcessInstanceStatus.WAITING
    source = source_of(instance.process)
    return InstanceRow(
        kind=Kind.PROCESS,
        name=instance.process,
        cluster=instance.cluster,
        source_cluster=source,
        lifecycle=lifecycle_of(instance.process),
        nominal_time=instance.nominal_time,
        status=instance.status.value,
        details=details,
        reason=instance.reason,
        attempt=instance.attempt or None,
        run_id=instance.run_id,
        log=context.run_url(instance.run_id),
        release=instance.release,
        started_at=instance.started_at,
        ended_at=instance.ended_at,
        deadline_at=instance.deadline_at if is_waiting else None,
        retry_at=next_attempt(instance),
    )


def next_attempt(instance: ProcessInstance) -> datetime | None:
    """Return the time of a failed instance's next automatic retry; None without one, or before it is decided."""
    has_failed = instance.status in (ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT)
    return instance.retry_at if has_failed and instance.retry_at != NEVER else None


def attempt_rows(
    context: OperationContext, connection: Connection, rows: Sequence[InstanceRow]
) -> tuple[InstanceRow, ...]:
    """Return one row for each attempt, newest first; an instance without attempts keeps its row."""
    attempts = Attempts(connection).of_many([ProcessKey(row.name, row.cluster, row.nominal_time) for row in rows])
    found: list[tuple[InstanceRow, Attempt | None]] = []
    for row in rows:
        tries = attempts.get(ProcessKey(row.name, row.cluster, row.nominal_time), [])
        if not tries or row.status in _UNSTARTED:
            found.append((row, None))
        found.extend((row, attempt) for attempt in reversed(tries))
    return tuple(rows_of_attempts(context, connection, found))


_UNSTARTED = frozenset({ProcessInstanceStatus.WAITING.value, ProcessInstanceStatus.READY.value})


def rows_of_attempts(
    context: OperationContext, connection: Connection, found: Sequence[tuple[InstanceRow, Attempt | None]]
) -> Iterator[InstanceRow]:
    """Yield the row of each attempt at an instance, with what it has read and published; without an attempt, the
    instance's own row.
    """
    events = EventLog(connection).of_numbers(seq for _, attempt in found if attempt for seq in attempt.outputs)
    for row, attempt in found:
        yield row if attempt is None else _attempt_row(context, row, attempt, events)


def _attempt_row(
    context: OperationContext, row: InstanceRow, attempt: Attempt, events: Mapping[int, FeedEvent]
) -> InstanceRow:
    is_last = row.attempt == attempt.attempt
    return replace(
        row,
        status=attempt.status.value,
        details=(),
        reason=attempt.reason,
        attempt=attempt.attempt,
        run_id=attempt.run_id,
        log=context.run_url(attempt.run_id),
        trigger=attempt.trigger or None,
        release=attempt.release,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        deadline_at=None,
        retry_at=row.retry_at if is_last else None,
        inputs=attempt.inputs,
        outputs=tuple(AttemptOutput(events[seq]) for seq in attempt.outputs if seq in events),
    )


def missing_dependencies(
    context: OperationContext, connection: Connection, instances: Sequence[ProcessInstance]
) -> dict[ProcessKey, tuple[str, ...]]:
    """Return the URLs of missing mandatory inputs for each waiting instance."""
    times: dict[tuple[str, str], list[datetime]] = {}
    for instance in instances:
        if instance.status is ProcessInstanceStatus.WAITING:
            times.setdefault((instance.process, instance.cluster), []).append(instance.nominal_time)
    found: dict[ProcessKey, tuple[str, ...]] = {}
    for plan, plan_times in context.timeline.group(connection, times):
        for key, by_time in input_states_many(connection, plan, plan_times, context.as_of).items():
            for time, states in by_time.items():
                found[ProcessKey(*key, time)] = tuple(
                    text for state in closed_gates(states) for text in _missing_texts(context, plan, state.edge, state)
                )
    return found


def _missing_texts(context: OperationContext, plan: Plan, edge: InputEdge, state: InputState) -> Iterator[str]:
    if state.expected is None:
        yield UNRESOLVED.format(name=edge.name, feed=edge.feed)
    record = plan.feeds[edge.feed_key]
    yield from (context.feed_url(record, time) for time in state.missing)


def with_levels(connection: Connection, rows: Sequence[InstanceRow]) -> tuple[InstanceRow, ...]:
    """Return the rows, with the highest deadline by which each instance is late now."""
    found = SlaMisses(connection).of({_late_instance(row) for row in rows})
    levels = {
        instance: max(late, key=lambda level: level is SlaLevel.HIGH)
        for instance, misses in found.items()
        if (late := [miss.level for miss in misses if miss.is_open])
    }
    return tuple(replace(row, sla=levels.get(_late_instance(row))) for row in rows) if levels else tuple(rows)


def _late_instance(row: InstanceRow) -> LateInstance:
    return LateInstance(row.kind.value, row.name, row.cluster, row.nominal_time)


def feed_row(
    context: OperationContext, record: FeedRecord, nominal_time: datetime, instance: FeedInstance | None
) -> InstanceRow:
    """Return the row of a feed instance; an instance that is not recorded is MISSING."""
    return InstanceRow(
        kind=Kind.FEED,
        name=record.feed,
        cluster=record.cluster,
        source_cluster=source_cluster(context.plan, record),
        nominal_time=nominal_time,
        status=(instance.status if instance else FeedInstanceStatus.MISSING).value,
        ended_at=instance.available_at if instance else None,
        bytes=instance.bytes if instance else None,
        files=instance.files if instance else None,
        url=context.feed_url(record, nominal_time),
    )


def source_cluster(plan: Plan, record: FeedRecord) -> str | None:
    """Return the source of a replica: the only source cluster of its feed; None if there are several."""
    if record.role is not ClusterRole.TARGET:
        return None
    sources = [
        cluster
        for cluster in plan.clusters
        if (other := plan.feeds.get((record.feed, cluster))) is not None and other.role is ClusterRole.SOURCE
    ]
    return sources[0] if len(sources) == 1 else None


def iter_feed_instances(
    connection: Connection, record: FeedRecord, indices: range, *, descending: bool
) -> Iterator[tuple[datetime, FeedInstance | None]]:
    """Yield the instances of an index range with their records, lazily and in batches; of a feed whose instances come
    as they come, those that have come.
    """
    sequence, found = record.sequence, FeedInstances(connection)
    if not record.is_expected:
        oldest, newest = sequence.at(indices.start), sequence.at(indices.stop - 1)
        while come := found.find_between(*record.key, oldest, newest, limit=CHUNK, newest_first=descending):
            yield from ((row.nominal_time, row) for row in come)
            if descending:
                newest = come[-1].nominal_time - _MOMENT
            else:
                oldest = come[-1].nominal_time + _MOMENT
        return
    starts = range(indices.start, indices.stop, CHUNK)
    for first in reversed(starts) if descending else starts:
        chunk = range(first, min(first + CHUNK, indices.stop))
        rows: Mapping[datetime, FeedInstance] = {
            row.nominal_time: row
            for row in found.find_between(*record.key, sequence.at(chunk[0]), sequence.at(chunk[-1]))
        }
        for index in reversed(chunk) if descending else chunk:
            time = sequence.at(index)
            yield time, rows.get(time)


def count_due(
    context: OperationContext,
    connection: Connection,
    record: FeedRecord | ProcessRecord,
    starts: Sequence[datetime],
) -> Iterator[tuple[int, int]]:
    """Yield how many instances are due between each two times, and how many will be; none if they come as they come. Of
    a process none is due: those that are have rows.
    """
    if isinstance(record, FeedRecord):
        for start, stop in pairwise(starts):
            due = len(due_between(record, start, stop, context.as_of)) if record.is_expected else 0
            yield due, len(record.sequence.indices_between(start, stop)) - due if record.is_expected else 0
        return
    watermark = Watermarks(connection).get(WatermarkKind.PROCESS, *record.key)
    ahead = ((starts[0], starts[-1]),) if watermark is None else watermark.ahead
    spans = context.timeline.spans(connection, record.key, starts[0]) if record.is_enumerated else ()
    for start, stop in pairwise(starts):
        parts = [(max(start, first), min(stop, until)) for first, until in ahead]
        yield 0, sum(len(each.between(*part)) for each in spans for part in parts)


def due_between(record: FeedRecord, start: datetime, stop: datetime, as_of: datetime) -> range:
    """Return the index range of a feed's instances with `start <= nominal time < stop` that are due at `as_of`."""
    indices = record.sequence.indices_between(start, stop)
    return range(indices.start, max(indices.start, min(indices.stop, record.sequence.index_at_or_before(as_of) + 1)))
