"""Simulates days of a location in seconds: real decisions and record, temporary storage, and a clock that jumps. It
runs in one thread; the same seed gives the same log.
"""

import heapq
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import assert_never

from feed_assets.clock import FrozenClock
from feed_assets.context.operation import AttemptContext, OperationContext
from feed_assets.context.tick import Tick, open_tick
from feed_assets.definitions.verbs.schedules import apply_schedules, decide_schedules
from feed_assets.entities.common import Kind
from feed_assets.errors import FeedAssetsError
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, record_notice
from feed_assets.instances.arrival.polling import apply_arrivals
from feed_assets.instances.arrival.stored_data import apply_stored_looks, apply_watches, record_gone
from feed_assets.instances.attempts.attempts import Published, begin_attempt
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.attempts.judging import conclude_unread
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.instances.gates.readiness import ON_TIME, apply_readiness
from feed_assets.instances.gates.reconciliation import RunState, apply_clock, apply_reconciliation, find_launched
from feed_assets.instances.gates.requests import LaunchRequest, apply_requests
from feed_assets.instances.gates.retries import apply_retries
from feed_assets.instances.late.detection import apply_late_checks, apply_updates
from feed_assets.instances.late.quality_checks import apply_quality_requests
from feed_assets.instances.leasing import TTL
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import Cause, EntityKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.replication.flows import FlowRunner
from feed_assets.simulate.parts import (
    AUTHOR,
    Arrival,
    ClockSteps,
    Command,
    DigestEngine,
    FileEvent,
    GivenCommand,
    LogLine,
    QueueShare,
    SimulatedEvent,
    SimulatedStores,
    ToldArrival,
    WrongClock,
    describe_step,
    no_session,
    with_polls,
    with_work_here,
)
from feed_assets.sql.database import Database, open_database
from feed_assets.triggers.apply_triggers import TriggerResult, apply_triggers
from feed_assets.triggers.queue.batches import Batches, BatchEvents
from feed_assets.triggers.queue.records import RangeUse
from feed_assets.triggers.queues import show_queue
from feed_assets.triggers.waiting import Queue

_NAMED_AT_MOST = 10
_NAMED_OF_MANY = 3
_USES = ("taken", "passed", "pending")


@dataclass(slots=True)
class QueueLog:
    """Tells what becomes of what comes for processes, by the record."""

    _told: dict[EntityKey, set[int]] = field(default_factory=lambda: defaultdict(set))

    def iter_cut(self, context: OperationContext, batches: Collection[ProcessKey], at: datetime) -> Iterator[LogLine]:
        """Yield a line for each batch that a tick has cut."""
        for batch in batches:
            with context.read() as connection:
                taken = Batches(connection).events_of(batch)
                passed = Batches(connection).events_of(batch, RangeUse.PASSED)
            consumer = EntityKey(batch.process, batch.cluster)
            yield _line(context, SimulatedEvent.CUT, consumer, at, taken, passed, batch.nominal_time)

    def iter_passed(
        self, context: OperationContext, suspended: Collection[EntityKey], at: datetime
    ) -> Iterator[LogLine]:
        """Yield a line for each suspended process for which a tick has passed something over."""
        for consumer in sorted(suspended):
            told = self._told[consumer]
            with context.read() as connection:
                passed = Batches(connection).passed_while_suspended(consumer)
            news = [
                each._replace(events=tuple(event for event in each.events if event.seq not in told)) for each in passed
            ]
            told |= {event.seq for each in news for event in each.events}
            if any(each.events for each in news):
                yield _line(context, SimulatedEvent.PASSED, consumer, at, [], news)

    @staticmethod
    def iter_left(context: OperationContext, at: datetime) -> Iterator[LogLine]:
        """Yield a line for each process for which something is pending."""
        for cluster in sorted(context.plan.clusters):
            for record in context.plan.triggered_on(cluster):
                line = _line(context, SimulatedEvent.LEFT, EntityKey(*record.key), at, [], [])
                if any(share.pending for share in line.queue):
                    yield line


