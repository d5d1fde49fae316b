"""Look at what lies in locations: for instances that come as they come, and, once a day, whether the newest instance of
each feed, and another one, are still where the record has them. What storage has lost is recorded.

A watch goes from an hour before the newest instance that the last one knew up to now: its cost follows what has come
since, not history. What it finds for the first time is polled as instances on schedule are, and arrives once it is
whole.

For the daily look each feed has its time of the day. A storage that has lost something, or is away, is told as one
failure; all of its feeds are looked at then. Whoever else misses an instance records it here, too. No consumer is
woken, and what has read it stays.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from zlib import crc32

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import NotAskedError
from feed_assets.context.operation import LifecycleContext
from feed_assets.context.tick import Tick, ask_stores, tick_step
from feed_assets.errors import render_some
from feed_assets.instances.arrival.instance_paths import PathMatcher
from feed_assets.instances.arrival.polling import BATCH, ArrivalResult, decide_poll_result, record_poll_results
from feed_assets.instances.arrival.store_polls import Candidate, find_record, poll_confined, poll_instances
from feed_assets.instances.late.contents import LOOK
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.leases import find_held
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.log.removals.records import AT_WORK
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.copy_records import endpoint_of
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.sql.database import Database, lock_log
from feed_assets.storage.errors import StorageAwayError, StorageError
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability, Look
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.input_windows import InputState


def present_inputs(plan: Plan, states: Iterable[InputState]) -> list[Candidate]:
    """Return the instances that the inputs of a process instance have by the record."""
    found = ((plan.feeds[state.edge.feed_key], state.present) for state in states)
    return [Candidate(record=record, nominal_time=time) for record, times in found for time in times]


def record_vanished(
    context: LifecycleContext,
    candidates: Iterable[Candidate],
    origin: str,
    *,
    dry_run: bool = False,
    seen: dict[FeedKey, Look] | None = None,
) -> Mapping[FeedKey, Candidate]:
    """Look at those of some instances that are AVAILABLE by the record; record those that are gone as MISSING, with an
    event VANISHED each, and return them. What somebody has moved to where its feed has its data now is recorded there.

    Instances on which somebody works are left alone, and those whose storage was never looked at, by a trusted notice.
    `seen` is given what was looked at.

    Raises:
        StorageAwayError: nothing at all lies below the root of a store, so it has lost nothing; what others have lost
            is recorded.
        StorageError: a store could not look.
    """
    stores, real_now = context.stores, context.real_now
    by_key = {each.key: each for each in candidates if each.record.has_data}
    with context.database.read() as connection:
        rows = _find_standing(connection, by_key, real_now)
        places = FeedPlaces(connection)
        there = {key: places.at_place(by_key[key].record, row) for key, row in rows.items()}
    rows = {key: row for key, row in rows.items() if row.place in (None, there[key].place)}
    for key in rows:
        by_key[key] = replace(by_key[key], record=find_record(stores, there[key], by_key[key].record, key.nominal_time))
    looks = dict(zip(rows, poll_instances(stores, [by_key[key] for key in rows]), strict=True))
    if seen is not None:
        seen.update(looks)
    gone = {key: by_key[key] for key, look in looks.items() if _is_gone(by_key[key], look)}
    # A metastore that has answered is no empty mount point.
    roots = {each.record.store for each in gone.values() if each.record.table is None}
    away = {root for root in roots if not any(stores.get(root).walk("", 1, lambda _, names: names))}
    gone = {key: each for key, each in gone.items() if each.record.store not in away}
    moved = {key: by_key[key] for key, row in rows.items() if row.place not in (None, by_key[key].record.place)}
    if (gone or moved) and not dry_run:
        with context.database.begin() as connection:
            lock_log(connection)
            standing = _find_standing(connection, {**gone, **moved}, real_now)
            there_now = [
                (rows[key], each.record.place) for key, each in moved.items() if standing.get(key) == rows[key]
            ]
            FeedInstances(connection).put(replace(row, place=place) for row, place in there_now)
            gone = {key: each for key, each in gone.items() if standing.get(key) == rows[key]}
            _record(connection, gone, rows, looks, context.as_of, origin)
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
    busy = {lease.key for lease in held}
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
    LateChecks(connection).remove([AgendaKey(AgendaKind.LATE_FEED, *key) for key in gone])


DAY = timedelta(days=1)
LOOKS_A_TICK = 500
ORIGIN = "daily look"


@tick_step(TickStep.STORED_DATA, otherwise=None)
def apply_stored_looks(tick: Tick) -> None:
    """Look at the feeds of a cluster whose time has come; record what is gone. Between two looks this is one read."""
    cursor, again = f"stored/{tick.cluster}", tick.bulkheads.to_try_again(TickStep.STORED_DATA)
    with tick.database.read() as connection:
        kept = Cursors(connection).get(cursor)
        since = max(min(datetime.fromisoformat(kept), tick.as_of), tick.as_of - DAY) if kept else tick.as_of
        feeds = tick.plan.stored_on(tick.cluster)
        times = {each.feed: (at, each) for at, each in _find_due(feeds, since, tick.as_of)}
        times |= {each.feed: (tick.as_of, each) for each in (feeds if again else ()) if each.store.url in again}
        due = [each for _, each in sorted(times.values(), key=itemgetter(0))]
        due, is_more = due[:LOOKS_A_TICK], len(due) > LOOKS_A_TICK
        candidates = [each for record in due for each in _choose(connection, record, tick.as_of)]
    absent: dict[str, list[Candidate]] = {candidate.record.store.url: [] for candidate in candidates}
    obstacles: dict[str, str] = {}
    for candidate, look in zip(candidates, poll_confined(tick, candidates), strict=True):
        store = candidate.record.store
        if look.obstacle is None and look.availability is not Availability.AVAILABLE:
            absent[store.url].append(candidate)
        elif look.obstacle is not None:  # a storage that does not answer is told by its own failure
            is_told = tick.bulkheads.has_failed(TickStep.STORAGE, endpoint_of(store))
            obstacles[store.url] = "" if is_told else look.obstacle
    for url, missing in absent.items():
        obstacle = obstacles.get(url)
        has_failed = obstacle != "" and _record_lost(tick, url, missing, ORIGIN, obstacle)
        if not has_failed and obstacle is None and not tick.bulkheads.is_put_off(TickStep.STORED_DATA, url):
            tick.bulkheads.succeed(TickStep.STORED_DATA, url)
    if due or not kept:
        with tick.database.begin() as connection:
            Cursors(connection).put(cursor, (times[due[-1].feed][0] if is_more else tick.as_of).isoformat())


def record_gone(tick: Tick, keys: Iterable[FeedKey]) -> None:
    """Record the current instances that a look has not found in their places, and tell it as the daily look does."""
    for key in sorted(keys):
        record = tick.plan.feeds[key.feed, key.cluster]
        _record_lost(tick, record.store.url, [Candidate(record=record, nominal_time=key.nominal_time)], LOOK)


def _record_lost(tick: Tick, url: str, missing: Iterable[Candidate], origin: str, obstacle: str | None = None) -> bool:
    """Record what a store has lost, and tell it as a failure of the store, or else an obstacle; return whether it has
    failed.
    """
    try:
        lost = record_vanished(tick, missing, origin)
        if obstacle and not lost:
            raise StorageError(store=url, path="", reason=obstacle, next_step="Remove the obstacle.")
    except StorageError as exc:
        tick.bulkheads.fail(TickStep.STORED_DATA, url, exc)
        return True
    if lost:
        tick.bulkheads.fail(TickStep.STORED_DATA, url, _describe_lost(url, lost), next_try_at=tick.real_now + DAY)
    return bool(lost)


def require_stored(context: LifecycleContext, record: FeedRecord, *, dry_run: bool = False) -> None:
    """Look at the newest instance of a feed, before anything is removed or copied because of what its storage has.

    Raises:
        StorageError: it is gone, or the storage is away: the storage has lost what it had, or is another one.
    """
    if lost := record_vanished(context, _find_newest(context, record), ORIGIN, dry_run=dry_run):
        raise _describe_lost(record.store.url, lost)


def require_unswept(context: LifecycleContext, record: FeedRecord) -> None:
    """Do as `require_stored` for a feed that is swept, of which nothing can be recorded; what expires may be gone."""
    policy, as_of = record.retention, context.as_of
    newest = _find_newest(context, record)
    wanted = [each for each in newest if policy is None or not policy.has_expired(each.nominal_time, as_of)]
    looks = poll_instances(context.stores, wanted)
    if any(look.obstacle is None and look.availability is Availability.MISSING for look in looks):
        raise _describe_lost(record.store.url, [FeedKey(*record.key, each.nominal_time) for each in wanted])


def _find_newest(context: LifecycleContext, record: FeedRecord) -> list[Candidate]:
    """Return the newest instance of a feed, unless it is where the feed had its data before, or was taken on trust."""
    with context.database.read() as connection:
        instances = FeedInstances(connection)
        times = instances.latest_available(*record.key, context.as_of, 1)
        rows = instances.get_many([FeedKey(*record.key, time) for time in times]).values()
    here = [row for row in rows if row.place in (None, record.place) and row.files is not None and record.has_data]
    return [Candidate(record=record, nominal_time=row.nominal_time) for row in here]


def _find_due(feeds: Sequence[FeedRecord], since: datetime, as_of: datetime) -> Iterator[tuple[datetime, FeedRecord]]:
    """Yield the feeds whose time of the day lies in `since < time <= as_of`, with it; `feeds` are in its order."""
    midnight, second = since.replace(hour=0, minute=0, second=0, microsecond=0), attrgetter("second_of_day")
    while midnight <= as_of:
        ends = [bisect_right(feeds, (each - midnight).total_seconds(), key=second) for each in (since, as_of)]
        yield from ((midnight + timedelta(seconds=each.second_of_day), each) for each in feeds[slice(*ends)])
        midnight += DAY


def _choose(connection: Connection, record: FeedRecord, as_of: datetime) -> list[Candidate]:
    """Return the newest instance of a feed, and one of the others, each day another one."""
    instances, first = FeedInstances(connection), record.sequence.start
    times = instances.latest_available(*record.key, as_of, 1)
    for newest in times[:1]:
        share = crc32(f"{'/'.join(record.key)} {as_of:%Y-%m-%d}".encode()) / (1 << 32)
        others = instances.find_between(*record.key, first + (newest - first) * share, newest, limit=1)
        times += [each.nominal_time for each in others if each.nominal_time != newest]
    return [Candidate(record=record, nominal_time=time) for time in times]


def _describe_lost(url: str, lost: Iterable[FeedKey]) -> StorageError:
    named = tuple(f"{key.feed} {render_datetime(key.nominal_time)}" for key in sorted(lost))
    return StorageError(
        store=url,
        path="",
        reason=f"it has lost what it had: {render_some(named, 3)}",
        next_step=(
            "See whether it is the right storage. Restore what is gone (what does not arrive by itself: "
            f"{command_line('state', 'rebuild')}), or run again what makes it."
        ),
    )


OVERLAP = timedelta(hours=1)
"""How much older than the newest known instance another one may be that comes after it, and is still found."""

_MOMENT = timedelta(microseconds=1)

_Standing = list[datetime] | Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The watch of a feed: nothing older than `since` is looked for any more, and the next look is due at `next_at`."""

    record: FeedRecord
    since: datetime
    next_at: datetime

    @classmethod
    def parse(cls, record: FeedRecord, text: str | None, as_of: datetime) -> "Watch":
        """Return the watch that a cursor has; of another location, or without a cursor, a new one that is due."""
        kept = {} if text is None else json.loads(text)
        if kept.get("location") != _location(record):
            return cls(record=record, since=record.sequence.start, next_at=as_of)
        since, next_at = (datetime.fromisoformat(kept[name]) for name in ("since", "next_at"))
        return cls(record=record, since=since, next_at=next_at)

    def render(self) -> str:
        """Return the value of its cursor."""
        times = {"since": self.since.isoformat(), "next_at": self.next_at.isoformat()}
        return json.dumps({"location": _location(self.record), **times})

    def is_due(self, as_of: datetime) -> bool:
        """Return whether the next look is due, also after the clock was set back."""
        return not as_of < self.next_at <= as_of + self.pause

    @property
    def pause(self) -> timedelta:
        """The time between two looks."""
        assert self.record.watch is not None
        return self.record.watch.as_duration()


