"""Three seasons of lateness in the simulation: the forecasts of a feed, and of the process behind it, are better than
the share of misses, which nobody knows before the end; and most warnings come before the deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.alerts.forecasting.forecasts import apply_forecasts, forecast_deadlines
from feed_assets.alerts.forecasting.outlooks import FEWEST
from feed_assets.clock import FrozenClock
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick import open_tick
from feed_assets.definitions.store import record_declared
from feed_assets.entities.cluster import Cluster
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import SlaEvent, SlaPayload
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.plan.location import Location, declare_location
from feed_assets.receivers import Topic
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from feed_assets.simulate.parts import Arrival, SimulatedEvent
from feed_assets.simulate.simulation import Simulation, SimulationSettings
from feed_assets.sql.database import Database
from feed_assets.timing.dates import parse_datetime
from tests.alerts.forecasting.seasons import (
    DAY,
    LIMIT,
    Lateness,
    Said,
    Season,
    base_brier,
    brier,
    iter_lateness,
    median_warning,
)
from tests.instances.harness import feed, process

START = datetime(2013, 11, 4, tzinfo=UTC)  # a Monday
SOURCE, REPORT = ("feed", "source"), ("process", "report")
WARN_AT = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a season is, what lateness is counted in, and how often the sensors tick."""

    weeks: int
    unit: timedelta
    every: timedelta
    shares: tuple[float, ...]

    @property
    def limit(self) -> timedelta:
        """How late the feed may be."""
        return LIMIT * self.unit

    @property
    def end(self) -> timedelta:
        """How late the process may be."""
        return (LIMIT + 1) * self.unit

    @property
    def moments(self) -> tuple[timedelta, ...]:
        """When it is asked for forecasts, after each nominal time."""
        return tuple(self.unit * share for share in self.shares)


PACE = Pace(weeks=16, unit=timedelta(hours=1), every=timedelta(minutes=30), shares=(0.05, 0.7, 1.2, 1.7, 2.2, 2.7))


def location_of(pace: Pace) -> Location:
    minutes = pace.unit // timedelta(minutes=1)
    late = {"low": f"minutes({LIMIT * minutes})", "high": f"minutes({9 * minutes})", "warn_at": WARN_AT}
    ended = {"should_end_in": f"minutes({(LIMIT + 1) * minutes})", "warn_at": WARN_AT}
    return declare_location(
        [
            Cluster(name="primary", storage="file:///data"),
            feed("source", "days(1)", start=START, sla=late),
            feed("result", "days(1)", start=START),
            feed("moment", "days(1)", start=START),
            process(
                "report",
                "days(1)",
                start=START,
                inputs={"source": "now(0,0)"},
                outputs={"result": "now(0,0)"},
                timeout="days(9)",
                sla=ended,
            ),
        ],
    )


def simulation_of(location: Location, days: Sequence[Lateness], pace: Pace) -> Simulation:
    """The feed `moment` comes again whenever forecasts are asked for."""

    def record(database: Database) -> None:
        record_declared(database, location.declared or (), START, Settings())

    def arrival(name: str, day: Lateness, after: timedelta) -> Arrival:
        at = day.nominal_time + after
        return Arrival(at=at, feed=name, cluster="primary", nominal_time=day.nominal_time, content=str(after))

    arrivals = [arrival("source", day, day.late) for day in days]
    arrivals += [arrival("moment", day, after) for day in days[FEWEST:] for after in pace.moments]
    settings = SimulationSettings(
        start=START, end=days[-1].nominal_time + 2 * DAY, every=pace.every, run_time=pace.unit / 3
    )
    return Simulation(plan=location.plan, record=record, arrivals=sorted(arrivals), settings=settings)


