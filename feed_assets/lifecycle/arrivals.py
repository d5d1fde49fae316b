"""Which instances of external feeds have arrived: what to look at now, what a look means, when to look again.

An instance is looked at from its nominal time on, often while it is young and more and more rarely as it grows old.
What has been found is never looked at again here, so the cost of a tick depends on what is missing, not on history.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import zip_longest

from sqlalchemy import Connection

from feed_assets.clock import TimeBudget
from feed_assets.lifecycle.late_checks import decide_feed_check
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.state.database import Database
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.late_checks import LateCheck, LateChecks
from feed_assets.state.looks import Looks
from feed_assets.state.records import (
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    Frontier,
    FrontierKind,
    NewFeedEvent,
    PlannedLook,
)
from feed_assets.storage.records import Availability, Look

ORIGIN = "arrival"
BATCH = 2_000
LOOKS_A_TICK = 20_000
SHORTEST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(hours=6)
LONGEST_PAUSE_BEGUN = timedelta(minutes=10)
AGE_PER_PAUSE = 50

_STATUS = {
    Availability.MISSING: FeedInstanceStatus.MISSING,
    Availability.PARTIAL: FeedInstanceStatus.PARTIAL,
    Availability.EMPTY: FeedInstanceStatus.EMPTY,
    Availability.AVAILABLE: FeedInstanceStatus.AVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A feed instance to look at; `known` is the sign of what the last look found."""

    record: FeedRecord
    nominal_time: datetime
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at an instance means: its row, and either an event because it has arrived, or the next look.

    `late_check` looks for late data, where no process does. `is_news` says that the last look found something else, or
    nothing is known of an earlier one.
    """

    row: FeedInstance
    event: NewFeedEvent | None
    next_look: PlannedLook | None
    is_news: bool
    late_check: LateCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the looks of one tick amount to."""

    looked: int
    arrived: int
    is_complete: bool


def pause_after_look(nominal_time: datetime, as_of: datetime, *, has_begun: bool = False) -> timedelta:
    """How long to leave a missing instance alone: a fiftieth of its age, from a second to six hours, or to ten minutes
    if it `has_begun` to arrive.
    """
    age = as_of - nominal_time
    return min(max(age / AGE_PER_PAUSE, SHORTEST_PAUSE), LONGEST_PAUSE_BEGUN if has_begun else LONGEST_PAUSE)


def fingerprint(look: Look) -> str:
    """A cheap sign of an instance's content, taken without reading it: other bytes, files or times, other sign."""
    modified = look.modified_at.isoformat() if look.modified_at else ""
    return "look:" + hashlib.sha256(f"{look.bytes}|{look.files}|{modified}".encode()).hexdigest()[:32]


def decide_seen(candidate: Candidate, look: Look, as_of: datetime) -> Seen:
    """What a look at a candidate means.

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
    )
    if not arrived:
        found = f"{status}|{look.bytes}|{look.files}"
        pause = pause_after_look(candidate.nominal_time, as_of, has_begun=look.availability is not Availability.MISSING)
        again = max(as_of + pause, candidate.nominal_time)
        planned = PlannedLook(*row.key, found=found, looked_at=as_of, next_look_at=again)
        return Seen(row=row, event=None, next_look=planned, is_news=found != candidate.known)
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
    late_check = decide_feed_check(record, candidate.nominal_time, as_of)
    return Seen(row=row, event=event, next_look=None, is_news=True, late_check=late_check)


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
    """By turns instances whose nominal time has come and those that were missing at an earlier look, so that neither
    keeps the other waiting when there is more than a tick can do.
    """
    new = _newly_due(database, plan, cluster, as_of)
    again: Iterator[tuple[list[Candidate], list[Frontier]]] = (
        (batch, []) for batch in _due_again(database, plan, cluster, as_of)
    )
    return (batch for pair in zip_longest(new, again) for batch in pair if batch is not None)


def _due_again(database: Database, plan: Plan, cluster: str, as_of: datetime) -> Iterator[list[Candidate]]:
    """Batches of instances that were missing. What the plan does not know as an external instance is put off."""
    with database.read() as connection:
        due = Looks(connection).due(cluster, as_of, LOOKS_A_TICK)
    candidates, unknown = [], []
    for look in due:
        record = plan.feeds.get((look.feed, look.cluster))
        if record is None or not record.is_external or not record.sequence.contains(look.nominal_time):
            unknown.append(look._replace(next_look_at=as_of + LONGEST_PAUSE))
        else:
            candidates.append(Candidate(record=record, nominal_time=look.nominal_time, known=look.found))
    if unknown:
        with database.begin() as connection:
            Looks(connection).move(unknown)
    for start in range(0, len(candidates), BATCH):
        yield candidates[start : start + BATCH]


def _newly_due(
    database: Database, plan: Plan, cluster: str, as_of: datetime
) -> Iterator[tuple[list[Candidate], list[Frontier]]]:
    """Batches of instances whose nominal time has come, with the frontiers that stand when the batch is recorded.

    The feeds share a batch evenly, so that one with a long past does not keep the others from their present.
    """
    while True:
        with database.read() as connection:
            due = Frontiers(connection).due(FrontierKind.FEED, as_of, BATCH, cluster=cluster)
        if not due:
            return
        candidates: list[Candidate] = []
        moved: list[Frontier] = []
        share = max(1, BATCH // len(due))
        for frontier in due:
            record = plan.feeds.get((frontier.entity, frontier.cluster))
            if record is None or not record.is_external:
                moved.append(_parked(frontier))
                continue
            indices = _due_indices(record, frontier, as_of)[:share]
            candidates.extend(Candidate(record=record, nominal_time=record.sequence.at(index)) for index in indices)
            moved.append(_moved(record, frontier, indices))
        yield candidates, moved
        if len(due) < BATCH and all(each.next_time is None or each.next_time > as_of for each in moved):
            return


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
    seen = [decide_seen(candidate, look, as_of) for candidate, look in zip(candidates, looks, strict=True)]
    with database.begin() as connection:
        arrived = record_seen(connection, seen)
        Frontiers(connection).put(frontiers)
    return arrived


def record_seen(connection: Connection, seen: Sequence[Seen]) -> int:
    """Record what looks amount to and return how many instances arrived.

    What somebody else has made AVAILABLE or EVICTED in the meantime stays so, and has no second event. A look that
    found what the last one found touches nothing but the plan of looks.
    """
    instances, planned = FeedInstances(connection), Looks(connection)
    settled = instances.find_settled([each.row.key for each in seen if each.is_news])
    news = [each for each in seen if each.is_news and each.row.key not in settled]
    arrived = [(each.row, each.event) for each in news if each.event is not None]
    seqs = EventLog(connection).append([event for _, event in arrived])
    rows = [each.row for each in news if each.event is None]
    instances.put([*rows, *(replace(row, event_seq=seq) for (row, _), seq in zip(arrived, seqs, strict=True))])
    LateChecks(connection).add([each.late_check for each in news if each.late_check is not None])
    planned.put([each.next_look for each in news if each.next_look is not None])
    planned.move([each.next_look for each in seen if each.next_look is not None and not each.is_news])
    return len(arrived)


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
