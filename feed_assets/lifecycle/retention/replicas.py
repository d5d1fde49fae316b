"""Find the replicas that are behind: copied from other content than their source has now.

The record answers at once, also for replicas that have been evicted. Storage is asked before a source is removed, since
the record does not know what was written in place.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from feed_assets.clock import Clock, FrozenClock
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.instances.copy_records import copy_of, has_changed
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import FeedInstanceStatus, FeedKey, ProcessKey
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability
from feed_assets.transfer.errors import SourceNotAvailableError
from feed_assets.transfer.plans import is_current, source_side, target_side

BEHIND = "behind: its source has changed since it was copied"
"""What a replica is that was copied from other content; the end of a sentence about it."""


def find_flows(plan: Plan, record: FeedRecord, target: str) -> list[ProcessRecord]:
    """Return the flows that copy a feed from its cluster to a target."""
    readers = (plan.processes[edge.process_key] for edge in record.inputs_of if edge.cluster == target)
    return [flow for flow in readers if flow.copy is not None]


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


def find_behind(
    database: Database,
    stores: StorePool,
    plan: Plan,
    record: FeedRecord,
    times: Collection[datetime],
    real_now: datetime,
) -> dict[datetime, str]:
    """Return the instances that must get to other clusters first and whose replicas there have other content.

    Compares the storages of both sides: what the replica was copied from, and what the source is now. A replica that
    cannot be compared counts as behind. Each instance has a clause that completes "it stays because".
    """
    found: dict[datetime, str] = {}
    clock = FrozenClock(real_now)
    for cluster in record.retention.until_replicated_to if record.retention else ():
        for flow in find_flows(plan, record, cluster):
            target = plan.feeds[flow.outputs[0].feed_key]
            left = [time for time in times if time not in found and flow.sequence.contains(time)]
            with database.read() as connection:
                rows = FeedInstances(connection).get_many([FeedKey(*target.key, time) for time in left])
            there = [row.nominal_time for row in rows.values() if row.status is FeedInstanceStatus.AVAILABLE]
            answers = stores.each(partial(_compare, stores, record, target, flow, clock), there)
            found |= {
                time: f"it stays until cluster '{cluster}' has it, where it is {answer}"
                for time, answer in zip(there, answers, strict=True)
                if answer is not None
            }
    return found


def _compare(
    stores: StorePool, record: FeedRecord, target: FeedRecord, flow: ProcessRecord, clock: Clock, time: datetime
) -> str | None:
    """Return what a replica is instead of current; None if it is current, or if there is nothing at the source."""
    assert flow.copy is not None
    source, replica = source_side(record, time), target_side(target, time)
    try:
        return None if is_current(stores, source, replica, flow.copy.options, clock) else BEHIND
    except SourceNotAvailableError as exc:
        return None if exc.availability is Availability.MISSING else BEHIND
    except FeedAssetsError as exc:
        return f"not comparable: {exc}"
