"""Which instances of external feeds have arrived: what to look at now, what a look means, when to look again.

An instance is looked at from its nominal time on, often while it is young and more and more rarely as it grows old.
What has been found is never looked at again here, so the cost of a tick depends on what is missing, not on history.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from feed_assets.clock import TimeBudget
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord, Key, Plan, StoreAddress
from feed_assets.state.database import Database
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.records import FeedEventKind, FeedInstance, FeedInstanceStatus, Frontier, FrontierKind, NewFeedEvent
from feed_assets.storage.port import Availability, Look

ORIGIN = "arrival"
BATCH = 500
LOOKS_A_TICK = 20_000
SHORTEST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(hours=6)
AGE_PER_PAUSE = 50

_STATUS = {
    Availability.MISSING: FeedInstanceStatus.MISSING,
    Availability.PARTIAL: FeedInstanceStatus.PARTIAL,
    Availability.EMPTY: FeedInstanceStatus.EMPTY,
    Availability.AVAILABLE: FeedInstanceStatus.AVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A feed instance to look at."""

    record: FeedRecord
    nominal_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the looks of one tick amount to."""

    looked: int
    arrived: int
    is_complete: bool


def pause_after_look(nominal_time: datetime, as_of: datetime) -> timedelta:
    """How long to leave a missing instance alone: a fiftieth of its age, from a second to six hours."""
    age = as_of - nominal_time
    return min(max(age / AGE_PER_PAUSE, SHORTEST_PAUSE), LONGEST_PAUSE)


def fingerprint(look: Look) -> str:
    """A cheap sign of an instance's content, taken without reading it: other bytes, files or times, other sign."""
    modified = look.modified_at.isoformat() if look.modified_at else ""
    return "look:" + hashlib.sha256(f"{look.bytes}|{look.files}|{modified}".encode()).hexdigest()[:32]


def decide_row(candidate: Candidate, look: Look, as_of: datetime) -> tuple[FeedInstance, NewFeedEvent | None]:
    """What a look at a candidate means: its new row, and an event if it has arrived.

    An instance without a flag that exists and is empty stays EMPTY: somebody may still be writing it.
    """
    record = candidate.record
    status = _STATUS[look.availability]
    arrived = status is FeedInstanceStatus.AVAILABLE
    digest = fingerprint(look) if arrived else None
    row = FeedInstance(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=candidate.nominal_time,
        status=status,
        manifest_digest=digest,
        bytes=look.bytes,
        files=look.files,
        available_at=as_of if arrived else None,
        updated_at=as_of,
        next_look_at=None if arrived else as_of + pause_after_look(candidate.nominal_time, as_of),
    )
    if not arrived:
        return row, None
    event = NewFeedEvent(
        feed=record.feed,
        cluster=record.cluster,
        nominal_time=candidate.nominal_time,
        kind=FeedEventKind.ARRIVED,
        origin=ORIGIN,
        manifest_digest=digest,
        bytes=look.bytes,
        files=look.files,
        payload={"path": look.path},
        recorded_at=as_of,
    )
    return row, event


def apply_frontiers(database: Database, plan: Plan) -> None:
    """Give every external feed and every process that has none a frontier at its first instance."""
    feeds = {record.key: record for record in plan.feeds.values() if record.is_external}
    processes = {record.key: record for record in plan.processes.values()}
    with database.begin() as connection:
        frontiers = Frontiers(connection)
        rows = [
            Frontier(
                kind=kind,
                entity=key[0],
                cluster=key[1],
                next_index=0,
                next_time=records[key].sequence.at(0),
            )
            for kind, records in ((FrontierKind.FEED, feeds), (FrontierKind.PROCESS, processes))
            for key in frontiers.missing(kind, list(records))
        ]
        frontiers.put(rows)


def apply_arrivals(
    database: Database, stores: StorePool, plan: Plan, cluster: str, as_of: datetime, budget: TimeBudget
) -> Found:
    """Look at the instances of a cluster's external feeds that are due, record what arrived; stop when time is up.

    Each batch is one transaction, and what a batch has recorded needs no second look, so a tick that was cut short is
    continued by the next one.
    """
    looked = arrived = 0
    for candidates, frontiers in _due(database, plan, cluster, as_of):
        arrived += _apply_looks(database, stores, candidates, as_of, frontiers)
        looked += len(candidates)
        if budget.is_spent:
            return Found(looked=looked, arrived=arrived, is_complete=False)
    return Found(looked=looked, arrived=arrived, is_complete=True)


