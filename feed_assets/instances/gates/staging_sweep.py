"""Remove the abandoned stagings of a cluster once a day."""

from collections.abc import Iterator
from datetime import timedelta

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Tick, ask_stores, tick_step
from feed_assets.log.cursors import Cursors
from feed_assets.plan.copy_records import StoreAddress, endpoint_of
from feed_assets.plan.records import Plan
from feed_assets.timing.dates import parse_datetime, render_datetime

PERIOD = timedelta(days=1)
ABANDONED_AFTER = timedelta(days=7)


@tick_step(TickStep.STAGING_SWEEP, otherwise=None)
def apply_staging_sweep(tick: Tick) -> int | None:
    """Remove a cluster's abandoned stagings, once a day of real time; return how many, or None if it is not yet time.

    Removes only stagings, which no reader sees, and recovers interrupted publications first. A store that fails is
    tried again, unless its endpoint is away: then it is swept the next day.
    """
    name = f"staging-sweep/{tick.cluster}"
    with tick.database.read() as connection:
        last = Cursors(connection).get(name)
    is_time = last is None or abs(tick.real_now - parse_datetime(last, seconds=True)) >= PERIOD
    again = tick.bulkheads.to_try_again(TickStep.STAGING_SWEEP)
    if not is_time and not again:
        return None
    if is_time:
        with tick.database.begin() as connection:
            Cursors(connection).put(name, render_datetime(tick.real_now.replace(second=0, microsecond=0)))
    addresses = [*{each for each in _written_stores(tick.plan, tick.cluster) if is_time or each.url in again}]
    before, removed = tick.real_now - ABANDONED_AFTER, 0
    answers = ask_stores(
        addresses, lambda each: each, lambda each: tick.stores.get(each).sweep_staging(before), tick.bulkheads
    )
    for address, answer in zip(addresses, answers, strict=True):
        is_told = tick.bulkheads.has_failed(TickStep.STORAGE, endpoint_of(address))
        if isinstance(answer, Exception) and not is_told:
            tick.bulkheads.fail(TickStep.STAGING_SWEEP, address.url, answer)
        else:
            tick.bulkheads.succeed(TickStep.STAGING_SWEEP, address.url)
            removed += answer if isinstance(answer, int) else 0
    return removed


def _written_stores(plan: Plan, cluster: str) -> Iterator[StoreAddress]:
    """Yield the stores in which work of a cluster is staged: those of feeds, archives, mirrors, its own for steps."""
    for record in plan.feeds.values() if not plan.clusters[cluster].is_elsewhere else ():
        if record.cluster == cluster:
            yield record.store
            if record.retention is not None and record.retention.archive is not None:
                yield record.retention.archive[0]
    for process in plan.processes.values():
        if process.cluster != cluster:
            continue
        yield from (target.store for _, target in process.directories)
        if process.has_steps:
            yield plan.clusters[cluster].store
