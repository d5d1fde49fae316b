"""Find the process instances that read given instances of a feed, and those that still have to read them.

Reading follows the current declaration and the releases that govern older process instances. If it is unknown which
instance reads which, more readers are assumed rather than fewer.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process, source_of
from feed_assets.instances.late.store import UPDATE, LateChecks, LateKey
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.instance_pages import InstancePages, PageOrder
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.releases.feed_readers import FeedReader
from feed_assets.timing.dates import render_datetime

ROWS_AT_MOST = 50_000
"""The maximum number of process instances in one query; with more, everything that they might read is protected."""

_MOMENT = timedelta(microseconds=1)
_AT_WORK = frozenset({ProcessInstanceStatus.RUNNING, ProcessInstanceStatus.READY})
_HAVE_READ = frozenset({ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED})


Readers = Mapping[datetime, range]
"""The indices of the readers, by nominal time of the feed; times without readers are left out."""


def find_at_work(
    connection: Connection,
    feed_readers: Sequence[FeedReader],
    record: FeedRecord,
    times: Collection[datetime],
    as_of: datetime,
) -> dict[datetime, str]:
    """Return a feed's instances that a RUNNING or READY process instance reads, with a phrase that names the reader."""
    found = _frozen(connection, record, times, {record.cluster, *(reader.process[1] for reader in feed_readers)})
    for reader in feed_readers:
        readers = _readers(reader, times)
        rows, is_complete = _rows(connection, reader, readers, _AT_WORK)
        if not is_complete:
            reason = f"{describe_process(reader.process[0])} has more than {ROWS_AT_MOST} instances that may read it"
            return dict.fromkeys(times, reason) | found
        busy = {reader.active.record.sequence.index(row.nominal_time): row for row in rows}
        for time, index in _first_of(readers, busy):
            found.setdefault(time, _describe_reader(busy[index]))
        if reader.newest_read is not None and _has_work(connection, reader.process):
            reason = f"{describe_process(reader.process[0])} is running and reads the newest instances"
            found |= {time: reason for time in _newest(connection, reader, record, as_of) if time in times}
    return found


def find_unread(
    connection: Connection,
    feed_readers: Sequence[FeedReader],
    record: FeedRecord,
    processes: Iterable[str],
    times: Collection[datetime],
    as_of: datetime,
) -> dict[datetime, str]:
    """Return a feed's instances that some instance of the named processes still has to read.

    SUCCEEDED and SKIPPED instances have read their inputs. Processes that do not read the feed are ignored.
    """
    found: dict[datetime, str] = {}
    for name in processes:
        of_process = [reader for reader in feed_readers if reader.process[0] == name]
        if not of_process:
            continue
        watermark = Watermarks(connection).get(WatermarkKind.PROCESS, name, record.cluster)
        for reader in of_process:
            readers = _readers(reader, times)
            rows, is_complete = _rows(connection, reader, readers, frozenset(ProcessInstanceStatus) - _HAVE_READ)
            if not is_complete:
                reason = f"process '{name}' has more than {ROWS_AT_MOST} instances that have not read it"
                return dict.fromkeys(times, reason) | found
            open_rows = {reader.active.record.sequence.index(row.nominal_time): row for row in rows}
            for time, index in _first_of(readers, open_rows):
                found.setdefault(time, f"{_describe_reader(open_rows[index])} and has not read it")
            for time, indices in readers.items():
                last = reader.at(indices[-1])
                if watermark is None or (watermark.next_time is not None and last >= watermark.next_time):
                    found.setdefault(time, f"instance {render_datetime(last)} of process '{name}' still has to read it")
            reason = f"process '{name}' reads the newest instances"
            found |= {time: reason for time in _newest(connection, reader, record, as_of) if time in times}
    return found


def find_late_readers(
    connection: Connection,
    feed_readers: Sequence[FeedReader],
    record: FeedRecord,
    times: Collection[datetime],
    as_of: datetime,
) -> dict[datetime, str]:
    """Return a feed's instances whose readers are still checked for late data or updates, and may be rerun."""
    found: dict[datetime, str] = {}
    for reader in feed_readers:
        active, (process, cluster) = reader.active.record, reader.process
        follows = active.follows_updates and active.copy is None  # protections.py asks for copies that are pending
        kinds = [Kind.PROCESS.value] * (active.late is not None) + [UPDATE] * follows
        if not kinds:
            continue
        readers = _readers(reader, times)
        keys = {
            LateKey(kind, process, cluster, reader.at(index)): index
            for kind in kinds
            for index in {index for indices in readers.values() for index in indices}
        }
        due = {keys[key]: key for key in LateChecks(connection).get_many(keys)}
        for time, index in _first_of(readers, due):
            who = f"instance {render_datetime(reader.at(index))} of {describe_process(process)}"
            found.setdefault(time, f"{who}, which reads it, is still checked for late data")
        reason = f"{describe_process(process)}, which reads the newest instances, is still checked for late data"
        found |= {time: reason for time in _newest(connection, reader, record, as_of) if time in times}
    return found


def _readers(reader: FeedReader, times: Iterable[datetime]) -> Readers:
    return {time: indices for time in times if (indices := reader.readers(time))}


def _rows(
    connection: Connection, reader: FeedReader, readers: Readers, statuses: Collection[ProcessInstanceStatus]
) -> tuple[list[ProcessInstance], bool]:
    """Return the readers with one of some statuses, and whether the result is complete."""
    if not readers:
        return [], True
    first = reader.at(min(indices.start for indices in readers.values()))
    last = reader.at(max(indices.stop for indices in readers.values()) - 1)
    rows = InstancePages(connection).of_process(
        *reader.process,
        first,
        last + _MOMENT,
        ROWS_AT_MOST,
        statuses=statuses,
        order=PageOrder.NOMINAL_TIME,
        descending=False,
    )
    sequence = reader.active.record.sequence
    return [row for row in rows if sequence.contains(row.nominal_time)], len(rows) < ROWS_AT_MOST


def _first_of(readers: Readers, wanted: Collection[int]) -> list[tuple[datetime, int]]:
    """Return each time with its first reader among `wanted`; times without one are left out."""
    ordered = sorted(wanted)
    found = []
    for time, indices in readers.items() if ordered else ():
        position = bisect_left(ordered, indices.start)
        if position < len(ordered) and ordered[position] < indices.stop:
            found.append((time, ordered[position]))
    return found


def _frozen(
    connection: Connection, record: FeedRecord, times: Collection[datetime], clusters: Iterable[str]
) -> dict[datetime, str]:
    """Return the instances in the frozen inputs of running instances, regardless of the current declaration."""
    instances = ProcessInstances(connection)
    return {
        time: _describe_reader(row)
        for cluster in clusters
        for row in instances.active_with_run(cluster)
        if (source_of(row.process) or row.cluster) == record.cluster
        for taken in row.inputs
        if taken.feed == record.feed
        for time in taken.nominal_times
        if time in times
    }


def _has_work(connection: Connection, process: Key) -> bool:
    instances = ProcessInstances(connection)
    return any(instances.with_status(status, *process, limit=1) for status in sorted(_AT_WORK))


def _newest(connection: Connection, reader: FeedReader, record: FeedRecord, as_of: datetime) -> list[datetime]:
    if reader.newest_read is None:
        return []
    return FeedInstances(connection).latest_available(*record.key, as_of, reader.newest_read)


def _describe_reader(row: ProcessInstance) -> str:
    return f"instance {render_datetime(row.nominal_time)} of {describe_process(row.process)} is {row.status.value}"
