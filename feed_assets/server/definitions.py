"""The definitions of a server's project, kept between requests: they are loaded again when their files have changed."""

import os
from copy import copy
from dataclasses import replace
from datetime import datetime
from threading import Lock

from feed_assets.clock import SystemClock, open_clock
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.issues import Issue
from feed_assets.loading.entity_files import digest_files, read_declared_files, stamp_files, values_of
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
        self._stamp: tuple[object, ...] | None = None
        self._known: tuple[str, ReleaseTimeline, tuple[Issue, ...]] | None = None

    def open_context(self) -> OperationContext:
        """Return a context of the definitions as they are now.

        Raises:
            DefinitionsError: the location of the definitions cannot be read.
        """
        settings, now = self._settings, open_clock(self._settings).now()
        with self._lock:
            stamp = stamp_files(settings.entities_location, SystemClock().now())
            if self._known is None or stamp is None or stamp != self._stamp:
                known = self._read(now)
                self._known, self._stamp = known, stamp
            _, timeline, errors = self._known
            with self._database.read() as connection:
                timeline.refresh(connection, now)
            own = copy(timeline)  # another request may refresh it meanwhile
        return replace(open_context(settings, self._database, own), errors=errors)

    def _read(self, now: datetime) -> tuple[str, ReleaseTimeline, tuple[Issue, ...]]:
        settings, values = self._settings, values_of(self._settings)
        digest = digest_files(read_declared_files(settings), values)
        if self._known is not None and self._known[0] == digest:
            return self._known
        location = load_location(settings, now, find_plan_cache(os.environ))
        return digest, ReleaseTimeline(location.plan, values), location.errors