def _location(record: FeedRecord) -> list[str]:
    return [record.store.url, record.template.text, record.template.zone.key, record.sequence.start.isoformat()]


def find_standing(
    store: InstanceStore, record: FeedRecord, before: datetime | None, since: datetime | None = None
) -> list[datetime]:
    """Return the instances whose paths exist in storage, whole or not, with `since <= nominal time < before`, oldest
    first. A path counts only if it is exactly that of the instance.

    Raises:
        StorageError: the storage cannot be listed.
    """
    if record.is_current:
        (look,) = store.look([record.path(record.sequence.start)], record.flag)
        return [] if look.availability is Availability.MISSING else [record.sequence.start]
    matcher = PathMatcher(record.template, record.sequence, before, since)
    return sorted(
        time
        for found in store.walk_folders(matcher.base, matcher.depth, matcher.choose)
        for time in matcher.find_instances(found.folder, found.names)
    )


@tick_step(TickStep.WATCHES, otherwise=ArrivalResult())
def apply_watches(tick: Tick) -> ArrivalResult:
    """Look at the locations of a cluster's watched feeds that are due, and record what has come, oldest first.

    A look that ends before it has seen everything, because the budget is spent, is due again at once.
    """
    due = [
        watch
        for watch in _load(tick)
        if watch.is_due(tick.as_of) and not tick.bulkheads.is_put_off(TickStep.WATCHES, watch.record.feed)
    ]
    results = []
    for watch, standing in zip(due, _look(tick, due), strict=True):
        if isinstance(standing, NotAskedError):
            continue
        if isinstance(standing, Exception):
            tick.bulkheads.fail(TickStep.WATCHES, watch.record.feed, standing)
            continue
        step, feed, nothing = TickStep.WATCHES, watch.record.feed, ArrivalResult()
        results.append(tick.bulkheads.run_unit(step, feed, nothing, _record_found, tick, watch, standing))
    return ArrivalResult.sum_of(*results)