def _line(
    context: OperationContext,
    what: SimulatedEvent,
    consumer: EntityKey,
    at: datetime,
    taken: Sequence[BatchEvents],
    passed: Sequence[BatchEvents],
    nominal_time: datetime | None = None,
) -> LogLine:
    content = show_queue(context, *consumer)
    trigger = context.plan.processes[consumer].trigger
    shares = tuple(
        QueueShare(
            input=each.name,
            feed=each.feed,
            taken=_numbers(taken, each.name),
            passed=_numbers(passed, each.name),
            pending=tuple(event.row.seq for event in content.events if event.input == each.name),
        )
        for each in (trigger.inputs if trigger else ())
    )
    return LogLine(at, what, *consumer, nominal_time, _note(what, shares, content.queue), queue=shares)


def _numbers(found: Sequence[BatchEvents], name: str) -> tuple[int, ...]:
    return tuple(event.seq for each in found if each.input == name for event in each.events)


def _note(what: SimulatedEvent, shares: Sequence[QueueShare], queue: Queue) -> str:
    """Return what is taken, passed over and left, and at the end of all what is lacking, in a few words."""
    taken, passed, left = ({share.input: getattr(share, name) for share in shares} for name in _USES)
    texts = [f"takes {_render(taken)}"] if what is SimulatedEvent.CUT else []
    if any(passed.values()):
        texts.append(f"passes over {_render(passed)}")
    pending = _render(left, queue.pending)
    texts += [pending, queue.sentence] if what is SimulatedEvent.LEFT else [f"leaves {pending}"]
    return "; ".join(texts)


def _render(numbers: Mapping[str, Sequence[int]], count: int | None = None) -> str:
    """Return events by input; `count` is how many there are, if not all are listed.

    >>> _render({"orders": (1, 2), "approval": (3,), "rates": ()}), _render({"orders": range(1, 101)}), _render({})
    ('3 events: orders 1, 2; approval 3', '100 events: orders 1, 2, 3, …', 'nothing')
    """
    if not any(numbers.values()):
        return "nothing"
    each = (
        f"{name} {', '.join(map(str, found if len(found) <= _NAMED_AT_MOST else [*found[:_NAMED_OF_MANY], '…']))}"
        for name, found in numbers.items()
        if found
    )
    return f"{counted(count or sum(map(len, numbers.values())), 'event')}: {'; '.join(each)}"


_COMMANDS = {Command.SUSPEND: SimulatedEvent.SUSPENDED, Command.RESUME: SimulatedEvent.RESUMED}


def land(context: OperationContext, stores: SimulatedStores, arrival: Arrival) -> LogLine:
    """Write what arrives for polls to find; what is never polled is told."""
    record = context.plan.feeds[arrival.feed, arrival.cluster]
    if record.is_external and not record.is_polled:
        notice = Notice(
            feed=arrival.feed,
            cluster=arrival.cluster,
            nominal_time=arrival.nominal_time,
            is_again=True,
        )
        return tell(context, stores, ToldArrival(at=arrival.at, notice=notice, content=arrival.content, record=record))
    stores.write(record, arrival.nominal_time, arrival.content)
    note = "" if arrival.content == "1" else f"content {arrival.content}"
    return LogLine(arrival.at, SimulatedEvent.ARRIVED, *record.key, arrival.nominal_time, note)


def tell(context: OperationContext, stores: SimulatedStores, arrival: ToldArrival) -> LogLine:
    """Write what arrives if it has data, and give notice of it."""
    notice, record = arrival.notice, arrival.record
    time = notice.nominal_time
    if record.has_data and time is not None and stores.read(record, time) != arrival.content:
        stores.write(record, time, arrival.content)
    done = record_notice(context.by(AUTHOR), notice)
    event = None
    if done.outcome is not NoticeOutcome.KNOWN:
        with context.read() as connection:
            event = EventLog(connection).last_seq()
    texts = [done.outcome.value if event is None else f"event {event}"]
    if done.outcome is NoticeOutcome.CHANGED:
        texts.append("other content")
    if notice.marking is not None:
        texts.append(f"marked {notice.marking}")
    key = (done.feed, done.cluster, done.nominal_time)
    return LogLine(arrival.at, SimulatedEvent.ARRIVED, *key, ", ".join(texts), event=event)


def give(context: OperationContext, command: GivenCommand) -> Iterator[LogLine]:
    """Suspend or resume a process, and yield a line for each of its clusters."""
    with context.database.begin() as connection:
        view = load_schedules(connection)
        rows = decide_schedules(
            view,
            Kind.PROCESS,
            command.process,
            command.clusters,
            command.state,
            author=AUTHOR,
            now=context.as_of,
        )
        apply_schedules(connection, view, rows, context.as_of)
    for cluster in command.clusters:
        yield LogLine(command.at, _COMMANDS[command.command], command.process, cluster)


