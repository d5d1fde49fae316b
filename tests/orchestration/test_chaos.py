"""`dagster dev` as it is shipped, its processes killed at random while data arrive: everything that arrived is made,
once and whole.

`FEED_ASSETS_SEED` repeats the choices of one (not what the machine makes of them). Spark is one Connect server, so that
a run is short and the kills meet many.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from dagster import DagsterInstance

from feed_assets.clock import SystemClock
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import Attempt, ProcessInstanceStatus, ProcessKey
from feed_assets.storage.local.store import LocalStore
from tests.connect_server import ConnectServer
from tests.drills import drill_seed
from tests.orchestration.dagster_home import Home, materialized, sqlite_state
from tests.orchestration.dev_server import DevServer, Role, dev_server
from tests.orchestration.small import CLUSTER, NUMBERS, START, SUMMING, SUMS, key, land, total

SECONDS = 600.0
SETTLING_SECONDS = 900.0 + SECONDS
"""A worker that died before it began is given up by Dagster after 180 s (`start_timeout_seconds`); then what has piled
up must be done, on a machine that may have little time for it."""

pytestmark = [
    pytest.mark.drill,
    pytest.mark.daemon,
    pytest.mark.spark,
    pytest.mark.server,
    pytest.mark.timeout(int(SECONDS + SETTLING_SECONDS + 300)),
]

HOURS = 31 * 24
HOURS_A_SECOND = 0.5
EVERY = 24
"""Hours are landed in blocks of a day, in any order, and some of them never."""
MISSING = 0.03

DAYS = SUMS.replace("sums", "days").replace("hours(1)", "days(1)").replace("/${HOUR}", "")
ADDING = """
    kind: process
    name: adding
    frequency: days(1)
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-02-01T00:00Z}}}
    inputs: {sums: {feed: sums, start: "today(0,0)", end: "today(23,0)"}}
    outputs: {days: {feed: days, instance: "now(0,0)"}}
    workflow: {engine: python, path: "jobs_of_test:adding"}
    timeout: months(1200)
"""
ENTITIES = (
    "    ---".join((CLUSTER, NUMBERS, SUMS, DAYS, SUMMING, ADDING))
    .replace('{master: "local[1]", conf: {spark.sql.shuffle.partitions: "1"}}', '{remote: "${SPARK}"}')
    .replace("2026-01-02T", "2026-02-01T")
    .replace("name: summing\n", "name: summing\n    parallel: 2\n")
    .replace("months(60)", "months(1200)")
)

JOBS = """
    import fcntl
    import os
    from pathlib import Path

    from pyspark.sql import functions as f

    TRACE = Path(__file__).parent / "trace"
    held = {}

    def alone(name, context):
        # Held until this worker begins another instance or is gone, however it goes.
        held.clear()
        file = held["file"] = (TRACE / f"{name}-{context.nominal_time:%Y%m%d%H}").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (TRACE / "together").open("a").write(f"{name} {context.nominal_time} {os.getpid()}\\n")
        file.write(f"{os.getpid()} {context.run_id}\\n")
        file.flush()

    def summing(numbers, context):
        alone("summing", context)
        return numbers.agg(f.sum("n").alias("total"))

    def adding(sums, context):
        alone("adding", context)
        return sums.agg(f.sum("total").alias("total"))
