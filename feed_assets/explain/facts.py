"""Facts from the record about an instance and everything upstream of it, loaded level by level. A level is the
instances one step further upstream. Each level costs a few statements, however many instances it has.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickFailure, TickFailures
from feed_assets.context.operation import OperationContext
from feed_assets.context.safe_mode import is_restored, is_safe_mode
from feed_assets.entities.flow_names import declared_by
from feed_assets.instances.gates.blockers import Launches, NotReached
from feed_assets.instances.gates.readiness import find_awaited, part_due
from feed_assets.instances.gates.requests import RUN_TIME, find_beginnings, find_next, group_ready, plan_run
from feed_assets.instances.gates.turns import find_unread
from feed_assets.instances.late.hanging import find_awaiting
from feed_assets.instances.late.quality_checks import QualityCheck, QualityChecks
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules, state_without_row
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ENDED, ProcessInstances
from feed_assets.log.leases import find_held
from feed_assets.log.records import (
    ArrivalPoll,
    EntityKey,
    FeedEvent,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    Lease,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.registration.registering import Registration, Registrations
from feed_assets.releases.left_out import find_writers
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import NEVER
from feed_assets.triggers.input_windows import InputState, closed_gates, read_states

K = TypeVar("K", ProcessKey, FeedKey)

FOLLOWED_AN_INPUT = 5
FOLLOWED_AN_INSTANCE = 40
DEEPEST = 25
MOST_INSTANCES = 400

_GATED = frozenset({ProcessInstanceStatus.WAITING, ProcessInstanceStatus.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The facts of one process instance. `states` is empty if its gate no longer matters; `reached` counts without
    a row; `launches` is None if the launch order does not matter yet. `awaited` have yet to run again before it reads.
    """

    row: ProcessInstance | None
    active: ActiveRelease | None
    states: tuple[InputState, ...]
    schedule: ScheduleState
    reached: NotReached
    launches: Launches | None
    leases: tuple[Lease, ...]
    awaited: Mapping[ProcessKey, ProcessInstanceStatus]

    def earlier(self, key: ProcessKey) -> ProcessKey | None:
        """Return the instance that has to succeed before this one; None if none has."""
        unread = self.launches.unread if self.launches is not None else None
        return key._replace(nominal_time=unread) if unread is not None and unread < key.nominal_time else None

    @property
    def followed(self) -> int:
        """How many missing instances of each input are followed: fewer, the more inputs have missing instances."""
        lacking = len(closed_gates(self.states))
        return max(1, min(FOLLOWED_AN_INPUT, FOLLOWED_AN_INSTANCE // lacking)) if lacking else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFacts:
    """The facts of one feed instance. `record` is the feed by the release that waits for it, or as it is declared;
    `writers` are the process instances that write it.
    """

    record: FeedRecord
    row: FeedInstance | None
    poll: ArrivalPoll | None
    events: tuple[FeedEvent, ...]
    writers: tuple[ProcessKey, ...]
    check: QualityCheck | None = None
    registration: Registration | None = None

    @property
    def lost(self) -> FeedEvent | None:
        """The event by which storage has lost the instance; None if it has not, or it has come again."""
        is_lost = bool(self.events) and self.events[-1].kind is FeedEventKind.VANISHED
        return self.events[-1] if is_lost else None


@dataclass(slots=True, kw_only=True)
class InstanceFacts:
    """All loaded facts. An absent instance was too far upstream, or exceeded the number of loaded instances, `most`."""

    most: int
    is_safe_mode: bool
    is_restored: bool
    tick_failures: Sequence[TickFailure]
    processes: dict[ProcessKey, ProcessFacts] = field(default_factory=dict)
    feeds: dict[FeedKey, FeedFacts] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of instances."""
        return len(self.processes) + len(self.feeds)


def load_instance_facts(
    context: OperationContext,
    connection: Connection,
    *,
    processes: Sequence[ProcessKey] = (),
    feeds: Sequence[FeedKey] = (),
) -> InstanceFacts:
    """Load the facts of instances and of everything upstream of them."""
    all_facts = InstanceFacts(
        most=MOST_INSTANCES * (len(processes) + len(feeds)),
        is_safe_mode=is_safe_mode(connection),
        is_restored=is_restored(connection),
        tick_failures=TickFailures(connection).all(),
    )
    for depth in range(DEEPEST):
        all_facts.processes |= _process_facts(context, connection, processes, is_first=depth == 0)
        upstream = {key: context.plan.feeds[key.feed, key.cluster] for key in feeds}
        for each in processes:
            upstream |= _missing_inputs(context, all_facts.processes[each])
        feeds = _unknown(list(upstream), all_facts.feeds, all_facts)
        all_facts.feeds |= _feed_facts(context, connection, {key: upstream[key] for key in feeds})
        writers = [writer for key in feeds for writer in all_facts.feeds[key].writers]
        before = [earlier for each in processes if (earlier := all_facts.processes[each].earlier(each)) is not None]
        processes = _unknown([*writers, *before], all_facts.processes, all_facts)
        feeds = ()
        if not processes:
            break
    return all_facts


def _unknown(keys: Sequence[K], known: Collection[K], all_facts: InstanceFacts) -> list[K]:
    return [key for key in dict.fromkeys(keys) if key not in known][: max(0, all_facts.most - all_facts.size)]


def _missing_inputs(context: OperationContext, facts: ProcessFacts) -> dict[FeedKey, FeedRecord]:
    """Return the first missing instances of each input that keeps the gate closed, with their feeds by the release; the
    current instance also of a window that follows what is there.

    The plan of an older release does not have who writes a feed: that is as it is declared.
    """
    if facts.active is None:
        return {}
    found: dict[FeedKey, FeedRecord] = {}
    for state in closed_gates(facts.states):
        record = facts.active.plan.feeds[state.edge.feed_key]
        declared = context.plan.feeds.get(record.key)
        record = record if declared is None else replace(record, outputs_of=declared.outputs_of)
        times = (record.sequence.start,) if state.expected is None and record.is_current else state.missing
        found |= {FeedKey(*record.key, time): record for time in times[: facts.followed]}
    return found


def _process_facts(
    context: OperationContext, connection: Connection, keys: Sequence[ProcessKey], *, is_first: bool
) -> dict[ProcessKey, ProcessFacts]:
    if not keys:
        return {}
    rows = ProcessInstances(connection).get_many(keys)
    active = {
        key: context.timeline.find_or_declared(connection, (key.process, key.cluster), key.nominal_time) for key in keys
    }
    gated = [key for key in keys if key not in rows or rows[key].status in _GATED]
    states = read_states(connection, context.timeline, gated, context.as_of)
    owners = {key.process: declared_by(key.process) for key in keys}
    schedules: dict[tuple[str, str, str], Schedule] = {}
    for kind in {kind for kind, _ in owners.values()}:
        names = sorted({name for each, name in owners.values() if each is kind})
        schedules |= Schedules(connection).of_many(kind, names)
    leases = _leases(context, connection, active)
    read = {key: rows[key].inputs if key in rows and rows[key].status in ENDED else () for key in keys}
    awaited = find_awaiting(connection, context.timeline, read, context.as_of)
    launches = _launches(context, connection, {key for key in keys if is_first or is_ready(rows.get(key))})
    found = {}
    for key in keys:
        row, schedule = rows.get(key), schedules.get((*owners[key.process], key.cluster))
        found[key] = ProcessFacts(
            row=row,
            active=active[key],
            states=states.get(key, ()),
            schedule=schedule.state if schedule else state_without_row(connection),
            reached=NotReached(next_time=None) if row else _reached(context, connection, key),
            launches=launches.get((key.process, key.cluster)),
            leases=tuple(leases.get(key, ())),
            awaited=awaited.get(key, {}),
        )
    return found


def _reached(context: OperationContext, connection: Connection, key: ProcessKey) -> NotReached:
    """Return how far ticks are on the way to an instance without a row, as the next tick would go on."""
    process = EntityKey(key.process, key.cluster)
    watermark = Watermarks(connection).get(WatermarkKind.PROCESS, *process)
    if watermark is None or not watermark.ahead:
        return NotReached(next_time=None)
    spans = context.timeline.spans(connection, process, since=watermark.ahead[0][0])
    watermark = part_due(spans, watermark, context.as_of)
    is_past = watermark.past_towards(key.nominal_time) is not None
    awaited = find_awaited(connection, context.plan, [process], context.as_of).get(process, ()) if is_past else ()
    return NotReached(next_time=watermark.next_towards(key.nominal_time), is_past=is_past, awaited=awaited)


def is_ready(row: ProcessInstance | None) -> bool:
    """Return whether a process instance is recorded as READY."""
    return row is not None and row.status is ProcessInstanceStatus.READY


def _launches(context: OperationContext, connection: Connection, keys: Collection[ProcessKey]) -> dict[Key, Launches]:
    instances = ProcessInstances(connection)
    processes = sorted({(key.process, key.cluster) for key in keys})
    in_flight = instances.in_flight(processes)
    found: dict[Key, Launches] = {}
    for key in processes:
        process = context.plan.processes.get(key)
        if process is None:
            continue
        ready = find_next(instances, process)
        begun = find_beginnings(connection, [process]).get(EntityKey(*key), NEVER)
        times = [row.nominal_time for row in ready]
        declared = [time for time in times if context.timeline.find(connection, key, time) is not None]
        found[key] = Launches(
            ready=tuple(group_ready(connection, context.timeline, key, declared)),
            in_flight=in_flight.get(EntityKey(*key), 0),
            again=frozenset(row.nominal_time for row in ready if row.is_again or row.nominal_time >= begun),
            most=plan_run(connection, process, context.clock.span(RUN_TIME)),
            unread=find_unread(connection, [key] if process.reads_in_turn else []).get(key),
        )
    return found


def _leases(
    context: OperationContext, connection: Connection, active: dict[ProcessKey, ActiveRelease | None]
) -> dict[ProcessKey, list[Lease]]:
    """Return the leases on the instances and on their outputs, by instance."""
    keys_by_lease: dict[tuple[str, str, datetime], list[ProcessKey]] = defaultdict(list)
    for key, span in active.items():
        keys_by_lease[f"process/{key.process}", key.cluster, key.nominal_time].append(key)
        for edge in span.record.outputs if span else ():
            time = span.plan.output_time(edge, key.nominal_time) if span else None
            if time is not None:
                keys_by_lease[f"feed/{edge.feed}", key.cluster, time].append(key)
    found: dict[ProcessKey, list[Lease]] = defaultdict(list)
    for lease in find_held(connection, keys_by_lease, context.real_now):
        for key in keys_by_lease[lease.entity, lease.cluster, lease.nominal_time]:
            found[key].append(lease)
    return found


def _feed_facts(
    context: OperationContext, connection: Connection, keys: Mapping[FeedKey, FeedRecord]
) -> dict[FeedKey, FeedFacts]:
    if not keys:
        return {}
    rows = FeedInstances(connection).get_many(keys)
    polls = ArrivalPolls(connection).find_many(keys)
    events = EventLog(connection).for_instances(keys)
    checks = QualityChecks(connection).of_instances([key for key, record in keys.items() if record.is_external])
    registered = [key for key, record in keys.items() if record.registration is not None]
    registrations = Registrations(connection).of_instances(registered) if registered else {}
    return {
        key: FeedFacts(
            record=record,
            row=rows.get(key),
            poll=polls.get(key),
            events=tuple(events.get(key, ())),
            writers=_writers(context, connection, record, key, rows.get(key)),
            check=checks.get(key),
            registration=registrations.get(key),
        )
        for key, record in keys.items()
    }


def _writers(
    context: OperationContext, connection: Connection, record: FeedRecord, key: FeedKey, row: FeedInstance | None
) -> tuple[ProcessKey, ...]:
    if row is not None and row.status is FeedInstanceStatus.AVAILABLE:
        return ()
    return tuple(writer for _, writer in find_writers(context.timeline, connection, record, key.nominal_time))
