"""The definitions of a server's project, kept between requests: they are loaded again when their files have changed.

The folder of the store says whether they have, to the plan and to the entities alike.
"""

import os
from copy import copy
from dataclasses import replace
from functools import cached_property
from threading import Lock

from feed_assets.access.principals import Principal
from feed_assets.access.records import CLOSED, NOBODYS, AclRecord, acl_of
from feed_assets.access.rights import Rights
from feed_assets.clock import open_clock
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.definitions.folder import find_version_entity
from feed_assets.definitions.store import DefinitionStore, open_store
from feed_assets.issues import EntityKey, Issue
from feed_assets.loading.entity_files import EntityFile, read_declared_files, values_of
from feed_assets.log.definitions.store import Definitions
from feed_assets.plan.location import find_plan_cache, load_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

_Loaded = tuple[tuple[EntityFile, ...], ReleaseTimeline, tuple[Issue, ...]]


class KeptDefinitions:
    """The plan, the releases and the store of a project, shared by the threads of a server."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._lock = Lock()
        self._loaded: _Loaded | None = None  # maybe in the middle of a change
        self._whole: _Loaded | None = None

    @cached_property
    def store(self) -> DefinitionStore:
        """The store, opened by the first who asks: its location may be away when the server starts."""
        return open_store(self._database, self._settings)

    def open_context(self) -> OperationContext:
        """Return a context of the definitions as they are now, never in the middle of a change.

        Raises:
            DefinitionsError: the location of the definitions cannot be read.
        """
        settings, now = self._settings, open_clock(self._settings).now()
        loaded = self._load()
        if loaded is not self._whole:
            # Not under the lock: whoever makes a change may ask for a context, too.
            self._whole = loaded = self.store.read_whole(self._load, now)
        _, timeline, errors = loaded
        with self._lock:
            with self._database.read() as connection:
                timeline.refresh(connection, now)
            own = copy(timeline)  # another request may refresh it meanwhile
        return replace(open_context(settings, self._database, own), errors=errors)

    def find_rights(self, principal: Principal) -> Rights:
        """Return what somebody may do.

        Raises:
            DefinitionsError: the location of the definitions cannot be read.
        """
        _, timeline, errors = self._load()
        declared = {key: facts.acl for key, facts in timeline.plan.facts.items()}
        if errors:
            loaded = self.store.load(open_clock(self._settings).now()).bundle
            declared |= {each.key: acl_of(each) for each in loaded.bundle.entities}
            declared |= {key: self._find_recorded(key) or CLOSED for key in loaded.broken}
        return Rights(self._settings.access, principal, declared, self._find_recorded)

    def _find_recorded(self, key: EntityKey) -> AclRecord | None:
        with self._database.read() as connection:
            versions = Definitions(connection).history(*key)
        found = (find_version_entity(each) for each in reversed(versions) if each.text is not None)
        return next((acl_of(each) for each in found if each is not None), NOBODYS if versions else None)

    def _load(self) -> _Loaded:
        settings = self._settings
        with self._lock:
            files = read_declared_files(settings, lambda _: self.store.folder.read())
            if self._loaded is None or self._loaded[0] is not files:
                location = load_location(settings, find_plan_cache(os.environ), files)
                self._loaded = files, ReleaseTimeline(location.plan, values_of(settings)), location.errors
            return self._loaded
