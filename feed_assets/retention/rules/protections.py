"""Find the protections of instances that are eligible for removal. Fail closed: unknown facts protect.

Protections are checked twice: when a sweep is planned, and directly before the instances are moved, with their leases
held. Reading follows the current declaration and the releases that govern older process instances. If it is unknown
which instance reads which, more readers are assumed rather than fewer.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.context.operation import TimelineContext
from feed_assets.entities.flow_names import describe_process, source_of
from feed_assets.errors import FeedAssetsError
from feed_assets.instances.arrival.instance_paths import find_nominal_time, plain_template
from feed_assets.instances.attempts.copy_records import copy_of, has_changed
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.instance_pages import InstancePages, PageOrder
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import find_held
from feed_assets.log.records import (
    EntityKey,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import Hold
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.releases.left_out import find_former_holds, find_left_out_neighbour
from feed_assets.releases.timeline import FeedReader, ReleaseTimeline, find_feed_readers
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.errors import SourceNotAvailableError
from feed_assets.transfer.plans import is_current, source_side, target_side
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.inputs import TriggerInputs

BEHIND = "behind: its source has changed since it was copied"
"""What a replica is that was copied from other content; the end of a sentence about it."""


class ProtectionKind(StrEnum):
    """The kind of a protection; the names appear in plans, results and explanations."""

    HOLD = "hold"
    """A named hold covers it."""
    LEASE = "lease"
    """A worker is writing it at this moment."""
    READER = "reader"
    """A process instance that reads it is READY or RUNNING."""
    QUEUED = "queued"
    """A process that takes what comes has not processed it: it is pending, or in a batch that has not succeeded."""
    UNREAD = "unread"
    """A process that must read it first has not read it (`until_read_by`)."""
    LATE_DATA = "late-data"
    """It, or an instance that reads it, is still checked for late data."""
    REPLICA = "replica"
    """A cluster that must get it first has not got its content (`until_replicated_to`), or a copy is still pending."""
    NEWEST = "newest"
    """It is among the newest instances, which stay (`keep_newest`)."""
    NEIGHBOUR = "neighbour"
    """Its location overlaps that of a feed that is declared, but left out of the plan because of errors."""
    STORAGE = "storage"
    """Storage must not move it: it contains a link, or is on another device."""
    PLACE = "place"
    """It is at a former place of the feed, and what is there may not be it, or not it alone."""
    POLICY = "policy"
    """The retention of the feed has changed since the sweep was planned."""


_ABSENT = ", which is not declared at present,"
_HAS_BEEN_THERE = frozenset({FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EVICTED})


class Protection(NamedTuple):
    """One reason why an instance stays."""

    kind: ProtectionKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionQuery:
    """A query for protections: `as_of` is the time of the data, `real_now` the real time, which leases use.

    A lease held by `holder` is no protection; with None, all leases are ignored.
    """

    as_of: datetime
    real_now: datetime
    holder: str | None


def find_protections(
    connection: Connection,
    timeline: ReleaseTimeline,
    record: FeedRecord,
    times: Collection[datetime],
    query: ProtectionQuery,
) -> dict[datetime, list[Protection]]:
    """Return the protections of a feed's instances, by nominal time; unprotected instances are left out.

    Args:
        connection: a transaction in which the releases were refreshed.
        timeline: the current plan, and the releases.
        record: the feed.
        times: nominal times, including those without an instance in the current definition.
        query: the times of the query, and the lease holder.
    """
    if not times:
        return {}
    timeline.refresh(connection, query.as_of)
    expected = set(times)
    kept: dict[datetime, list[Protection]] = {}

    def note(kind: ProtectionKind, found: Mapping[datetime, str]) -> None:
        for time, reason in found.items():
            kept.setdefault(time, []).append(Protection(kind, reason))

    neighbour = find_left_out_neighbour(connection, timeline, record)
    note(ProtectionKind.NEIGHBOUR, dict.fromkeys(expected, neighbour) if neighbour else {})
    holds = Holds(connection).active(query.as_of)
    for hold in holds:
        note(ProtectionKind.HOLD, {time: _describe_hold(hold) for time in expected if hold.covers(*record.key, time)})
    note(ProtectionKind.HOLD, find_former_holds(connection, timeline, record, expected, holds))
    held = find_held(connection, lease_keys(*record.key, expected), query.real_now) if query.holder is not None else ()
    others = {each.nominal_time: f"'{each.holder}' holds its lease" for each in held if each.holder != query.holder}
    note(ProtectionKind.LEASE, others)
    feed_readers = find_feed_readers(connection, timeline, record)
    note(ProtectionKind.READER, find_at_work(connection, feed_readers, record, expected, query.as_of))
    checks = LateChecks(connection).get_many([AgendaKey(AgendaKind.LATE_FEED, *record.key, time) for time in expected])
    note(ProtectionKind.LATE_DATA, {key.nominal_time: "it is still checked for late data" for key in checks})
    note(ProtectionKind.LATE_DATA, find_late_readers(connection, feed_readers, record, expected, query.as_of))
    note(ProtectionKind.QUEUED, _find_queued(connection, timeline.plan, record, expected))
    policy = record.retention
    if policy is not None and policy.until_read_by:
        declared = {process for process, _ in timeline.plan.processes}
        if absent := ", ".join(f"'{name}'" for name in policy.until_read_by if name not in declared):
            reason = f"it stays until {absent} has read it, but no such process is declared"
            note(ProtectionKind.UNREAD, dict.fromkeys(expected, reason))
        names = [name for name in policy.until_read_by if name in declared]
        note(ProtectionKind.UNREAD, find_unread(connection, feed_readers, record, names, expected, query.as_of))
    for cluster in policy.until_replicated_to if policy else ():
        note(ProtectionKind.REPLICA, _find_missing_on(connection, timeline.plan, record, cluster, expected))
    note(ProtectionKind.REPLICA, _find_pending_copies(connection, timeline.plan, record, expected, query.as_of))
    present = timeline.plan.feeds.get(record.key)
    if present is not None and present.place != record.place:
        for time, found in _find_shared(connection, timeline, present, record, expected, query).items():
            kept.setdefault(time, []).extend(found)
    return kept


def find_meant(present: FeedRecord, there: FeedRecord, times: Iterable[datetime]) -> dict[datetime, datetime]:
    """Return which other instances the paths of instances at a former place mean at the present one."""
    if there.store.url != present.store.url:
        return {}
    template, former = plain_template(present.template), plain_template(there.template)
    found = {time: find_nominal_time(template, former.render(time), present.sequence) for time in times}
    return {time: other for time, other in found.items() if other is not None and other != time}


def _find_shared(
    connection: Connection,
    timeline: ReleaseTimeline,
    present: FeedRecord,
    there: FeedRecord,
    times: Collection[datetime],
    query: ProtectionQuery,
) -> dict[datetime, list[Protection]]:
    """Return the instances at a former place that stay for another one with the same path: it is recorded there, or
    has that path at the present place and is protected.
    """
    found: dict[datetime, list[Protection]] = {}
    for key, other in FeedPlaces(connection).find_owners([(there, time) for time in times]).items():
        reason = f"instance {render_datetime(other)} is recorded at its path, too"
        found[key.nominal_time] = [Protection(ProtectionKind.PLACE, reason)]
    meant = find_meant(present, there, times)
    kept = find_protections(connection, timeline, present, set(meant.values()), query)
    count = present.retention.keep_newest if present.retention else 0
    for other in FeedInstances(connection).latest_available(*present.key, query.as_of, count) if count else ():
        kept.setdefault(other, []).append(Protection(ProtectionKind.NEWEST, f"it is among the {count} newest"))
    for time, other in meant.items():
        whose = f"its path is now that of instance {render_datetime(other)}, which stays: "
        found.setdefault(time, []).extend(Protection(kind, whose + reason) for kind, reason in kept.get(other, ()))
    return {time: protections for time, protections in found.items() if protections}


def _find_queued(
    connection: Connection, plan: Plan, record: FeedRecord, times: Collection[datetime]
) -> dict[datetime, str]:
    """Return the instances whose events a consumer has not processed, with a phrase that names it.

    A consumer that is not in the plan, because of errors or a missing file, has its queue still.
    """
    consumers = {mark.key.consumer for mark in TriggerInputs(connection).of_feed(*record.key)}
    if not consumers:
        return {}
    naming = {EntityKey(*process.key) for process, _ in plan.triggers_of(record.key)}
    absent = {consumer for consumer in consumers if consumer not in plan.processes}
    queued = Batches(connection).queued(*record.key, naming | absent)
    return {
        key.nominal_time: f"process {consumer.entity!r}{_ABSENT if consumer in absent else ''} has not processed it yet"
        for key, consumer in queued.items()
        if key.nominal_time in times
    }


def find_all_protections(
    context: TimelineContext, record: FeedRecord, times: Collection[datetime], query: ProtectionQuery
) -> dict[datetime, list[Protection]]:
    """Return as `find_protections`, and of the others those whose replicas are behind, by the storages of both sides:
    the record may not know that. Storage is read only if the policy names clusters that must get instances first.
    """
    with context.database.read() as connection:
        kept = find_protections(connection, context.timeline, record, times, query)
    behind = _find_behind(context, record, [time for time in times if time not in kept])
    return kept | {time: [Protection(ProtectionKind.REPLICA, reason)] for time, reason in behind.items()}


def find_at_work_now(
    connection: Connection, timeline: ReleaseTimeline, record: FeedRecord, times: Collection[datetime], as_of: datetime
) -> dict[datetime, str]:
    """Return a feed's instances that a process instance reads now, or is about to read.

    Each has a phrase that names the reader.
    """
    timeline.refresh(connection, as_of)
    return find_at_work(connection, find_feed_readers(connection, timeline, record), record, set(times), as_of)


def lease_keys(feed: str, cluster: str, times: Iterable[datetime]) -> list[tuple[str, str, datetime]]:
    """Return the lease keys of a feed's instances, with which writers lock out one another."""
    return [(f"feed/{feed}", cluster, time) for time in times]