"""


@dataclass(slots=True)
class Chaos:
    """What arrives and who dies, by chance."""

    home: Home
    server: DevServer
    chance: random.Random
    landed: set[int] = field(default_factory=set)
    killed: Counter[str] = field(default_factory=Counter)
    _due: list[int] = field(default_factory=list)
    _day: int = 0

    def live(self, seconds: float) -> None:
        """Let data arrive, kill, and look after what was killed."""
        end = time.monotonic() + seconds
        landing = service = time.monotonic()
        worker: float | None = None
        while (now := time.monotonic()) < end:
            if now >= landing:
                self.land_one()
                landing = now + self.chance.expovariate(HOURS_A_SECOND)
            alive = self.server.processes()
            if now >= service:
                self.kill_service(alive)
                service = now + self.chance.uniform(40, 110)
            worker = self.kill_worker(alive[Role.WORKER], worker)
            self.server.revive()
            time.sleep(0.1)

    def land_one(self) -> None:
        """The next hour of the day in a random order, unless it never comes."""
        if not self._due and self._day * EVERY < HOURS:
            hours = range(self._day * EVERY, (self._day + 1) * EVERY)
            is_whole = self.chance.random() < 0.5
            self._due = [hour for hour in hours if is_whole or self.chance.random() > MISSING]
            self.chance.shuffle(self._due)
            self._day += 1
        if self._due:
            hour = self._due.pop()
            land(self.home.data, hour, hour, 100)
            self.landed.add(hour)

    def kill_worker(self, alive: Sequence[int], due: float | None) -> float | None:
        """A run worker, a few seconds after there is one. Returns when the next is due."""
        if not alive:
            return None
        if due is None:
            return time.monotonic() + self.chance.uniform(0, 25)
        if time.monotonic() < due:
            return due
        self.killed[Role.WORKER.value] += self.server.kill(self.chance.choice(alive))
        return None

    def kill_service(self, alive: Mapping[Role, Sequence[int]]) -> None:
        """The daemon, a process of the code server, or all that there is."""
        roles = [role for role in (Role.DAEMON, Role.CODE_SERVER, Role.MAIN) if alive[role]]
        role = self.chance.choice(roles) if roles else None
        if role is Role.MAIN:
            self.server.kill_all()
            self.killed["everything at once"] += 1
        elif role is not None and self.server.kill(self.chance.choice(alive[role])):
            self.killed[role.value] += 1

    def finish_day(self) -> None:
        """What has begun to arrive arrives."""
        while self._due:
            self.land_one()


def test_whoever_is_killed_everything_that_arrived_is_made_once_and_whole(tmp_path: Path) -> None:
    seed = drill_seed()
    with ConnectServer(log_file=tmp_path / "connect.log", master="local[2]", root=tmp_path) as spark:
        home = Home(folder=tmp_path, settings={"FEED_ASSETS_VARIABLES__SPARK": spark.url, **_fast_clock()})
        home.prepare(ENTITIES, JOBS)
        (tmp_path / "trace").mkdir()
        with home.instance() as instance, dev_server(home) as server:
            chaos = Chaos(home=home, server=server, chance=random.Random(seed))
            chaos.live(SECONDS)
            chaos.finish_day()
            began = time.monotonic()
            _settle(chaos, instance, seed)
            settled = time.monotonic() - began
            _require_single(home, instance)
            counts = {name: _summary(home, name) for name in ("summing", "adding")}
    _require_content(home, chaos.landed)
    days = _whole_days(chaos.landed)
    assert counts["summing"] == _without_nothing(SUCCEEDED=len(chaos.landed), WAITING=HOURS - len(chaos.landed))
    assert counts["adding"] == _without_nothing(SUCCEEDED=len(days), WAITING=HOURS // 24 - len(days))
    print(
        f"seed {seed}: {SECONDS:g} s of chaos, settled {settled:.0f} s later; killed {dict(chaos.killed)}, started "
        f"{server.started} times; {len(chaos.landed)} hours and {len(days)} days made in "
        f"{sum(1 for _ in _attempts(home))} attempts"
    )


def _settle(chaos: Chaos, instance: DagsterInstance, seed: int) -> None:
    """Nobody is killed any more: wait until Dagster shows all that can be made."""
    hours, days = {key(hour) for hour in chaos.landed}, {f"{day:%Y-%m-%d}" for day in _whole_days(chaos.landed)}
    end = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < end:
        chaos.server.revive()
        shown = materialized(instance, "here", "sums"), materialized(instance, "here", "days")
        if shown == (hours, days) and not _open(chaos.home):
            return
        _require_whole(chaos.home)
        time.sleep(1)
    lacking = sorted(hours - shown[0]), sorted(days - shown[1])
    raise AssertionError(f"seed {seed}, killed {chaos.killed}, lacking {lacking}, open {_open(chaos.home)}")


def _open(home: Home) -> list[str]:
    """Instances that are about to run or run."""
    names = (ProcessInstanceStatus.READY.value, ProcessInstanceStatus.RUNNING.value)
    with closing(sqlite_state(home)) as database, database.read() as connection:
        rows = connection.exec_driver_sql(
            f"SELECT process || ' ' || nominal_time || ' ' || status FROM fa_process_instances WHERE status IN {names}"
        )
        return [str(row[0]) for row in rows]


def _require_single(home: Home, instance: DagsterInstance) -> None:
    """No instance was ever worked at by two: not as the workers saw it, nor in the record, nor in Dagster's runs."""
    together = home.folder / "trace" / "together"
    assert not together.exists(), together.read_text()
    records = {record.dagster_run.run_id: record for record in instance.get_run_records()}
    for attempts in _attempts_by_key(home):
        succeeded = [each for each in attempts if each.status is ProcessInstanceStatus.SUCCEEDED]
        assert succeeded == attempts[-1:], attempts
        for earlier, later in pairwise(attempts):
            assert earlier.ended_at is not None, earlier
            assert earlier.ended_at <= later.started_at, (earlier, later)
            before, after = records[earlier.run_id or ""], records[later.run_id or ""]
            assert before.end_time is not None, before
            assert before.end_time <= after.create_timestamp.timestamp(), (earlier, later)


