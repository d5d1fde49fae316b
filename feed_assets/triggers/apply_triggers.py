"""Let triggers act, in each tick: route new events to the queues of consumers, and cut the batches that may run.

A tick looks only at consumers that something has come for, or whose time has come. Each step commits what belongs
together, so it may break off anywhere: no event is taken twice, and none is lost.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.context.tick import Tick, tick_step
from feed_assets.context.tick_failures import TickStep
from feed_assets.entities.triggers import StartFrom
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.records import EntityKey, ProcessKey
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.trigger_records import TriggerRecord
from feed_assets.sql.locks import lock_queues
from feed_assets.triggers.cuts import Cut, apply_cuts, decide_cut
from feed_assets.triggers.decide_firing import Pending, decide_fire, first_times
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.records import InputKey, Mark, TriggerState
from feed_assets.triggers.queue.store import Triggers
from feed_assets.triggers.queue_starts import input_key
from feed_assets.triggers.routing import find_routed, route_events, routed_cursor

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
        due = Triggers(connection).due(tick.cluster, tick.as_of, 1, without_row=tick.without_row)
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
    due = Triggers(connection).due(tick.cluster, tick.as_of, CONSUMERS_A_STEP, after, without_row=tick.without_row)
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
    cut = apply_cuts(connection, [each.cut for each in outcomes if each.cut is not None], tick.as_of)
    return cut, due[-1].process if len(due) == CONSUMERS_A_STEP else None


def decide_batch(
    record: ProcessRecord,
    state: TriggerState,
    marks: Mapping[InputKey, Mark],
    under_way: int,
    events: PendingEvents,
    as_of: datetime,
) -> Outcome:
    """Decide whether a consumer's next batch is cut, and when it is looked at again."""
    trigger = record.trigger
    if trigger is None:
        return Outcome(replace(state, wake_at=None), None)
    pending = pending_of(record, trigger, marks, events, as_of)
    decision = decide_fire(record, trigger, pending, state, as_of)
    if decision.fire is not None and record.is_elsewhere:
        return Outcome(replace(state, wake_at=None), None)
    if decision.fire is not None and under_way >= record.parallel:
        return Outcome(replace(state, wake_at=min(state.wake_at or as_of, as_of)), None)
    times = replace(state, next_at=decision.next_at, by_at=decision.by_at, wake_at=decision.wake_at)
    if decision.fire is None:
        return Outcome(times, None)
    shares = [(each, pending[each.name].mark) for each in trigger.inputs if each.name in pending]
    cut = decide_cut(record, trigger, shares, events)
    return Outcome(replace(times, wake_at=as_of) if cut.leaves_any else times, cut)


def pending_of(
    record: ProcessRecord,
    trigger: TriggerRecord,
    marks: Mapping[InputKey, Mark],
    events: PendingEvents,
    as_of: datetime,
) -> dict[str, Pending]:
    """Return what is pending at each input of a trigger."""
    found = {}
    for each in trigger.inputs:
        mark = marks.get(input_key(record, each))
        if mark is not None:
            is_aging = trigger.max_age is not None and mark.pending > 0
            fresh = events.count_since(mark, as_of - trigger.max_age) if is_aging and trigger.max_age else mark.pending
            found[each.name] = Pending(mark=mark, fresh=fresh)
    return found
