"""Make changed definitions take effect: at the start of a tick, bring the state in line with the current plan."""

import logging
from datetime import datetime

from feed_assets.entities.errors import DefinitionsError
from feed_assets.lifecycle.releases.plan_changes import apply_plan
from feed_assets.lifecycle.releases.timeline import ReleaseTimeline
from feed_assets.operations.recording import record_location
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.location import Location
from feed_assets.state.database import Database

_logger = logging.getLogger(__name__)


def follow_plan(runtime: Runtime, location: Location, database: Database, as_of: datetime) -> ReleaseTimeline:
    """Record what a location declares, start releases, and return the release timeline; one read if nothing is new."""
    timeline = runtime.timeline(location)

    def record() -> bool:
        try:
            return record_location(database, runtime.settings, location, as_of)
        except DefinitionsError as exc:
            _logger.warning("definitions cannot be recorded now; changes wait: %s", exc)
            return False

    apply_plan(database, timeline, as_of, runtime.settings.definition_changes, record)
    return timeline