_REQUESTS_A_TICK = 50
_OPEN = (ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING)


_ENDED_WITHOUT_RUN = (
    (ProcessInstanceStatus.TIMEDOUT, SimulatedEvent.TIMED_OUT),
    (ProcessInstanceStatus.SKIPPED, SimulatedEvent.SKIPPED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults: the share of runs whose worker dies at its start, the share whose request is lost, the share of ticks
    before which the daemon pauses, for up to `pause`, and the clock settings.
    """

    death: float = 0.0
    loss: float = 0.0
    stop: float = 0.0
    pause: timedelta = timedelta(hours=12)
    clock: ClockSteps = field(default_factory=ClockSteps)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """The period of a simulation, its random seed, the interval of the sensors, the duration of runs, the faults, and
    the folder of the project, with the files of workflows.
    """

    start: datetime
    end: datetime
    seed: int = 0
    every: timedelta = timedelta(minutes=15)
    run_time: timedelta = timedelta(minutes=10)
    faults: Faults = Faults()
    root: Path = Path()


@dataclass(slots=True)
class Simulation:
    """A simulated location; iterate over `run` once. `record` records the definitions of the plan in a database, as
    before they take effect. `events` are what a file says, beside the arrivals that polls must find. `database` and
    `stores` may be read during the simulation. Close it afterwards.
    """

    plan: Plan
    record: Callable[[Database], object]
    arrivals: Sequence[Arrival]
    settings: SimulationSettings
    events: Sequence[FileEvent] = ()
    database: Database = field(init=False)
    stores: SimulatedStores = field(init=False)
    in_flight: dict[str, LaunchRequest] = field(default_factory=dict)
    _timeline: ReleaseTimeline = field(init=False)
    _source: random.Random = field(init=False)
    _clock: WrongClock = field(init=False)
    _runs: list[tuple[datetime, int, LaunchRequest, str]] = field(default_factory=list)
    _dead: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _planned: ReleaseTimeline | None = None
    _ends_told: dict[str, datetime] = field(default_factory=dict)
    _known_ends: set[tuple[ProcessKey, datetime]] = field(default_factory=set)
    _queue_log: QueueLog = field(default_factory=QueueLog)
    _suspended: set[EntityKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.database = open_database("sqlite://")
        self.database.migrate()
        self.record(self.database)
        self.stores = SimulatedStores()
        self.plan = with_work_here(with_polls(self.plan))
        self._timeline = ReleaseTimeline(self.plan)
        self._source = random.Random(self.settings.seed)
        self._clock = WrongClock(self.settings.faults.clock, random.Random(f"clock {self.settings.seed}"))

    def close(self) -> None:
        """Remove everything."""
        self.stores.remove()
        self.database.close()

    def run(self) -> Iterator[LogLine]:
        """Yield all events in order; at the end the instances that never ran, and what is still pending."""
        settings = self.settings
        coming = deque(sorted([*sorted(self.arrivals), *self.events], key=lambda each: each.at))
        now = settings.start
        while coming and coming[0].at < now:
            yield from self._happen(coming.popleft())
        self._begin()
        while now <= settings.end:
            while coming and coming[0].at <= now:
                yield from self._finish_runs(coming[0].at)
                yield from self._happen(coming.popleft())
            yield from self._finish_runs(now)
            if self._source.random() < settings.faults.stop:
                now += settings.faults.pause * self._source.random()
                self._timeline = ReleaseTimeline(self.plan)
                yield LogLine(at=now, what=SimulatedEvent.RESTARTED)
                continue
            yield from self._tick(now)
            step = self._clock.step()
            if step is not None:
                yield LogLine(at=now, what=SimulatedEvent.CLOCK_SET, note=describe_step(step))
            now += settings.every if step is None else settings.run_time
        yield from self._finish_runs(now + settings.run_time * 2)
        yield from self._missed(now)
        yield from self._queue_log.iter_left(self._operation_context(now), now)

    def _begin(self) -> None:
        """Follow the triggers from now on: what has happened before is history."""
        context = self._operation_context(self.settings.start)
        for cluster in sorted(self.plan.clusters):
            apply_triggers(open_tick(context, cluster, is_held=True))

    def _happen(self, event: Arrival | FileEvent) -> Iterator[LogLine]:
        context = self._operation_context(event.at)
        match event:
            case Arrival():
                yield land(context, self.stores, event)
            case ToldArrival():
                yield tell(context, self.stores, event)
            case GivenCommand():
                yield from give(context, event)
                keys = {EntityKey(event.process, cluster) for cluster in event.clusters}
                self._suspended = self._suspended | keys if event.command is Command.SUSPEND else self._suspended - keys
            case _:
                assert_never(event)

    def _tick(self, now: datetime) -> Iterator[LogLine]:
        context = self._operation_context(now)
        if self._planned is not context.timeline:  # else nothing has changed
            apply_plan(self.database, context.timeline, context.as_of)
            self._planned = context.timeline
        for cluster in sorted(self.plan.clusters):
            tick = open_tick(context, cluster)
            if self.settings.faults.clock.share:  # else none ever goes wrong
                apply_clock(tick)
            self._reconcile(tick)
            apply_arrivals(tick)
            apply_watches(tick)
            yield from self._judge(tick, now)
            apply_stored_looks(tick)
            record_gone(tick, apply_late_checks(tick).gone)
            apply_retries(tick)
            done = apply_triggers(tick)
            yield from self._queue_lines(cluster, done, now)
            readied = apply_readiness(tick, on_time=max(ON_TIME, self.settings.every))
            apply_updates(tick)
            requests = apply_requests(tick, _REQUESTS_A_TICK)
            if readied.timed_out or readied.materialized or requests:
                yield from self._ended_without_run(cluster, now, tick.as_of)
            for request in requests:
                yield from self._launch(request, now)

    def _judge(self, tick: Tick, now: datetime) -> Iterator[LogLine]:
        """Let in what is held back until its rows are judged: there are none."""
        for request in apply_quality_requests(tick, lambda _: ()):
            record = request.record
            context = self._context(f"run-{next(self._numbers)}", tick.as_of, self.plan, None)
            for time in request.nominal_times:
                conclude_unread(context, record, time)
                yield LogLine(now, SimulatedEvent.JUDGED, *record.key, time)

    def _queue_lines(self, cluster: str, done: TriggerResult, now: datetime) -> Iterator[LogLine]:
        suspended = [consumer for consumer in self._suspended if consumer.cluster == cluster]
        if done.batches or (done.routed and suspended):
            context = self._operation_context(now)
            yield from self._queue_log.iter_passed(context, suspended, now)
            yield from self._queue_log.iter_cut(context, done.batches, now)

    def _launch(self, request: LaunchRequest, now: datetime) -> Iterator[LogLine]:
        run_id = f"run-{next(self._numbers)}"
        fate = self._source.random()
        faults = self.settings.faults
        if fate < faults.loss:
            self._dead[request.key] = run_id
            return
        duration = self.settings.run_time * self._source.uniform(0.5, 1.5)
        self.in_flight[run_id] = request
        heapq.heappush(self._runs, (now + duration, next(self._numbers), request, run_id))
        note = counted(len(request.nominal_times), "instance")
        yield LogLine(now, SimulatedEvent.ASKED_FOR, *request.process.key, request.first, note)
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
                yield LogLine(at, SimulatedEvent.DIED, *request.process.key, time)
                return
            yield self._run_one(request, row, run_id, at)

    def _run_one(self, request: LaunchRequest, row: ProcessInstance, run_id: str, at: datetime) -> LogLine:
        with self.database.read() as connection:
            active = self._timeline.find(connection, request.process.key, row.nominal_time)
        plan, process, release = (
            (active.plan, active.record, active.release) if active else (self.plan, request.process, None)
        )
        published: list[Published] = []
        try:
            context = self._context(run_id, self._clock.read(at), plan, release)
            if process.is_flow:
                self._copy(process, row.nominal_time, context, published)
            else:
                runner = InstanceRunner(
                    context=context, root=self.settings.root, session=no_session, engines=lambda _: DigestEngine()
                )
                runner.run(process, row.nominal_time, published.append)
        except FeedAssetsError as exc:
            return LogLine(at, SimulatedEvent.FAILED, *row.key, str(exc))
        is_again = row.attempt > 0 and row.cause in (Cause.LATE_DATA, Cause.UPDATED)
        note = row.reason if is_again and row.reason else ""
        missing = {name: times for done in published for name, times in done.missing.items()}
        lacks = (f"without {len(times)} of {name}" for name, times in missing.items())
        note = "; ".join(filter(None, (note, *lacks)))
        return LogLine(at, SimulatedEvent.LATE_RUN if is_again else SimulatedEvent.RUN, *row.key, note)

    def _copy(
        self, flow: ProcessRecord, nominal_time: datetime, context: AttemptContext, published: list[Published]
    ) -> None:
        def end(_: datetime, outcome: Published | Exception) -> None:
            if isinstance(outcome, Exception):
                raise outcome

        FlowRunner(context=context).run(flow, [nominal_time], published.append, end)

    def _operation_context(self, at: datetime) -> OperationContext:
        """Return the context of a person's or program's operation at a true time."""
        clock = FrozenClock(self._clock.read(at))
        return OperationContext(
            database=self.database,
            stores=self.stores.pool,
            timeline=self._timeline,
            clock=clock,
            real_clock=clock,
            as_of=clock.now(),
        )

    def _context(self, run_id: str, at: datetime, plan: Plan, release: int | None) -> AttemptContext:
        clock = FrozenClock(at)
        return AttemptContext(
            database=self.database,
            stores=self.stores.pool,
            plan=plan,
            clock=clock,
            real_clock=clock,
            run_id=run_id,
            release=release,
        )

    def _die(self, request: LaunchRequest, time: datetime, run_id: str, at: datetime) -> None:
        """Leave the traces of a worker that dies at its start: a RUNNING instance and its lease."""
        Leases(self.database).acquire(
            f"process/{request.process.process}", request.process.cluster, time, run_id, at, TTL
        )
        with self.database.begin() as connection:
            begin_attempt(connection, request.process, time, run_id, at)

    def _reconcile(self, tick: Tick) -> None:
        launched = find_launched(self.database, tick.cluster, tick.as_of)
        by_run = dict.fromkeys(self.in_flight, RunState.ALIVE)
        by_run |= dict.fromkeys((run_id for run_id in self._dead if run_id.startswith("run-")), RunState.ENDED)
        by_request = {
            request.key: RunState.ALIVE for run_id, request in self.in_flight.items() if run_id not in self._dead
        }
        by_request |= {key: RunState.ENDED for key in self._dead if not key.startswith("run-")}
        apply_reconciliation(tick, launched, by_run, by_request)

    def _row(self, key: Key, time: datetime) -> ProcessInstance | None:
        with self.database.read() as connection:
            return ProcessInstances(connection).get(*key, time)

    def _ended_without_run(self, cluster: str, now: datetime, as_of: datetime) -> Iterator[LogLine]:
        since = min(as_of, self._ends_told.get(cluster, as_of))
        with self.database.read() as connection:
            instances = ProcessInstances(connection)
            found = [
                (what, instances.with_status(status, cluster=cluster, limit=None, ended_from=since))
                for status, what in _ENDED_WITHOUT_RUN
            ]
        self._ends_told[cluster] = as_of
        for what, rows in found:
            for row in rows:
                end = (row.key, row.ended_at or now)
                if end not in self._known_ends:
                    self._known_ends.add(end)
                    yield LogLine(now, what, *row.key)

    def _missed(self, now: datetime) -> Iterator[LogLine]:
        with self.database.read() as connection:
            rows = [row for status in _OPEN for row in ProcessInstances(connection).with_status(status, limit=100_000)]
        for row in sorted(rows, key=attrgetter("key")):
            yield LogLine(now, SimulatedEvent.MISSED, *row.key, row.status.value)


def simulate(
    plan: Plan,
    record: Callable[[Database], object],
    arrivals: Iterable[Arrival],
    settings: SimulationSettings,
    events: Sequence[FileEvent] = (),
) -> Iterator[LogLine]:
    """Simulate a location, yield all events in order, and remove it. The arguments are those of `Simulation`."""
    simulation = Simulation(plan=plan, record=record, arrivals=tuple(arrivals), settings=settings, events=events)
    try:
        yield from simulation.run()
    finally:
        simulation.close()
