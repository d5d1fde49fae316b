"""Record instances that their producers announce: each is looked at once, and is no arrival until its data are there.

What has been announced and is not there yet is polled like any missing instance. An instance that is announced again is
checked for late data at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.context.tick import Tick
from feed_assets.instances.arrival.polling import PollResult, decide_poll_result, plan_first_poll, record_poll_results
from feed_assets.instances.arrival.recording import Signal, record_signals
from feed_assets.instances.arrival.store_polls import Candidate, poll_confined
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.feed_instances import SETTLED, FeedInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey
from feed_assets.plan.records import FeedRecord, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The news that a producer has made an instance; `facts` are what it said about it, as JSON values."""

    record: FeedRecord
    nominal_time: datetime
    origin: str
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return FeedKey(*self.record.key, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedResult:
    """How many announced instances have arrived, have arrived before, and are not there."""

    arrived: int = 0
    again: int = 0
    lacking: int = 0


def apply_announcements(
    tick: Tick, announcements: Iterable[Announcement], cursor: tuple[str, str], *, signals: Sequence[Signal] = ()
) -> AnnouncedResult:
    """Look at announced instances and record those that are there, with the new position of the reader (name, value).

    `signals` are what assets without a place here have made. An evicted instance does not arrive again.
    """
    latest = {each.key: each for each in announcements}
    with tick.database.read() as connection:
        known = FeedInstances(connection).get_many(latest)
    new = [each for key, each in latest.items() if key not in known or known[key].status not in SETTLED]
    due = [each for each in new if each.nominal_time <= tick.as_of]
    candidates = [Candidate(record=each.record, nominal_time=each.nominal_time) for each in due]
    looks = poll_confined(tick, candidates)
    seen = [
        _told(decide_poll_result(candidate, look, tick.as_of, each.origin), each.facts)
        for each, candidate, look in zip(due, candidates, looks, strict=True)
    ]
    seen += [plan_first_poll(each.key, tick.as_of) for each in new if each.nominal_time > tick.as_of]
    are_there = {key for key, row in known.items() if row.status is FeedInstanceStatus.AVAILABLE}
    again = [each for key, each in latest.items() if key in are_there]
    with tick.database.begin() as connection:
        arrived = record_poll_results(connection, seen) + len(record_signals(connection, signals, tick.as_of))
        _check_at_once(connection, tick, again)
        Cursors(connection).put(*cursor)
    return AnnouncedResult(arrived=arrived, again=len(again), lacking=sum(each.event is None for each in seen))


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
