"""The context of operations in a code location: what commands see, a tick sees, too."""

from datetime import datetime

from feed_assets.context.operation import OperationContext
from feed_assets.log.definitions.schedules import state_without_row
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database


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
