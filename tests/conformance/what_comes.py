"""What comes, and the calls of programs, for the cases about data-driven processes: on a real state database."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from feed_assets.context.operation import OperationContext
from feed_assets.definitions.verbs.schedules import apply_schedules, decide_schedules
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.external_work.calls import (
    CalledBatch,
    InitBatch,
    call_step,
    end_batch,
    init_batch,
    terminate_batch,
)
from feed_assets.external_work.queries import AtWork
from feed_assets.instances.arrival.arrival_notices import Notice, record_notice
from feed_assets.instances.steps.records import StepStatus
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.events import EventLog
from feed_assets.log.records import ProcessKey
from feed_assets.triggers.apply_triggers import apply_triggers
from feed_assets.triggers.queues import QueuedEvent, show_batch, show_queue
from tests.context.contexts import about, context_of
from tests.instances.harness import START, LifecycleHarness, validity

ON = {"primary": validity(START, None)}


def signal(name: str) -> Feed:
    """What comes, with nothing but its coming."""
    return Feed(name=name, signal=True, clusters=ON)


def taking(name: str, when: object, **trigger: object) -> Process:
    """A consumer with a condition."""
    return Process(name=name, clusters=ON, trigger={"when": when, **trigger}, workflow={"path": "jobs:run"})


@dataclass(slots=True)
class Flow:
    """Entities, what comes for them, and the calls of programs; each event and call comes a second after the last."""

    lifecycle: LifecycleHarness
    now: datetime

    def later(self) -> OperationContext:
        """Return the context of a call, a second after the last."""
        self.now += timedelta(seconds=1)
        return context_of(self.lifecycle, self.now)

    def come(self, name: str, time: datetime | None = None, marking: str | None = None) -> None:
        """Give notice of an instance; of a signal, at the present second."""
        notice = Notice(feed=name, nominal_time=time, is_trusted=time is not None, is_again=True, marking=marking)
        record_notice(self.later().by("ann"), notice)

    def tick(self) -> list[ProcessKey]:
        """Return the batches that a tick cuts."""
        self.now += timedelta(seconds=1)
        return list(apply_triggers(self.lifecycle.open_tick(self.now)).batches)

    def taken(self, batch: ProcessKey) -> tuple[QueuedEvent, ...]:
        return about(show_batch, self.later(), batch.process, batch.nominal_time).events

    def pending(self, name: str, input_name: str | None = None) -> list[QueuedEvent]:
        """Return what is pending at a process, or at one of its inputs."""
        events = show_queue(self.later(), name).events
        return [event for event in events if input_name in (None, event.input)]

    def events(self, *names: str) -> int:
        """Return how many events of feeds the log has."""
        with self.lifecycle.database.read() as connection:
            return sum(event.feed in names for event in EventLog(connection).read(0, 1_000))

    def suspend(self, name: str) -> None:
        with self.lifecycle.database.begin() as connection:
            view = load_schedules(connection)
            state = ScheduleState.SUSPENDED
            rows = decide_schedules(view, Kind.PROCESS, name, ["primary"], state, author="ann", now=self.now)
            apply_schedules(connection, view, rows, self.now)

    def init(self, name: str, most: int | None = None) -> InitBatch:
        return init_batch(self.later().by("ann"), name, most=most)

    def work(self, name: str, *steps: str, status: StepStatus = StepStatus.SUCCEEDED) -> None:
        """Begin and end steps."""
        for step in steps:
            call_step(self.later(), AtWork(process=name), step, StepStatus.RUNNING)
            call_step(self.later(), AtWork(process=name), step, status)

    def halt(self, name: str, found: InitBatch, marking: str | None = None) -> CalledBatch:
        """Write the outputs, and end the batch."""
        for output in found.outputs:
            (Path(urlsplit(output.url).path) / "part-0").write_text("made")
        return end_batch(self.later().by("ann"), AtWork(process=name), marking=marking)

    def term(self, name: str) -> CalledBatch:
        return terminate_batch(self.later().by("ann"), AtWork(process=name))


@contextmanager
def flow(*entities: AnyEntity) -> Iterator[Flow]:
    """Entities that have just been declared, and followed by a first tick."""
    with tempfile.TemporaryDirectory() as root:
        found = Flow(LifecycleHarness.of(Path(root), *entities), START + timedelta(days=30))
        found.tick()
        yield found
        found.lifecycle.database.close()