def _describe_hold(hold: Hold) -> str:
    until = f" until {render_datetime(hold.expires_at)}" if hold.expires_at else ""
    return f"hold '{hold.name}' of {hold.author}{until}: {hold.reason}"


def _find_missing_on(
    connection: Connection, plan: Plan, record: FeedRecord, cluster: str, times: Collection[datetime]
) -> dict[datetime, str]:
    """Return the instances that a cluster lacks. Times without an instance there can never arrive and are ignored."""
    target = plan.feeds.get((record.feed, cluster))
    if target is None:
        return dict.fromkeys(times, f"it stays until cluster '{cluster}' has it, but the feed is not declared there")
    expected = [time for time in times if target.sequence.contains(time)]
    lacking = _find_lacking(connection, record, target, find_flows(plan, record, cluster), expected)
    return {
        time: f"it stays until cluster '{cluster}' has it, where it is {status}" for time, status in lacking.items()
    }


def _find_pending_copies(
    connection: Connection, plan: Plan, record: FeedRecord, times: Collection[datetime], as_of: datetime
) -> dict[datetime, str]:
    """Return the instances of a source that a target lacks, will get, and would still keep."""
    found: dict[datetime, str] = {}
    for flow in (plan.processes[edge.process_key] for edge in record.inputs_of):
        if not flow.is_flow:
            continue
        target = plan.feeds[flow.outputs[0].feed_key]
        limit = target.retention_limit
        expected = [
            time
            for time in times
            if flow.sequence.contains(time) and (limit is None or time >= as_of - limit.as_duration())
        ]
        lacking = _find_lacking(connection, record, target, [flow], expected)
        found |= {time: f"its copy on cluster '{target.cluster}' is {status}" for time, status in lacking.items()}
    return found


