"""The definitions of a server's project, kept between requests: they are loaded again when their files have changed.

The folder of the store says whether they have, to the plan and to the entities alike.
"""

import os
from copy import copy
from dataclasses import replace
from functools import cached_property
from threading import Lock

from feed_assets.clock import open_clock
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.definitions.store import DefinitionStore, open_store
from feed_assets.issues import Issue
from feed_assets.loading.entity_files import EntityFile, read_declared_files, values_of
from feed_assets.plan.location import find_plan_cache, load_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from feed_assets.sql.database import Database


class KeptDefinitions:
    """The plan, the releases and the store of a project, shared by the threads of a server."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._lock = Lock()
        self._known: tuple[tuple[EntityFile, ...], ReleaseTimeline, tuple[Issue, ...]] | None = None

    @cached_property
    def store(self) -> DefinitionStore:
        """The store, opened by the first who asks: its location may be away when the server starts."""
        return open_store(self._database, self._settings)

    def open_context(self) -> OperationContext:
        """Return a context of the definitions as they are now.

        Raises:
            DefinitionsError: the location of the definitions cannot be read.
        """
        settings, now = self._settings, open_clock(self._settings).now()
        with self._lock:
            files = read_declared_files(settings, lambda _: self.store.folder.read())
            if self._known is None or self._known[0] is not files:
                location = load_location(settings, now, find_plan_cache(os.environ))
                self._known = files, ReleaseTimeline(location.plan, values_of(settings)), location.errors
            _, timeline, errors = self._known
            with self._database.read() as connection:
                timeline.refresh(connection, now)
            own = copy(timeline)  # another request may refresh it meanwhile
        return replace(open_context(settings, self._database, own), errors=errors)
