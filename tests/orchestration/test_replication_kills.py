"""Replication by the real daemon, with a reader at the target who looks all the time, and kills of all that works: the
process of the run, its Java machine, the Python workers on its executors.

`FEED_ASSETS_SEED` repeats the choices of one.
"""

import hashlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from feed_assets.clock import SystemClock
from feed_assets.storage.local.store import LocalStore
from tests.drills import drill_seed
from tests.orchestration.dagster_home import Home, materialized, wait_until
from tests.orchestration.small import START, key
from tests.orchestration.test_replication import HERE
from tests.orchestration.workers import worker_of

KILLS, COPIES = 40, 200
pytestmark = [
    pytest.mark.drill,
    pytest.mark.daemon,
    pytest.mark.spark,
    pytest.mark.server,
    pytest.mark.timeout(7200),
]
AT_ONCE = 20
FILES = 200
"""So many instances of so many files are worth executors of Spark."""
FIRST_LIFE = 5.0
"""Seconds within which the first run is killed; later ones are killed within the time that runs have taken."""
KILLS_IN_A_ROW = 3
"""Fewer than the deaths after which an instance is given up."""
LOOKS_A_SECOND = 1000


def path_of(hour: int) -> str:
    at = START + timedelta(hours=hour)
    return f"numbers/{at:%Y-%m-%d}/{at:%H}"


def content(hour: int, number: int) -> bytes:
    """What a file of an hour holds: no two are alike."""
    return hashlib.sha256(f"{hour}/{number}".encode()).digest() * 128


def land_files(data: Path, hour: int) -> None:
    folder = data / path_of(hour)
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"part-{number}.csv").write_bytes(content(hour, number))
    (folder / "_SUCCESS").touch()


@dataclass(slots=True)
class Reader:
    """Looks at instances of the target at random, as consumers do who do not ask anybody."""

    root: Path
    hours: int = 0
    looks: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @contextmanager
    def reading(self) -> Iterator["Reader"]:
        ended = threading.Event()
        thread = threading.Thread(target=self._look_until, args=(ended,))
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _look_until(self, ended: threading.Event) -> None:
        chance, due = random.Random(0), time.monotonic()
        while not ended.is_set():
            if self.hours:
                self._look(chance.randrange(max(0, self.hours - AT_ONCE), self.hours), chance)
            due = max(due + 1 / LOOKS_A_SECOND, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))

    def _look(self, hour: int, chance: random.Random) -> None:
        self.looks += 1
        folder = self.root / path_of(hour)
        try:
            names = {name for name in os.listdir(folder) if not name.startswith(".")}  # noqa: PTH208 - one call
        except FileNotFoundError:
            self.seen["nothing"] += 1
            return
        expected = {"_SUCCESS", *(f"part-{number}.csv" for number in range(FILES))}
        number = chance.randrange(FILES)
        if names != expected:
            self.wrong.append(f"{path_of(hour)} has {sorted(names)}")
        elif (folder / f"part-{number}.csv").read_bytes() != content(hour, number):
            self.wrong.append(f"{path_of(hour)}/part-{number}.csv is not whole")
        self.seen["whole"] += 1


def test_a_reader_sees_no_part_of_a_replica_whoever_is_killed(tmp_path: Path) -> None:
    seed = drill_seed()
    chance = random.Random(seed)
    home = Home(folder=tmp_path, settings=fast_clock())
    home.prepare(HERE.replace("2026-01-02T00:00Z", "2026-03-01T00:00Z"), "")
    reader = Reader(root=tmp_path / "data-there")
    killed: Counter[str] = Counter()
    in_a_row = 0
    with home.instance() as instance, home.daemon(), reader.reading():
        while sum(killed.values()) < KILLS or reader.hours < COPIES:
            if len(materialized(instance, "there", "numbers")) == reader.hours:
                in_a_row = 0
                for hour in range(reader.hours, reader.hours + AT_ONCE):
                    land_files(home.data, hour)
                reader.hours += AT_ONCE
            if sum(killed.values()) >= KILLS or in_a_row == KILLS_IN_A_ROW:
                time.sleep(0.2)
                continue
            what = kill_something(instance, chance)
            if what:
                killed[what] += 1
                in_a_row += 1
        wanted = {key(hour) for hour in range(reader.hours)}
        wait_until(
            lambda: materialized(instance, "there", "numbers") == wanted,
            lambda: f"seed {seed}\n{home.log()[-5000:]}",
        )
    print(f"seed {seed}: {reader.looks} looks, {dict(reader.seen)}, {dict(killed)} killed, {reader.hours} copies")
    assert reader.wrong == [], f"seed {seed}"
    assert reader.seen["whole"] > 0
    sides = [LocalStore(root) for root in (home.data, reader.root)]
    for hour in range(reader.hours):
        here, there = (store.manifest(path_of(hour), "_SUCCESS") for store in sides)
        assert here.digest == there.digest, f"seed {seed}: {path_of(hour)}"
    assert sides[1].published_manifest(path_of(0)) is not None


def fast_clock() -> dict[str, str]:
    """In real time a failed copy is tried again after five minutes; here at once."""
    prefix = "FEED_ASSETS_DEMO__REPLAY__"
    now = SystemClock().now().isoformat()
    return {prefix + "ORIGIN": "2026-02-20T00:00:00Z", prefix + "REAL_START": now, prefix + "SPEED": "2000"}


def kill_something(instance: DagsterInstance, chance: random.Random) -> str | None:
    """Let a run live for a while, and kill a part of it; what it was, None if nothing was there."""
    worker = worker_of(instance, "numbers@here")
    if worker is None or not Path(f"/proc/{worker}").exists():
        time.sleep(0.2)
        return None
    time.sleep(chance.uniform(0, life_of_runs(instance)))
    what = chance.choice(["run", "java", "python worker"])
    machines = [pid for pid in children(worker) if is_called(pid, "java")]
    python = [below for pid in machines for below in descendants(pid) if is_called(below, "python")]
    victims = {"run": [worker], "java": machines, "python worker": python}[what]
    for victim in victims[:1]:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return what
    return None


def life_of_runs(instance: DagsterInstance) -> float:
    """The seconds that the newest runs took which nobody has killed, at the most."""
    ended = RunsFilter(tags={"feed_assets/process": "numbers@here"}, statuses=[DagsterRunStatus.SUCCESS])
    records = instance.get_run_records(ended, limit=5)
    return max(
        (each.end_time - each.start_time for each in records if each.start_time and each.end_time), default=FIRST_LIFE
    )


def children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            found.append(int(folder.name))
    return found


def descendants(parent: int) -> list[int]:
    found = children(parent)
    return [*found, *(below for each in found for below in descendants(each))]


def is_called(pid: int, word: str) -> bool:
    try:
        return word in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return False
