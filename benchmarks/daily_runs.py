"""(c) Thirty ready daily instances through the real daemon, against the same Spark work in a plain loop. Both are timed
from the arrival of the data, including the session start, to the last written day. Daemon and code server run before
that, as in production; the data appears by one rename. Each run starts its Spark (cold), or uses the server that the
cluster keeps (warm). On the warm server, single days land before, one after the success of the other.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo

from benchmarks.jobs import COLUMNS
from benchmarks.probes import ROOT, ProbeError, run_probe, say
from benchmarks.report import Figure, Part, Scale, slower, within
from examples.flights.landing import read_deliveries
from feed_assets.clock import SystemClock
from feed_assets.scaffolding.projects import read_dagster_yaml

AT_MOST, AT_MOST_WARM = 2.0, 1.2
DAYS = 30
LANDED_AT_MOST = 8.0
COLD, WARM = "master", "connect"
"""The address of Spark in the cluster."""
START = datetime(2013, 10, 1, 4, tzinfo=UTC)
"""Midnight in New York."""
PATIENCE_SECONDS = 600
REPLAY = {
    "FEED_ASSETS_DEMO__REPLAY__ORIGIN": datetime(2013, 12, 3, tzinfo=UTC).isoformat(),
    "FEED_ASSETS_DEMO__REPLAY__SPEED": "20000",
}
"""On this clock a missing day of a month ago is polled every second; in real time, every six hours."""

_ENTITIES = """\
kind: cluster
name: primary
colo: here
storage: file://${{DATA_ROOT}}
spark: {{{spark}: "local[2]", conf: {{spark.sql.shuffle.partitions: "2"}}}}
---
kind: feed
name: flights
frequency: days(1)
timezone: America/New_York
format: csv
options: {{nullValue: NA}}
schema: "{columns}"
availability_flag: _SUCCESS
locations: {{data: "/flights/${{YEAR}}-${{MONTH}}-${{DAY}}"}}
clusters:
  primary:
    type: source
    validity: {{start: {start}, end: {end}}}
    retention: {{limit: months(1188), action: delete}}
---
kind: feed
name: airlines
frequency: days(1)
timezone: America/New_York
format: parquet
availability_flag: _SUCCESS
locations: {{data: "/airlines/${{YEAR}}-${{MONTH}}-${{DAY}}"}}
clusters:
  primary:
    type: source
    validity: {{start: {start}, end: {end}}}
    retention: {{limit: months(1188), action: delete}}
---
kind: process
name: by-airline
frequency: days(1)
timezone: America/New_York
timeout: months(1188)
clusters: {{primary: {{validity: {{start: {start}, end: {end}}}}}}}
inputs:
  flights: {{feed: flights, start: "today(0,0)", end: "today(0,0)"}}
outputs:
  airlines: {{feed: airlines, instance: "today(0,0)"}}
workflow: {{engine: python, path: "benchmarks.jobs:by_airline"}}
"""


def measure_runs(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure the daemon, cold and warm, and the loop, in turn; a tiny run leaves out the cold one."""
    days, repeats, singles = scale.choose((DAYS, 3, 8), (DAYS, 1, 6), (2, 1, 2))
    flights = [delivery for delivery in read_deliveries() if delivery.path.startswith("flights/")]
    for delivery in flights[:days]:
        delivery.land(folder.as_uri())
    source = folder / "flights"
    cold, warm, theirs = [], [], []
    landings: list[Mapping[str, float]] = []
    for number in range(repeats):
        say(f"runs: {days} daily instances through the daemon and in a loop, round {number + 1} of {repeats}")
        if scale is not Scale.TINY:
            cold.append(_through_daemon(folder / f"cold-{number}", source, days, COLD)[0])
        seconds, found = _through_daemon(folder / f"warm-{number}", source, days, WARM, singles)
        warm.append(seconds)
        landings += found[1:]  # the first one started the server
        theirs.append(_in_loop(source, folder / f"loop-{number}", days))
    for each, what, at_most in (
        (cold, "each run starts Spark", AT_MOST),
        (warm, "on the warm server of the cluster", AT_MOST_WARM),
    ):
        if not each:
            continue
        yield slower(
            Part.RUNS,
            f"{days} ready daily instances through the daemon, {what}, from the data's arrival to the last publication",
            median(each),
            "a plain PySpark loop in one process, from its start to its end",
            median(theirs),
            at_most=at_most,
            note="the loop with the start of a Spark session; ours with the waits for sensor, queue and worker start",
        )
    yield within(
        Part.RUNS,
        f"one day from its arrival to its success, on the warm server, median of {len(landings)}",
        median(sum(each.values()) for each in landings),
        at_most=LANDED_AT_MOST,
        note=", ".join(f"until {name} {median(each[name] for each in landings):.1f} s" for name in _MOMENTS),
    )


