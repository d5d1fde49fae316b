"""Feeds and processes in a few words, on real stores and a real state database, ticked at given times."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import event

from feed_assets.clock import FrozenClock, TimeBudget
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.operation import AttemptContext, OperationContext
from feed_assets.context.tick import Tick, open_tick
from feed_assets.definitions.store import record_declared
from feed_assets.engines.port import Context, Engine, OutputReport, Work, WorkReport
from feed_assets.engines.python_engine import match_messages
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.arrival.polling import ArrivalResult, apply_arrivals, apply_past_polls
from feed_assets.instances.arrival.stored_data import record_gone
from feed_assets.instances.attempts.attempts import OnPublished, Published
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.instances.gates.readiness import ReadinessResult, apply_readiness
from feed_assets.instances.gates.requests import LaunchRequest, apply_requests
from feed_assets.instances.gates.retries import apply_retries
from feed_assets.instances.late.detection import LateCheckResult, apply_late_checks, apply_updates
from feed_assets.instances.late.store import LateCheck, LateChecks
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    FeedEvent,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    Watermark,
    WatermarkKind,
)
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.location import declare_location
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.registration.ticks import apply_registrations
from feed_assets.releases.decide_releases import ReleaseDecision
from feed_assets.releases.store import store_pinned_files
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.replication.flows import FlowRunner
from feed_assets.retention.sweeps.sweep_context import SweepContext
from feed_assets.settings import DefinitionChanges, Settings
from feed_assets.sql.database import Database
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Look
from feed_assets.storage.registry import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from tests.databases import open_migrated

START = datetime(2013, 11, 1, tzinfo=UTC)
PLENTY = 3600.0
Job = Callable[[Work], Mapping[str, str]]


def at(text: str) -> datetime:
    """A UTC time in few letters: "03" is day 3 of November 2013, "03T05:30" a minute of it; longer texts are whole."""
    if len(text) <= len("03T05:30"):
        text = f"2013-11-{text}"
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def hours(count: int, start: datetime = START) -> list[datetime]:
    """The first `count` hours."""
    return [start + timedelta(hours=n) for n in range(count)]


def validity(start: datetime, end: datetime | None) -> dict[str, Any]:
    return {"validity": {"start": start, **({"end": end} if end else {})}}


def feed(
    name: str,
    frequency: str = "hours(1)",
    *,
    start: datetime = START,
    end: datetime | None = None,
    flag: str | None = None,
    clusters: Sequence[str] = ("primary",),
    **more: Any,
) -> Feed:
    """A feed of CSV files with a folder for each minute."""
    return Feed(
        name=name,
        frequency=frequency,
        format="csv",
        availability_flag=flag,
        locations={"data": f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}-${{MINUTE}}"},
        clusters={cluster: validity(start, end) for cluster in clusters},
        **more,
    )


def process(
    name: str,
    frequency: str = "hours(1)",
    *,
    inputs: Mapping[str, str] = {},
    outputs: Mapping[str, str] = {},
    optional: Sequence[str] = (),
    start: datetime = START,
    end: datetime | None = None,
    clusters: Sequence[str] = ("primary",),
    **more: Any,
) -> Process:
    """A process. `inputs` map feeds to windows such as "now(-1,0) now(0,0)", `outputs` to one expression; the names of
    inputs and outputs are those of the feeds; some may be `optional`.
    """
    windows = {source: (window.split() * 2)[:2] for source, window in inputs.items()}
    return Process(
        name=name,
        frequency=frequency,
        clusters={cluster: validity(start, end) for cluster in clusters},
        inputs={
            source: {"feed": source, "start": window[0], "end": window[1], "optional": source in optional}
            for source, window in windows.items()
        },
        outputs={
            target: {"feed": target, "instance": instance, "optional": target in optional}
            for target, instance in outputs.items()
        },
        **{"workflow": {"path": "jobs:run"}, **more},
    )


class CountingStore(LocalStore):
    """A local store that notes the paths that are looked at."""

    def __init__(self, root: Path, looked: list[str]) -> None:
        super().__init__(root)
        self._looked = looked

    def look(self, paths: Sequence[str], flag: str | None) -> list[Look]:
        self._looked.extend(paths)
        return super().look(paths, flag)


class FileEngine(Engine):
    """Runs a function that says what each output holds; the text is written to one file. No Spark. Before, the code has
    its context, as that of a process has.

    An optional output that it does not name is left out; with the text "" it is reported, and has no file. `lineage` is
    what the columns of outputs are made of, by their names.
    """

    def __init__(
        self, job: Job, code: Callable[[Context], None] = lambda _: None, lineage: Mapping[str, ColumnLineage] = {}
    ) -> None:
        self._job = job
        self._code = code
        self._lineage = lineage

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:  # noqa: ARG002 - it needs none
        context = work.context()
        self._code(context)
        texts = self._job(work)
        made = [target for target in work.outputs if target.name in texts or not target.optional]
        messages = match_messages(context, list(texts))
        for target in made:
            folder = Path(urlsplit(target.url).path)
            folder.mkdir(parents=True, exist_ok=True)
            if texts[target.name]:
                (folder / "part-0.csv").write_text(texts[target.name])
        return WorkReport(
            outputs=tuple(
                OutputReport(
                    name=target.name,
                    rows=1,
                    message=messages[target.name],
                    lineage=self._lineage.get(target.name),
                )
                for target in made
            ),
            reported=context.reported,
        )


def no_session() -> "SparkSession":
    raise AssertionError("nothing here needs Spark")


def read_inputs(work: Work) -> dict[str, list[str]]:
    """What a job sees of its inputs: for each, the texts of its paths in their order."""
    return {
        data.name: [
            "".join(sorted(file.read_text() for file in Path(urlsplit(path).path).glob("*.csv"))) for path in data.paths
        ]
        for data in work.inputs
    }


@dataclass(slots=True)
class LifecycleHarness:
    """Entities that were declared, and everything that moves: made by `LifecycleHarness.of`."""

    root: Path
    plan: Plan
    database: Database
    stores: StorePool
    looked: list[str]
    scheme: str
    catalog: str | None = None
    now: datetime = START
    policy: DefinitionChanges = DefinitionChanges.FROM_NOW
    decisions: tuple[ReleaseDecision, ...] = ()
    timeline: ReleaseTimeline = field(init=False)
    job: Job = field(default=lambda work: {target.name: "made" for target in work.outputs})
    code: Callable[[Context], None] = lambda _: None
    lineage: Mapping[str, ColumnLineage] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of(
        cls,
        root: Path,
        *entities: AnyEntity,
        clusters: Sequence[str] = ("primary",),
        scheme: str = "file",
        state: str | None = None,
        catalog: str | None = None,
        stores: StorePool | None = None,
    ) -> "LifecycleHarness":
        """Nothing has happened yet. Storage is below `root`, or in memory with the scheme `memory`; the state is in
        SQLite, or in the empty database at the URL `state`. `catalog` is that of all clusters.
        """
        looked: list[str] = []
        database = open_migrated(state or f"sqlite:///{root / 'state.db'}")

        def open_counting(url: str, options: dict[str, object]) -> InstanceStore:
            scheme, _, path = url.partition("://")
            return CountingStore(Path(path), looked) if scheme == "file" else open_store(url, options)

        stores = stores or StorePool(open_counting)
        empty = Plan(digest="", clusters={}, feeds={}, processes={})
        lifecycle = cls(root=root, plan=empty, database=database, stores=stores, looked=looked, scheme=scheme)
        lifecycle.catalog = catalog
        lifecycle.declare(*entities, clusters=clusters)
        return lifecycle

    def __post_init__(self) -> None:
        self.timeline = ReleaseTimeline(self.plan)

    def declare(self, *entities: AnyEntity, clusters: Sequence[str] = ("primary",)) -> None:
        """Replace all definitions at the time of the last tick; clusters are added."""
        base = f"{self.scheme}://{str(self.root).lstrip('/') if self.scheme == 'memory' else self.root}"
        places = [
            Cluster(name=name, colo=f"{name}-colo", storage=f"{base}/{name}", catalog=self.catalog) for name in clusters
        ]
        location = declare_location([*places, *entities], self.root)
        record_declared(self.database, location.declared or (), self.now, Settings(unconfirmed_deletions=1))
        self.use(location.plan)

    def use(self, plan: Plan) -> None:
        """Work with a plan, as a code server does that has loaded it."""
        self.plan = plan
        self.timeline = ReleaseTimeline(plan)
        self.decisions = apply_plan(
            self.database,
            self.timeline,
            self.now,
            self.policy,
            lambda: store_pinned_files(self.database, plan, self.root),
        )

    def feed(self, name: str, cluster: str = "primary") -> FeedRecord:
        return self.plan.feeds[name, cluster]

    def process(self, name: str, cluster: str = "primary") -> ProcessRecord:
        return self.plan.processes[name, cluster]

    def store(self, cluster: str = "primary") -> InstanceStore:
        return self.stores.get(self.plan.clusters[cluster].store)

    def land(self, name: str, *times: datetime, text: str = "data", cluster: str = "primary", below: str = "") -> None:
        """Put one file into instances of a feed, as an outside program does."""
        for time in times:
            folder = self.folder(name, time, cluster) / below
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"part-{next(self._numbers)}.csv").write_text(text)

    def flag(self, name: str, *times: datetime, cluster: str = "primary") -> None:
        """Put the availability flag into instances of a feed."""
        for time in times:
            self.folder(name, time, cluster).mkdir(parents=True, exist_ok=True)
            (self.folder(name, time, cluster) / (self.feed(name, cluster).flag or "_SUCCESS")).touch()

    def folder(self, name: str, time: datetime, cluster: str = "primary") -> Path:
        folder = self.store(cluster).local_path(self.feed(name, cluster).path(time))
        assert folder is not None
        return folder

    def evict(self, name: str, time: datetime) -> None:
        """Remove an instance, as retention does."""
        with self.database.begin() as connection:
            instances = FeedInstances(connection)
            row = instances.get_many([FeedKey(name, "primary", time)])[FeedKey(name, "primary", time)]
            instances.put([replace(row, status=FeedInstanceStatus.EVICTED)])
        for file in self.folder(name, time).iterdir():
            file.unlink()

    def content(self, name: str, time: datetime) -> str | None:
        """What the instance holds, as readers see it."""
        file = self.folder(name, time) / "part-0.csv"
        return file.read_text() if file.exists() else None

    def context(self, as_of: datetime, **more: Any) -> OperationContext:
        """What a command or a tick sees at a time."""
        clock = FrozenClock(as_of)
        given: dict[str, Any] = {"clock": clock, "real_clock": clock, "as_of": as_of}
        return OperationContext(timeline=self.timeline, database=self.database, stores=self.stores, **(given | more))

    def open_tick(
        self,
        as_of: datetime,
        cluster: str = "primary",
        bulkheads: Bulkheads | None = None,
        *,
        seconds: float = PLENTY,
        is_held: bool = False,
        **more: Any,
    ) -> Tick:
        """A tick for single steps; without bulkheads what fails is raised. `more` is of its context."""
        context, budget = self.context(as_of, **more), TimeBudget(seconds)
        return open_tick(context, cluster, bulkheads, budget=budget, is_held=is_held)

    def arrive(self, as_of: datetime, cluster: str = "primary", seconds: float = PLENTY) -> ArrivalResult:
        return apply_arrivals(self.open_tick(as_of, cluster, seconds=seconds))

    def ready(self, as_of: datetime, cluster: str = "primary", seconds: float = PLENTY) -> ReadinessResult:
        self.now = max(self.now, as_of)
        return apply_readiness(self.open_tick(as_of, cluster, seconds=seconds))

    def request(self, as_of: datetime, cluster: str = "primary", limit: int = 50) -> Sequence[LaunchRequest]:
        return apply_requests(self.open_tick(as_of, cluster), limit)

    def tick(self, as_of: datetime, cluster: str = "primary") -> Sequence[LaunchRequest]:
        """A whole tick of a cluster's sensor, but for Dagster's part."""
        self.now = max(self.now, as_of)
        apply_plan(self.database, self.timeline, as_of, self.policy)
        tick = self.open_tick(as_of, cluster)
        apply_arrivals(tick)
        apply_past_polls(tick)
        apply_registrations(tick)
        apply_retries(tick)
        apply_readiness(tick)
        apply_updates(tick)
        return apply_requests(tick, 50)

    def update(self, as_of: datetime, cluster: str = "primary", *, is_held: bool = False) -> int:
        return apply_updates(self.open_tick(as_of, cluster, is_held=is_held))

    def look_for_late(self, as_of: datetime, cluster: str = "primary", *, is_held: bool = False) -> LateCheckResult:
        """A whole tick of a cluster's sensor for late data; what fails is confined."""
        bulkheads = Bulkheads(cluster, FrozenClock(as_of))
        tick = self.open_tick(as_of, cluster, bulkheads, is_held=is_held)
        checked = apply_late_checks(tick)
        record_gone(tick, checked.gone)
        return checked

    def late_check(
        self, name: str, time: datetime, kind: AgendaKind = AgendaKind.LATE_INPUTS, cluster: str = "primary"
    ) -> LateCheck | None:
        """What is to come for an instance."""
        with self.database.read() as connection:
            return LateChecks(connection).get(kind, name, cluster, time)

    def sweep_context(self, now: datetime) -> SweepContext:
        """What a worker that sweeps works with."""
        clock = FrozenClock(now)
        return SweepContext(
            database=self.database,
            stores=self.stores,
            timeline=self.timeline,
            holder="worker",
            clock=clock,
            real_clock=clock,
        )

    def runner(self, as_of: datetime, run_id: str = "run-1", real_now: datetime | None = None) -> InstanceRunner:
        return InstanceRunner(
            context=AttemptContext(
                database=self.database,
                stores=self.stores,
                plan=self.plan,
                clock=FrozenClock(as_of),
                real_clock=FrozenClock(real_now or as_of),
                run_id=run_id,
            ),
            root=self.root,
            session=no_session,
            engines=lambda _: FileEngine(self.job, self.code, self.lineage),
        )

    def active_release(self, name: str, nominal_time: datetime, cluster: str = "primary") -> ActiveRelease | None:
        """What governs an instance."""
        with self.database.read() as connection:
            return self.timeline.find_or_declared(connection, (name, cluster), nominal_time)

    def run(
        self,
        name: str,
        nominal_time: datetime,
        as_of: datetime,
        run_id: str = "run-1",
        on_published: OnPublished = lambda _: None,
        cluster: str = "primary",
    ) -> tuple[Published, ...]:
        """Run one instance now, as a Dagster run does."""
        active = self.active_release(name, nominal_time, cluster)
        runner = self.runner(as_of, run_id)
        if active is None:
            return runner.run(self.process(name, cluster), nominal_time, on_published)
        runner = replace(runner, context=replace(runner.context, plan=active.plan, release=active.release))
        return runner.run(active.record, nominal_time, on_published)

    def copy(
        self, flow: str, times: Sequence[datetime], as_of: datetime, cluster: str = "backup", run_id: str | None = None
    ) -> dict[datetime, Published | Exception]:
        """Run instances of a flow now, as a Dagster run does; what became of each."""
        active = {time: self.active_release(flow, time, cluster) for time in times}
        ended: dict[datetime, Published | Exception] = {}
        for time, found in active.items():
            assert found is not None, f"{time} is no instance of {flow}"
            runner = FlowRunner(
                context=AttemptContext(
                    database=self.database,
                    stores=self.stores,
                    plan=found.plan,
                    clock=FrozenClock(as_of),
                    real_clock=FrozenClock(as_of),
                    run_id=run_id or self.run_id(),
                    release=found.release,
                ),
            )
            runner.run(found.record, [time], lambda _: None, ended.__setitem__)
        return ended

    def launch(self, requests: Sequence[LaunchRequest], as_of: datetime) -> list[datetime]:
        """Run what was asked for; the nominal times in their order."""
        times = [(request, time) for request in requests for time in request.nominal_times]
        for request, time in times:
            if request.process.is_flow:
                self.copy(request.process.process, [time], as_of, request.process.cluster)
            else:
                self.run(request.process.process, time, as_of, self.run_id(), cluster=request.process.cluster)
        return [time for _, time in times]

    def inputs_of(self, name: str, time: datetime, as_of: datetime) -> dict[str, list[str]]:
        """Run an instance: what its job sees of its inputs."""
        seen: dict[str, list[str]] = {}
        self.run_watched(name, time, as_of, lambda work: seen.update(read_inputs(work)))
        return seen

    def properties_of(self, name: str, time: datetime, as_of: datetime) -> dict[str, str]:
        """Run an instance: the properties that its job is given."""
        seen: dict[str, str] = {}
        self.run_watched(name, time, as_of, lambda work: seen.update(work.properties))
        return seen

    def run_watched(self, name: str, time: datetime, as_of: datetime, watch: Callable[[Work], None]) -> None:
        """Run an instance whose work is told to `watch`."""

        def job(work: Work) -> Mapping[str, str]:
            watch(work)
            return {target.name: "made" for target in work.outputs}

        self.job = job
        self.run(name, time, as_of, self.run_id())

    def run_id(self) -> str:
        """A name that no run has had."""
        return f"run-{next(self._numbers)}"

    def statuses(self, name: str, cluster: str = "primary") -> dict[datetime, ProcessInstanceStatus]:
        return {time: row.status for time, row in self.instances(name, cluster).items()}

    def instances(self, name: str, cluster: str = "primary") -> dict[datetime, ProcessInstance]:
        with self.database.read() as connection:
            rows = ProcessInstances(connection).find_between(name, cluster, at("2000-01-01"), at("2100-01-01"))
        return {row.nominal_time: row for row in rows}

    def times(self, name: str, status: ProcessInstanceStatus, cluster: str = "primary") -> list[datetime]:
        return [time for time, found in self.statuses(name, cluster).items() if found is status]

    def put_instances(self, name: str, times: Sequence[datetime], status: ProcessInstanceStatus) -> None:
        """Process instances that have come into being somehow."""
        row = ProcessInstance(process=name, cluster="primary", nominal_time=START, status=status, updated_at=START)
        with self.database.begin() as connection:
            ProcessInstances(connection).add_waiting([replace(row, nominal_time=time) for time in times])

    def feed_instances(self, name: str, cluster: str = "primary") -> dict[datetime, FeedInstance]:
        with self.database.read() as connection:
            rows = FeedInstances(connection).find_between(name, cluster, at("2000-01-01"), at("2100-01-01"))
        return {row.nominal_time: row for row in rows}

    def next_poll(self, name: str, nominal_time: datetime, cluster: str = "primary") -> datetime | None:
        with self.database.read() as connection:
            found = ArrivalPolls(connection).find_many([(name, cluster, nominal_time)])
        return next((poll.next_poll_at for poll in found.values()), None)

    def feed_statuses(self, name: str, cluster: str = "primary") -> dict[datetime, FeedInstanceStatus]:
        return {time: row.status for time, row in self.feed_instances(name, cluster).items()}

    def times_of_feed(self, name: str, status: FeedInstanceStatus) -> list[datetime]:
        return [time for time, found in self.feed_statuses(name).items() if found is status]

    def events(self, name: str | None = None) -> list[FeedEvent]:
        with self.database.read() as connection:
            return EventLog(connection).read(0, 100_000, None if name is None else [name])

    def watermark(self, kind: WatermarkKind, name: str, cluster: str = "primary") -> Watermark | None:
        with self.database.read() as connection:
            return Watermarks(connection).get(kind, name, cluster)

    def staged(self) -> list[Path]:
        """Stagings that were left lying about."""
        files = [file for file in self.root.rglob("*") if file.is_file()]
        return [file for file in files if ".feed-assets" in file.parts and "locks" not in file.parts]


@contextmanager
def counted_statements() -> Iterator[list[str]]:
    """The SQL statements that are executed in the block."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(SqlEngine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(SqlEngine, "before_cursor_execute", note)
