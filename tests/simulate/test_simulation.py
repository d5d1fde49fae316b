"""Random graphs, with everything going wrong that may: the invariants hold after every step. Ninety days with a tick a
day, and six days of hourly instances with a tick in a quarter of an hour, for which it is also known how soon they run.

`FEED_ASSETS_SEED` says that one seed alone is tried: a failing one replays.
"""

import hashlib
import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import repeat

import pytest

from feed_assets.definitions.store import record_declared
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FrozenInput, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.location import Location, declare_location
from feed_assets.plan.records import FeedRecord
from feed_assets.settings import Settings
from feed_assets.simulate.parts import Arrival, ArrivalPattern, ClockSteps, LogLine, SimulatedEvent, iter_arrivals
from feed_assets.simulate.simulation import Faults, Simulation, SimulationSettings, simulate
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime
from tests.drills import IS_DRILL, SEED, drill_seed, sized
from tests.instances.harness import feed, process
from tests.processes import PROCESSES

pytestmark = pytest.mark.long

START = datetime(2013, 11, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast time goes by in a simulation. In the last `quiet` nothing arrives any more, so that what was late or
    died can be made good.

    `soon` is how long after its nominal time, and after its inputs have arrived, an instance runs at the latest; None
    where ticks are too rare to tell.
    """

    step: timedelta
    grids: tuple[str, ...]
    windows: tuple[str, ...]
    cut_off: str
    retry: str
    late: str
    length: timedelta
    quiet: timedelta
    every: tuple[timedelta, ...]
    run_time: timedelta
    faults: Faults
    soon: timedelta | None


DAYS = Pace(
    step=timedelta(days=1),
    grids=("days(1)", "days(2)", "days(3)"),
    windows=("now(0,0)", "now(-24,0) now(0,0)", "yesterday(0,0) today(0,0)", "today(-48,0) today(0,0)"),
    cut_off="days(80)",
    retry="hours(1)",
    late="hours(90)",
    length=timedelta(days=90),
    quiet=timedelta(days=30),
    every=(timedelta(hours=25), timedelta(hours=31)),
    run_time=timedelta(minutes=10),
    faults=Faults(death=0.05, loss=0.05, stop=0.05, pause=timedelta(hours=30), clock=ClockSteps(share=0.1)),
    soon=None,
)
HOURS = Pace(
    step=timedelta(hours=1),
    grids=("hours(1)", "hours(2)", "hours(3)"),
    windows=("now(0,0)", "now(-3,0) now(0,0)", "now(-1,0) now(0,0)"),
    cut_off="days(20)",
    retry="minutes(20)",
    late="hours(3)",
    length=timedelta(days=6),
    quiet=timedelta(days=2),
    every=(timedelta(minutes=15),),
    run_time=timedelta(minutes=4),
    faults=Faults(
        death=0.05,
        loss=0.05,
        stop=0.01,
        pause=timedelta(hours=1),
        clock=ClockSteps(share=0.02, behind=timedelta(hours=3)),
    ),
    soon=timedelta(hours=5),
)


def random_entities(source: random.Random, pace: Pace) -> list[AnyEntity]:
    """A graph: sources from outside, and layers of processes that read what stands above them."""
    entities: list[AnyEntity] = [Cluster(name="primary", storage="file:///data")]
    feeds = []
    for number in range(source.randint(1, 2)):
        name = f"source-{number}"
        feeds.append(name)
        flag = source.choice([None, "_DONE"])
        entities.append(feed(name, source.choice(pace.grids), flag=flag, late_arrival={"cut_off": pace.cut_off}))
    for number in range(source.choice([1, 2, 2, 3])):
        inputs = source.sample(feeds, k=source.randint(1, min(2, len(feeds))))
        grid, name = source.choice(pace.grids), f"result-{number}"
        entities.append(feed(name, grid, start=START + 6 * pace.step, late_arrival={"cut_off": pace.cut_off}))
        entities.append(
            process(
                f"make-{number}",
                grid,
                inputs={each: source.choice(pace.windows) for each in inputs},
                outputs={name: "now(0,0)"},
                start=START + (6 + 6 * number) * pace.step,
                timeout="days(60)",
                parallel=source.randint(1, 3),
                order=source.choice(["FIFO", "LIFO"]),
                retry={"policy": "periodic", "delay": pace.retry, "attempts": 3},
                late_process={"policy": "periodic", "delay": pace.late, "inputs": inputs},
            )
        )
        feeds.append(name)
    return entities


def circumstances_of(seed: int, pace: Pace) -> tuple[Location, list[Arrival], SimulationSettings]:
    source = random.Random(seed)
    location = declare_location(random_entities(source, pace))
    end = START + pace.length
    pattern = ArrivalPattern(late=source.uniform(0, 0.3), missing=source.uniform(0, 0.05), again=source.uniform(0, 0.1))
    arrivals = sorted(iter_arrivals(location.plan, START, end - pace.quiet, pattern, source))
    arrivals = [each for each in arrivals if each.at < end - pace.quiet]
    settings = SimulationSettings(
        start=START,
        end=end,
        seed=seed,
        every=source.choice(pace.every),
        run_time=pace.run_time,
        faults=pace.faults,
    )
    return location, arrivals, settings


def simulation_of(location: Location, arrivals: list[Arrival], settings: SimulationSettings) -> Simulation:
    def record(database: Database) -> None:
        record_declared(database, location.declared or (), START, Settings())

    return Simulation(plan=location.plan, record=record, arrivals=arrivals, settings=settings)


class Watch:
    """Looks at a simulation after each line of its log."""

    def __init__(self, simulation: Simulation, soon: timedelta | None) -> None:
        self._simulation = simulation
        self._soon = soon
        self._read: dict[ProcessKey, tuple[FrozenInput, ...]] = {}
        self._there: dict[tuple[str, datetime], datetime] = {}

    def check(self, line: LogLine) -> None:
        assert line.what is not SimulatedEvent.FAILED, line.render()
        if line.what is SimulatedEvent.ARRIVED and line.nominal_time is not None:
            self._there.setdefault((line.entity, line.nominal_time), line.at)
        in_flight: dict[str, int] = defaultdict(int)
        wanted: set[ProcessKey] = set()
        plan = self._simulation.plan
        asked_for = [
            (request, [ProcessKey(*request.process.key, time) for time in request.nominal_times])
            for request in self._simulation.in_flight.values()
        ]
        rows = self._rows([key for _, keys in asked_for for key in keys])
        for request, keys in asked_for:
            alive = [key for key in keys if key in rows and rows[key].request_key == request.key]
            assert not wanted.intersection(alive), f"{line.render()}: two runs of one instance"
            wanted.update(alive)
            in_flight[request.process.process] += bool(alive)
        for name, count in in_flight.items():
            assert count <= plan.processes[name, "primary"].parallel, f"{line.render()}: too many runs of {name}"
        if line.what in (SimulatedEvent.RUN, SimulatedEvent.LATE_RUN) and line.nominal_time is not None:
            self._check_run(line, ProcessKey(line.entity, line.cluster, line.nominal_time))

    def _check_run(self, line: LogLine, key: ProcessKey) -> None:
        row = self._rows([key])[key]
        assert row.status is ProcessInstanceStatus.SUCCEEDED, line.render()
        assert self._read.get(key) != row.inputs, f"{line.render()}: run twice for the same inputs"
        self._read[key] = row.inputs
        self._check_soon(line, key)

    def _check_soon(self, line: LogLine, key: ProcessKey) -> None:
        """Not later than `soon` after its nominal time, and after the last of its inputs came to be."""
        plan = self._simulation.plan
        process = plan.processes[key.process, key.cluster]
        inputs = [
            self._there[item.feed, plan.feeds[item.feed, key.cluster].sequence.at(index)]
            for item in process.inputs
            for index in plan.input_indices(item, key.nominal_time)
        ]
        for edge in process.outputs:
            is_first = self._there.setdefault((edge.feed, key.nominal_time), line.at) is line.at
            latest = max([key.nominal_time, *inputs])
            if is_first and self._soon is not None:
                assert line.at - latest <= self._soon, f"{line.render()}: late by {line.at - latest}"

    def _rows(self, keys: Sequence[ProcessKey]) -> dict[ProcessKey, ProcessInstance]:
        if not keys:
            return {}
        with self._simulation.database.read() as connection:
            return ProcessInstances(connection).get_many(keys)


class Oracle:
    """What every instance would hold without faults: a digest of what its inputs hold at the end."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._plan = simulation.plan
        self._known: dict[tuple[str, datetime], str | None] = {}

    def content(self, name: str, time: datetime) -> str | None:
        key = (name, time)
        if key not in self._known:
            self._known[key] = self._content(self._plan.feeds[name, "primary"], time)
        return self._known[key]

    def _content(self, record: FeedRecord, time: datetime) -> str | None:
        if record.is_external:
            return self._simulation.stores.read(record, time)
        (edge,) = record.outputs_of
        process = self._plan.processes[edge.process, "primary"]
        if not process.sequence.contains(time):
            return None
        digest = hashlib.sha256(f"{process.process}|{render_datetime(time)}|{process.work.path}".encode())
        for item in process.inputs:
            digest.update(f"|{item.name}".encode())
            sequence = self._plan.feeds[item.feed, "primary"].sequence
            for read in sorted(map(sequence.at, self._plan.input_indices(item, time))):
                content = self.content(item.feed, read)
                if content is None:
                    return None
                digest.update(f"|{render_datetime(read)}|{content}".encode())
        return f"{digest.hexdigest()[:16]} {edge.name}"


def broken_by(seed: int, pace: Pace) -> str:
    """Live through the time of a seed; what does not hold, or nothing."""
    location, arrivals, settings = circumstances_of(seed, pace)
    simulation = simulation_of(location, arrivals, settings)
    try:
        watch = Watch(simulation, pace.soon)
        for line in simulation.run():
            watch.check(line)
        oracle = Oracle(simulation)
        for record in simulation.plan.feeds.values():
            for time in record.sequence.between(START, settings.end - pace.quiet):
                found, expected = simulation.stores.read(record, time), oracle.content(record.feed, time)
                assert found == expected, f"{record.feed} {time}: {found} instead of {expected}"
    except AssertionError as exc:
        return f"seed {seed}: {exc}"
    finally:
        simulation.close()
    return ""


@pytest.mark.sample
@pytest.mark.timeout(sized(900, 7200))
@pytest.mark.parametrize(
    ("pace", "seeds"),
    [pytest.param(DAYS, sized(1, 2000), id="days"), pytest.param(HOURS, 20, id="hours", marks=pytest.mark.drill)],
)
def test_invariants_hold_whatever_goes_wrong(pace: Pace, seeds: int) -> None:
    if SEED or not IS_DRILL:
        assert list(filter(None, (broken_by(SEED or number, pace) for number in range(1 if SEED else seeds)))) == []
        return
    first = drill_seed()
    with ProcessPoolExecutor(mp_context=PROCESSES) as pool:
        assert list(filter(None, pool.map(broken_by, range(first, first + seeds), repeat(pace)))) == []


def test_the_same_seed_gives_the_same_log() -> None:
    location, arrivals, settings = circumstances_of(7, replace(DAYS, length=timedelta(days=65)))

    def record(database: Database) -> None:
        record_declared(database, location.declared or (), START, Settings())

    first, again = (list(simulate(location.plan, record, arrivals, settings)) for _ in range(2))
    assert first == again
    assert {line.what for line in first} >= {
        SimulatedEvent.CLOCK_SET,
        SimulatedEvent.DIED,
        SimulatedEvent.RESTARTED,
        SimulatedEvent.LATE_RUN,
    }
    other = simulate(location.plan, record, arrivals, replace(settings, seed=8))
    assert any(one != another for one, another in zip(first, other, strict=False))
