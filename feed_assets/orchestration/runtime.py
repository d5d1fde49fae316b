"""What sensors and runs of one process share: the plan, the state database, the stores and the clocks."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dagster import DagsterInstance

from feed_assets.clock import Clock, SystemClock, open_clock
from feed_assets.errors import SettingsError
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.stores import StorePool
from feed_assets.operations.location import Location
from feed_assets.operations.recording import values_of
from feed_assets.orchestration.dead_runs import Silences
from feed_assets.orchestration.present import Present
from feed_assets.plan.records import Plan
from feed_assets.settings import Settings
from feed_assets.state.database import Database, open_database

STATE_FILE = "feed_assets.db"


@dataclass(slots=True)
class Runtime:
    """Opened once a process. `clock` tells the time of the data, `wall` the time of day; only a replay parts them.

    `reload` loads the location anew; None where it is not made of files. `revision`, `present` and `asked_for` belong
    to `reloading.py`, which uses them while it holds `reloading`.
    """

    settings: Settings
    location: Location
    clock: Clock
    wall: Clock = field(default_factory=SystemClock)
    stores: StorePool = field(default_factory=StorePool)
    silences: Silences = field(default_factory=Silences)
    reload: Callable[[datetime], Location] | None = None
    revision: int = 0
    present: Present | None = None
    asked_for: str | None = None
    reloading: threading.Lock = field(default_factory=threading.Lock)
    _databases: dict[str, Database] = field(default_factory=dict)
    _governance: Governance | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def plan(self) -> Plan:
        return self.location.plan

    @property
    def root(self) -> Path:
        return self.settings.root

    def governance(self, location: Location | None = None) -> Governance:
        """Which definitions govern which instances, as seen with the plan of a location, by default the runtime's."""
        location = location or self.location
        with self._mutex:
            known = self._governance
            if known is None or known.plan is not location.plan:
                known = self._governance = Governance(location.plan, values_of(self.settings))
        return known

    def database(self, instance: DagsterInstance) -> Database:
        """The state database that belongs to a Dagster instance, with its tables.

        Raises:
            StateError: it cannot be opened, or is newer than this code.
        """
        url = self.settings.state or state_url(instance)
        with self._mutex:
            database = self._databases.get(url)
            if database is None:
                database = open_database(url)
                database.migrate()
                self._databases[url] = database
        return database


def open_runtime(
    settings: Settings, location: Location, reload: Callable[[datetime], Location] | None = None
) -> Runtime:
    """A runtime for a location; opens nothing yet."""
    return Runtime(settings=settings, location=location, clock=open_clock(settings), reload=reload)


def state_url(instance: DagsterInstance) -> str:
    """The URL of the state database that stands beside a Dagster instance's own: the same PostgreSQL database, or a
    SQLite file in its home.

    Raises:
        SettingsError: the instance keeps its records in neither.
    """
    url = getattr(instance.event_log_storage, "postgres_url", None)
    if isinstance(url, str):
        return url
    try:
        home = Path(instance.root_directory)
    except (AttributeError, NotImplementedError) as exc:
        raise SettingsError(
            setting="state",
            reason="the Dagster instance has neither a home folder nor PostgreSQL to keep the state in",
            tried=("settings", "storage of the Dagster instance", "DAGSTER_HOME"),
            next_step="Set DAGSTER_HOME, or state to an SQLAlchemy URL.",
        ) from exc
    return f"sqlite:///{home / STATE_FILE}"
