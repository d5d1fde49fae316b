"""When instances are due: the deadlines of an entity on a cluster, and how pauses move them; and which instances have
missed one that has passed, by what is recorded of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias, assert_never

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.records import LateInstance, Recovery, SlaMiss, SlaPause, Starts
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.entities.common import Kind
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import (
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import Key
from feed_assets.plan.facts import SlaRecord
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.timing.sequence import InstanceSequence

KINDS: dict[tuple[Kind, SlaLevel], WatermarkKind] = {
    (Kind.FEED, SlaLevel.LOW): WatermarkKind.FEED_LOW,
    (Kind.FEED, SlaLevel.HIGH): WatermarkKind.FEED_HIGH,
    (Kind.PROCESS, SlaLevel.LOW): WatermarkKind.PROCESS_LOW,
    (Kind.PROCESS, SlaLevel.HIGH): WatermarkKind.PROCESS_HIGH,
}
"""The watermarks that walk along the deadlines."""


class DeadlineKey(NamedTuple):
    """One level of the deadlines of a feed or process on a cluster."""

    kind: Kind
    name: str
    cluster: str
    level: SlaLevel

    @property
    def at(self) -> Key:
        """The name and the cluster."""
        return (self.name, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The deadlines of one level of a feed or process on a cluster: those of the instances in `spans`.

    `delay` is the time from the nominal time to the deadline; `pauses` of the process, oldest first, move it.
    """

    kind: Kind
    name: str
    cluster: str
    level: SlaLevel
    sla: SlaRecord
    delay: timedelta
    spans: tuple[InstanceSequence | ActiveRelease, ...]
    pauses: tuple[SlaPause, ...] = ()

    @property
    def watermark(self) -> WatermarkKind:
        """The kind of the watermark."""
        return KINDS[self.kind, self.level]

    def due_at(self, nominal_time: datetime) -> datetime:
        """Return the deadline of an instance; the instance is late after it."""
        return moved_by(nominal_time + self.delay, nominal_time, self.pauses)

    def ceil(self, moment: datetime) -> datetime | None:
        """Return the first instance at or after a moment; None if there is none."""
        found = (time for span in self.spans if (time := span.ceil(moment)) is not None)
        return next(found, None)

    def passed(self, first: datetime, as_of: datetime) -> Iterator[datetime]:
        """Iterate over the instances from `first` on whose deadline is before `as_of`, oldest first."""
        for time in self._from(first, as_of - self.delay):
            if self.due_at(time) >= as_of:
                return
            yield time

    def contains(self, nominal_time: datetime) -> bool:
        """Return whether a time is that of an instance."""
        return any(span.contains(nominal_time) for span in self.spans)

    def _from(self, first: datetime, stop: datetime) -> Iterator[datetime]:
        for span in self.spans:
            match span:
                case InstanceSequence():
                    yield from span.between(first, stop)
                case ActiveRelease():
                    yield from map(span.record.sequence.at, span.between(first, stop))
                case _:
                    assert_never(span)


def moved_by(due_at: datetime, nominal_time: datetime, pauses: Iterable[SlaPause]) -> datetime:
    """Extend a deadline by the part of each pause after the nominal time, as with timeouts."""
    for pause in pauses:
        if pause.begun_at < due_at and pause.ended_at > nominal_time:
            due_at += pause.ended_at - max(pause.begun_at, nominal_time)
    return due_at


def find_sla(plan: Plan, kind: Kind, name: str, cluster: str) -> SlaRecord | None:
    """Return the SLA of a feed or process on a cluster; None without one, or if it is not declared there."""
    record = plan.feeds.get((name, cluster)) if kind is Kind.FEED else plan.processes.get((name, cluster))
    return None if record is None else record.sla


def open_deadlines(
    connection: Connection, timeline: ReleaseTimeline, kind: Kind, name: str, cluster: str, level: SlaLevel
) -> Deadlines | None:
    """Return the deadlines of a feed or process on a cluster; None if it has none of this level."""
    return next(iter_deadlines(connection, timeline, [DeadlineKey(kind, name, cluster, level)]), None)


def iter_deadlines(
    connection: Connection, timeline: ReleaseTimeline, keys: Iterable[DeadlineKey]
) -> Iterator[Deadlines]:
    """Yield the deadlines of several feeds and processes; those that have none of a level are left out. Costs one
    statement for the pauses of all processes, and what the releases cost.
    """
    plan, found = timeline.plan, list[tuple[DeadlineKey, SlaRecord, timedelta]]()
    for key in keys:
        sla = find_sla(plan, key.kind, key.name, key.cluster)
        limit = None if sla is None else sla.low if key.level is SlaLevel.LOW else sla.high
        if sla is not None and limit is not None:
            found.append((key, sla, limit.as_duration()))
    pauses = SlaMisses(connection).pauses({key.at for key, _, _ in found if key.kind is Kind.PROCESS})
    for key, sla, delay in found:
        is_feed = key.kind is Kind.FEED
        spans: Sequence[InstanceSequence | ActiveRelease]
        spans = [plan.feeds[key.at].sequence] if is_feed else timeline.spans(connection, key.at)
        yield Deadlines(
            **key._asdict(),
            sla=sla,
            delay=delay,
            spans=tuple(spans),
            pauses=() if is_feed else tuple(pauses.get(key.at, ())),
        )


