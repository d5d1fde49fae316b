"""Signals, processes that take them, and programs that give commands at once, under a real Dagster."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessInstanceStatus
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.triggers.apply_triggers import find_routed
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.changes import QueueChanges
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.triggers.queue.records import InputKey, Mark, QueueAction
from tests.connect_server import ConnectServer
from tests.orchestration.dagster_home import Home, home_on_postgresql, state_of, wait_until
from tests.orchestration.small import START

DATABASES = ("sqlite", "postgres")
VALIDITY = "clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}"
JOBS = """
    import json
    import time
    from pathlib import Path

    from feed_assets.timing.dates import render_datetime

    TRACE = Path(__file__).with_name("trace")

    def take(context):
        time.sleep(SECONDS)
        numbers = sorted(event.number for events in context.events.values() for event in events)
        with TRACE.open("a") as file:
            file.write(json.dumps([context.process, render_datetime(context.nominal_time), numbers]) + chr(10))
"""
"""Each attempt writes down which events it has seen, in one line."""

_PROGRAM = """
import sys
from feed_assets.cli.main import main
for line in sys.stdin:
    try:
        code = main(line.split(), standalone_mode=False)
    except Exception as error:
        code = repr(error)
    print("ended:", code or 0, flush=True)
"""


def signals(*names: str) -> str:
    """Signals on the cluster, as YAML."""
    return "".join(f"\n---\n{{kind: feed, name: {name}, signal: true, {VALIDITY}}}" for name in names)


def taker(name: str, trigger: str, *, parallel: int = 1) -> str:
    """A process that takes what comes, as YAML."""
    workflow = 'workflow: {engine: python, path: "jobs_of_test:take"}'
    return f"\n---\n{{kind: process, name: {name}, parallel: {parallel}, trigger: {trigger}, {workflow}, {VALIDITY}}}"


@contextmanager
def queued_home(folder: Path, database: str, entities: str, *, seconds: float = 0.0) -> Iterator[Home]:
    """A project on a Spark server that all its runs share; its work takes some seconds."""
    with ExitStack() as stack:
        spark = stack.enter_context(ConnectServer(log_file=folder / "connect.log", master="local[1]", root=folder))
        home = Home(folder=folder)
        if database == "postgres":
            home = stack.enter_context(home_on_postgresql(folder))
        cluster = f'kind: cluster\nname: here\nstorage: "file://${{DATA_ROOT}}"\nspark: {{remote: "{spark.url}"}}'
        home.prepare(cluster + entities, JOBS.replace("SECONDS", str(seconds)))
        with closing(state_of(home)) as state:
            state.migrate()
        yield home


@dataclass(frozen=True, slots=True)
class Programs:
    """Programs that give `feed-assets` commands, all at the same time; each command costs no start of Python. They
    answer with their standard output; notes beside it are in `programs.log`.
    """

    started: Sequence[subprocess.Popen[str]]

    def give(self, *commands: str) -> list[str]:
        """Give each command in a program of its own; return what they have said, when all have ended."""
        used = self.started[: len(commands)]
        for program, line in zip(used, commands, strict=True):
            assert program.stdin is not None
            program.stdin.write(f"{line}\n")
            program.stdin.flush()
        return [_answer(program) for program in used]

    def require(self, *commands: str) -> list[str]:
        """The same for commands that succeed."""
        answers = self.give(*commands)
        assert all(answer.endswith("ended: 0\n") for answer in answers), answers
        return [answer.removesuffix("ended: 0\n") for answer in answers]


def _answer(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    said = ""
    for line in program.stdout:
        said += line
        if line.startswith("ended: "):
            return said
    raise AssertionError(f"a program has ended: {said}")


@contextmanager
def programs(home: Home, count: int) -> Iterator[Programs]:
    """Programs in a project, ended with the block."""
    with (home.folder / "programs.log").open("ab") as log:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                cwd=home.folder,
                env=home.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            for _ in range(count)
        ]
    try:
        yield Programs(started)
    finally:
        for program in started:
            program.communicate()


@contextmanager
def reading(home: Home) -> Iterator[Connection]:
    """The state at one moment."""
    with closing(state_of(home)) as database, database.read() as connection:
        yield connection


def is_routed(home: Home) -> bool:
    """Whether a tick has routed all that has come."""
    with reading(home) as connection:
        return find_routed(connection, "here") == EventLog(connection).last_seq()


def marks_of(connection: Connection, process: str) -> dict[InputKey, Mark]:
    """What is pending at each input of a process; nothing until a tick has begun to follow its trigger."""
    consumer = EntityKey(process, "here")
    return TriggerInputs(connection).of([consumer]).get(consumer, {})


def wait_until_followed(home: Home, *processes: str) -> None:
    """Until a tick has begun to follow triggers; what comes before that is history."""

    def is_followed() -> bool:
        with reading(home) as connection:
            return all(marks_of(connection, process) for process in processes)

    wait_until(is_followed, home.log)


def pending(home: Home, process: str) -> int:
    """How many events the next batch of a process may take."""
    with reading(home) as connection:
        return sum(mark.pending for mark in marks_of(connection, process).values())


def statuses(home: Home, process: str) -> list[ProcessInstanceStatus]:
    """The statuses of the batches of a process, the oldest first."""
    with reading(home) as connection:
        return [batch.status for batch in _batches_of(connection, process)]


def events_by_batch(home: Home, process: str) -> dict[str, tuple[int, ...]]:
    """The numbers of the events of each batch, by its time."""
    with reading(home) as connection:
        return {
            render_datetime(batch.nominal_time): tuple(_taken(connection, batch))
            for batch in _batches_of(connection, process)
        }


def seen_by_work(home: Home, process: str) -> list[tuple[str, tuple[int, ...]]]:
    """What each attempt has found in `context.events`, with the time of its batch."""
    file = home.folder / "trace"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(at, tuple(events)) for name, at, events in map(json.loads, lines) if name == process]


def places(home: Home, process: str) -> tuple[Counter[int], list[int]]:
    """How often each event is in a batch, pending, or dropped, as counted from the tables; and the events that were
    routed to the process, from the log.
    """
    with reading(home) as connection:
        routed, marks = find_routed(connection, "here"), marks_of(connection, process).values()
        counted = Counter(seq for batch in _batches_of(connection, process) for seq in _taken(connection, batch))
        for mark in marks:
            counted.update(event.seq for event in Batches(connection).pending(mark, routed))
        changes = QueueChanges(connection).of(EntityKey(process, "here"))
        counted.update(change.event for change in changes if change.action is QueueAction.DROP)
        begun = {mark.feed: mark.start_seq for mark in marks}
        log = EventLog(connection).read(0, routed, begun)
        return counted, [event.seq for event in log if begun[event.feed] < event.seq <= routed]


def _batches_of(connection: Connection, process: str) -> list[ProcessInstance]:
    return ProcessInstances(connection).find_between(process, "here", START, NEVER)


def _taken(connection: Connection, batch: ProcessInstance) -> Iterable[int]:
    return sorted(event.seq for each in Batches(connection).events_of(batch.key) for event in each.events)
