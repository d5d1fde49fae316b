"""Days of a location in seconds: the real sensors' decisions and record, passing storage, and a clock that jumps.

One thread; the same seed gives the same log.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from feed_assets.clock import FrozenClock, TimeBudget
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.arrivals import apply_arrivals
from feed_assets.lifecycle.attempt_steps import Published
from feed_assets.lifecycle.attempts import begin_attempt
from feed_assets.lifecycle.catching_up import ON_TIME
from feed_assets.lifecycle.clock_steps import apply_clock
from feed_assets.lifecycle.execution import InstanceRunner
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.late_detection import apply_late_checks
from feed_assets.lifecycle.leasing import TTL
from feed_assets.lifecycle.readiness import apply_readiness
from feed_assets.lifecycle.reconciliation import RunState, apply_reconciliation, find_launched
from feed_assets.lifecycle.redefinition import apply_plan
from feed_assets.lifecycle.replication.flows import FlowRunner
from feed_assets.lifecycle.requests import LaunchRequest, apply_requests
from feed_assets.lifecycle.retries import apply_retries
from feed_assets.operations.simulating.parts import Arrival, DigestEngine, SimulatedStores, no_session
from feed_assets.operations.simulating.wrong_clock import ClockSteps, WrongClock, describe_step
from feed_assets.plan.records import Key, Plan, ProcessRecord
from feed_assets.state.database import Database, open_database
from feed_assets.state.leases import Leases
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.timing.dates import render_datetime

_PLENTY = 3600.0
_REQUESTS_A_TICK = 50
_OPEN = (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING)


class Happening(StrEnum):
    """What can happen in a simulation."""

    ARRIVED = "arrived"
    ASKED_FOR = "asked for"
    RUN = "run"
    LATE_RUN = "run again"
    FAILED = "failed"
    DIED = "worker died"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"
    RESTARTED = "daemon restarted"
    CLOCK_SET = "clock set"
    MISSED = "never ran"


_ENDED_WITHOUT_RUN = (
    (ProcessInstanceStatus.TIMEDOUT, Happening.TIMED_OUT),
    (ProcessInstanceStatus.SKIPPED, Happening.SKIPPED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """Something that happened, to an instance if it is about one; `note` is more for people. `at` is the true time."""

    at: datetime
    what: Happening
    entity: str = ""
    cluster: str = ""
    nominal_time: datetime | None = None
    note: str = ""

    def render(self) -> str:
        """The line as people read it."""
        who = f" {self.entity}" if self.entity else ""
        when = f" {render_datetime(self.nominal_time)}" if self.nominal_time else ""
        where = f" on {self.cluster}" if self.cluster else ""
        note = f": {self.note}" if self.note else ""
        return f"{render_datetime(self.at)} {self.what.value}{who}{when}{where}{note}"

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "at": render_datetime(self.at),
            "what": self.what.value,
            "entity": self.entity,
            "cluster": self.cluster,
            "instance": render_datetime(self.nominal_time) if self.nominal_time else None,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong: shares of the runs whose worker dies when it begins and whose request is lost, the share of the
    ticks before which the daemon stands still, for up to `pause`, and how the clock is set.
    """

    death: float = 0.0
    loss: float = 0.0
    stop: float = 0.0
    pause: timedelta = timedelta(hours=12)
    clock: ClockSteps = field(default_factory=ClockSteps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The times of a simulation, the seed of all that chance decides, the pace of the sensors, how long runs take, and
    what goes wrong.
    """

    start: datetime
    end: datetime
    seed: int = 0
    every: timedelta = timedelta(minutes=15)
    run_time: timedelta = timedelta(minutes=10)
    faults: Faults = Faults()


@dataclass(slots=True)
class Simulation:
    """A location that lives through a stretch of time; iterate over `run` once.

    `record` notes the definitions of the plan in a database, as they are noted before they take effect. `database` and
    `stores` can be looked at while it goes on. Close it when done.
    """

    plan: Plan
    record: Callable[[Database], object]
    arrivals: Sequence[Arrival]
    circumstances: Circumstances
    database: Database = field(init=False)
    stores: SimulatedStores = field(init=False)
    in_flight: dict[str, LaunchRequest] = field(default_factory=dict)
    _governance: Governance = field(init=False)
    _source: random.Random = field(init=False)
    _clock: WrongClock = field(init=False)
    _runs: list[tuple[datetime, int, LaunchRequest, str]] = field(default_factory=list)
    _dead: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _known_ends: set[tuple[ProcessKey, datetime]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.database = open_database("sqlite://")
        self.database.migrate()
        self.record(self.database)
        self.stores = SimulatedStores()
        self._governance = Governance(self.plan)
        self._source = random.Random(self.circumstances.seed)
        self._clock = WrongClock(self.circumstances.faults.clock, random.Random(f"clock {self.circumstances.seed}"))

    def close(self) -> None:
        """Forget everything."""
        self.stores.remove()
        self.database.close()

    def run(self) -> Iterator[LogLine]:
        """Everything that happens, in order; at the end what never ran."""
        circumstances = self.circumstances
        coming = sorted(self.arrivals)
        now = circumstances.start
        while now <= circumstances.end:
            while coming and coming[0].at <= now:
                yield self._arrive(coming.pop(0))
            yield from self._finish_runs(now)
            if self._source.random() < circumstances.faults.stop:
                now += circumstances.faults.pause * self._source.random()
                self._governance = Governance(self.plan)
                yield LogLine(at=now, what=Happening.RESTARTED)
                continue
            yield from self._tick(now)
            step = self._clock.step()
            if step is not None:
                yield LogLine(at=now, what=Happening.CLOCK_SET, note=describe_step(step))
            now += circumstances.every if step is None else circumstances.run_time
        yield from self._finish_runs(now + circumstances.run_time * 2)
        yield from self._missed(now)

    def _arrive(self, arrival: Arrival) -> LogLine:
        record = self.plan.feeds[arrival.feed, arrival.cluster]
        self.stores.write(record, arrival.nominal_time, arrival.content)
        return LogLine(
            at=arrival.at,
            what=Happening.ARRIVED,
            entity=arrival.feed,
            cluster=arrival.cluster,
            nominal_time=arrival.nominal_time,
            note="" if arrival.content == "1" else f"content {arrival.content}",
        )

    def _tick(self, now: datetime) -> Iterator[LogLine]:
        as_of = self._clock.read(now)
        database, stores, governance = self.database, self.stores.pool, self._governance
        apply_plan(database, governance, as_of)
        for cluster in sorted(self.plan.clusters):
            apply_clock(database, governance, cluster, as_of, as_of)
            self._reconcile(cluster, as_of)
            apply_arrivals(database, stores, self.plan, cluster, as_of, TimeBudget(_PLENTY))
            apply_late_checks(database, stores, governance, cluster, as_of, as_of, TimeBudget(_PLENTY))
            apply_retries(database, governance, cluster, as_of)
            on_time = max(ON_TIME, self.circumstances.every)
            readied = apply_readiness(database, governance, cluster, as_of, TimeBudget(_PLENTY), on_time=on_time)
            requests = apply_requests(database, governance, cluster, as_of, as_of, _REQUESTS_A_TICK)
            if readied.timed_out or readied.materialized or requests:
                yield from self._ended_without_run(cluster, now)
            for request in requests:
                yield from self._launch(request, now)

    def _launch(self, request: LaunchRequest, now: datetime) -> Iterator[LogLine]:
        run_id = f"run-{next(self._numbers)}"
        fate = self._source.random()
        faults = self.circumstances.faults
        if fate < faults.loss:
            self._dead[request.key] = run_id
            return
        duration = self.circumstances.run_time * self._source.uniform(0.5, 1.5)
        self.in_flight[run_id] = request
        heapq.heappush(self._runs, (now + duration, next(self._numbers), request, run_id))
        yield self._about(now, Happening.ASKED_FOR, request, request.first, f"{len(request.nominal_times)} instances")
        if fate < faults.loss + faults.death:
            self._dead[request.key] = self._dead[run_id] = run_id

    def _finish_runs(self, now: datetime) -> Iterator[LogLine]:
        while self._runs and self._runs[0][0] <= now:
            at, _, request, run_id = heapq.heappop(self._runs)
            yield from self._work(request, run_id, at)
            self.in_flight.pop(run_id, None)
            self._dead.setdefault(request.key, run_id)
            self._dead.setdefault(run_id, run_id)

    def _work(self, request: LaunchRequest, run_id: str, at: datetime) -> Iterator[LogLine]:
        for time in request.nominal_times:
            row = self._row(request.process.key, time)
            if row is None or row.request_key != request.key or row.status is not ProcessInstanceStatus.READY:
                continue
            if run_id in self._dead:
                self._die(request, time, run_id, self._clock.read(at))
                yield self._about(at, Happening.DIED, request, time)
                return
            yield self._run_one(request, row, run_id, at)

    def _run_one(self, request: LaunchRequest, row: ProcessInstance, run_id: str, at: datetime) -> LogLine:
        with self.database.read() as connection:
            governed = self._governance.find(connection, request.process.key, row.nominal_time)
        plan, process, release = (
            (governed.plan, governed.record, governed.release) if governed else (self.plan, request.process, None)
        )
        published: list[Published] = []
        try:
            if process.copy is not None:
                self._copy(process, row.nominal_time, run_id, at, plan, release, published)
            else:
                runner = replace(self._runner(run_id, self._clock.read(at)), plan=plan, release=release)
                runner.run(process, row.nominal_time, published.append)
        except FeedAssetsError as exc:
            return self._about(at, Happening.FAILED, request, row.nominal_time, str(exc))
        is_again = row.attempt > 0 and row.reason is not None and row.reason.startswith("late")
        note = row.reason if is_again and row.reason else ""
        missing = {name: times for done in published for name, times in done.missing.items()}
        if missing:
            note = "; ".join([note, *(f"without {len(times)} of {name}" for name, times in missing.items())]).strip(
                "; "
            )
        return self._about(at, Happening.LATE_RUN if is_again else Happening.RUN, request, row.nominal_time, note)

    def _copy(
        self,
        flow: ProcessRecord,
        nominal_time: datetime,
        run_id: str,
        at: datetime,
        plan: Plan,
        release: int | None,
        published: list[Published],
    ) -> None:
        clock = FrozenClock(self._clock.read(at))
        runner = FlowRunner(
            database=self.database,
            stores=self.stores.pool,
            plan=plan,
            clock=clock,
            wall=clock,
            run_id=run_id,
            release=release,
        )

        def end(_: datetime, outcome: Published | Exception) -> None:
            if isinstance(outcome, Exception):
                raise outcome

        runner.run(flow, [nominal_time], published.append, end)

    def _runner(self, run_id: str, at: datetime) -> InstanceRunner:
        return InstanceRunner(
            database=self.database,
            stores=self.stores.pool,
            plan=self.plan,
            clock=FrozenClock(at),
            wall=FrozenClock(at),
            root=Path(),
            run_id=run_id,
            session=no_session,
            engines=lambda _: DigestEngine(),
        )

    def _die(self, request: LaunchRequest, time: datetime, run_id: str, at: datetime) -> None:
        """What a worker leaves that dies when it has begun: an instance that is RUNNING, and its lease."""
        Leases(self.database).acquire(
            f"process/{request.process.process}", request.process.cluster, time, run_id, at, TTL
        )
        with self.database.begin() as connection:
            begin_attempt(connection, request.process, time, run_id, at)

    def _reconcile(self, cluster: str, now: datetime) -> None:
        launched = find_launched(self.database, cluster, now)
        by_run = dict.fromkeys(self.in_flight, RunState.ALIVE)
        by_run |= dict.fromkeys((run_id for run_id in self._dead if run_id.startswith("run-")), RunState.ENDED)
        by_request = {
            request.key: RunState.ALIVE for run_id, request in self.in_flight.items() if run_id not in self._dead
        }
        by_request |= {key: RunState.ENDED for key in self._dead if not key.startswith("run-")}
        apply_reconciliation(self.database, launched, by_run, by_request, now)

    def _row(self, key: Key, time: datetime) -> ProcessInstance | None:
        with self.database.read() as connection:
            return ProcessInstances(connection).get(*key, time)

    def _ended_without_run(self, cluster: str, now: datetime) -> Iterator[LogLine]:
        with self.database.read() as connection:
            instances = ProcessInstances(connection)
            found = [
                (what, instances.with_status(status, cluster=cluster, limit=100_000))
                for status, what in _ENDED_WITHOUT_RUN
            ]
        for what, rows in found:
            for row in rows:
                end = (row.key, row.ended_at or now)
                if end not in self._known_ends:
                    self._known_ends.add(end)
                    yield LogLine(at=now, what=what, entity=row.process, cluster=cluster, nominal_time=row.nominal_time)

    def _missed(self, now: datetime) -> Iterator[LogLine]:
        with self.database.read() as connection:
            rows = [row for status in _OPEN for row in ProcessInstances(connection).with_status(status, limit=100_000)]
        for row in sorted(rows, key=_key_of):
            yield LogLine(
                at=now,
                what=Happening.MISSED,
                entity=row.process,
                cluster=row.cluster,
                nominal_time=row.nominal_time,
                note=row.status.value,
            )

    @staticmethod
    def _about(at: datetime, what: Happening, request: LaunchRequest, time: datetime, note: str = "") -> LogLine:
        process = request.process
        return LogLine(at=at, what=what, entity=process.process, cluster=process.cluster, nominal_time=time, note=note)


def _key_of(row: ProcessInstance) -> ProcessKey:
    return row.key


def simulate(
    plan: Plan, record: Callable[[Database], object], arrivals: Iterable[Arrival], circumstances: Circumstances
) -> Iterator[LogLine]:
    """Simulate a location and forget it; everything that happens, in order. Arguments as of `Simulation`."""
    simulation = Simulation(plan=plan, record=record, arrivals=tuple(arrivals), circumstances=circumstances)
    try:
        yield from simulation.run()
    finally:
        simulation.close()
