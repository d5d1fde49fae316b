"""Signals, processes that take them, and programs that give notice at once, under a real Dagster."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from feed_assets.lifecycle.triggers.routing import find_routed
from feed_assets.state.batches import Batches
from feed_assets.state.event_log import EventLog
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.queue_changes import QueueChanges
from feed_assets.state.queue_records import QueueAction
from feed_assets.state.records import EntityKey, ProcessInstance
from feed_assets.state.trigger_inputs import TriggerInputs
from feed_assets.timing.dates import NEVER
from tests.connect_server import ConnectServer
from tests.orchestration.dagster_home import Home, home_on_postgresql, state_of, wait_until
from tests.orchestration.small import START
from tests.orchestration.test_reloading import command

DATABASES = ("sqlite", "postgres")
ON = "clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}"
JOBS = """
    import json
    import time
    from pathlib import Path

    TRACE = Path(__file__).with_name("trace")

    def take(context):
        time.sleep(SECONDS)
        numbers = sorted(event.number for events in context.events.values() for event in events)
        line = json.dumps([context.process, f"{context.nominal_time:%Y-%m-%dT%H:%M:%S}", numbers])
        with TRACE.open("a") as file:
            file.write(line + chr(10))
"""
"""Each attempt writes down which events it has seen, in one line."""

_WRITER = """
import sys
from feed_assets.cli.main import main
for line in sys.stdin:
    try:
        code = main(line.split(), standalone_mode=False)
    except BaseException as error:
        code = repr(error)
    print("done:", code, flush=True)
"""


def signals(names: Iterable[str]) -> str:
    """Signals on the cluster, as YAML."""
    return "".join(f"\n---\n{{kind: feed, name: {name}, signal: true, {ON}}}" for name in names)


def taker(name: str, trigger: str, *, parallel: int = 1) -> str:
    """A process that takes what comes, as YAML."""
    workflow = 'workflow: {engine: python, path: "jobs_of_test:take"}'
    return f"\n---\n{{kind: process, name: {name}, parallel: {parallel}, trigger: {trigger}, {workflow}, {ON}}}"


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
        yield home


@dataclass(frozen=True, slots=True)
class Writers:
    """Programs that give `feed-assets` commands, all at the same time."""

    programs: Sequence[subprocess.Popen[str]]

    def give(self, *commands: str) -> list[str]:
        """Give a command in each program; return what they said, when all are done."""
        for program, line in zip(self.programs, commands, strict=False):
            assert program.stdin is not None
            program.stdin.write(f"{line}\n")
            program.stdin.flush()
        return [_answer(program) for program in self.programs[: len(commands)]]


def _answer(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    said = ""
    for line in program.stdout:
        if line.startswith("done: "):
            return f"{said}{line.removeprefix('done: ')}"
        said += line
    raise AssertionError(f"a program has ended: {said}")


@contextmanager
def writers(home: Home, count: int) -> Iterator[Writers]:
    """Programs in a project, ended with the block."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER],
            cwd=home.folder,
            env=home.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(count)
    ]
    try:
        yield Writers(started)
    finally:
        for program in started:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.close()
            program.wait(60)
            program.stdout.close()


def batches_of(home: Home, process: str) -> list[ProcessInstance]:
    """The batches of a process, oldest first."""
    with closing(state_of(home)) as database, database.read() as connection:
        return ProcessInstances(connection).find_between(process, "here", START, NEVER)


def events_by_batch(home: Home, process: str) -> list[list[int]]:
    """The numbers of the events of each batch, the oldest batch first."""
    with closing(state_of(home)) as database, database.read() as connection:
        rows = ProcessInstances(connection).find_between(process, "here", START, NEVER)
        found = [Batches(connection).events_of(row.key) for row in rows]
    return [sorted(event.seq for each in taken for event in each.events) for taken in found]


def seen_by_work(home: Home, process: str) -> list[tuple[str, list[int]]]:
    """What each attempt has found in `context.events`, by the name of its batch."""
    file = home.folder / "trace"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(at, events) for name, at, events in map(json.loads, lines) if name == process]


def places(home: Home, process: str, *feeds: str) -> tuple[Counter[int], list[int]]:
    """How often each routed event of some feeds is in a batch, pending, or dropped; and those events, from the log."""
    consumer = EntityKey(process, "here")
    counted: Counter[int] = Counter()
    with closing(state_of(home)) as database, database.read() as connection:
        routed = find_routed(connection, "here")
        marks = TriggerInputs(connection).of([consumer]).get(consumer, {})
        begun = {mark.feed: mark.start_seq for mark in marks.values()}
        log = [event for event in EventLog(connection).read(0, 1_000_000) if event.feed in feeds]
        due = [event.seq for event in log if begun[event.feed] < event.seq <= routed]
        for row in ProcessInstances(connection).find_between(process, "here", START, NEVER):
            counted.update(event.seq for each in Batches(connection).events_of(row.key) for event in each.events)
        for mark in marks.values():
            counted.update(event.seq for event in Batches(connection).pending(mark, routed))
        changes = QueueChanges(connection).of(consumer)
        counted.update(change.event for change in changes if change.action is QueueAction.DROP)
    return counted, due


def wait_until_followed(home: Home, process: str) -> None:
    """Until a tick has begun to follow the trigger of a process; what comes before that is history."""
    command(home, "queue", "list")  # makes the tables
    consumer = EntityKey(process, "here")

    def is_followed() -> bool:
        with closing(state_of(home)) as database, database.read() as connection:
            return bool(TriggerInputs(connection).of([consumer]).get(consumer))

    wait_until(is_followed, home.log)
