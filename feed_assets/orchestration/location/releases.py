"""Make changed definitions take effect: at the start of a tick, bring the state in line with the current plan."""

from datetime import datetime

from feed_assets.entities.errors import DefinitionsError
from feed_assets.lifecycle.bulkheads import Bulkheads
from feed_assets.lifecycle.instances.schedules import state_without_row
from feed_assets.lifecycle.releases.plan_changes import apply_plan
from feed_assets.lifecycle.releases.timeline import ReleaseTimeline
from feed_assets.operations.recording import record_location
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.plan.location import Location
from feed_assets.state.database import Database
from feed_assets.state.tick_records import TickStep


def follow_plan(
    runtime: Runtime, location: Location, database: Database, as_of: datetime, bulkheads: Bulkheads | None = None
) -> ReleaseTimeline:
    """Record what a location declares, start releases, and return the release timeline; one read if nothing is new.

    Definitions that cannot be recorded have no effect yet; `bulkheads` tell it.
    """
    timeline = runtime.timeline(location)
    refused: list[DefinitionsError] = []

    def record() -> bool:
        try:
            return record_location(database, runtime.settings, location, as_of)
        except DefinitionsError as exc:
            refused.append(exc)
            return False

    settings = runtime.settings
    without_row = state_without_row(settings.schedule)
    apply_plan(database, timeline, as_of, settings.definition_changes, record, settings.metadata.system, without_row)
    if bulkheads is not None:
        if refused:
            bulkheads.fail(TickStep.DEFINITIONS, "", refused[0])
        else:
            bulkheads.succeed(TickStep.DEFINITIONS)
    return timeline
