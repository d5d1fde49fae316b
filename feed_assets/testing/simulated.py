"""Days of a location in seconds, in temporary storage.

The decisions are those of the sensors, and so are windows, gates, late data and retries. The work itself is replaced by
work that only takes time. Needs neither Dagster nor Spark nor pytest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from feed_assets.definitions.store import record_location
from feed_assets.lineage.recorded import RecordedLineage
from feed_assets.lineage.records import LineageGraph
from feed_assets.lineage.walk import walk_lineage
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.plan.edges import Key
from feed_assets.plan.location import Declared, Location, declare_location, load_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings, load_settings
from feed_assets.simulate.parts import Arrival, LogLine, SimulatedEvent, load_events
from feed_assets.simulate.simulation import Simulation, SimulationSettings
from feed_assets.sql.database import Database
from feed_assets.timing.dates import parse_datetime, render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLocation:
    """A location after its simulation. Times are texts such as `2026-01-01T00:00Z`; a cluster is named if there are
    several.
    """

    log: Sequence[LogLine]
    _location: Location = field(repr=False)
    _database: Database = field(repr=False)

    def ran(self, process: str, cluster: str | None = None) -> list[str]:
        """Return the instances that a process has run, in order; one that was repeated is named again."""
        runs = {SimulatedEvent.RUN, SimulatedEvent.LATE_RUN}
        where = self._cluster_of(process, cluster)
        return [
            render_datetime(line.nominal_time)
            for line in self.log
            if line.what in runs and (line.entity, line.cluster) == (process, where) and line.nominal_time is not None
        ]

    def read(self, process: str, instance: str, cluster: str | None = None) -> dict[str, list[str]]:
        """Return the instances that the last attempt of an instance has read, by input; nothing if there was none."""
        key = (process, self._cluster_of(process, cluster), parse_datetime(instance, seconds=True))
        with self._database.read() as connection:
            row = ProcessInstances(connection).get(*key)
        return {each.name: list(map(render_datetime, each.nominal_times)) for each in (row.inputs if row else ())}

    def lineage(
        self, name: str, instance: str, cluster: str | None = None, *, up: bool = True, down: bool = True
    ) -> LineageGraph:
        """Return what an instance of a feed came of, and what came of it, as `lineage show`; or of a process, if no
        feed has the name.
        """
        plan, time = self._location.plan, parse_datetime(instance, seconds=True)
        is_feed = any(each == name for each, _ in plan.feeds)
        where = self._cluster_of(name, cluster, plan.feeds if is_feed else plan.processes)
        start = FeedKey(name, where, time) if is_feed else ProcessKey(name, where, time)
        timeline = ReleaseTimeline(plan)
        with self._database.read() as connection:
            timeline.refresh(connection, time)
            port = RecordedLineage(timeline, connection)
            return walk_lineage(port, [start], up=up, down=down, levels=10)

    def _cluster_of(self, name: str, cluster: str | None, among: Iterable[Key] | None = None) -> str:
        found = sorted(where for each, where in among or self._location.plan.processes if each == name)
        if cluster is None and len(found) == 1:
            return found[0]
        if cluster not in found:
            raise LookupError(f"{name!r} is on {', '.join(found) or 'no cluster'}; name one")
        return cluster


@contextmanager
def simulate(
    arrivals: Mapping[str, Iterable[str]] | Sequence[Arrival],
    *,
    start: str,
    end: str,
    entities: Sequence[Declared] | None = None,
    folder: Path | None = None,
    settings: Settings | None = None,
    every: timedelta = timedelta(minutes=15),
    run_time: timedelta = timedelta(minutes=10),
    events: Path | None = None,
) -> Iterator[SimulatedLocation]:
    """Simulate a location from `start` to `end`, and remove it with the context.

    Args:
        arrivals: the instances of each external feed that arrive, each an hour after its nominal time; or arrivals
            with their own times.
        start: when the clock starts, such as `2026-01-01T00:00Z`.
        end: when it ends.
        entities: entities built in Python and functions declared with `process`; None loads the files named in the
            settings.
        folder: the folder of the project, where the search for `feed_assets.yaml` begins.
        settings: None reads them.
        every: the interval between the ticks of the sensors.
        run_time: how long a run takes.
        events: a file of what else comes and is told, and of commands, as for `feed-assets simulate --events`.

    Raises:
        DefinitionsError: an entity is wrong.
        EventsFileError: the file of events is wrong.
        LookupError: an arrival is of no feed that is declared.
    """
    settings = settings or load_settings(start=folder)
    begun, ended = parse_datetime(start, seconds=True), parse_datetime(end, seconds=True)
    if entities is None:
        location = load_location(settings.model_copy(update={"strict": True}))
    else:
        location = declare_location(entities, settings.root)
    coming = arrivals if isinstance(arrivals, Sequence) else [*_arrivals_of(location, arrivals)]
    simulation = Simulation(
        plan=location.plan,
        record=lambda database: record_location(database, settings, location, begun),
        arrivals=coming,
        settings=SimulationSettings(start=begun, end=ended, every=every, run_time=run_time, root=settings.root),
        events=load_events(events, location.plan) if events is not None else (),
    )
    try:
        log = tuple(simulation.run())
        yield SimulatedLocation(log=log, _location=location, _database=simulation.database)
    finally:
        simulation.close()


def _arrivals_of(location: Location, arrivals: Mapping[str, Iterable[str]]) -> Iterator[Arrival]:
    for name, instances in arrivals.items():
        records = [record for record in location.plan.feeds.values() if record.feed == name and record.is_external]
        if not records:
            known = sorted({record.feed for record in location.plan.feeds.values() if record.is_external})
            raise LookupError(f"no external feed {name!r} is declared; there is {', '.join(known) or 'none'}")
        for record in records:
            for text in instances:
                time: datetime = parse_datetime(text, seconds=True)
                yield Arrival(time + timedelta(hours=1), *record.key, time, "1")