def describe_late(connection: Connection, record: FeedRecord, nominal_time: datetime, at: datetime) -> str | None:
    """Return by how much an instance of a feed has come after its deadlines, `2:10:00 after sla.low hours(1)`; None if
    it has not, or has no deadlines: those that had passed before they were declared are none.
    """
    sla = record.sla
    if sla is None:
        return None
    of_it = LateInstance(Kind.FEED.value, record.feed, record.cluster, nominal_time)
    for level in (SlaLevel.HIGH, SlaLevel.LOW):
        limit = sla.low if level is SlaLevel.LOW else sla.high
        if limit is None or at <= (due_at := nominal_time + limit.as_duration()):
            continue
        walk = Watermarks(connection).get(KINDS[Kind.FEED, level], record.feed, record.cluster)
        is_ahead = walk is not None and walk.next_time is not None and nominal_time >= walk.next_time
        if is_ahead or any(miss.level is level for miss in SlaMisses(connection).of([of_it]).get(of_it, ())):
            late = timedelta(seconds=(at - due_at) // timedelta(seconds=1))
            return f"{late} after sla.{level.value} {limit.render()}"
    return None


KEYS_A_QUERY = 10_000


def find_misses(
    connection: Connection, passed: Sequence[tuple[Deadlines, Sequence[datetime]]], as_of: datetime
) -> list[SlaMiss]:
    """Return the misses among instances whose deadlines have passed, or would have; their records are read together.

    One that has come late meanwhile is only recorded.
    """
    rows: dict[FeedKey, FeedInstance] = {}
    found: dict[ProcessKey, ProcessInstance] = {}
    starts: dict[ProcessKey, Starts] = {}
    keys = [(each.kind, (each.name, each.cluster, time)) for each, times in passed for time in times]
    for first in range(0, len(keys), KEYS_A_QUERY):
        asked = keys[first : first + KEYS_A_QUERY]
        rows |= FeedInstances(connection).get_many([key for kind, key in asked if kind is Kind.FEED])
        processes = [key for kind, key in asked if kind is Kind.PROCESS]
        found |= ProcessInstances(connection).get_many(processes)
        starts |= SlaMisses(connection).starts(processes)
    misses: list[SlaMiss] = []
    for deadlines, time in ((each, time) for each, times in passed for time in times):
        at = deadlines.name, deadlines.cluster, time
        if deadlines.kind is Kind.FEED:
            came = _feed_came(rows.get(FeedKey(*at)))
        else:
            came = _process_came(deadlines.level, found.get(ProcessKey(*at)), starts.get(ProcessKey(*at)))
        misses += _decide_miss(deadlines, time, came, as_of)
    return misses


THERE = frozenset({FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EMPTY})
"""A feed's instance has come. One without its flag (PARTIAL) has not."""

_Came: TypeAlias = tuple[datetime | None, Recovery] | None
"""When and how an instance has come, None while it has not; nothing of one that cannot miss a deadline."""


def _feed_came(row: FeedInstance | None) -> _Came:
    """An instance that retention has evicted is forgotten."""
    if row is not None and row.status is FeedInstanceStatus.EVICTED:
        return None
    return row.available_at or row.updated_at if row is not None and row.status in THERE else None, Recovery.ARRIVED


def _process_came(level: SlaLevel, row: ProcessInstance | None, begun: Starts | None) -> _Came:
    """What counts is the first attempt that began (low), or that succeeded (high): a rerun is no miss. An instance that
    was skipped is none either.

    Differs from Falcon: it does not watch `shouldStartIn`, and a rerun counts as unfinished.
    """
    if row is not None and row.status is ProcessInstanceStatus.SKIPPED:
        return None
    if level is SlaLevel.LOW:
        return begun.started_at if begun is not None else None, Recovery.STARTED
    if begun is not None and begun.succeeded_at is not None:
        return begun.succeeded_at, Recovery.SUCCEEDED
    has_succeeded = row is not None and row.status is ProcessInstanceStatus.SUCCEEDED
    return row.ended_at or row.updated_at if row is not None and has_succeeded else None, Recovery.SUCCEEDED


def _decide_miss(deadlines: Deadlines, time: datetime, came: _Came, as_of: datetime) -> Iterator[SlaMiss]:
    due_at = deadlines.due_at(time)
    if came is None or (came[0] is not None and came[0] <= due_at):
        return
    miss = SlaMiss(
        kind=deadlines.kind.value,
        name=deadlines.name,
        cluster=deadlines.cluster,
        nominal_time=time,
        level=deadlines.level,
        due_at=due_at,
        missed_at=as_of,
    )
    at, by = came
    if at is None:
        yield replace(miss, told_at=as_of)
    else:
        yield replace(miss, recovered_at=at, recovered_by=by, shown_at=as_of)