def _load(tick: Tick) -> list[Watch]:
    records = {_cursor(record): record for record in tick.plan.watched_on(tick.cluster)}
    if not records:
        return []
    with tick.database.read() as connection:
        kept = Cursors(connection).get_many(records)
    return [Watch.parse(record, kept.get(cursor), tick.as_of) for cursor, record in records.items()]


def _cursor(record: FeedRecord) -> str:
    return f"watch/{record.cluster}/{record.feed}"


def _look(tick: Tick, watches: Sequence[Watch]) -> list[_Standing]:
    """Return what stands in the locations, or why that cannot be said."""

    def walk(watch: Watch) -> list[datetime]:
        return find_standing(tick.stores.get(watch.record.store), watch.record, tick.as_of + _MOMENT, watch.since)

    return ask_stores(watches, lambda watch: watch.record.store, walk, tick.bulkheads)


def _record_found(tick: Tick, watch: Watch, standing: Sequence[datetime]) -> ArrivalResult:
    """Poll what is not known yet, record the results, and where the next look begins."""
    record, polled, arrived = watch.record, 0, 0
    for start in range(0, len(standing), BATCH):
        times = standing[start : start + BATCH]
        with tick.database.read() as connection:
            rows = FeedInstances(connection).get_many([FeedKey(*record.key, time) for time in times]).values()
        known = {row.nominal_time for row in rows if row.status is not FeedInstanceStatus.MISSING}
        new = [Candidate(record=record, nominal_time=time) for time in times if time not in known]
        looks = poll_confined(tick, new)
        seen = [decide_poll_result(candidate, look, tick.as_of) for candidate, look in zip(new, looks, strict=True)]
        polled += len(new)
        is_complete = start + BATCH >= len(standing)
        if new:
            with tick.database.begin() as connection:
                arrived += record_poll_results(connection, seen)
        if tick.budget.is_spent and not is_complete:
            _store(tick.database, replace(watch, since=standing[start + BATCH], next_at=tick.as_of))
            return ArrivalResult(polled=polled, arrived=arrived, is_complete=False)
    with tick.database.read() as connection:
        newest = FeedInstances(connection).find_between(
            *record.key, record.sequence.start, tick.as_of, limit=1, newest_first=True
        )
    since = newest[0].nominal_time - OVERLAP if newest else watch.since
    _store(tick.database, replace(watch, since=since, next_at=tick.as_of + watch.pause))
    return ArrivalResult(polled=polled, arrived=arrived)


def _store(database: Database, watch: Watch) -> None:
    with database.begin() as connection:
        Cursors(connection).put(_cursor(watch.record), watch.render())
