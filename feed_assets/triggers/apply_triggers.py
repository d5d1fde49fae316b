"""Let triggers act, in each tick: route new events to the queues of consumers, which begin with the releases that
declare them, and cut the batches that may run.

A tick looks only at consumers that something has come for, or whose time has come. Each step commits what belongs
together, so it may break off anywhere: no event is taken twice, and none is lost.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Tick, tick_step
from feed_assets.entities.common import Kind
from feed_assets.entities.triggers import OnPause, StartFrom
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.events import EventLog
from feed_assets.log.records import EntityKey, ProcessKey
from feed_assets.plan.edges import Key, TriggerInput, TriggerRecord
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.sql.database import lock_queues
from feed_assets.triggers.cuts import Cut, apply_cuts, decide_cut, keep_newest, pass_over
from feed_assets.triggers.decide_firing import Pending, decide_fire, first_times
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import Growth, LoggedEvent, PendingEvents, TriggerInputs
from feed_assets.triggers.queue.records import InputKey, Mark, TriggerState
from feed_assets.triggers.queue.store import Triggers


def input_key(record: ProcessRecord, each: TriggerInput) -> InputKey:
    """Return the key of an input of a trigger."""
    return InputKey(record.process, record.cluster, each.name, each.feed, each.feed_cluster)


def begin_queues(connection: Connection, plan: Plan) -> None:
    """Write the place in the log of each input that begins `now` and has none; other starts depend on no present."""
    triggers = [
        (record, record.trigger)
        for record in plan.processes.values()
        if record.trigger is not None and record.trigger.start is StartFrom.NOW
    ]
    if not triggers:
        return
    lock_queues(connection)
    known = TriggerInputs(connection).of([EntityKey(*record.key) for record, _ in triggers])
    last = EventLog(connection).last_seq()
    TriggerInputs(connection).add(
        Mark(**key._asdict(), counts_unchanged=trigger.counts_unchanged, start_seq=last, taken_seq=last)
        for record, trigger in triggers
        for each in trigger.inputs
        if (key := input_key(record, each)) not in known.get(EntityKey(*record.key), {})
    )


EVENTS_A_STEP = 5_000


def routed_cursor(cluster: str) -> str:
    """Return the name of the cursor of a cluster: the last event that was routed to its consumers."""
    return f"triggers/{cluster}"


def find_routed(connection: Connection, cluster: str) -> int:
    """Return the last event that was routed to the consumers of a cluster; 0 if none was."""
    return int(Cursors(connection).get(routed_cursor(cluster)) or 0)


def route_events(connection: Connection, plan: Plan, cluster: str, as_of: datetime) -> tuple[int, bool]:
    """Route the next events of the log; return how many there were, and whether there are more."""
    after = find_routed(connection, cluster)
    last = EventLog(connection).last_seq()
    to = min(after + EVENTS_A_STEP, last)
    if to <= after:
        return 0, False
    records = {record.key: record for record in plan.triggered_on(cluster)}
    feeds = {each.feed for record in records.values() if record.trigger for each in record.trigger.inputs}
    events = TriggerInputs(connection).read_log(after, to, feeds)
    growths = decide_growth(plan, cluster, events)
    TriggerInputs(connection).grow(growths, after)
    touched = {EntityKey(each.process, each.cluster) for each in growths}
    _measure_changed(connection, records, touched, after, to)
    _apply_pauses(connection, records, touched, after, to, as_of)
    Triggers(connection).wake(touched, as_of)
    Cursors(connection).put(routed_cursor(cluster), str(to))
    return len(events), to < last


def decide_growth(plan: Plan, cluster: str, events: Sequence[LoggedEvent]) -> list[Growth]:
    """Return how the marks of a cluster's consumers grow by events of the log."""
    by_feed: dict[Key, list[LoggedEvent]] = defaultdict(list)
    for event in events:
        by_feed[event.feed, event.cluster].append(event)
    growths = []
    for feed, found in by_feed.items():
        changed = [event for event in found if not event.is_unchanged]
        sums: dict[tuple[bool, str | None], tuple[int, int, datetime, datetime, int | None]] = {}
        for record, each in plan.triggers_of(feed):
            if record.trigger is None or record.cluster != cluster:
                continue
            kind = (record.trigger.counts_unchanged, each.until)
            counted = found if record.trigger.counts_unchanged else changed
            if counted and kind not in sums:
                sums[kind] = _sum_up(counted, each.until)
            if counted:
                growths.append(Growth(*input_key(record, each), *sums[kind]))
    return growths


