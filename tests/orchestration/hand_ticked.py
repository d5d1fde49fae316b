"""A location whose arrival sensor is ticked by hand, on a clock that stands still."""

from datetime import datetime, timedelta

from dagster import DagsterInstance, SensorResult
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.tick import Tick, open_tick
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration.graph.layout import AssetLayout, lay_out
from feed_assets.orchestration.graph.translator import DEFAULT_TRANSLATOR, FeedAssetsTranslator
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.location.runtime import Runtime, open_runtime
from feed_assets.orchestration.sensors.ticks import run_tick
from feed_assets.plan.location import Location, load_location
from feed_assets.settings import Settings, load_settings
from tests.log.samples import count_by_status
from tests.orchestration.dagster_home import Home
from tests.orchestration.small import ENTITIES, JOBS, START

NOON = START + timedelta(hours=12, minutes=5)


class LocationHarness:
    """A location on a frozen clock, ticked by hand."""

    def __init__(
        self,
        home: Home,
        instance: DagsterInstance,
        entities: str = ENTITIES,
        *,
        state: str | None = None,
        translator: FeedAssetsTranslator = DEFAULT_TRANSLATOR,
    ) -> None:
        home.prepare(entities, JOBS)
        self.home = home
        self.instance = instance
        self.translator = translator
        self.cursors: dict[str, str | None] = {}
        self.settings: Settings = load_settings(
            {} if state is None else {"state": state},
            environ={"FEED_ASSETS_ENTITIES": "entities", "FEED_ASSETS_VARIABLES__DATA_ROOT": str(home.data)},
            start=home.folder,
        )
        self.reopen()

    def reopen(self) -> None:
        """Load the location anew, as a code server that starts."""
        self.location: Location = load_location(self.settings)
        self.layout: AssetLayout = lay_out(self.location.plan, self.translator)
        self.runtime: Runtime = open_runtime(self.settings, self.location, translator=self.translator)
        self.at(NOON)

    def at(self, moment: datetime) -> None:
        self.runtime.clock = self.runtime.real_clock = FrozenClock(moment)

    def tick(self, graph: AssetGraph | None = None, *, cluster: str = "here") -> SensorResult:
        result = run_tick(self.runtime, self.layout, cluster, self.instance, self.cursors.get(cluster), graph)
        self.cursors[cluster] = result.cursor
        return result

    def open_tick(self, cluster: str, bulkheads: Bulkheads | None = None) -> Tick:
        """A tick for single steps; without bulkheads what fails is raised."""
        timeline, database = self.runtime.timeline(self.location), self.runtime.database(self.instance)
        return open_tick(build_context(self.runtime, timeline, database, self.runtime.clock.now()), cluster, bulkheads)

    @property
    def cursor(self) -> str | None:
        """The position of the sensor of the cluster `here`."""
        return self.cursors.get("here")

    @cursor.setter
    def cursor(self, text: str | None) -> None:
        self.cursors["here"] = text

    def counts(self) -> dict[ProcessInstanceStatus, int]:
        with self.runtime.database(self.instance).read() as connection:
            return count_by_status(connection, "summing", "here")
