"""What was changed takes effect: at the beginning of a tick the state is made to follow the plan that is in force."""

import logging
from datetime import datetime

from feed_assets.entities.errors import DefinitionsError
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.redefinition import apply_plan
from feed_assets.operations.location import Location
from feed_assets.operations.recording import record_location
from feed_assets.orchestration.runtime import Runtime
from feed_assets.state.database import Database

_logger = logging.getLogger(__name__)


def follow_plan(runtime: Runtime, location: Location, database: Database, as_of: datetime) -> Governance:
    """Record what a location declares, let releases begin, and return what governs now; one read if nothing is new."""
    governance = runtime.governance(location)

    def record() -> bool:
        try:
            return record_location(database, runtime.settings, location, as_of)
        except DefinitionsError as exc:
            _logger.warning("definitions cannot be recorded now, so changes wait: %s", exc)
            return False

    apply_plan(database, governance, as_of, runtime.settings.definition_changes, record)
    return governance
