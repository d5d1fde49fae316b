"""Create process instances at their nominal time, and make them READY when their inputs are available.

A tick examines only instances that something happened to: new ones, and readers of feed instances that the event log
mentions. The cost of a tick follows the number of events, not of instances. What is created too late is skipped by the
catch-up policy: causes are a stopped daemon, a process that was not scheduled, or a validity that began before the
declaration.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import assert_never

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import is_flow
from feed_assets.entities.process import CatchUp, Order
from feed_assets.instances.gates.end_messages import Ended, tell_all_ends
from feed_assets.instances.gates.requests import Span, find_affected
from feed_assets.instances.late.hanging import iter_hanging_spans, wake_hanging
from feed_assets.instances.late.lateness import CONCERNED, CONCERNED_COPIES, plan_update
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.overdue_notices import first_notice_at
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.outbox import tell_arrived
from feed_assets.log.records import (
    ARRIVING,
    CONTENT,
    Cause,
    EntityKey,
    FeedEvent,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    Watermark,
    WatermarkKind,
    describe_cause,
)
from feed_assets.log.watermarks import PAST_A_TICK, Watermarks, part_past
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.releases.timeline import (
    BEGINNING,
    ActiveRelease,
    find_changed,
    first_at_or_after,
    forget_changed,
    note_changed,
)
from feed_assets.sql.database import lock_log
from feed_assets.triggers.input_windows import closed_gates, read_states, runs_incomplete

ON_TIME = timedelta(minutes=5)
"""An instance created with at most this delay is on time: longer than ticks, reloads and restarts take."""


def decide_catch_up(
    policy: CatchUp, lateness: timedelta, *, has_successor: bool, on_time: timedelta = ON_TIME
) -> Cause | None:
    """Return why an instance is skipped at its creation; None if it is kept.

    An instance that is on time is always kept, so a slow tick loses nothing, however short the frequency. Of the
    instances that are too late, `ALL` keeps every one, `LATEST` those without a successor, and `NONE` none.

    Differs from Falcon: Falcon has only `ALL`.

    Args:
        policy: of the process.
        lateness: how long ago the nominal time was.
        has_successor: whether the nominal time of the next instance has passed too.
        on_time: the greatest lateness that counts as on time.

    >>> late = timedelta(hours=3)
    >>> decide_catch_up(CatchUp.NONE, late, has_successor=False)
    <Cause.MISSED: 'MISSED'>
    >>> decide_catch_up(CatchUp.LATEST, late, has_successor=False)
    >>> decide_catch_up(CatchUp.NONE, timedelta(minutes=5), has_successor=False)
    """
    if lateness <= on_time:
        return None
    match policy:
        case CatchUp.ALL:
            return None
        case CatchUp.LATEST:
            return Cause.OVERTAKEN if has_successor else None
        case CatchUp.NONE:
            return Cause.MISSED
        case _:
            assert_never(policy)


def note_updates(connection: Connection, tick: Tick, events: Sequence[FeedEvent]) -> None:
    """Plan the checks of the instances of a cluster that have begun, and read what the events mention; let those reruns
    be decided that were asked for and wait for it.
    """
    asked = LateChecks(connection).processes_of(AgendaKind.RERUN)
    if not asked and not tick.plan.follows_updates(tick.cluster):
        return
    times: dict[Key, set[datetime]] = defaultdict(set)
    for event in events:
        if event.kind in CONTENT and (event.feed, event.cluster) in tick.plan.feeds:
            times[event.feed, event.cluster].add(event.nominal_time)
    if asked:
        LateChecks(connection).wake({event.maker for event in events if event.maker is not None}, tick.as_of)
        wake_hanging(connection, tick.timeline, times, tick.as_of)
    spans: dict[Key, list[Span]] = defaultdict(list)
    for reader, in_spans in iter_hanging_spans(connection, tick.timeline, times):
        process = reader.active.record
        if process.cluster == tick.cluster and process.follows_updates:
            spans[process.key] += in_spans
    copies = {key: each for key, each in spans.items() if is_flow(key[0])}
    others = {key: each for key, each in spans.items() if key not in copies}
    instances = ProcessInstances(connection)
    found = {**instances.times_in(others, CONCERNED), **instances.times_in(copies, CONCERNED_COPIES)}
    LateChecks(connection).put(
        plan_update(ProcessKey(*process, time), tick.as_of) for process, moments in found.items() for time in moments
    )


EVENTS_A_STEP = 5_000
PROCESSES_A_STEP = 500
INSTANCES_A_STEP = 100

FEED, PROCESS = WatermarkKind.FEED, WatermarkKind.PROCESS

_MOMENT = timedelta(microseconds=1)
_WAITING = frozenset({ProcessInstanceStatus.WAITING})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessResult:
    """The changes of one tick: how many instances were created, became ready and timed out."""

    materialized: int = 0
    ready: int = 0
    timed_out: int = 0
    is_complete: bool = True


@tick_step(TickStep.GATES, otherwise=ReadinessResult())
def apply_readiness(tick: Tick, *, on_time: timedelta = ON_TIME) -> ReadinessResult:
    """Create due process instances of a cluster, open the gates of those with available inputs, and apply timeouts.

    Each instance follows the definitions that govern it. A process that is not scheduled gets no new instances, and
    none of its instances time out; their gates still open. An instance created later than `on_time` after its nominal
    time is subject to `catch_up`. A process that cannot be evaluated keeps its instances as they are, and its gates are
    checked again later.
    """
    materialized = ready = 0
    while True:
        with tick.database.read() as connection:
            due = Watermarks(connection).due(PROCESS, tick.as_of, PROCESSES_A_STEP, tick.cluster, only_scheduled=True)
        if not due:
            break
        count = _materialize(tick, due, on_time)
        materialized += count[0]
        ready += count[1]
        if tick.budget.is_spent:
            return ReadinessResult(materialized=materialized, ready=ready, is_complete=False)
        if not count[2]:
            break
    ready += _apply_changed(tick)
    while True:
        more, count_ready = _apply_events(tick)
        ready += count_ready
        if not more:
            break
        if tick.budget.is_spent:
            return ReadinessResult(materialized=materialized, ready=ready, is_complete=False)
    ended, is_complete = work_off(tick, _TimeOuts())
    ready, timed_out = ready + sum(each for each, _ in ended), sum(each for _, each in ended)
    past = _apply_past(tick, on_time)
    made, ready, is_complete = materialized + past.materialized, ready + past.ready, is_complete and past.is_complete
    return ReadinessResult(materialized=made, ready=ready, timed_out=timed_out, is_complete=is_complete)


def _apply_past(tick: Tick, on_time: timedelta) -> ReadinessResult:
    """Create instances of the past, at most `PAST_A_TICK` of a process.

    Those of which the past of inputs is still looked for come later: they would time out.
    """
    materialized, ready, is_left = 0, 0, False
    for _ in range(PAST_A_TICK // INSTANCES_A_STEP):
        with tick.database.read() as connection:
            found = Watermarks(connection).due(
                PROCESS, tick.as_of, None, tick.cluster, only_scheduled=True, of_past=True
            )
            awaited = find_awaited(connection, tick.plan, [each.key for each in found], tick.as_of)
        due = [each for each in found if awaited.get(each.key) == ()]
        is_left = bool(awaited)
        if not due or tick.budget.is_spent:
            break
        count = _materialize(tick, due[:PROCESSES_A_STEP], on_time, of_past=True)
        materialized += count[0]
        ready += count[1]
    return ReadinessResult(materialized=materialized, ready=ready, is_complete=not is_left)


def find_awaited(
    connection: Connection, plan: Plan, processes: Sequence[EntityKey], as_of: datetime
) -> dict[EntityKey, tuple[Key, ...]]:
    """Return, by declared process, the feeds that its past waits for: inputs of which the past is still looked for."""
    known = [key for key in processes if key in plan.processes]
    behind = Watermarks(connection).due(FEED, as_of, None, of_past=True) if known else []
    looked_for = {each.key for each in behind if each.key in plan.feeds and plan.feeds[each.key].is_polled}
    inputs = {key: dict.fromkeys(edge.feed_key for edge in plan.processes[key].inputs) for key in known}
    return {key: tuple(feed for feed in feeds if feed in looked_for) for key, feeds in inputs.items()}


def _materialize(
    tick: Tick, due: Sequence[Watermark], on_time: timedelta, *, of_past: bool = False
) -> tuple[int, int, bool]:
    """Create the next instances of some processes, or those `of_past`; return how many were created, how many became
    ready, and whether more are due.
    """
    rows: dict[Key, list[ProcessInstance]] = {}
    moved: list[Watermark] = []
    with tick.database.begin() as connection:

        def materialize(watermark: Watermark) -> tuple[list[ProcessInstance], Watermark] | None:
            key = (watermark.entity, watermark.cluster)
            spans = tick.timeline.spans(connection, key, since=watermark.ahead[0][0])
            return decide_materialization(spans, watermark, tick.as_of, on_time, of_past=of_past)

        for watermark in due:
            name = watermark.entity
            decided = tick.bulkheads.run_unit(TickStep.INSTANCES, name, None, materialize, watermark)
            if decided is not None:
                moved.append(decided[1])
                if (name, watermark.cluster) in tick.plan.processes:
                    rows[name, watermark.cluster] = decided[0]
        instances = ProcessInstances(connection)
        instances.add_waiting([row for new in rows.values() for row in new])
        for key, new in rows.items():
            kept = [row.nominal_time for row in new if row.cause is not Cause.MISSED]
            if kept and tick.plan.processes[key].order is Order.LAST_ONLY:
                _supersede(instances, tick.plan.processes[key], kept[-1], tick.as_of)
        Watermarks(connection).put(moved)
        waiting = {
            key: [row.nominal_time for row in new if row.status is ProcessInstanceStatus.WAITING]
            for key, new in rows.items()
        }
        ready = _open_gates(connection, tick, waiting)
    is_more = len(due) == PROCESSES_A_STEP or any(each.next_time and each.next_time <= tick.as_of for each in moved)
    return sum(len(new) for new in rows.values()), ready, is_more


def decide_materialization(
    spans: Sequence[ActiveRelease],
    watermark: Watermark,
    as_of: datetime,
    on_time: timedelta = ON_TIME,
    *,
    of_past: bool = False,
) -> tuple[list[ProcessInstance], Watermark]:
    """Return the due instances of a process, at most `INSTANCES_A_STEP`, oldest first, and the following watermark.

    Each instance belongs to the span of its nominal time, so after a definition change the new definition's instances
    follow the old one's. Without spans the watermark stays in place.

    The timeout of an instance counts from its creation, as in Falcon, so catching up after downtime times nothing out.
    The process's `catch_up` may skip an instance later than `on_time`. LAST_ONLY skips an instance whose successor is
    created too. A skipped instance has a row with status SKIPPED from the start. The newest instances of a long past
    are due first, the others only `of_past`.
    """
    if not of_past:
        watermark = part_due(spans, watermark, as_of)
    first, until = watermark.ahead[0 if of_past else -1]
    indices = ((each, each.between(first, min(until, as_of - each.record.delay + _MOMENT))) for each in spans)
    times = ((active, active.record.sequence.at(index)) for active, found in indices for index in found)
    due = list(islice(times, INSTANCES_A_STEP + 1))
    taken = due[:INSTANCES_A_STEP]
    rows = [
        _new_instance(active.record, nominal_time, as_of, on_time, has_successor=of_past or position + 1 < len(due))
        for position, (active, nominal_time) in enumerate(taken)
    ]
    following = first_at_or_after(spans, taken[-1][1] + _MOMENT if taken else first)
    if of_past:
        return rows, replace(watermark, past_time=following[1] if following and following[1] < until else None)
    if following is None:
        index = taken[-1][0].record.sequence.index(taken[-1][1]) + 1 if taken else watermark.next_index
        return rows, replace(watermark, next_index=index, next_time=None)
    active, next_time = following
    index = active.record.sequence.index(next_time)
    return rows, replace(watermark, next_index=index, next_time=next_time, delay=active.record.delay)


def part_due(spans: Sequence[ActiveRelease], watermark: Watermark, as_of: datetime) -> Watermark:
    """Return the watermark of a process as a tick goes on from it: with the newest due instances parted from a past."""
    stops = [min(each.stop, as_of - each.record.delay + _MOMENT) for each in spans]
    parts = [(each.record.sequence, each.start, stop) for each, stop in zip(spans, stops, strict=True)]
    return part_past(watermark, parts)


def _new_instance(
    record: ProcessRecord, nominal_time: datetime, as_of: datetime, on_time: timedelta, *, has_successor: bool
) -> ProcessInstance:
    late_by = as_of - nominal_time - record.delay
    cause = decide_catch_up(record.catch_up, late_by, has_successor=has_successor, on_time=on_time)
    if cause is None and has_successor and record.order is Order.LAST_ONLY:
        cause = Cause.SUPERSEDED
    return ProcessInstance(
        process=record.process,
        cluster=record.cluster,
        nominal_time=nominal_time,
        status=ProcessInstanceStatus.WAITING if cause is None else ProcessInstanceStatus.SKIPPED,
        updated_at=as_of,
        materialized_at=as_of,
        deadline_at=record.deadline_after(as_of),
        notice_at=first_notice_at(record, nominal_time, as_of) if cause is None else as_of,
        ended_at=None if cause is None else as_of,
        cause=cause,
        cause_detail=record.superseded if cause is Cause.SUPERSEDED else None,
        definition_digest=record.definition_digest,
    )


def _supersede(instances: ProcessInstances, record: ProcessRecord, newest: datetime, as_of: datetime) -> None:
    """With LAST_ONLY, skip older instances that were not launched when their successor is created, as in Falcon.

    Instances that wait for a rerun stay.
    """
    for status in (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY):
        rows = instances.with_status(status, record.process, record.cluster, limit=EVENTS_A_STEP)
        instances.transition_many(
            [row.key for row in rows if row.nominal_time < newest and row.request_key is None and row.attempt == 0],
            {status},
            status=ProcessInstanceStatus.SKIPPED,
            ended_at=as_of,
            updated_at=as_of,
            cause=Cause.SUPERSEDED,
            cause_detail=record.superseded,
        )


def _cursor(cluster: str) -> str:
    return f"readiness/{cluster}"


def _apply_events(tick: Tick) -> tuple[bool, int]:
    """Open the gates that the next events of the log affect.

    Returns whether there may be more events, and how many gates opened.
    """
    with tick.database.read() as connection:
        after = int(Cursors(connection).get(_cursor(tick.cluster)) or 0)
        clusters = tick.plan.read_by(tick.cluster)
        found = EventLog(connection).read(after, EVENTS_A_STEP, clusters=clusters)
    if not found:
        return False, 0
    events = [event for event in found if event.cluster in clusters]
    arrived = [event for event in events if event.kind in ARRIVING and event.cluster == tick.cluster]
    if arrived:  # in a transaction of its own, which is repeated without harm, since it locks the log
        marked = [(event.feed, tick.cluster, event.nominal_time, event.seq) for event in arrived]
        with tick.database.begin() as connection:
            tell_arrived(connection, Kind.FEED, marked, tick.as_of)
    spans = find_affected(tick.timeline, tick.cluster, events)
    coming = decide_coming(tick.plan, tick.cluster, events, tick.as_of)
    with tick.database.begin() as connection:
        instances = ProcessInstances(connection)
        instances.add_waiting(coming)
        note_updates(connection, tick, events)
        waiting = instances.times_in(spans, _WAITING)
        ready = _open_gates(connection, tick, waiting)
        Cursors(connection).put(_cursor(tick.cluster), str(found[-1].seq))
    return len(found) == EVENTS_A_STEP, ready


def decide_coming(plan: Plan, cluster: str, events: Sequence[FeedEvent], as_of: datetime) -> list[ProcessInstance]:
    """Return the instances that events bring about: one of whatever takes each instance that comes as it comes."""
    return [
        _new_instance(process, event.nominal_time, as_of, ON_TIME, has_successor=False)
        for event in events
        if event.kind in ARRIVING and (feed := plan.feeds.get((event.feed, event.cluster))) is not None
        for edge in feed.inputs_of
        if edge.cluster == cluster
        and not (process := plan.processes[edge.process_key]).is_enumerated
        and process.trigger is None
    ]


def _open_gates(
    connection: Connection,
    tick: Tick,
    waiting: Mapping[Key, Sequence[datetime]] | Mapping[EntityKey, Sequence[datetime]],
) -> int:
    """Make the instances READY whose inputs are available, each by the definitions that govern it.

    A process whose gates cannot be checked now is recorded, so that the next ticks check them.
    """

    def find_ready(processes: Sequence[tuple[Key, Sequence[datetime]]]) -> list[ProcessKey]:
        keys = (ProcessKey(*key, time) for key, times in processes for time in times)
        states = read_states(connection, tick.timeline, keys, tick.as_of)
        return [key for key, inputs in states.items() if not closed_gates(inputs)]

    units = {name: ((name, on), times) for (name, on), times in waiting.items()}
    ready = tick.bulkheads.run_apart(TickStep.GATES, units, find_ready)
    note_changed(
        connection, [key for name, (key, _) in units.items() if tick.bulkheads.has_failed(TickStep.GATES, name)]
    )
    return ProcessInstances(connection).transition_many(
        ready,
        {ProcessInstanceStatus.WAITING},
        status=ProcessInstanceStatus.READY,
        ready_at=tick.as_of,
        updated_at=tick.as_of,
    )


def _apply_changed(tick: Tick) -> int:
    """Check the gates of all waiting instances of processes with changed definitions: no event reports these."""
    with tick.database.read() as connection:
        if not find_changed(connection, tick.cluster):
            return 0
    with tick.database.begin() as connection:
        keys = [(name, tick.cluster) for name in sorted(find_changed(connection, tick.cluster))]
        forget_changed(connection, tick.cluster)
        waiting = ProcessInstances(connection).times_in({key: [(BEGINNING, None)] for key in keys}, _WAITING)
        return _open_gates(connection, tick, waiting)


class _TimeOuts(Handler[ProcessInstance, tuple[int, int]]):
    """Checks the gates of instances past their deadline, then times out the rest; a unit is a process. The results are
    how many became ready and timed out.

    The rest of a process with `on_timeout: run` becomes ready instead. An instance whose process is missing in the plan
    (removed, or invalid) waits without a deadline until it comes back.
    """

    step = TickStep.INSTANCES
    at_once = EVENTS_A_STEP

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[ProcessInstance]:
        instances = ProcessInstances(connection)
        return instances.deadlines_passed(tick.cluster, tick.as_of, limit)

    def unit_of(self, entry: ProcessInstance) -> str:
        return entry.process

    def handle(self, tick: Tick, entries: Sequence[ProcessInstance]) -> list[tuple[int, int]]:
        with tick.database.begin() as connection:
            lock_log(connection)
            instances = ProcessInstances(connection)
            standing = instances.get_many([row.key for row in entries])
            known: dict[Key, list[datetime]] = defaultdict(list)
            unknown: list[ProcessKey] = []
            incomplete: list[ProcessKey] = []
            for row in entries:
                if standing.get(row.key) != row:
                    continue
                key = (row.process, row.cluster)
                active = tick.timeline.find(connection, key, row.nominal_time)
                if active is None:
                    unknown.append(row.key)
                    continue
                known[key].append(row.nominal_time)
                if runs_incomplete(active.record, row, tick.as_of):
                    incomplete.append(row.key)
            instances.transition_many(unknown, _WAITING, deadline_at=None, updated_at=tick.as_of)
            ready = _open_gates(connection, tick, known)
            failed = {key for key in known if tick.bulkheads.has_failed(TickStep.GATES, key[0])}
            checked = {key: times for key, times in known.items() if key not in failed}
            ready += instances.transition_many(
                [key for key in incomplete if (key.process, key.cluster) in checked],
                _WAITING,
                status=ProcessInstanceStatus.READY,
                ready_at=tick.as_of,
                updated_at=tick.as_of,
                cause=Cause.INCOMPLETE,
                cause_detail=None,
            )
            late = [ProcessKey(*key, time) for key, times in checked.items() for time in times]
            _tell_timed_out(connection, tick, late)
            timed_out = instances.transition_many(
                late,
                _WAITING,
                status=ProcessInstanceStatus.TIMEDOUT,
                ended_at=tick.as_of,
                updated_at=tick.as_of,
                cause=Cause.TIMED_OUT,
                cause_detail=None,
            )
            return [(ready, timed_out)]


def _tell_timed_out(connection: Connection, tick: Tick, keys: Sequence[ProcessKey]) -> None:
    """Tell of those instances that still wait that they time out."""
    reason = describe_cause(Cause.TIMED_OUT, None)
    rows = [row for row in ProcessInstances(connection).get_many(keys).values() if row.status in _WAITING]
    ended = [Ended(row=row, status=ProcessInstanceStatus.TIMEDOUT, error=reason) for row in rows]
    tell_all_ends(connection, tick.timeline, ended, tick.as_of)
