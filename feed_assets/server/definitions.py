"""The definitions of a server's project, kept between requests: they are loaded again when their files have changed."""

import os
from dataclasses import replace
from threading import Lock

from feed_assets.clock import open_clock
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.issues import Issue
from feed_assets.loading.entity_files import digest_files, read_declared_files, values_of
from feed_assets.plan.location import find_plan_cache, load_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from feed_assets.sql.database import Database


class KeptDefinitions:
    """The plan and the releases of a project, shared by the threads of a server."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._lock = Lock()
        self._known: tuple[str, ReleaseTimeline, tuple[Issue, ...]] | None = None

    def open_context(self) -> OperationContext:
        """Return a context of the definitions as they are now.

        Raises:
            DefinitionsError: the location of the definitions cannot be read.
        """
        settings, values = self._settings, values_of(self._settings)
        digest = digest_files(read_declared_files(settings), values)
        with self._lock:
            if self._known is None or self._known[0] != digest:
                location = load_location(settings, open_clock(settings).now(), find_plan_cache(os.environ))
                self._known = digest, ReleaseTimeline(location.plan, values), location.errors
            _, timeline, errors = self._known
        return replace(open_context(settings, self._database, timeline), errors=errors)