def _sum_up(events: Sequence[LoggedEvent], until: str | None) -> tuple[int, int, datetime, datetime, int | None]:
    times = [event.recorded_at for event in events]
    marker = None if until is None else _find_marker(events, until)
    return len(events), events[0].seq, min(times), max(times), marker


def _find_marker(events: Sequence[LoggedEvent], until: str) -> int | None:
    marked = (event.seq for event in events if event.marking is not None and fnmatchcase(event.marking, until))
    return next(marked, None)


def _measure_changed(
    connection: Connection, records: dict[Key, ProcessRecord], touched: Collection[EntityKey], after: int, to: int
) -> None:
    """Count anew where somebody decided about an event before it was routed, or the trigger began among the events."""
    cluster = next((consumer.cluster for consumer in touched), "")
    begun = TriggerInputs(connection).begun_after(cluster, after)
    inputs = [
        (input_key(records[consumer], each), each)
        for consumer in touched
        if (trigger := records[consumer].trigger)
        for each in trigger.inputs
    ]
    changed = QueueChanges(connection).has_any([key for key, _ in inputs], after, to) | set(begun)
    changed &= {key for key, _ in inputs}
    if not changed:
        return
    consumers = {key.consumer for key in changed}
    events = PendingEvents(connection, to, consumers)
    marks = TriggerInputs(connection).of(consumers)
    found = [(marks[key.consumer].get(key), each) for key, each in inputs if key in changed]
    TriggerInputs(connection).put([events.measure(mark, each.until) for mark, each in found if mark is not None])


def _apply_pauses(
    connection: Connection,
    records: dict[Key, ProcessRecord],
    touched: Collection[EntityKey],
    after: int,
    to: int,
    as_of: datetime,
) -> None:
    """Pass over what has come for suspended processes, as their triggers say."""
    policies = {
        consumer: trigger.on_pause
        for consumer in touched
        if (trigger := records[consumer].trigger) and trigger.on_pause is not OnPause.QUEUE
    }
    if not policies:
        return
    schedules = Schedules(connection).of_many(Kind.PROCESS, {consumer.entity for consumer in policies})
    paused = {
        consumer: policy
        for consumer, policy in policies.items()
        if (schedule := schedules.get((Kind.PROCESS, *consumer))) and schedule.state is ScheduleState.SUSPENDED
    }
    marks = TriggerInputs(connection).of(paused)
    events = PendingEvents(connection, to, paused)
    kept = []
    for consumer, policy in paused.items():
        trigger = records[consumer].trigger
        for each in trigger.inputs if trigger else ():
            mark = marks[consumer].get(input_key(records[consumer], each))
            if mark is None or not mark.pending:
                continue
            if policy is OnPause.DROP:
                kept.append((pass_over(connection, mark, events, after, as_of), each))
            else:
                kept.append((keep_newest(connection, mark, events, as_of), each))
    following = PendingEvents(connection, to, paused)
    TriggerInputs(connection).put([following.measure(mark, each.until) for mark, each in kept])


CONSUMERS_A_STEP = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """What triggers did in a tick: how many events were routed, and which batches were cut."""

    routed: int = 0
    batches: tuple[ProcessKey, ...] = ()
    is_complete: bool = True


@tick_step(TickStep.EVENTS, otherwise=TriggerResult())
def apply_triggers(tick: Tick) -> TriggerResult:
    """Route new events of the log to the consumers of a cluster, and cut the batches that may run.

    A process that is not scheduled gets no batches. While the tick is held, events are routed, and batches wait. None
    are cut of work elsewhere: whoever does it takes them. A consumer that cannot be decided keeps its queue, and is
    tried again later.
    """
    if not tick.plan.triggered_on(tick.cluster):
        return TriggerResult()
    followed = f"triggers/plan/{tick.cluster}"
    with tick.database.read() as connection:
        known = Cursors(connection).get_many((followed, routed_cursor(tick.cluster)))
        is_new = known.get(followed) != tick.plan.digest
        is_behind = int(known.get(routed_cursor(tick.cluster)) or 0) < EventLog(connection).last_seq()
        due = Triggers(connection).due(tick.cluster, tick.as_of, 1)
    if is_new:
        with tick.database.begin() as connection:
            lock_queues(connection)
            follow_triggers(connection, tick.plan, tick.cluster, tick.as_of)
            Cursors(connection).put(followed, tick.plan.digest)
    routed, is_more = 0, is_new or is_behind
    while is_more:
        with tick.database.begin() as connection:
            lock_queues(connection)
            count, is_more = route_events(connection, tick.plan, tick.cluster, tick.as_of)
        routed += count
        if is_more and tick.budget.is_spent:
            return TriggerResult(routed=routed, is_complete=False)
    if tick.is_held or not (is_new or is_behind or due):
        return TriggerResult(routed=routed)
    batches: list[ProcessKey] = []
    after: str | None = ""
    while after is not None:
        with tick.database.begin() as connection:
            lock_queues(connection)
            cut, after = _decide_due(connection, tick, after)
        batches += cut
        if after is not None and tick.budget.is_spent:
            return TriggerResult(routed=routed, batches=tuple(batches), is_complete=False)
    return TriggerResult(routed=routed, batches=tuple(batches))


