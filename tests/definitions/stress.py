"""Processes that change a store at random, and somebody who kills them at random."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path

from feed_assets.definitions.edits import Edit, Put, Remove
from feed_assets.entities.errors import DefinitionsError
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import ChangeState
from feed_assets.log.definitions.store import Definitions
from feed_assets.sql.database import open_database
from tests.definitions.harness import NOW, DefinitionsHarness, feed_text
from tests.definitions.workers import FORK

KINDS = ("cluster", "feed", "process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many processes change how many entities for how long."""

    processes: int
    entities: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> "Size":
        """`processes,entities,seconds`."""
        processes, entities, seconds = text.split(",")
        return cls(processes=int(processes), entities=int(entities), seconds=float(seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What happened, and what the checker says of the store that is left."""

    kills: int
    finished_by_others: int
    lost: tuple[str, ...]
    refused_but_made: tuple[str, ...]
    states: dict[str, int]
    actions: dict[str, int]
    entities: int
    problems: tuple[str, ...]
    check_seconds: float

    def render(self) -> str:
        return (
            f"{self.kills} kills; {self.finished_by_others} changes finished by others; changes {self.states}; "
            f"versions {self.actions}; {self.entities} entities left; "
            f"{len(self.problems)} problems; checked in {self.check_seconds:.1f} s"
        )


def run(url: str, location: str, folder: Path, size: Size, seed: int) -> Outcome:
    """Begin with half of the entities, a tenth of them in files of ten; then let the processes loose."""
    harness = DefinitionsHarness(database=open_database(url), location=location)
    _sow(harness, size)
    chance = random.Random(seed)
    harness.store.load(NOW)  # forked workers need not parse everything anew
    workers = {number: _started(harness, folder, size, number, 0) for number in range(size.processes)}
    kills = 0
    ends_at = time.monotonic() + size.seconds
    while time.monotonic() < ends_at:
        time.sleep(chance.uniform(0.02, 0.6))
        number = chance.choice(list(workers))
        assert workers[number].exitcode is None, "a worker ended by itself"
        _kill(workers[number])
        kills += 1
        workers[number] = _started(harness, folder, size, number, kills)
    for worker in workers.values():
        _kill(worker)
    begun = time.monotonic()
    harness.recover()
    problems = harness.problems()
    seconds = time.monotonic() - begun
    with harness.database.read() as connection:
        changes = Changes(connection).all()
        versions = Definitions(connection).all()
    made = {change.change_id for change in changes if change.state is ChangeState.DONE}
    origins = {change.origin for change in changes}
    return Outcome(
        kills=kills,
        finished_by_others=sum(change.ended_at != change.begun_at for change in changes),
        lost=tuple(sorted(_acknowledged(folder, "made") - made)),
        refused_but_made=tuple(sorted(_acknowledged(folder, "refused") & origins)),
        states=dict(Counter(change.state.value for change in changes)),
        actions=dict(Counter(version.action.value for version in versions)),
        entities=len(harness.store.load(NOW).documents),
        problems=tuple(problems),
        check_seconds=seconds,
    )


def _kill(worker: BaseProcess) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()


def _sow(harness: DefinitionsHarness, size: Size) -> None:
    shared: list[str] = []
    for number in range(0, size.entities, 2):
        if number % 20 == 0:
            shared.append(_text(number, 1, "from the beginning"))
        else:
            harness.write(f"{KINDS[number % 3]}/e{number}.yaml", _text(number, 1, ""))
    for place in range(0, len(shared), 10):
        harness.write(f"shared/{place}.yaml", "# several\n---\n" + "---\n".join(shared[place : place + 10]))
    harness.store.record_found(NOW, "the beginning")


def _started(harness: DefinitionsHarness, folder: Path, size: Size, number: int, life: int) -> BaseProcess:
    arguments = (harness, folder / f"{number}-{life}", size.entities, f"{number}.{life}")
    worker = FORK.Process(target=work, args=arguments, daemon=True)
    worker.start()
    return worker


def work(harness: DefinitionsHarness, log: Path, entities: int, name: str) -> None:
    """Change the store at random, and note each change that was made or refused; until killed."""
    chance = random.Random(name)
    with log.open("a") as notes:
        for turn in range(1_000_000):
            origin = f"{name} {turn}"
            refuses = chance.random() < 0.1

            def check(_before: LoadedBundle, _after: LoadedBundle, refuses: bool = refuses) -> None:
                if refuses:
                    raise DefinitionsError(location="here", reason="refused")

            try:
                change = harness.store.change(
                    list(_edits(chance, entities)),
                    author=name,
                    origin=origin,
                    now=datetime.now(UTC),
                    check=check,
                )
            except DefinitionsError as exc:
                if exc.reason != "refused":
                    raise
                notes.write(f"refused\t{origin}\n")
            else:
                if change is not None:
                    notes.write(f"made\t{change.change_id}\n")
            notes.flush()


def _edits(chance: random.Random, entities: int) -> Iterator[Edit]:
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        number = chance.randrange(entities)
        if chance.random() < 0.3:
            yield Remove(key=(KINDS[number % 3], f"e{number}"))
        else:
            yield Put(text=_text(number, chance.randrange(1, 9), chance.choice(("", "a", "b"))))


def _text(number: int, hours: int, comment: str) -> str:
    name = f"e{number}"
    head = f"# {comment}\n" if comment else ""
    match KINDS[number % 3]:
        case "cluster":
            return f"{head}kind: cluster\nname: {name}\nstorage: file:///data/{hours}\n"
        case "feed":
            return feed_text(name, hours, comment)
        case _:
            return (
                f"{head}kind: process\nname: {name}\nfrequency: hours({hours})\n"
                "clusters: {e0: {validity: {start: 2015-01-01T00:00Z}}}\n"
                'inputs: {one: {feed: e1, start: "now(0,0)", end: "now(0,0)"}}\n'
                "workflow: {engine: python, path: a:b}\n"
            )


def _acknowledged(folder: Path, kind: str) -> set[str]:
    lines = (line.split("\t") for log in folder.iterdir() for line in log.read_text().splitlines())
    return {line[1] for line in lines if line[0] == kind and len(line) == 2}
