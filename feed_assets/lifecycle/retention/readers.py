"""Which process instances read given instances of a feed, and of those which have it still before them.

Reading goes by what is declared now and by the releases that govern older process instances. Where it cannot be told
exactly which instance reads which, more are taken to read it than do.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process, source_of
from feed_assets.lifecycle.governance import Governance, Governed
from feed_assets.plan.records import FeedRecord, InputEdge, Key
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.instance_pages import InstancePages, PageOrder
from feed_assets.state.late_checks import LateChecks, LateKey
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import FrontierKind, ProcessInstance, ProcessInstanceStatus
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.expressions import DataDriven

ROWS_AT_MOST = 50_000
"""How many process instances one question may find; with more, all that they might read is kept."""

_MOMENT = timedelta(microseconds=1)
_AT_WORK = frozenset({ProcessInstanceStatus.RUNNING, ProcessInstanceStatus.READY})
_HAVE_READ = frozenset({ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED})
_NONE = range(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A process reads a feed through an input, by the definitions of one stretch of its instances."""

    governed: Governed
    edge: InputEdge

    @property
    def process(self) -> Key:
        """(process, cluster)."""
        return self.governed.record.key

    @property
    def newest_read(self) -> int | None:
        """How many of the newest instances a `latest` window reaches back over; None for any other window."""
        start = self.edge.window.start
        return 1 - start.n if start.data_driven is DataDriven.LATEST else None

    def readers(self, nominal_time: datetime) -> range:
        """The numbers of the process instances that read a feed instance; none for `latest`, which reads what is new.

        All that may read it where that depends on what is available.
        """
        feed = self.governed.plan.feeds[self.edge.feed_key].sequence
        process = self.governed.record.sequence
        index = feed.index_at_or_before(nominal_time)
        if self.newest_read is not None or index < 0 or feed.at(index) != nominal_time:
            return _NONE
        if self.edge.window.start.data_driven is DataDriven.FUTURE:
            first = max(0, index - self.edge.window.end.limit)
            found = process.indices_between(feed.at(first), feed.at(index + 1))
        else:
            found = self.governed.plan.reader_indices(self.edge, range(index, index + 1))
        governs = self.governed.between(self.governed.start, self.governed.stop)
        return range(max(found.start, governs.start), min(found.stop, governs.stop)) if found else _NONE

    def at(self, index: int) -> datetime:
        """The nominal time of a process instance."""
        return self.governed.record.sequence.at(index)


Readers = Mapping[datetime, range]
"""By nominal time of the feed, the numbers of its readers; times that nobody reads are left out."""


def find_readings(connection: Connection, governance: Governance, record: FeedRecord) -> list[Reading]:
    """All ways in which processes and flows read the feed: as declared, and as their older releases have it."""
    keys = {edge.process_key: None for edge in record.inputs_of}
    for older in governance.older_readers(record.cluster):
        if any(edge.feed_key == record.key for edge in older.record.inputs):
            keys.setdefault(older.record.key)
    return [
        Reading(governed=governed, edge=edge)
        for key in keys
        for governed in governance.stretches(connection, key)
        for edge in governed.record.inputs
        if edge.feed_key == record.key
    ]


def find_at_work(
    connection: Connection,
    readings: Sequence[Reading],
    record: FeedRecord,
    times: Collection[datetime],
    as_of: datetime,
) -> dict[datetime, str]:
    """Of instances of a feed those that a RUNNING or READY process instance reads, with who it is."""
    found = _frozen(connection, record, times, {record.cluster, *(reading.process[1] for reading in readings)})
    for reading in readings:
        readers = _readers(reading, times)
        rows, is_complete = _rows(connection, reading, readers, _AT_WORK)
        if not is_complete:
            reason = f"{describe_process(reading.process[0])} has more than {ROWS_AT_MOST} instances that may read it"
            return dict.fromkeys(times, reason) | found
        busy = {reading.governed.record.sequence.index(row.nominal_time): row for row in rows}
        for time, index in _first_of(readers, busy):
            found.setdefault(time, _who(busy[index]))
        if reading.newest_read is not None and _has_work(connection, reading.process):
            reason = f"{describe_process(reading.process[0])} is at work and reads the newest instances"
            found |= {time: reason for time in _newest(connection, reading, record, as_of) if time in times}
    return found


