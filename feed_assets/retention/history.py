"""Remove what the state has of long ago and nobody asks for: the paths of ended sweeps, the audit, and of an instance
that was evicted its events, and the attempts that published nothing that is there.

The log is followed with a position of its own, never past a reader: each event is looked at once. A step is one
transaction; after one that was broken off the next goes on.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import takewhile

from sqlalchemy import Connection

from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEvent, FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.log.removals.chunks import find_old_chunks
from feed_assets.log.removals.store import Sweeps
from feed_assets.sql.locks import lock_log
from feed_assets.triggers.apply_triggers import routed_cursor
from feed_assets.triggers.queue.inputs import TriggerInputs

EVENTS_A_STEP = 2_000
_POSITION = "cleanup/events"
_OWN = (FeedEventKind.EVICTED, FeedEventKind.RESTORED)
"""The kinds of events whose idempotency keys are those of sweeps."""


def is_history_due(connection: Connection, before: datetime, as_of: datetime) -> bool:
    """Return whether something is older than a time; a few queries."""
    first = EventLog(connection).heads(_position(connection), 1, as_of)
    is_old = bool(first) and first[0].recorded_at < before
    return is_old or bool(find_old_chunks(connection, before, 1) or Audit(connection).find_old(before, as_of, 1))


def find_readers(connection: Connection, told: Mapping[str, int]) -> dict[str, int]:
    """Return how far each cluster, in the plan or not, has read the log: by gates and queues, and Dagster's `told`."""
    found = dict(told)
    for prefix in ("readiness/", routed_cursor("")):
        for cluster, seq in Cursors(connection).with_prefix(prefix).items():
            if "/" not in cluster:
                found[cluster] = min(int(seq), found.get(cluster, int(seq)))
    return found


def count_evicted(connection: Connection, before: datetime, as_of: datetime) -> int:
    """Return how many evictions before a time the next clean-ups will look at."""
    return EventLog(connection).count_kind(FeedEventKind.EVICTED, _position(connection), before, as_of)


def remove_past(
    connection: Connection, readers: Mapping[str, int], before: datetime, as_of: datetime
) -> tuple[int, bool]:
    """Remove events and attempts of instances that were evicted before a time and are still; return of how many, and
    whether all were looked at.

    Stays: the last attempt, the last that published and those of whose outputs an event stays; events with an
    idempotency key of others, those of feeds that queues read, of clusters without a reader, and at which a reader is;
    and whatever has a trash or is in an archive. `readers` are how far each cluster has read the log, in which it may
    read events of others; none behind the last is looked at.
    """
    lock_log(connection)
    log, after = EventLog(connection), _position(connection)
    heads = log.heads(after, EVENTS_A_STEP, as_of)
    read = min(readers.values(), default=log.last_seq())
    passed = list(takewhile(lambda each: each.recorded_at < before and each.seq <= read, heads))
    ends = log.of_numbers(each.seq for each in passed if each.kind is FeedEventKind.EVICTED).values()
    gone = _find_gone(connection, [each for each in ends if each.cluster in readers])
    events, positions = log.for_instances(gone), {log.last_seq(), *readers.values()}
    old = [
        event
        for key, found in events.items()
        for event in found
        if event.seq <= gone[key] and event.seq not in positions and (event.kind in _OWN or not event.idempotency_key)
    ]
    log.remove(event.seq for event in old)
    Attempts(connection).remove_past(old)
    if passed:
        Cursors(connection).put(_POSITION, str(passed[-1].seq))
    return len({event.key for event in old}), len(passed) < EVENTS_A_STEP


def _find_gone(connection: Connection, ends: Collection[FeedEvent]) -> dict[FeedKey, int]:
    """Return the instances whose data are gone for good, by evictions after which nothing came, with their numbers."""
    last = {event.key: event for event in ends if event.is_of_data and "archive" not in event.payload}
    rows = FeedInstances(connection).get_many(last)
    sweeps = Sweeps(connection).find_many({str(event.payload.get("sweep")) for event in last.values()})
    queued = TriggerInputs(connection).feeds()
    return {
        key: event.seq
        for key, event in last.items()
        if (row := rows.get(key)) is not None
        and (row.status, row.event_seq) == (FeedInstanceStatus.EVICTED, event.seq)
        and key[:2] not in queued
        and ((sweep := sweeps.get(str(event.payload.get("sweep")))) is None or not sweep.has_trash)
    }


def _position(connection: Connection) -> int:
    return int(Cursors(connection).get(_POSITION) or 0)
