"""Record instances that come as they come, each with the event that brings it: signals, and files of an inbox at a free
second; and instances that their producers announce: each is looked at once, and is no arrival until its data are there.

A signal is news without data, such as an approval, or a materialization of somebody's asset. It is an event of the
instance of its second, or of what else the frequency of its feed is. What has been announced and is not there yet is
polled like any missing instance. An instance that is announced again is checked for late data at once.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.context.tick import Tick
from feed_assets.instances.arrival.polling import (
    PollResult,
    decide_poll_result,
    plan_first_poll,
    read_versions,
    record_poll_results,
)
from feed_assets.instances.arrival.store_polls import Candidate, poll_confined
from feed_assets.instances.late.quality_checks import QualityChecks, hold_refused
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import MESSAGE, FeedEventKind, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.registration.registering import Registrations
from feed_assets.sql.database import lock_log

SEARCHED_AT_ONCE = 64
"""Seconds in which a free one is searched with one question."""


def record_arrival(connection: Connection, event: NewFeedEvent, place: int | None = None) -> int:
    """Record an instance that is available by an event; return the number of the event."""
    (seq,) = EventLog(connection).append([event])
    FeedInstances(connection).put([event.row(FeedInstanceStatus.AVAILABLE, seq, place=place)])
    return seq


def find_free_time(connection: Connection, record: FeedRecord, at: datetime) -> datetime:
    """Return the first time at or after a moment that is no instance yet."""
    sequence, instances = record.sequence, FeedInstances(connection)
    first = sequence.index(sequence.at(sequence.index_at_or_before(at)))
    while True:
        span = range(first, first + SEARCHED_AT_ONCE)
        taken = {
            row.nominal_time for row in instances.find_between(*record.key, sequence.at(first), sequence.at(span[-1]))
        }
        times = [sequence.at(index) for index in span if sequence.at(index) not in taken]
        owners = FeedPlaces(connection).find_owners([(record, time) for time in times])
        for time in times:
            if (*record.key, time) not in owners:
                return time
        first = span.stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal of a feed without data, at a moment. The second of two with the same `key` does nothing."""

    record: FeedRecord
    at: datetime
    origin: str
    payload: Mapping[str, object] = field(default_factory=dict)
    marking: str | None = None
    key: str | None = None

    @property
    def instance(self) -> FeedKey:
        """The instance of which it is an event.

        Raises:
            InstanceError: it is outside the validity.
        """
        sequence = self.record.sequence
        time = sequence.at(sequence.index_at_or_before(self.at))
        sequence.index(time)
        return FeedKey(*self.record.key, time)


def record_signals(connection: Connection, signals: Sequence[Signal], as_of: datetime) -> list[FeedKey]:
    """Record signals in their order; return their instances. Those of known keys are left out."""
    lock_log(connection)  # so that no two programs find the same key free
    log = EventLog(connection)
    recorded: list[FeedKey] = []
    for signal in signals:
        if signal.key is not None and log.find_key(signal.key) is not None:
            continue
        digest = content_digest(signal.payload)
        event = NewFeedEvent(
            **signal.instance._asdict(),
            kind=FeedEventKind.SIGNALLED,
            origin=signal.origin,
            manifest_digest=digest,
            payload={MESSAGE: signal.payload} if signal.payload else {},
            marking=signal.marking,
            recorded_at=as_of,
            idempotency_key=signal.key,
        )
        record_arrival(connection, event)
        recorded.append(signal.instance)
    return recorded


def content_digest(payload: Mapping[str, object]) -> str:
    """Return the digest of what a signal says.

    >>> content_digest({"by": "ann"}) == content_digest({"by": "bob"})
    False
    """
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return "signal:" + hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The news that a producer has made an instance; `facts` are what it said about it, as JSON values. `refused` says
    which of its own checks keeps others from reading it.
    """

    record: FeedRecord
    nominal_time: datetime
    origin: str
    facts: Mapping[str, object] = field(default_factory=dict)
    refused: str | None = None

    @property
    def candidate(self) -> Candidate:
        """The instance, as it is polled."""
        return Candidate(record=self.record, nominal_time=self.nominal_time)

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return self.candidate.key


def apply_announcements(
    tick: Tick, announcements: Iterable[Announcement], cursor: tuple[str, str], *, signals: Sequence[Signal] = ()
) -> int:
    """Look at announced instances and record those that are there, with the new position of the reader (name, value);
    return how many have arrived.

    `signals` are what assets without a place here have made. An evicted instance does not arrive again.
    """
    latest = {each.key: each for each in announcements}
    with tick.database.read() as connection:
        known = FeedInstances(connection).get_many(latest)
    evicted = {key for key, row in known.items() if row.status is FeedInstanceStatus.EVICTED}
    are_there = {key for key, row in known.items() if row.status is FeedInstanceStatus.AVAILABLE}
    again = [each for key, each in latest.items() if key in are_there and each.refused is None]
    new = [each for key, each in latest.items() if key not in evicted and each not in again]
    due = [each for each in new if each.nominal_time <= tick.as_of]
    candidates = [each.candidate for each in due]
    looks = poll_confined(tick, candidates)
    seen = [
        _told(decide_poll_result(candidate, look, tick.as_of, each.origin), each.facts)
        for each, candidate, look in zip(due, candidates, looks, strict=True)
    ]
    seen = read_versions(tick, seen, tick.bulkheads)
    seen += [plan_first_poll(each.candidate, tick.as_of) for each in new if each.nominal_time > tick.as_of]
    refused = [
        (each.row, each.event, reason)
        for each in seen
        if each.row is not None and each.event is not None and (reason := latest[each.key].refused) is not None
    ]
    held = {row.key for row, *_ in refused}
    seen = [each for each in seen if each.key not in held]
    with tick.database.begin() as connection:
        hold_refused(connection, refused)
        registered = [key for key in sorted(held) if latest[key].record.registration is not None]
        Registrations(connection).plan(registered, tick.as_of)
        passed = [each.key for each in new if each.refused is None and not each.record.is_judged]
        QualityChecks(connection).remove(AgendaKey(AgendaKind.QUALITY, *key) for key in passed)
        arrived = record_poll_results(connection, seen) + len(record_signals(connection, signals, tick.as_of))
        _check_at_once(connection, tick, again)
        Cursors(connection).put(*cursor)
    return arrived


def _told(seen: PollResult, facts: Mapping[str, object]) -> PollResult:
    if seen.event is None:
        return seen
    return replace(seen, event=replace(seen.event, payload={**seen.event.payload, **facts}))


def _check_at_once(connection: Connection, tick: Tick, again: Sequence[Announcement]) -> None:
    """Make the pending late checks of instances and of the process instances that have read them due."""
    keys = [key for each in again for key in _late_keys(tick.plan, each)]
    pending = LateChecks(connection).get_many(keys).values()
    later = [check for check in pending if check.due_at is not None and check.due_at > tick.as_of]
    LateChecks(connection).put([replace(check, planned_at=tick.as_of, due_at=tick.as_of) for check in later])


def _late_keys(plan: Plan, announcement: Announcement) -> Collection[AgendaKey]:
    record, index = announcement.record, announcement.record.sequence.index(announcement.nominal_time)
    readers = [
        AgendaKey(AgendaKind.LATE_INPUTS, *edge.process_key, plan.processes[edge.process_key].sequence.at(reader))
        for edge in record.inputs_of
        if edge.is_late
        for reader in plan.reader_indices(edge, range(index, index + 1))
    ]
    return [AgendaKey(AgendaKind.LATE_FEED, *announcement.key), *readers]
