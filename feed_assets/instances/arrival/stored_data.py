"""Look once a day whether the newest instance of each feed, and another one, are still where the record has them.

Each feed has its time of the day. A storage that has lost something, or is away, is told as one failure; all of its
feeds are looked at then.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from zlib import crc32

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.tick_records import TickStep
from feed_assets.errors import render_some
from feed_assets.instances.arrival.store_polls import Candidate, poll_confined, poll_instances
from feed_assets.instances.arrival.vanishing import record_vanished
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedKey
from feed_assets.plan.addresses import endpoint_of
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.sql.database import Database
from feed_assets.storage.errors import StorageError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime

DAY = timedelta(days=1)
LOOKS_A_TICK = 500
ORIGIN = "daily look"


def apply_stored_looks(
    database: Database,
    stores: StorePool,
    plan: Plan,
    cluster: str,
    as_of: datetime,
    real_now: datetime,
    bulkheads: Bulkheads,
) -> None:
    """Look at the feeds of a cluster whose time has come; record what is gone. Between two looks this is one read."""
    cursor, again = f"stored/{cluster}", bulkheads.to_try_again(TickStep.STORED_DATA)
    with database.read() as connection:
        kept = Cursors(connection).get(cursor)
        since = max(min(datetime.fromisoformat(kept), as_of), as_of - DAY) if kept else as_of
        feeds = plan.stored_on(cluster)
        times = {each.feed: (at, each) for at, each in _find_due(feeds, since, as_of)}
        times |= {each.feed: (as_of, each) for each in (feeds if again else ()) if each.store.url in again}
        due = [each for _, each in sorted(times.values(), key=itemgetter(0))]
        due, is_more = due[:LOOKS_A_TICK], len(due) > LOOKS_A_TICK
        candidates = [each for record in due for each in _choose(connection, record, as_of)]
    absent: dict[str, list[Candidate]] = {candidate.record.store.url: [] for candidate in candidates}
    obstacles: dict[str, str] = {}
    for candidate, look in zip(candidates, poll_confined(database, stores, candidates, bulkheads), strict=True):
        store = candidate.record.store
        if look.obstacle is None and look.availability is not Availability.AVAILABLE:
            absent[store.url].append(candidate)
        elif look.obstacle is not None:  # a storage that does not answer is told by its own failure
            is_told = bulkheads.has_failed(TickStep.STORAGE, endpoint_of(store))
            obstacles[store.url] = "" if is_told else look.obstacle
    for url, missing in absent.items():
        try:
            is_silent = obstacles.get(url) == ""
            lost = {} if is_silent else record_vanished(database, stores, missing, as_of, real_now, ORIGIN)
            if obstacles.get(url) and not lost:
                raise StorageError(store=url, path="", reason=obstacles[url], next_step="Remove the obstacle.")
        except StorageError as exc:
            bulkheads.fail(TickStep.STORED_DATA, url, exc)
            continue
        if lost:
            bulkheads.fail(TickStep.STORED_DATA, url, _describe_lost(url, lost), next_try_at=real_now + DAY)
        elif url not in obstacles and not bulkheads.is_put_off(TickStep.STORED_DATA, url):
            bulkheads.succeed(TickStep.STORED_DATA, url)
    if due or not kept:
        with database.begin() as connection:
            Cursors(connection).put(cursor, (times[due[-1].feed][0] if is_more else as_of).isoformat())


def require_stored(
    database: Database,
    stores: StorePool,
    record: FeedRecord,
    as_of: datetime,
    real_now: datetime,
    *,
    dry_run: bool = False,
) -> None:
    """Look at the newest instance of a feed, before anything is removed or copied because of what its storage has.

    Raises:
        StorageError: it is gone, or the storage is away: the storage has lost what it had, or is another one.
    """
    wanted = _find_newest(database, record, as_of)
    if lost := record_vanished(database, stores, wanted, as_of, real_now, ORIGIN, dry_run=dry_run):
        raise _describe_lost(record.store.url, lost)


def require_unswept(database: Database, stores: StorePool, record: FeedRecord, as_of: datetime) -> None:
    """Do as `require_stored` for a feed that is swept, of which nothing can be recorded; what expires may be gone."""
    policy = record.retention
    newest = _find_newest(database, record, as_of)
    wanted = [each for each in newest if policy is None or not policy.has_expired(each.nominal_time, as_of)]
    looks = poll_instances(stores, wanted)
    if any(look.obstacle is None and look.availability is Availability.MISSING for look in looks):
        raise _describe_lost(record.store.url, [FeedKey(*record.key, each.nominal_time) for each in wanted])


def _find_newest(database: Database, record: FeedRecord, as_of: datetime) -> list[Candidate]:
    """Return the newest instance of a feed, unless it is where the feed had its data before, or was taken on trust."""
    with database.read() as connection:
        instances = FeedInstances(connection)
        times = instances.latest_available(*record.key, as_of, 1)
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
