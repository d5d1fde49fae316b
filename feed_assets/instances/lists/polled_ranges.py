"""Poll instances of a feed now, without waiting for their turn, and record those that have arrived.

For a history that landed before its feed was declared, or between two polls.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import ChangeContext, OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.errors import Fault
from feed_assets.instances.arrival.arrival_notices import notice_origin
from feed_assets.instances.arrival.polling import (
    BATCH,
    decide_poll_result,
    read_versions,
    record_poll_results,
    wait_until_settled,
)
from feed_assets.instances.arrival.store_polls import Candidate, poll_instances, require_unobstructed
from feed_assets.instances.arrival.stored_data import find_standing, present_inputs, record_vanished
from feed_assets.instances.lists.ranges import render_ranges
from feed_assets.json_form import NominalTime
from feed_assets.log.instances.feed_instances import SETTLED, FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.triggers.input_windows import input_states


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledRange:
    """The result of polling the instances of a range. `known` had arrived or were evicted before; `absent` are missing
    or incomplete.
    """

    feed: str
    cluster: str
    arrived: int
    known: int
    absent: tuple[NominalTime, ...]
    absent_ranges: str
    dry_run: bool

    def render(self) -> str:
        """Return one line."""
        would = "would be " if self.dry_run else ""
        text = f"feed {self.feed!r} on {self.cluster}: {counted(self.arrived, 'instance')} {would}recorded"
        if self.known:
            text += f", {self.known:,} known already"
        if self.absent:
            text += f", {self.absent_ranges} not there or incomplete"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledRanges:
    """The results on all clusters."""

    ranges: tuple[PolledRange, ...]

    @property
    def told(self) -> tuple[str, ...]:
        """A line for each cluster."""
        return tuple(each.render() for each in self.ranges)

    @property
    def tick_clusters(self) -> tuple[str, ...]:
        """The clusters whose ticks go on with the instances."""
        return tuple(each.cluster for each in self.ranges)


def poll_range(
    context: ChangeContext,
    feed: str,
    start: datetime,
    end: datetime,
    *,
    cluster: str | None = None,
    progress: Callable[[str, int, int], object] = lambda *_: None,
) -> PolledRanges:
    """Poll the instances of a feed in `[start, end)` on each cluster where it arrives, and record the arrived ones.

    Of a feed whose instances come as they come, these are the instances whose paths exist in storage. The next tick
    opens the gates of the processes that read them. `progress` receives the instances polled and all.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it does not arrive on the cluster, or not at all, or the range has no instance by now.
        StorageError: storage could not be read; the arrivals of the instances before are recorded.
    """
    records = _arriving(context, feed, cluster)
    ranges = [(record, _times(context, record, start, min(end, context.as_of))) for record in records]
    total = sum(count for _, (count, _) in ranges)
    if not total:
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason="it has no instance in this range by now",
            next_step="Give an earlier --start, or a later --end; the end is exclusive.",
            fault=Fault.MISSING,
        )
    done, results = 0, []
    for record, (_, coming) in ranges:
        arrived, known, absent = 0, 0, list[datetime]()
        while times := list(islice(coming, BATCH)):
            polled, before, missing = poll_now(context, record, times)
            arrived, known = arrived + polled, known + before
            absent.extend(missing)
            done += len(times)
            progress("instances polled", done, total)
        results.append(
            PolledRange(
                feed=feed,
                cluster=record.cluster,
                arrived=arrived,
                known=known,
                absent=tuple(absent),
                absent_ranges=render_ranges(absent, record.sequence),
                dry_run=context.dry_run,
            )
        )
    return PolledRanges(ranges=tuple(results))


def poll_now(
    context: ChangeContext, record: FeedRecord, times: Sequence[datetime], *, is_notice: bool = True
) -> tuple[int, int, list[datetime]]:
    """Poll some instances of an external feed, and record those that have arrived. Return how many have arrived, how
    many were known before, and the times of those that are missing or incomplete. A notice is taken for whole.

    Raises:
        StorageError: storage could not be read.
    """
    with context.database.read() as connection:
        rows = FeedInstances(connection).get_many([FeedKey(*record.key, time) for time in times])
    settled = {row.nominal_time for row in rows.values() if row.status in SETTLED}
    candidates = [Candidate(record=record, nominal_time=time) for time in times if time not in settled]
    looks = poll_instances(context.stores, candidates)
    if not is_notice:
        looks = [wait_until_settled(record, look, context.real_now) for look in looks]
    polled = [
        decide_poll_result(candidate, look, context.as_of, notice_origin(context.author))
        for candidate, look in zip(candidates, looks, strict=True)
    ]
    polled = read_versions(context, polled)
    arrived = sum(each.event is not None for each in polled)
    if not context.dry_run:
        with context.database.begin() as connection:
            FeedPlaces(connection).put([record])  # no tick may have seen the definition yet
            arrived = record_poll_results(connection, polled)
    require_unobstructed(candidates, looks)
    return arrived, len(settled), [each.key.nominal_time for each in polled if each.event is None]


def record_vanished_now(context: ChangeContext, subject: Subject, clusters: Iterable[str]) -> int:
    """Look at a feed instance, or at the inputs that a process instance has by the record; record those that storage
    has lost, and return how many.

    Raises:
        StorageError: storage could not be read.
    """
    wanted: list[Candidate] = []
    time = subject.instance
    with context.read() as connection:
        for cluster in clusters:
            if subject.kind is Kind.FEED:
                wanted.append(Candidate(record=context.feed_on(subject.name, cluster), nominal_time=time))
            elif active := context.timeline.find_or_declared(connection, (subject.name, cluster), time):
                states = input_states(connection, active.plan, active.record, [time], context.as_of)[time]
                wanted += present_inputs(active.plan, states)
    return len(record_vanished(context, wanted, notice_origin(context.author)))


def poll_instances_now(context: ChangeContext, keys: Iterable[FeedKey]) -> tuple[int, int]:
    """Poll those of some feed instances that arrive from outside and are due; return how many have arrived, and how
    many have not.

    Raises:
        StorageError: storage could not be read.
    """
    times: dict[FeedRecord, list[datetime]] = defaultdict(list)
    for key in keys:
        record = context.plan.feeds.get((key.feed, key.cluster))
        if record is not None and record.is_external and key.nominal_time <= context.as_of:
            times[record].append(key.nominal_time)
    polled = [poll_now(context, record, found, is_notice=False) for record, found in times.items()]
    return sum(arrived for arrived, *_ in polled), sum(len(absent) for *_, absent in polled)


def _arriving(context: OperationContext, feed: str, cluster: str | None) -> list[FeedRecord]:
    records = context.feeds_of(feed, cluster)
    arriving = [record for record in records if record.is_external]
    if not arriving:
        writers = ", ".join(sorted({edge.process for record in records for edge in record.outputs_of}))
        raise InstanceQueryError(
            subject=f"feed {feed!r}",
            reason=f"{writers or 'a replication'} writes it, so it does not arrive",
            next_step="Name a feed that arrives from outside.",
        )
    return arriving


def _times(
    context: OperationContext, record: FeedRecord, start: datetime, end: datetime
) -> tuple[int, Iterator[datetime]]:
    """Return how many instances are to be polled, and their times."""
    if record.is_expected:
        indices = record.sequence.indices_between(start, end)
        return len(indices), map(record.sequence.at, indices)
    standing = find_standing(context.stores.get(record.store), record, end, start) if record.has_data else []
    return len(standing), iter(standing)