def _attempts_by_key(home: Home) -> Iterator[list[Attempt]]:
    keys = [ProcessKey("summing", "here", START + timedelta(hours=hour)) for hour in range(HOURS)]
    keys += [ProcessKey("adding", "here", START + timedelta(days=day)) for day in range(HOURS // 24)]
    with closing(sqlite_state(home)) as database, database.read() as connection:
        yield from Attempts(connection).of_many(keys).values()


def _attempts(home: Home) -> Iterator[Attempt]:
    for attempts in _attempts_by_key(home):
        yield from attempts


def _require_whole(home: Home) -> None:
    """Whatever a consumer can see of an output is an instance that agrees with its manifest."""
    store = LocalStore(home.data)
    for folder in (*(home.data / "sums").glob("*/*"), *(home.data / "days").glob("*")):
        path = str(folder.relative_to(home.data))
        published = store.published_manifest(path)
        assert published is not None, path
        assert store.manifest(path, "_SUCCESS").digest == published.digest, path


def _require_content(home: Home, landed: set[int]) -> None:
    """The outputs are those of the inputs, no more and no fewer."""
    _require_whole(home)
    assert {hour: total(home.data, hour) for hour in landed} == {hour: hour + 100 for hour in landed}
    assert len(list((home.data / "sums").glob("*/*"))) == len(landed)
    days = _whole_days(landed)
    made = {folder.name: _total_of_day(folder) for folder in (home.data / "days").glob("*")}
    assert made == {f"{day:%Y-%m-%d}": sum(range(first, first + 24)) + 2400 for day, first in days.items()}


def _total_of_day(folder: Path) -> int:
    (part,) = folder.glob("part-*.csv")
    _, value = part.read_text().split()
    return int(value)


def _whole_days(landed: set[int]) -> dict[datetime, int]:
    """The days of which all hours have landed, with their first hours."""
    firsts = (day * 24 for day in range(HOURS // 24) if landed.issuperset(range(day * 24, day * 24 + 24)))
    return {START + timedelta(hours=first): first for first in firsts}


def _summary(home: Home, process: str) -> dict[str, int]:
    """What `feed-assets instance summary` says."""
    command = ["instance", "summary", "process", process, "--start", "2026-01-01T00:00Z", "--end", "2026-02-01T00:00Z"]
    done = subprocess.run(
        [sys.executable, "-c", "from feed_assets.cli.main import main; main()", *command, "--output", "json"],
        cwd=home.folder,
        env=home.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (cluster,) = json.loads(done.stdout)["clusters"]
    counts: dict[str, int] = cluster["counts"]
    return _without_nothing(**counts)


def _without_nothing(**counts: int) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _fast_clock() -> dict[str, str]:
    """In real time an hour of last winter that is missing is looked at again after hours; here within a second."""
    prefix = "FEED_ASSETS_DEMO__REPLAY__"
    now = SystemClock().now().isoformat()
    return {prefix + "ORIGIN": "2026-02-20T00:00:00Z", prefix + "REAL_START": now, prefix + "SPEED": "20000"}
