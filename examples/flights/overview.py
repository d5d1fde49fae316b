"""Statistics of feeds and processes: existing and missing instances, finished runs and their duration."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstance, ProcessInstanceStatus
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.sql.database import Database
from feed_assets.timing.sequence import InstanceSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOverview:
    """Statistics of a feed on a cluster.

    `instances` are due; `missing` are those of them that are neither available nor `evicted`. `rows` adds up the rows
    of the produced instances, each as last produced; None if none was counted.
    """

    feed: str
    cluster: str
    instances: int
    available: int
    evicted: int
    missing: tuple[datetime, ...]
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOverview:
    """Statistics of a process on a cluster. `seconds` is the median time that its outputs took."""

    process: str
    cluster: str
    instances: int
    statuses: dict[ProcessInstanceStatus, int]
    seconds: float | None

    @property
    def succeeded(self) -> int:
        return self.statuses.get(ProcessInstanceStatus.SUCCEEDED, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanWithout:
    """A process instance that ran without some instances of an optional input."""

    process: str
    cluster: str
    nominal_time: datetime
    input: str
    missing: tuple[datetime, ...]


def feed_overview(database: Database, record: FeedRecord, as_of: datetime) -> FeedOverview:
    """Return the statistics of a feed at `as_of`. Lists all its due instances, so it is for people, not for ticks."""
    sequence = record.sequence
    due = _due(sequence, as_of)
    with database.read() as connection:
        if due:
            rows = FeedInstances(connection).find_between(
                record.feed, record.cluster, sequence.at(due[0]), sequence.at(due[-1])
            )
        else:
            rows = []
        counted = {
            event.nominal_time: event.payload.get("rows")
            for event in EventLog(connection).for_feed(record.feed, record.cluster, FeedEventKind.PRODUCED)
        }
    available = {row.nominal_time for row in rows if row.status is FeedInstanceStatus.AVAILABLE}
    evicted = {row.nominal_time for row in rows if row.status is FeedInstanceStatus.EVICTED}
    settled = available | evicted
    numbers = [number for number in counted.values() if isinstance(number, int)]
    return FeedOverview(
        feed=record.feed,
        cluster=record.cluster,
        instances=len(due),
        available=len(available),
        evicted=len(evicted),
        missing=tuple(time for index in due if (time := sequence.at(index)) not in settled),
        rows=sum(numbers) if numbers else None,
    )


def _due(sequence: InstanceSequence, as_of: datetime) -> range:
    """Return the indexes of the instances inside the validity that exist at `as_of`, inclusive."""
    stop = max(0, sequence.index_at_or_before(as_of) + 1)
    return range(stop if sequence.size is None else min(stop, sequence.size))


def process_overview(database: Database, record: ProcessRecord, as_of: datetime) -> ProcessOverview:
    """Return the statistics of a process at `as_of`."""
    due = _due(record.sequence, as_of)
    made = FeedEventKind.REPLICATED if record.is_flow else FeedEventKind.PRODUCED
    with database.read() as connection:
        statuses = ProcessInstances(connection).counts(record.process, record.cluster)
        seconds = [
            taken
            for edge in record.outputs
            for event in EventLog(connection).for_feed(edge.feed, edge.cluster, made)
            if event.payload.get("process") == record.process
            and isinstance(taken := event.payload.get("seconds"), int | float)
        ]
    return ProcessOverview(
        process=record.process,
        cluster=record.cluster,
        instances=len(due),
        statuses=statuses,
        seconds=median(seconds) if seconds else None,
    )


def iter_ran_without(database: Database, plan: Plan, record: ProcessRecord) -> Iterator[RanWithout]:
    """Yield the instances of a process that succeeded without some of their optional inputs, oldest first."""
    optional = {edge.name: edge for edge in record.inputs if edge.optional}
    with database.read() as connection:
        done = ProcessInstances(connection).with_status(
            ProcessInstanceStatus.SUCCEEDED, process=record.process, cluster=record.cluster, limit=1_000_000
        )
    for instance in sorted(done, key=lambda instance: instance.nominal_time):
        for name, edge in optional.items():
            missing = _missing(plan, edge, instance)
            if missing:
                yield RanWithout(
                    process=record.process,
                    cluster=record.cluster,
                    nominal_time=instance.nominal_time,
                    input=name,
                    missing=missing,
                )


def _missing(plan: Plan, edge: InputEdge, instance: ProcessInstance) -> tuple[datetime, ...]:
    if edge.is_data_driven:
        return ()
    sequence = plan.feeds[edge.feed_key].sequence
    read = {time for frozen in instance.inputs if frozen.name == edge.name for time in frozen.nominal_times}
    expected = (sequence.at(index) for index in plan.input_indices(edge, instance.nominal_time))
    return tuple(time for time in expected if time not in read)
