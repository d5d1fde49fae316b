"""Record what storage has lost: instances that are available by the record, and that are not there any more.

Whoever looks at storage and misses such an instance calls this. No consumer is woken, and what has read it stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.instances.arrival.past_locations import find_record
from feed_assets.instances.arrival.polling import decide_poll_result
from feed_assets.instances.arrival.store_polls import Candidate, poll_instances
from feed_assets.instances.late.store import LateChecks, LateKey
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.leases import find_held
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.log.removals.records import AT_WORK
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.records import Plan
from feed_assets.sql.database import Database
from feed_assets.sql.locks import lock_log
from feed_assets.storage.errors import StorageAwayError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability, Look
from feed_assets.triggers.input_windows import InputState


def present_inputs(plan: Plan, states: Iterable[InputState]) -> list[Candidate]:
    """Return the instances that the inputs of a process instance have by the record."""
    found = ((plan.feeds[state.edge.feed_key], state.present) for state in states)
    return [Candidate(record=record, nominal_time=time) for record, times in found for time in times]


def record_vanished(
    database: Database,
    stores: StorePool,
    candidates: Iterable[Candidate],
    as_of: datetime,
    real_now: datetime,
    origin: str,
    *,
    dry_run: bool = False,
) -> Mapping[FeedKey, Candidate]:
    """Look at those of some instances that are AVAILABLE by the record; record those that are gone as MISSING, with an
    event VANISHED each, and return them. What somebody has moved to where its feed has its data now is recorded there.

    Instances on which somebody works are left alone, and those whose storage was never looked at, by a trusted notice.

    Raises:
        StorageAwayError: nothing at all lies below the root of a store, so it has lost nothing; what others have lost
            is recorded.
        StorageError: a store could not look.
    """
    by_key = {FeedKey(*each.record.key, each.nominal_time): each for each in candidates if each.record.has_data}
    with database.read() as connection:
        rows = _find_standing(connection, by_key, real_now)
        places = FeedPlaces(connection)
        there = {key: places.at_place(by_key[key].record, row) for key, row in rows.items()}
    rows = {key: row for key, row in rows.items() if row.place in (None, there[key].place)}
    for key in rows:
        by_key[key] = replace(by_key[key], record=find_record(stores, there[key], by_key[key].record, key.nominal_time))
    looks = dict(zip(rows, poll_instances(stores, [by_key[key] for key in rows]), strict=True))
    gone = {key: by_key[key] for key, look in looks.items() if _is_gone(by_key[key], look)}
    # A metastore that has answered is no empty mount point.
    roots = {each.record.store for each in gone.values() if each.record.table is None}
    away = {root for root in roots if not any(stores.get(root).walk("", 1, lambda _, names: names))}
    gone = {key: each for key, each in gone.items() if each.record.store not in away}
    moved = {key: by_key[key] for key, row in rows.items() if row.place not in (None, by_key[key].record.place)}
    if (gone or moved) and not dry_run:
        with database.begin() as connection:
            lock_log(connection)
            standing = _find_standing(connection, {**gone, **moved}, real_now)
            there_now = [
                (rows[key], each.record.place) for key, each in moved.items() if standing.get(key) == rows[key]
            ]
            FeedInstances(connection).put(replace(row, place=place) for row, place in there_now)
            gone = {key: each for key, each in gone.items() if standing.get(key) == rows[key]}
            _record(connection, gone, rows, looks, as_of, origin)
    for root in away:
        reason = "nothing at all lies below it, so what the record has there may only be away"
        step = "Mount it, or correct its address. If everything was removed from it, put any file there, and try again."
        raise StorageAwayError(store=root.url, path="", reason=reason, next_step=step)
    return gone


def _find_standing(
    connection: Connection, by_key: Mapping[FeedKey, Candidate], real_now: datetime
) -> dict[FeedKey, FeedInstance]:
    """Return the rows of the instances that must be in their places: others are written or removed just now, or were
    taken on trust.
    """
    found = FeedInstances(connection).get_many(by_key)
    rows = {key: row for key, row in found.items() if row.status is FeedInstanceStatus.AVAILABLE}
    sweeps = [sweep for on in {key.cluster for key in rows} for sweep in Sweeps(connection).with_state(on, AT_WORK)]
    swept = {(count.feed, sweep.cluster) for sweep in sweeps for count in sweep.counts}
    held = find_held(connection, [(f"feed/{key.feed}", key.cluster, key.nominal_time) for key in rows], real_now)
    busy = {(lease.entity, lease.cluster, lease.nominal_time) for lease in held}
    is_free = {key: (f"feed/{key.feed}", *key[1:]) not in busy and key[:2] not in swept for key in rows}
    return {key: row for key, row in rows.items() if is_free[key] and row.files is not None}


def _is_gone(candidate: Candidate, look: Look) -> bool:
    """Return whether nothing is there; an empty folder of an external feed is nothing, too."""
    if look.obstacle is not None or look.availability is Availability.AVAILABLE:
        return False
    return look.availability is Availability.MISSING or (candidate.record.is_external and not look.files)


def _record(
    connection: Connection,
    gone: Mapping[FeedKey, Candidate],
    rows: Mapping[FeedKey, FeedInstance],
    looks: Mapping[FeedKey, Look],
    as_of: datetime,
    origin: str,
) -> None:
    events = [
        NewFeedEvent(
            **key._asdict(),
            kind=FeedEventKind.VANISHED,
            origin=origin,
            recorded_at=as_of,
            manifest_digest=rows[key].manifest_digest,
            bytes=rows[key].bytes,
            files=rows[key].files,
            payload={"path": each.record.path(key.nominal_time), "store": each.record.store.url},
        )
        for key, each in gone.items()
    ]
    status = FeedInstanceStatus.MISSING
    FeedInstances(connection).put(
        FeedInstance(**key._asdict(), status=status, updated_at=as_of, event_seq=seq, fence=rows[key].fence)
        for key, seq in zip(gone, EventLog(connection).append(events), strict=True)
    )
    polled = [(each, looks[key]) for key, each in gone.items() if each.record.is_external]
    polls = [decide_poll_result(each, look, as_of).next_poll for each, look in polled if each.record.is_expected]
    ArrivalPolls(connection).put(poll for poll in polls if poll is not None)
    LateChecks(connection).remove([LateKey(Kind.FEED.value, *key) for key in gone])
