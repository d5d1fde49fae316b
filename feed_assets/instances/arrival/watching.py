"""Watch the locations of feeds whose instances come as they come: look at what the path template can lead to.

A look goes from an hour before the newest instance that the last one knew up to now: its cost follows what has come
since, not history. What it finds for the first time is polled as instances on schedule are, and arrives once it is
whole.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import NotAskedError
from feed_assets.context.tick import Tick, ask_stores, tick_step
from feed_assets.instances.arrival.instance_paths import PathMatcher
from feed_assets.instances.arrival.polling import BATCH, ArrivalResult, decide_poll_result, record_poll_results
from feed_assets.instances.arrival.store_polls import Candidate, poll_confined
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.sql.database import Database
from feed_assets.storage.port import InstanceStore

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
        results.append(tick.bulkheads.run_unit(step, feed, nothing, _record, tick, watch, standing))
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


def _record(tick: Tick, watch: Watch, standing: Sequence[datetime]) -> ArrivalResult:
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
