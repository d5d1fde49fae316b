"""The objects that sensors and runs of one process share: the plan, the state database, the stores and the clocks.

Every Dagster run loads the location, so the modules that open resources are imported on first use.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from feed_assets.clock import Clock, SystemClock, open_clock
from feed_assets.errors import SettingsError
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.graph.translator import DEFAULT_TRANSLATOR, FeedAssetsTranslator
from feed_assets.plan.edges import Key
from feed_assets.plan.location import Location
from feed_assets.plan.records import Plan
from feed_assets.settings import STATE_FILE, Settings

if TYPE_CHECKING:
    from feed_assets.alerts.delivery.notifier import Notifier
    from feed_assets.orchestration.location.dead_runs import RunHeartbeats
    from feed_assets.orchestration.location.spark import LocationServers
    from feed_assets.patience import Patience
    from feed_assets.releases.timeline import ReleaseTimeline
    from feed_assets.sql.database import Database
    from feed_assets.storage.pool import StorePool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveDefinitions:
    """A location with its layout, and the processes that cannot be launched yet.

    `not_yet` contains processes for which Dagster has loaded other assets, or none. While `is_restored`, nothing is
    launched: see `context/safe_mode.py`.
    """

    location: Location
    layout: AssetLayout
    not_yet: frozenset[Key]
    is_safe_mode: bool = False
    is_restored: bool = False

    @property
    def plan(self) -> Plan:
        """The plan of the location."""
        return self.location.plan


@dataclass
class Runtime:
    """The shared objects of one process. `clock` gives the data's time, `real_clock` the real time; they differ only in
    replays.

    `reload` loads the location again; None if it is not made of files. `translator` names the assets. `shown_revision`
    is that of the metadata which the loaded assets show; None if they show none. `places` is a layout with the digest
    of where Dagster shows what by it. `revision`, `active`, `said_revision`, `places` and `requested` belong to
    `reloading.py`, which uses them while it holds the lock `reloading`.
    """

    settings: Settings
    location: Location
    clock: Clock
    real_clock: Clock = field(default_factory=SystemClock)
    reload: Callable[[], Location] | None = None
    translator: FeedAssetsTranslator = DEFAULT_TRANSLATOR
    revision: int = 0
    active: ActiveDefinitions | None = None
    shown_revision: str | None = None
    said_revision: str = ""
    requested: tuple[str, str] | None = None
    places: tuple[AssetLayout, str] | None = None
    reloading: threading.Lock = field(default_factory=threading.Lock)
    _databases: "dict[str, Database]" = field(default_factory=dict)
    _timeline: "ReleaseTimeline | None" = None
    _busy: set[str] = field(default_factory=set)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def plan(self) -> Plan:
        return self.location.plan

    @property
    def root(self) -> Path:
        return self.settings.root

    @property
    def location_key(self) -> dg.AssetKey:
        """The asset of the location itself, with its check."""
        return names.location_key(self.settings.namespace)

    @cached_property
    def stores(self) -> "StorePool":
        """The stores of ticks, each opened on first use; `patience` limits the calls."""
        from feed_assets.storage.pool import StorePool

        return StorePool()

    @cached_property
    def run_stores(self) -> "StorePool":
        """The stores of runs, each opened on first use if its storage answers."""
        from feed_assets.patience import Patience
        from feed_assets.storage.pool import StorePool

        return StorePool(patience=Patience(self.settings.tick_patience))

    @cached_property
    def patience(self) -> "Patience":
        """The patience of ticks with services that may hang."""
        from feed_assets.patience import Patience

        return Patience(self.settings.tick_patience)

    @cached_property
    def notifier(self) -> "Notifier":
        """What delivers messages."""
        from feed_assets.alerts.delivery.notifier import Notifier

        return Notifier(self.settings)

    @cached_property
    def servers(self) -> "LocationServers":
        """The Spark Connect servers that this process uses until it ends."""
        from feed_assets.orchestration.location.spark import LocationServers

        return LocationServers(self.root)

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Yield whether no other thread of this process is inside the context of this name."""
        with self._mutex:
            is_alone = name not in self._busy
            self._busy.add(name)
        try:
            yield is_alone
        finally:
            if is_alone:
                with self._mutex:
                    self._busy.remove(name)

    @cached_property
    def heartbeats(self) -> "RunHeartbeats":
        """The observed activity of other workers."""
        from feed_assets.orchestration.location.dead_runs import RunHeartbeats

        return RunHeartbeats()

    def timeline(self, location: Location | None = None) -> "ReleaseTimeline":
        """Return the release timeline for the plan of a location, by default the runtime's."""
        from feed_assets.loading.entity_files import values_of
        from feed_assets.releases.timeline import ReleaseTimeline

        location = location or self.location
        with self._mutex:
            known = self._timeline
            if known is None or known.plan is not location.plan:
                known = self._timeline = ReleaseTimeline(location.plan, values_of(self.settings))
        return known

    def database(self, instance: dg.DagsterInstance) -> "Database":
        """Return the state database that belongs to a Dagster instance, with its tables as they are now.

        Raises:
            StateSchemaError: it has the tables of another release.
            StateError: the database cannot be opened.
            ForeignDefinitionsError: it records the definitions of another project.
        """
        from feed_assets.actions import send_actions
        from feed_assets.definitions.ownership import require_own_database
        from feed_assets.sql.database import open_state_database

        url = self.settings.state or state_url(instance)
        with self._mutex:
            database = self._databases.get(url)
            if database is None:
                database = open_state_database(url, self.settings)
                database.migrate()
                require_own_database(database, self.settings, self.location.declared)
                self._databases[url] = database
                send_actions(self.settings, os.environ)
                return database
        database.migrate()
        return database


def open_runtime(
    settings: Settings,
    location: Location,
    reload: Callable[[], Location] | None = None,
    translator: FeedAssetsTranslator = DEFAULT_TRANSLATOR,
) -> Runtime:
    """Return a runtime for a location; opens nothing yet."""
    return Runtime(
        settings=settings, location=location, clock=open_clock(settings), reload=reload, translator=translator
    )


def state_url(instance: dg.DagsterInstance) -> str:
    """Return the URL of the state database beside a Dagster instance's own storage.

    This is the same PostgreSQL database, or a SQLite file in the instance's home.

    Raises:
        SettingsError: the instance uses neither.
    """
    url = getattr(instance.event_log_storage, "postgres_url", None)
    if isinstance(url, str):
        return url
    try:
        home = Path(instance.root_directory)
    except (AttributeError, NotImplementedError) as exc:
        raise SettingsError(
            setting="state",
            reason="the Dagster instance has neither a home folder nor PostgreSQL for the state",
            tried=("settings", "storage of the Dagster instance", "DAGSTER_HOME"),
            next_step="Set DAGSTER_HOME, or state to an SQLAlchemy URL.",
        ) from exc
    return f"sqlite:///{home / STATE_FILE}"
