"""Find what has arrived: by polls, in watched locations and in inboxes."""

from datetime import datetime

from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.tick_failures import TickStep
from feed_assets.instances.arrival.polling import ArrivalResult, apply_arrivals
from feed_assets.instances.arrival.stored_data import apply_stored_looks
from feed_assets.instances.arrival.watching import apply_watches
from feed_assets.instances.inbox.ingest import apply_inboxes
from feed_assets.plan.records import Plan
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool

_NOTHING = ArrivalResult()


def look_for_arrivals(
    database: Database,
    stores: StorePool,
    plan: Plan,
    cluster: str,
    as_of: datetime,
    real_now: datetime,
    budget: TimeBudget,
    bulkheads: Bulkheads,
    *,
    may_take: bool,
) -> ArrivalResult:
    """Poll the due instances of a cluster, look at watched locations and whether stored data are still there, and take
    what is in inboxes if that may be.

    A failure in one does not affect the others.
    """
    known = (database, stores, plan, cluster, as_of)
    polled = bulkheads.run(TickStep.ARRIVALS, _NOTHING, apply_arrivals, *known, budget, bulkheads)
    watched = bulkheads.run(TickStep.WATCHES, _NOTHING, apply_watches, *known, budget, bulkheads)
    bulkheads.run(TickStep.STORED_DATA, None, apply_stored_looks, *known, real_now, bulkheads)
    if not may_take:
        return ArrivalResult.sum_of(polled, watched)
    taken = bulkheads.run(TickStep.INBOXES, _NOTHING, apply_inboxes, *known, real_now, budget, bulkheads)
    return ArrivalResult.sum_of(polled, watched, taken)