def route_all(connection: Connection, plan: Plan, cluster: str, as_of: datetime) -> None:
    """Follow the triggers of a cluster and route all events, in a transaction that is rolled back."""
    follow_triggers(connection, plan, cluster, as_of)
    is_more = True
    while is_more:
        _, is_more = route_events(connection, plan, cluster, as_of)


def follow_triggers(connection: Connection, plan: Plan, cluster: str, as_of: datetime) -> None:
    """Follow changed triggers: names that stay keep their place in the log, new ones begin where `from` says.

    The queue of a process that is not declared any more stays as it is, for when it comes back.
    """
    states = Triggers(connection).of_cluster(cluster)
    declared = {record.process: record for record in plan.triggered_on(cluster)}
    gone = (state for name, state in states.items() if name not in declared)
    Triggers(connection).put(replace(state, sign="", wake_at=None) for state in gone)
    new = [record for name, record in declared.items() if not is_followed(record, states.get(name))]
    if Cursors(connection).get(routed_cursor(cluster)) is None:
        Cursors(connection).put(routed_cursor(cluster), str(EventLog(connection).last_seq()))
    _follow(connection, new, states, cluster, as_of)


def is_followed(record: ProcessRecord, state: TriggerState | None) -> bool:
    """Return whether a consumer's marks and times are those of its trigger."""
    return record.trigger is not None and state is not None and state.sign == record.trigger.sign


def _follow(
    connection: Connection,
    records: Collection[ProcessRecord],
    states: Mapping[str, TriggerState],
    cluster: str,
    as_of: datetime,
) -> None:
    routed = find_routed(connection, cluster)
    consumers = [EntityKey(*record.key) for record in records]
    marks, events = TriggerInputs(connection).of(consumers), PendingEvents(connection, routed, consumers)
    now = EventLog(connection).last_seq()
    following = [
        decide_following(record, states.get(record.process), marks.get(EntityKey(*record.key), {}), events, now, as_of)
        for record in records
    ]
    inputs = TriggerInputs(connection)
    kept = [mark for each in following for mark in each.kept]
    inputs.add([mark for each in following for mark in each.added])
    inputs.put(kept)
    for mark in kept:
        inputs.set_counting(mark)
    Triggers(connection).put(each.state for each in following)


class PlanEffect(NamedTuple):
    """How a consumer begins to follow a trigger: its times, and the marks of inputs that are new or stay."""

    state: TriggerState
    added: tuple[Mark, ...] = ()
    kept: tuple[Mark, ...] = ()


def decide_following(
    record: ProcessRecord,
    state: TriggerState | None,
    marks: Mapping[InputKey, Mark],
    events: PendingEvents,
    last: int,
    as_of: datetime,
) -> PlanEffect:
    """Decide how a consumer follows its trigger, by what is known of it; `last` is the last event of the log."""
    trigger = record.trigger
    assert trigger is not None
    if not marks and isinstance(trigger.start, datetime) and trigger.start > as_of:
        return PlanEffect(TriggerState(process=record.process, cluster=record.cluster, sign="", wake_at=trigger.start))
    added: list[Mark] = []
    kept: list[Mark] = []
    for each in trigger.inputs:
        key = input_key(record, each)
        known = marks.get(key)
        mark = replace(known or _begin(key, trigger, events, last), counts_unchanged=trigger.counts_unchanged)
        (added if known is None else kept).append(events.measure(mark, each.until))
    next_at, by_at = first_times(trigger, state, as_of)
    times = TriggerState(
        process=record.process,
        cluster=record.cluster,
        sign=trigger.sign,
        next_at=next_at,
        by_at=by_at,
        wake_at=as_of,
    )
    return PlanEffect(times, tuple(added), tuple(kept))


