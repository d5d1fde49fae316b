"""The context of operations in a code location: what commands see, a tick sees, too."""

from datetime import datetime

from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick import Tick, open_tick
from feed_assets.log.definitions.schedules import state_without_row
from feed_assets.orchestration.location.runtime import ActiveDefinitions, Runtime
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database

SECONDS_A_TICK = 20.0


def build_context(runtime: Runtime, timeline: ReleaseTimeline, database: Database, as_of: datetime) -> OperationContext:
    """Build the context of a tick, which is the same as that of the commands."""
    return OperationContext(
        timeline=timeline,
        database=database,
        stores=runtime.stores,
        as_of=as_of,
        clock=runtime.clock,
        real_clock=runtime.real_clock,
        without_row=state_without_row(runtime.settings.schedule),
        webserver=runtime.settings.webserver,
    )


def build_tick(runtime: Runtime, active: ActiveDefinitions, cluster: str, database: Database, as_of: datetime) -> Tick:
    """Build the tick of a sensor for a cluster, with what is recorded of failures."""
    context = build_context(runtime, runtime.timeline(active.location), database, as_of)
    bulkheads = Bulkheads.open(database, cluster, runtime.real_clock, runtime.patience)
    is_held = active.is_restored or active.is_safe_mode
    return open_tick(context, cluster, bulkheads, budget=TimeBudget(SECONDS_A_TICK), is_held=is_held)
