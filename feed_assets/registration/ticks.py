"""What ticks do for registrations: they follow the log, and try what is on the agenda."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Handler, Tick, ask_by_store, tick_step, work_off
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import find_held
from feed_assets.log.records import FeedKey
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import FeedRecord
from feed_assets.registration.registering import (
    UNSETTLED,
    Registration,
    Registrations,
    drop_former,
    find_former,
    settle,
)
from feed_assets.timing.dates import NEVER

_Answer = TypeVar("_Answer")

_EVENTS_AT_ONCE = 5_000
_AT_ONCE = 500
_STEPS_A_TICK = 20
_REFUSED = timedelta(minutes=10)
"""When an instance that the table cannot have is looked at again."""


@tick_step(TickStep.REGISTRATIONS, otherwise=None)
def apply_registrations(tick: Tick) -> None:
    """Register what has come, and drop what has gone, since the last tick; try again what has failed. On a cluster
    without a catalog nothing is read.
    """
    feeds = {each.feed: each for each in tick.plan.registered_on(tick.cluster)}
    cluster = tick.plan.clusters.get(tick.cluster)
    if cluster is not None and (cluster.catalog or cluster.lake):
        _follow(tick, feeds)
    if feeds:
        work_off(tick, RegistrationHandler())


def _follow(tick: Tick, feeds: dict[str, FeedRecord]) -> None:
    """Put what the log has told on the agenda, and all of a feed whose table is new; drop what is left in the former
    one.
    """
    name = f"registration/{tick.cluster}"
    tables = {feed: each.registration.address for feed, each in feeds.items() if each.registration is not None}
    with tick.database.read() as connection:
        log, kept = EventLog(connection), Cursors(connection).get(name)
        if kept is None and not feeds:
            return
        known: dict[str, Any] = json.loads(kept) if kept else {"seq": log.last_seq(), "tables": {}}
        events = log.read(known["seq"], _EVENTS_AT_ONCE, clusters=[tick.cluster])
        keys = {event.key for event in events if event.cluster == tick.cluster and event.feed in feeds}
        for feed, table in tables.items():
            if known["tables"].get(feed) != table:
                times = FeedInstances(connection).available_times(feed, tick.cluster, feeds[feed].sequence.start, NEVER)
                keys |= {FeedKey(feed, tick.cluster, time) for time in times}
    seq = events[-1].seq if events else known["seq"]
    former = {(feed, table) for feed, table in known["tables"].items() if tables.get(feed, "") != table}
    absent = {feed: table for feed, table in former if (feed, tick.cluster) not in tick.plan.feeds}
    former |= {(feed, table) for feed, table in known.get("former", ()) if tables.get(feed) != table}
    left = [each for each in sorted(former - absent.items()) if not _drop_former(tick, *each)]
    now = {"seq": seq, "tables": absent | tables} | ({"former": left} if left else {})
    if keys or kept is None or json.loads(json.dumps(now)) != known:
        with tick.database.begin() as connection:
            Registrations(connection).plan(sorted(keys), tick.as_of)
            Cursors(connection).put(name, json.dumps(now))


def _drop_former(tick: Tick, feed: str, table: str) -> bool:
    """Drop what a feed has in a table that it had; return whether that is done, or the table out of reach."""
    record = tick.plan.feeds.get((feed, tick.cluster))
    former = None if record is None else find_former(tick.plan, record, table)
    if record is None or former is None or former.registration is None:
        return True
    address, call = former.registration.store, partial(drop_former, tick, record, former)

    def ask() -> bool:
        _ask(tick, address, call)
        return True

    return tick.bulkheads.run_unit(TickStep.REGISTRATIONS, table, False, ask)


class RegistrationHandler(Handler[Registration, int]):
    """Settles what is on the agenda; a unit is a feed."""

    step = TickStep.REGISTRATIONS
    at_once = _AT_ONCE
    most_steps = _STEPS_A_TICK

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> Sequence[Registration]:
        return Registrations(connection).due([AgendaKind.REGISTRATION], tick.cluster, tick.as_of, limit)

    def unit_of(self, entry: Registration) -> str:
        return entry.name

    def handle(self, tick: Tick, entries: Sequence[Registration]) -> list[int]:
        by_feed: dict[str, list[Registration]] = defaultdict(list)
        for each in entries:
            by_feed[each.name].append(each)
        with tick.database.read() as connection:
            wanted = [(f"feed/{each.name}", each.cluster, each.nominal_time) for each in entries]
            held = {(lease.entity, lease.nominal_time) for lease in find_held(connection, wanted, tick.real_now)}
        for feed, due in by_feed.items():
            busy = {each for each in due if (f"feed/{feed}", each.nominal_time) in held}
            free = [each for each in due if each not in busy]
            refused = _settle(tick, tick.plan.feeds.get((feed, tick.cluster)), [each.nominal_time for each in free])
            later = [_later(tick, each, UNSETTLED, each.reason) for each in busy]
            reasons = [(each, refused.get(each.nominal_time)) for each in free]
            later += [_later(tick, each, _REFUSED, reason) for each, reason in reasons if reason is not None]
            _end(tick, due, later)
        return [len(entries)]

    def put_off(self, tick: Tick, entries: Sequence[Registration], pause: timedelta) -> list[int]:
        reason, due_at = tick.bulkheads.reason(self.step, entries[0].name), tick.as_of + tick.clock.span(pause)
        with tick.database.begin() as connection:
            Registrations(connection).plan([each.feed_key for each in entries], tick.as_of, due_at, reason)
        return []


def _settle(tick: Tick, record: FeedRecord | None, times: Sequence[datetime]) -> Mapping[datetime, str]:
    """Settle instances of a feed; return why some cannot be registered. One without a table keeps what it has."""
    if record is None or record.registration is None or not times:
        return {}
    return _ask(tick, record.registration.store, partial(settle, tick, record, times))


def _ask(tick: Tick, address: StoreAddress, call: Callable[[], _Answer]) -> _Answer:
    answer = ask_by_store({address: call}, tick.bulkheads)[address]
    if isinstance(answer, Exception):
        raise answer
    return answer


def _later(tick: Tick, entry: Registration, pause: timedelta, reason: str | None) -> Registration:
    due_at = tick.as_of + tick.clock.span(pause)
    return replace(entry, planned_at=tick.as_of, due_at=due_at, reason=reason)


def _end(tick: Tick, due: Sequence[Registration], later: Sequence[Registration]) -> None:
    """Let what was settled be due no longer, unless something has been told of it meanwhile."""
    with tick.database.begin() as connection:
        store = Registrations(connection)
        now = store.lock_many([each.key for each in due])
        before, put_off = {each.key: each for each in due}, {each.key: each for each in later}
        same = [key for key, each in before.items() if now.get(key) == each]
        store.put(put_off[key] for key in same if key in put_off)
        store.remove(key for key in same if key not in put_off)