def _due(
    database: Database, plan: Plan, cluster: str, as_of: datetime
) -> Iterator[tuple[list[Candidate], list[Frontier]]]:
    """First the instances whose nominal time has come, then those that were missing at an earlier look."""
    with database.read() as connection:
        again = FeedInstances(connection).due_looks(cluster, as_of, LOOKS_A_TICK)
    yield from _newly_due(database, plan, cluster, as_of)
    rows = iter([row for row in again if (row.feed, row.cluster) in plan.feeds])
    while batch := list(islice(rows, BATCH)):
        yield [Candidate(record=plan.feeds[row.feed, row.cluster], nominal_time=row.nominal_time) for row in batch], []


def _newly_due(
    database: Database, plan: Plan, cluster: str, as_of: datetime
) -> Iterator[tuple[list[Candidate], list[Frontier]]]:
    """Batches of instances whose nominal time has come, with the frontiers that stand when the batch is recorded."""
    while True:
        with database.read() as connection:
            due = Frontiers(connection).due(FrontierKind.FEED, as_of, BATCH, cluster=cluster)
        if not due:
            return
        candidates: list[Candidate] = []
        moved: list[Frontier] = []
        for frontier in due:
            record = plan.feeds.get((frontier.entity, frontier.cluster))
            if record is None or not record.is_external:
                moved.append(_parked(frontier))
                continue
            room = BATCH - len(candidates)
            if room == 0:
                break
            indices = _due_indices(record, frontier, as_of)[:room]
            candidates.extend(
                Candidate(record=record, nominal_time=record.sequence.at(index)) for index in indices
            )
            moved.append(_moved(record, frontier, indices))
        yield candidates, moved


def _due_indices(record: FeedRecord, frontier: Frontier, as_of: datetime) -> range:
    sequence = record.sequence
    assert frontier.next_time is not None
    stop = sequence.index_at_or_before(as_of) + 1
    if sequence.size is not None:
        stop = min(stop, sequence.size)
    return range(max(0, sequence.index_at_or_after(frontier.next_time)), max(0, stop))


def _moved(record: FeedRecord, frontier: Frontier, indices: range) -> Frontier:
    size = record.sequence.size
    ended = size is not None and indices.stop >= size
    next_time = None if ended else record.sequence.at(indices.stop)
    return replace(frontier, next_index=indices.stop, next_time=next_time)


def _parked(frontier: Frontier) -> Frontier:
    """A frontier with nothing more to come until the definition changes."""
    return replace(frontier, next_time=None)


def _apply_looks(
    database: Database,
    stores: StorePool,
    candidates: Sequence[Candidate],
    as_of: datetime,
    frontiers: Sequence[Frontier],
) -> int:
    looks = look_at(stores, candidates)
    decisions = [decide_row(candidate, look, as_of) for candidate, look in zip(candidates, looks, strict=True)]
    events = [event for _, event in decisions if event is not None]
    with database.begin() as connection:
        Frontiers(connection).put(list(frontiers))
        FeedInstances(connection).record_looks([row for row, _ in decisions])
        EventLog(connection).append(events)
    return len(events)


def look_at(stores: StorePool, candidates: Sequence[Candidate]) -> list[Look]:
    """Look at many instances, one call a store and flag; results in the order of `candidates`."""
    groups: dict[tuple[StoreAddress, str | None], list[int]] = defaultdict(list)
    for position, candidate in enumerate(candidates):
        groups[candidate.record.store, candidate.record.flag].append(position)
    looks: dict[int, Look] = {}
    for (address, flag), positions in groups.items():
        paths = [candidates[i].record.path(candidates[i].nominal_time) for i in positions]
        looks.update(zip(positions, stores.get(address).look(paths, flag), strict=True))
    return [looks[position] for position in range(len(candidates))]


def external_keys(plan: Plan) -> frozenset[Key]:
    """Keys of the feeds whose instances come from outside."""
    return frozenset(key for key, record in plan.feeds.items() if record.is_external)
