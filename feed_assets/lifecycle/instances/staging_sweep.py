"""Remove the abandoned stagings of a cluster once a day."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial

from feed_assets.clock import Stopwatch
from feed_assets.lifecycle.bulkheads import SLOW_SECONDS, Bulkheads
from feed_assets.plan.addresses import StoreAddress, endpoint_of
from feed_assets.plan.records import Plan
from feed_assets.state.cursors import Cursors
from feed_assets.state.database import Database
from feed_assets.state.tick_records import TickStep
from feed_assets.storage.pool import StorePool
from feed_assets.timing.dates import parse_datetime, render_datetime

PERIOD = timedelta(days=1)
ABANDONED_AFTER = timedelta(days=7)


def apply_staging_sweep(
    database: Database, stores: StorePool, plan: Plan, cluster: str, real_now: datetime, bulkheads: Bulkheads
) -> int | None:
    """Remove a cluster's abandoned stagings, once a day of real time; return how many, or None if it is not yet time.

    Removes only stagings, which no reader sees, and recovers interrupted publications first. A store that fails is
    tried again, unless its endpoint fails slowly: then it is swept the next day.
    """
    name = f"staging-sweep/{cluster}"
    with database.read() as connection:
        last = Cursors(connection).get(name)
    is_time = last is None or abs(real_now - parse_datetime(last, seconds=True)) >= PERIOD
    again = bulkheads.to_try_again(TickStep.STAGING_SWEEP)
    if not is_time and not again:
        return None
    if is_time:
        with database.begin() as connection:
            Cursors(connection).put(name, render_datetime(real_now.replace(second=0, microsecond=0)))
    addresses: dict[str, set[StoreAddress]] = defaultdict(set)
    for address in _written_stores(plan, cluster):
        if is_time or address.url in again:
            addresses[endpoint_of(address)].add(address)
    return _sweep(stores, addresses, real_now - ABANDONED_AFTER, bulkheads)


def _written_stores(plan: Plan, cluster: str) -> Iterator[StoreAddress]:
    """Yield the stores in which work of a cluster is staged: those of feeds, archives, mirrors, its own for steps."""
    for record in plan.feeds.values():
        if record.cluster == cluster:
            yield record.store
            if record.retention is not None and record.retention.archive is not None:
                yield record.retention.archive[0]
    for process in plan.processes.values():
        if process.cluster != cluster:
            continue
        if process.mirror is not None:
            yield from (target.store for _, target in process.mirror.directories)
        if process.has_steps:
            yield plan.clusters[cluster].store


def _sweep(
    stores: StorePool, addresses: Mapping[str, Collection[StoreAddress]], before: datetime, bulkheads: Bulkheads
) -> int:
    """Sweep stores, all endpoints at once; an endpoint that fails slowly is left alone."""
    failed: dict[str, Exception] = {}

    def sweep(endpoint: str) -> int:
        removed = 0
        for address in addresses[endpoint]:
            watch = Stopwatch()
            try:
                removed += stores.get(address).sweep_staging(before)
            except Exception as exc:
                if watch.seconds > SLOW_SECONDS:
                    raise
                failed[address.url] = exc
        return removed

    answers = bulkheads.ask(TickStep.STORAGE, {endpoint: partial(sweep, endpoint) for endpoint in addresses})
    for url in (address.url for found in addresses.values() for address in found):
        if url in failed:
            bulkheads.fail(TickStep.STAGING_SWEEP, url, failed[url])
        else:
            bulkheads.succeed(TickStep.STAGING_SWEEP, url)
    return sum(answer for answer in answers.values() if not isinstance(answer, Exception))
