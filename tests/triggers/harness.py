"""Feeds and triggers in a few words, on a real state database, ticked at given times."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from feed_assets.clock import FrozenClock
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick import open_tick
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    EntityKey,
    FeedEventKind,
    NewFeedEvent,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool
from feed_assets.timing.dates import NEVER
from feed_assets.triggers.apply_triggers import TriggerResult, apply_triggers
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.records import Mark, RangeUse
from feed_assets.triggers.waiting import foresee_batches

START = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER = "primary"
ON = {CLUSTER: {"validity": {"start": "2026-01-01T00:00Z"}}}
WORK = {"engine": "python", "path": "shop.jobs:load"}


def at(text: str) -> datetime:
    """A time of January 2026: "06:00" of the first day, "02T06:00" of another one; seconds may follow."""
    return datetime.fromisoformat(f"2026-01-{text if 'T' in text else f'01T{text}'}").replace(tzinfo=UTC)


def build_plan(
    feeds: Iterable[str], processes: Mapping[str, Mapping[str, Any]], logs: Iterable[str] = (), **fields: Any
) -> Plan:
    """The plan of feeds, and of processes by name with a trigger each, or with other fields; `logs` are feeds whose
    instances come as they come.
    """
    entities = [
        Feed(
            name=name,
            frequency="hours(1)",
            locations={"data": f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}-${{HOUR}}"},
            clusters=ON,
        )
        for name in feeds
    ]
    entities += [
        Feed(
            name=name,
            instances="as-they-come",
            locations={"data": f"/{name}/${{YEAR}}${{MONTH}}${{DAY}}${{HOUR}}${{MINUTE}}${{SECOND}}"},
            clusters=ON,
        )
        for name in logs
    ]
    declared = [
        Process.model_validate({"name": name, "clusters": ON, "workflow": WORK, "trigger": trigger} | fields)
        for name, trigger in processes.items()
    ]
    cluster = Cluster(name=CLUSTER, storage="file:///data")
    return compile_plan(Bundle(entities=(cluster, *entities, *declared)))


@dataclass(kw_only=True)
class Queues:
    """Consumers of a plan, and what comes for them."""

    database: Database
    plan: Plan
    now: datetime = START
    ticks: list[TriggerResult] = field(default_factory=list)

    def come(
        self, *feeds: str, marking: str | None = None, digest: str | None = None, hour: int | None = None
    ) -> list[int]:
        """Append an event of each feed to the log, a second after the one before; return their numbers."""
        numbers = []
        for feed in feeds:
            self.now += timedelta(seconds=1)
            event = NewFeedEvent(
                feed=feed,
                cluster=CLUSTER,
                nominal_time=self.now if hour is None else START + timedelta(hours=hour),
                kind=FeedEventKind.SIGNALLED if digest is None else FeedEventKind.ARRIVED,
                origin="a test",
                recorded_at=self.now,
                marking=marking,
                manifest_digest=digest,
            )
            with self.database.begin() as connection:
                numbers += EventLog(connection).append([event])
        return numbers

    def flood(self, feed: str, count: int) -> None:
        """Append many events of a feed at once."""
        events = [
            NewFeedEvent(
                feed=feed,
                cluster=CLUSTER,
                nominal_time=START + timedelta(hours=number),
                kind=FeedEventKind.SIGNALLED,
                origin="a test",
                recorded_at=self.now,
            )
            for number in range(count)
        ]
        with self.database.begin() as connection:
            EventLog(connection).append(events)

    def tick(self, as_of: datetime | None = None, *, is_held: bool = False) -> list[list[int]]:
        """Tick at a time, a second after the last event by default; return the events of each batch that was cut."""
        self.now = as_of or self.now + timedelta(seconds=1)
        clock, timeline = FrozenClock(self.now), ReleaseTimeline(self.plan)
        context = OperationContext(
            timeline=timeline,
            database=self.database,
            stores=StorePool(),
            clock=clock,
            real_clock=clock,
            as_of=self.now,
        )
        done = apply_triggers(open_tick(context, CLUSTER, is_held=is_held))
        self.ticks.append(done)
        return [self.events_of(batch) for batch in done.batches]

    def foresee(self, process: str) -> tuple[int, int] | None:
        """How many batches are foreseen, and how many events of the next tick's; None if it will cut none."""
        record, as_of = self.plan.processes[process, CLUSTER], self.now + timedelta(seconds=1)
        with self.database.read() as connection:
            found = foresee_batches(connection, [record], as_of).get(EntityKey(process, CLUSTER))
        return found and (found.batches, sum(share.count(RangeUse.TAKEN) for share in found.first.shares))

    def events_of(self, batch: ProcessKey) -> list[int]:
        """The numbers of a batch's events."""
        with self.database.read() as connection:
            return sorted(event.seq for each in Batches(connection).events_of(batch) for event in each.events)

    def instances(self, process: str) -> list[ProcessInstance]:
        """The batches of a process, oldest first."""
        with self.database.read() as connection:
            return ProcessInstances(connection).find_between(process, CLUSTER, START, NEVER)

    def end(self, status: ProcessInstanceStatus = ProcessInstanceStatus.SUCCEEDED, retry_at: datetime = NEVER) -> None:
        """End every batch that is ready; one that failed is not tried again, unless a time is given."""
        with self.database.begin() as connection:
            instances = ProcessInstances(connection)
            for process, cluster in self.plan.processes:
                keys = [each.key for each in instances.unended(process, cluster)]
                instances.transition_many(
                    keys, {ProcessInstanceStatus.READY}, status=status, retry_at=retry_at, updated_at=self.now
                )

    def suspend(self, process: str, state: ScheduleState = ScheduleState.SUSPENDED) -> None:
        """Suspend a process, or let it go on."""
        schedule = Schedule(
            kind=Kind.PROCESS.value, name=process, cluster=CLUSTER, state=state, changed_at=self.now, author="ann"
        )
        with self.database.begin() as connection:
            Schedules(connection).put([schedule])

    def marks(self, process: str) -> dict[str, Mark]:
        """The marks of a process by input."""
        with self.database.read() as connection:
            return _marks(connection, process)

    def pending(self, process: str) -> dict[str, list[int]]:
        """The pending events of a process by input of its trigger, from the log; its marks say the same."""
        found = {}
        trigger = self.plan.processes[process, CLUSTER].trigger
        assert trigger is not None
        names = {each.name for each in trigger.inputs}
        with self.database.read() as connection:
            last = EventLog(connection).last_seq()
            for name, mark in _marks(connection, process).items():
                if name not in names:
                    continue
                found[name] = [event.seq for event in Batches(connection).pending(mark, last)]
                assert (mark.pending, mark.first_seq) == (len(found[name]), next(iter(found[name]), None))
        return found

    def passed(self, process: str) -> int:
        """How many events were passed over in ranges."""
        with self.database.read() as connection:
            ranges = Batches(connection).ranges(EntityKey(process, CLUSTER))
        return sum(each.count for each in ranges if each.use is RangeUse.PASSED)

    def follow(self, plan: Plan) -> None:
        """Go on by another plan."""
        self.plan = plan


def _marks(connection: Connection, process: str) -> dict[str, Mark]:
    consumer = EntityKey(process, CLUSTER)
    return {key.input: mark for key, mark in TriggerInputs(connection).of([consumer]).get(consumer, {}).items()}


def sequence(queues: Queues, *steps: Sequence[str]) -> list[list[int]]:
    """Let events come and tick after each group of them; return the events of every batch that was cut."""
    cut: list[list[int]] = []
    for feeds in steps:
        queues.come(*feeds)
        cut += queues.tick()
        queues.end()
    return cut