def _in_loop(source: Path, target: Path, days: int) -> float:
    begun = time.perf_counter()
    result = run_probe("plain_spark", source, target)
    seconds = time.perf_counter() - begun
    assert result["days"] == days
    return seconds


def _through_daemon(
    folder: Path, source: Path, days: int, spark: str, singles: int = 0
) -> tuple[float, list[Mapping[str, float]]]:
    """Let single days land, each after the success of the one before, and then `days` at once.

    Returns:
        The seconds until all of `days` are published, and those of each single day from moment to moment.
    """
    with _project(folder, singles + days, spark) as (data, daemon):
        landings: list[Mapping[str, float]] = []
        for number in range(singles):
            _copy_day(source, data, number).rename(data / "flights" / _name(number))
            landings.append(_follow(folder / "home", daemon, _day(number)))
        copies = [_copy_day(source, data, singles + number) for number in range(days)]
        begun = time.perf_counter()
        for number, copy in enumerate(copies):
            copy.rename(data / "flights" / _name(singles + number))
        _wait(folder / "home", daemon, "status = 'SUCCEEDED'", singles + days)
        return time.perf_counter() - begun, landings


def _copy_day(source: Path, data: Path, number: int) -> Path:
    """Copy a day beside its place; there may be more days than the source has."""
    days = sorted(source.iterdir())
    return Path(shutil.copytree(days[number % len(days)], data / f".{_name(number)}"))


def _name(number: int) -> str:
    return f"{_day(number):%Y-%m-%d}"


def _day(number: int) -> datetime:
    """Return a day's midnight in New York."""
    return START.astimezone(ZoneInfo("America/New_York")) + timedelta(days=number)


_MOMENTS = {
    "seen": "status <> 'WAITING'",
    "requested": "request_key IS NOT NULL",
    "its run works": "status IN ('RUNNING', 'SUCCEEDED')",
    "published": "status = 'SUCCEEDED'",
}


def _follow(home: Path, daemon: "subprocess.Popen[bytes]", day: datetime) -> dict[str, float]:
    """Return the seconds from each moment of an instance to the next, the first one from now."""
    seconds: dict[str, float] = {}
    before = time.perf_counter()
    for name, condition in _MOMENTS.items():
        _wait(home, daemon, f"{condition} AND nominal_time = {int(day.timestamp()) * 1_000_000}", 1)
        now = time.perf_counter()
        seconds[name], before = now - before, now
    return seconds


@contextmanager
def _project(folder: Path, days: int, spark: str) -> "Iterator[tuple[Path, subprocess.Popen[bytes]]]":
    """Run the daemon on a project without data, and yield the folder of the data when all instances wait."""
    home, data = folder / "home", folder / "data"
    home.mkdir(parents=True)
    (data / "flights").mkdir(parents=True)
    (home / "dagster.yaml").write_text(read_dagster_yaml(is_postgres=False), "utf-8")
    end = START + timedelta(days=days)
    (folder / "entities.yaml").write_text(
        _ENTITIES.format(columns=COLUMNS, spark=spark, start=f"{START:%Y-%m-%dT%H:%MZ}", end=f"{end:%Y-%m-%dT%H:%MZ}")
    )
    environ = {
        "DAGSTER_HOME": str(home),
        "FEED_ASSETS_ENTITIES": str(folder / "entities.yaml"),
        "FEED_ASSETS_VARIABLES__DATA_ROOT": str(data),
        "FEED_ASSETS_DEMO__REPLAY__REAL_START": SystemClock().now().isoformat(),
        **REPLAY,
    }
    with _daemon(folder, environ) as daemon:
        _wait(home, daemon, "status = 'WAITING'", days)
        yield data, daemon


@contextmanager
def _daemon(folder: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the daemon with its code server; both end as one group."""
    command = [sys.executable, "-m", "dagster._daemon", "run", "-w", "workspace.yaml"]
    with (folder / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield daemon
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(daemon.pid, number)
                daemon.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def _wait(home: Path, daemon: subprocess.Popen[bytes], condition: str, days: int) -> None:
    """Wait until the condition holds for all process instances.

    Raises:
        ProbeError: a time limit is exceeded, an instance failed, or the daemon ended.
    """
    file = home / "feed_assets.db"
    counts = f"count(*) FILTER (WHERE {condition}), count(*) FILTER (WHERE status = 'FAILED')"
    end = time.monotonic() + PATIENCE_SECONDS
    found = failed = 0
    while time.monotonic() < end:
        if file.exists():
            try:
                with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
                    found, failed = connection.execute(f"SELECT {counts} FROM fa_process_instances").fetchone()
            except sqlite3.OperationalError:
                found = failed = 0  # its tables do not exist yet
        if found == days:
            return
        if failed or daemon.poll() is not None:
            break
        time.sleep(0.02)
    raise ProbeError(f"{found} of {days} instances with {condition}, {failed} failed; see {home.parent / 'daemon.log'}")