@dataclass(slots=True, kw_only=True)
class Watch:
    """Asks for forecasts at moments, and lets those be told that are probable."""

    simulation: Simulation
    timeline: ReleaseTimeline
    said: list[tuple[tuple[str, str], datetime, timedelta, float]] = field(default_factory=list)

    def ask(self, as_of: datetime) -> None:
        clock = FrozenClock(as_of)
        context = OperationContext(
            database=self.simulation.database,
            stores=self.simulation.stores.pool,
            timeline=self.timeline,
            clock=clock,
            real_clock=clock,
            as_of=as_of,
        )
        for each in forecast_deadlines(context, DAY).forecasts:
            is_one = (each.kind, each.level) in (("feed", SlaLevel.LOW), ("process", SlaLevel.HIGH))
            if is_one and each.probability is not None and each.nominal_time <= as_of:
                self.said.append(((each.kind, each.name), each.nominal_time, each.due_at - as_of, each.probability))
        apply_forecasts(open_tick(context, "primary"))


def outcome(simulation: Simulation, days: Sequence[Lateness], pace: Pace) -> dict[tuple[str, str], set[datetime]]:
    """The days that missed their deadline."""
    times = [day.nominal_time for day in days]
    with simulation.database.read() as connection:
        there = FeedInstances(connection).get_many([FeedKey("source", "primary", time) for time in times])
        ended = ProcessInstances(connection).get_many([ProcessKey("report", "primary", time) for time in times])
    came = {key.nominal_time: row.available_at for key, row in there.items()}
    done = {key.nominal_time: row.ended_at for key, row in ended.items()}
    return {
        SOURCE: {time for time in times if (at := came.get(time)) is None or at > time + pace.limit},
        REPORT: {time for time in times if (at := done.get(time)) is None or at > time + pace.end},
    }


@pytest.mark.drill
def test_three_seasons_are_forecast_better_than_by_their_base_rate_and_most_warnings_come_in_time() -> None:
    location = location_of(PACE)
    days = list(iter_lateness(START, PACE.weeks, seed=25, unit=PACE.unit))
    simulation = simulation_of(location, days, PACE)
    watch = Watch(simulation=simulation, timeline=ReleaseTimeline(location.plan))
    for line in simulation.run():
        if line.what is SimulatedEvent.ARRIVED and line.entity == "moment":
            watch.ask(line.at)
    missed = outcome(simulation, days, PACE)
    with simulation.database.read() as connection:
        warnings = [
            message for message in Outbox(connection).read(0, 100_000, Topic.SLA) if is_warning(message.payload)
        ]
    simulation.close()
    seasons = {day.nominal_time: day.season for day in days}
    for subject in (SOURCE, REPORT):
        said = [
            Said(
                season=seasons[day],
                day=day,
                before=before,
                probability=probability,
                missed=day in missed[subject],
            )
            for who, day, before, probability in watch.said
            if who == subject
        ]
        report(subject[1], said)
        assert brier(said) < base_brier(said)
        lead, right, vain = median_warning(said, WARN_AT)
        assert lead > timedelta(0)
        assert right > vain
    told = [day for each in warnings for day in days_of(each.payload)]
    assert len(told) == len(set(told)), "nothing is told twice"
    assert told


def is_warning(payload: object) -> bool:
    return isinstance(payload, SlaPayload) and payload.event is SlaEvent.AT_RISK


def days_of(payload: object) -> list[tuple[str, str, datetime]]:
    assert isinstance(payload, SlaPayload)
    return [(payload.entity, payload.sla, parse_datetime(text)) for text in payload.instances]


def report(name: str, said: Sequence[Said]) -> None:
    """Print the figures; pytest shows them with `-s`."""
    for season in (*Season, None):
        found = [each for each in said if season in (each.season, None)]
        if found and 0 < sum(each.missed for each in found) < len(found):
            print(f"{name} {season or 'all'}: {len(found)}, {brier(found):.4f} against {base_brier(found):.4f}")
    lead, right, vain = median_warning(said, WARN_AT)
    print(f"{name}: the median warning {lead} before the deadline; {right} right, {vain} in vain")
