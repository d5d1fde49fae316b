"""Route the events of the log to the queues of consumers: their marks grow, and they are looked at."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.triggers import OnPause
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.events import EventLog
from feed_assets.log.records import EntityKey
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.triggers.cuts import keep_newest, pass_over
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import Growth, LoggedEvent, TriggerInputs
from feed_assets.triggers.queue.pending_events import PendingEvents
from feed_assets.triggers.queue.store import Triggers
from feed_assets.triggers.queue_starts import input_key

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