def _find_lacking(
    connection: Connection,
    record: FeedRecord,
    target: FeedRecord,
    flows: Sequence[ProcessRecord],
    times: Collection[datetime],
) -> dict[datetime, str]:
    """Return the instances whose present content a target lacks, by the record; each with what is there instead."""
    keys = {time: FeedKey(*target.key, time) for time in times}
    rows = FeedInstances(connection).get_many(list(keys.values()))
    statuses = {time: rows[key].status if key in rows else FeedInstanceStatus.MISSING for time, key in keys.items()}
    lacking: dict[datetime, str] = {time: status for time, status in statuses.items() if status not in _HAS_BEEN_THERE}
    copied = [time for time in times if time not in lacking]
    return lacking | dict.fromkeys(find_changed_since_copy(connection, record, flows, copied), BEHIND)


def find_flows(plan: Plan, record: FeedRecord, target: str) -> list[ProcessRecord]:
    """Return the flows that copy a feed from its cluster to a target."""
    readers = (plan.processes[edge.process_key] for edge in record.inputs_of if edge.cluster == target)
    return [flow for flow in readers if flow.is_flow]


def find_changed_since_copy(
    connection: Connection, record: FeedRecord, flows: Sequence[ProcessRecord], times: Collection[datetime]
) -> set[datetime]:
    """Return the instances of a source that have changed since one of the flows copied them, by the record."""
    if not flows or not times:
        return set()
    log, runs = EventLog(connection), ProcessInstances(connection)
    at_source = {time: FeedKey(*record.key, time) for time in times}
    sources = FeedInstances(connection).get_many(list(at_source.values()))
    source_events = log.for_instances(list(at_source.values()))
    found: set[datetime] = set()
    for flow in flows:
        at_target = {time: FeedKey(*flow.outputs[0].feed_key, time) for time in times if flow.sequence.contains(time)}
        copies = log.for_instances(list(at_target.values()))
        attempts = runs.get_many([ProcessKey(*flow.key, time) for time in at_target])
        found.update(
            time
            for time, target in at_target.items()
            if has_changed(
                sources.get(at_source[time]),
                source_events.get(at_source[time], ()),
                attempts.get(ProcessKey(*flow.key, time)),
                copy_of(copies.get(target, ()), flow.process),
            )
        )
    return found


