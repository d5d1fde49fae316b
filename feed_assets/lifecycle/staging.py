"""Clearing what broken-off publications left behind: hidden stagings in which nothing has changed for a week."""

from datetime import datetime, timedelta

from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import Plan
from feed_assets.state.database import Database
from feed_assets.state.event_log import Cursors
from feed_assets.timing.dates import parse_datetime, render_datetime

PERIOD = timedelta(days=1)
ABANDONED_AFTER = timedelta(days=7)


def apply_staging_sweep(database: Database, stores: StorePool, plan: Plan, cluster: str, wall: datetime) -> int | None:
    """Once a day, remove a cluster's abandoned stagings; how many, None when it is not yet time. `wall`: wall clock.

    Only stagings are removed, which no reader sees, after broken-off publications have been recovered.
    """
    name = f"staging-sweep/{cluster}"
    with database.read() as connection:
        last = Cursors(connection).get(name)
    if last is not None and abs(wall - parse_datetime(last)) < PERIOD:
        return None
    with database.begin() as connection:
        Cursors(connection).put(name, render_datetime(wall.replace(second=0, microsecond=0)))
    addresses = {record.store for record in plan.feeds.values() if record.cluster == cluster}
    return sum(stores.get(address).sweep_staging(wall - ABANDONED_AFTER) for address in addresses)