def _begin(key: InputKey, trigger: TriggerRecord, events: PendingEvents, now: int) -> Mark:
    match trigger.start:
        case StartFrom.EARLIEST:
            start = 0
        case StartFrom.NOW:
            start = now
        case since:
            start = events.last_before(key.feed, key.feed_cluster, since)
    return Mark(**key._asdict(), counts_unchanged=trigger.counts_unchanged, start_seq=start, taken_seq=start)


class Outcome(NamedTuple):
    """What was decided about a consumer: its times, and the batch to cut."""

    state: TriggerState
    cut: Cut | None


def _decide_due(connection: Connection, tick: Tick, after: str) -> tuple[list[ProcessKey], str | None]:
    """Decide about the next consumers that are due, and cut their batches; return these, and behind whom to go on."""
    due = Triggers(connection).due(tick.cluster, tick.as_of, CONSUMERS_A_STEP, after)
    records = {
        name: record
        for name in (state.process for state in due)
        if (record := tick.plan.processes.get((name, tick.cluster)))
    }
    late = [record for state in due if (record := records.get(state.process)) and not is_followed(record, state)]
    if late:
        _follow(connection, late, {}, tick.cluster, tick.as_of)
    states = {state.key: state for state in due}
    if late:
        states |= {
            state.key: state for state in Triggers(connection).of_cluster(tick.cluster).values() if state.key in states
        }
    routed = find_routed(connection, tick.cluster)
    marks = TriggerInputs(connection).of(states)
    busy = Batches(connection).under_way(states)
    events = PendingEvents(connection, routed, states)

    def decide(state: TriggerState) -> Outcome:
        record = records[state.process]
        return decide_batch(record, state, marks.get(state.key, {}), busy.get(state.key, 0), events, tick.as_of)

    outcomes = [
        outcome
        for state in states.values()
        if state.process in records
        if (outcome := tick.bulkheads.run_unit(TickStep.TRIGGERS, state.process, None, decide, state)) is not None
    ]
    Triggers(connection).set_times([each.state for each in outcomes if each.state != states[each.state.key]])
    cut = apply_cuts(connection, tick.plan, [each.cut for each in outcomes if each.cut is not None], tick.as_of)
    return cut, due[-1].process if len(due) == CONSUMERS_A_STEP else None


def decide_batch(
    record: ProcessRecord,
    state: TriggerState,
    marks: Mapping[InputKey, Mark],
    under_way: int,
    events: PendingEvents,
    as_of: datetime,
    *,
    is_called: bool = False,
    most: int | None = None,
) -> Outcome:
    """Decide whether a consumer's next batch is cut, and when it is looked at again. One of work elsewhere is cut when
    it `is_called` for, with at most so many events of each input.
    """
    if record.trigger is None:
        return Outcome(replace(state, wake_at=None), None)
    pending = pending_of(record, marks, events, as_of)
    decision = decide_fire(record, pending, state, as_of)
    if decision.fire is not None and record.is_elsewhere and not is_called:
        return Outcome(replace(state, wake_at=None), None)
    if decision.fire is not None and under_way >= record.parallel:
        return Outcome(replace(state, wake_at=min(state.wake_at or as_of, as_of)), None)
    times = replace(state, next_at=decision.next_at, by_at=decision.by_at, wake_at=decision.wake_at)
    if decision.fire is None:
        return Outcome(times, None)
    cut = decide_cut(record, {name: each.mark for name, each in pending.items()}, events, most)
    return Outcome(replace(times, wake_at=as_of) if cut.leaves_any else times, cut)


def pending_of(
    record: ProcessRecord, marks: Mapping[InputKey, Mark], events: PendingEvents, as_of: datetime
) -> dict[str, Pending]:
    """Return what is pending at each input of a trigger."""
    trigger, found = record.trigger, {}
    assert trigger is not None
    for each in trigger.inputs:
        mark = marks.get(input_key(record, each))
        if mark is not None:
            is_aging = trigger.max_age is not None and mark.pending > 0
            fresh = events.count_since(mark, as_of - trigger.max_age) if is_aging and trigger.max_age else mark.pending
            found[each.name] = Pending(mark=mark, fresh=fresh)
    return found
