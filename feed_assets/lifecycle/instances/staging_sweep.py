"""Remove the abandoned stagings of a cluster once a day."""

from datetime import datetime, timedelta

from feed_assets.lifecycle.bulkheads import Bulkheads
from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.records import Plan
from feed_assets.state.cursors import Cursors
from feed_assets.state.database import Database
from feed_assets.state.records import TickStep
from feed_assets.storage.pool import StorePool
from feed_assets.timing.dates import parse_datetime, render_datetime

PERIOD = timedelta(days=1)
ABANDONED_AFTER = timedelta(days=7)


def apply_staging_sweep(
    database: Database, stores: StorePool, plan: Plan, cluster: str, real_now: datetime, bulkheads: Bulkheads
) -> int | None:
    """Remove a cluster's abandoned stagings, once a day of real time; return how many, or None if it is not yet time.

    Removes only stagings, which no reader sees, and recovers interrupted publications first. A store that fails is
    swept the next day.
    """
    name = f"staging-sweep/{cluster}"
    with database.read() as connection:
        last = Cursors(connection).get(name)
    if last is not None and abs(real_now - parse_datetime(last)) < PERIOD:
        return None
    with database.begin() as connection:
        Cursors(connection).put(name, render_datetime(real_now.replace(second=0, microsecond=0)))

    def sweep(address: StoreAddress) -> int:
        return stores.get(address).sweep_staging(real_now - ABANDONED_AFTER)

    addresses = {record.store for record in plan.feeds.values() if record.cluster == cluster}
    return sum(bulkheads.run_unit(TickStep.STAGING_SWEEP, address.url, 0, sweep, address) for address in addresses)