def find_unread(
    connection: Connection,
    readings: Sequence[Reading],
    record: FeedRecord,
    processes: Iterable[str],
    times: Collection[datetime],
    as_of: datetime,
) -> dict[datetime, str]:
    """Of instances of a feed those that not all instances of the named processes have read that read them ever.

    Read is what SUCCEEDED or was SKIPPED. A process that is nowhere declared has not read anything.
    """
    found: dict[datetime, str] = {}
    for name in processes:
        of_process = [reading for reading in readings if reading.process[0] == name]
        if not of_process:
            continue
        frontier = Frontiers(connection).get(FrontierKind.PROCESS, name, record.cluster)
        for reading in of_process:
            readers = _readers(reading, times)
            rows, is_complete = _rows(connection, reading, readers, frozenset(ProcessInstanceStatus) - _HAVE_READ)
            if not is_complete:
                reason = f"process '{name}' has more than {ROWS_AT_MOST} instances that have not read it"
                return dict.fromkeys(times, reason) | found
            open_rows = {reading.governed.record.sequence.index(row.nominal_time): row for row in rows}
            for time, index in _first_of(readers, open_rows):
                found.setdefault(time, f"{_who(open_rows[index])} and has not read it")
            for time, indices in readers.items():
                last = reading.at(indices[-1])
                if frontier is None or (frontier.next_time is not None and last >= frontier.next_time):
                    found.setdefault(time, f"instance {render_datetime(last)} of process '{name}' is still to read it")
            reason = f"process '{name}' reads the newest instances"
            found |= {time: reason for time in _newest(connection, reading, record, as_of) if time in times}
    return found


def find_late_readers(
    connection: Connection,
    readings: Sequence[Reading],
    record: FeedRecord,
    times: Collection[datetime],
    as_of: datetime,
) -> dict[datetime, str]:
    """Of instances of a feed those whose readers are still to be checked for late data, and may be run again."""
    found: dict[datetime, str] = {}
    for reading in readings:
        if reading.governed.record.late is None:
            continue
        process, cluster = reading.process
        readers = _readers(reading, times)
        keys = {
            LateKey(Kind.PROCESS.value, process, cluster, reading.at(index)): index
            for index in {index for indices in readers.values() for index in indices}
        }
        due = {keys[key]: key for key in LateChecks(connection).get_many(keys)}
        for time, index in _first_of(readers, due):
            who = f"instance {render_datetime(reading.at(index))} of {describe_process(process)}"
            found.setdefault(time, f"late data of {who}, which reads it, are still looked for")
        reason = f"late data of {describe_process(process)}, which reads the newest instances, are looked for"
        found |= {time: reason for time in _newest(connection, reading, record, as_of) if time in times}
    return found


def _readers(reading: Reading, times: Iterable[datetime]) -> Readers:
    return {time: indices for time in times if (indices := reading.readers(time))}


def _rows(
    connection: Connection, reading: Reading, readers: Readers, statuses: Collection[ProcessInstanceStatus]
) -> tuple[list[ProcessInstance], bool]:
    """The readers that have one of some statuses, and whether these are all."""
    if not readers:
        return [], True
    first = reading.at(min(indices.start for indices in readers.values()))
    last = reading.at(max(indices.stop for indices in readers.values()) - 1)
    rows = InstancePages(connection).of_process(
        *reading.process,
        first,
        last + _MOMENT,
        ROWS_AT_MOST,
        statuses=statuses,
        order=PageOrder.NOMINAL_TIME,
        descending=False,
    )
    sequence = reading.governed.record.sequence
    return [row for row in rows if sequence.contains(row.nominal_time)], len(rows) < ROWS_AT_MOST


def _first_of(readers: Readers, wanted: Collection[int]) -> list[tuple[datetime, int]]:
    """For each time that one of the `wanted` reads, the first that does."""
    ordered = sorted(wanted)
    found = []
    for time, indices in readers.items() if ordered else ():
        place = bisect_left(ordered, indices.start)
        if place < len(ordered) and ordered[place] < indices.stop:
            found.append((time, ordered[place]))
    return found


def _frozen(
    connection: Connection, record: FeedRecord, times: Collection[datetime], clusters: Iterable[str]
) -> dict[datetime, str]:
    """What the runs that go on have taken as their inputs, whatever is declared now."""
    instances = ProcessInstances(connection)
    return {
        time: _who(row)
        for cluster in clusters
        for row in instances.active_with_run(cluster)
        if source_of(row.process, row.cluster) == record.cluster
        for taken in row.inputs
        if taken.feed == record.feed
        for time in taken.nominal_times
        if time in times
    }


def _has_work(connection: Connection, process: Key) -> bool:
    instances = ProcessInstances(connection)
    return any(instances.with_status(status, *process, limit=1) for status in sorted(_AT_WORK))


def _newest(connection: Connection, reading: Reading, record: FeedRecord, as_of: datetime) -> list[datetime]:
    if reading.newest_read is None:
        return []
    return FeedInstances(connection).latest_available(*record.key, as_of, reading.newest_read)


def _who(row: ProcessInstance) -> str:
    return f"instance {render_datetime(row.nominal_time)} of {describe_process(row.process)} is {row.status.value}"