def _find_behind(context: TimelineContext, record: FeedRecord, times: Collection[datetime]) -> dict[datetime, str]:
    """Return the instances that must get to other clusters first and whose replicas there have other content.

    Compares the storages of both sides: what the replica was copied from, and what the source is now, since the record
    does not know what was written in place. A replica that cannot be compared counts as behind. Each instance has a
    clause that completes "it stays because".
    """
    found: dict[datetime, str] = {}
    for cluster in record.retention.until_replicated_to if record.retention else ():
        for flow in find_flows(context.plan, record, cluster):
            target = context.plan.feeds[flow.outputs[0].feed_key]
            left = [time for time in times if time not in found and flow.sequence.contains(time)]
            with context.database.read() as connection:
                rows = FeedInstances(connection).get_many([FeedKey(*target.key, time) for time in left])
            there = [row.nominal_time for row in rows.values() if row.status is FeedInstanceStatus.AVAILABLE]
            answers = context.stores.each(partial(_compare, context, record, target, flow), there)
            found |= {
                time: f"it stays until cluster '{cluster}' has it, where it is {answer}"
                for time, answer in zip(there, answers, strict=True)
                if answer is not None
            }
    return found


def _compare(
    context: TimelineContext, record: FeedRecord, target: FeedRecord, flow: ProcessRecord, time: datetime
) -> str | None:
    """Return what a replica is instead of current; None if it is current, or if there is nothing at the source."""
    source, replica = source_side(record, time), target_side(target, time)
    try:
        same = is_current(context.stores, source, replica, flow.copied.options, context.real_clock)
        return None if same else BEHIND
    except SourceNotAvailableError as exc:
        return None if exc.availability is Availability.MISSING else BEHIND
    except FeedAssetsError as exc:
        return f"not comparable: {exc}"


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
        if reader.newest_read is not None and any(
            ProcessInstances(connection).with_status(each, *reader.process, limit=1) for each in sorted(_AT_WORK)
        ):
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
                if watermark is None or watermark.is_ahead(last):
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
    """Return a feed's instances whose readers are still checked for late data or updates, and may be rerun, or are
    asked to run again.
    """
    found: dict[datetime, str] = {}
    asked = LateChecks(connection).processes_of(AgendaKind.RERUN) if feed_readers else ()
    for reader in feed_readers:
        active, (process, cluster) = reader.active.record, reader.process
        follows = active.follows_updates and not active.is_flow  # protections.py asks for copies that are pending
        kinds = [AgendaKind.LATE_INPUTS] * (active.late is not None) + [AgendaKind.UPDATE] * follows
        kinds += [AgendaKind.RERUN] * (reader.process in asked)
        if not kinds:
            continue
        readers = _readers(reader, times)
        keys = {
            AgendaKey(kind, process, cluster, reader.at(index)): index
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


def _newest(connection: Connection, reader: FeedReader, record: FeedRecord, as_of: datetime) -> list[datetime]:
    if reader.newest_read is None:
        return []
    return FeedInstances(connection).latest_available(*record.key, as_of, reader.newest_read)


def _describe_reader(row: ProcessInstance) -> str:
    return f"instance {render_datetime(row.nominal_time)} of {describe_process(row.process)} is {row.status.value}"
