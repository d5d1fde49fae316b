"""(c) Thirty ready daily instances through the real daemon, against the same Spark work in a plain loop. Both are timed
from the arrival of the data, including the session start, to the last written day. Daemon and code server run before
that, as in production; the data appears by one rename.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.jobs import COLUMNS
from benchmarks.probes import ROOT, ProbeError, run_probe, say
from benchmarks.report import Figure, Part, Scale, slower
from examples.flights.landing import read_deliveries
from feed_assets.clock import SystemClock
from feed_assets.operations.scaffolding.files import read_dagster_yaml

AT_MOST = 2.0
DAYS = 30
START = datetime(2013, 11, 1, 4, tzinfo=UTC)
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
spark: {{master: "local[2]", conf: {{spark.sql.shuffle.partitions: "2"}}}}
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
    validity: {{start: 2013-11-01T04:00Z, end: {end}}}
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
    validity: {{start: 2013-11-01T04:00Z, end: {end}}}
    retention: {{limit: months(1188), action: delete}}
---
kind: process
name: by-airline
frequency: days(1)
timezone: America/New_York
timeout: months(1188)
clusters: {{primary: {{validity: {{start: 2013-11-01T04:00Z, end: {end}}}}}}}
inputs:
  flights: {{feed: flights, start: "today(0,0)", end: "today(0,0)"}}
outputs:
  airlines: {{feed: airlines, instance: "today(0,0)"}}
workflow: {{engine: python, path: "benchmarks.jobs:by_airline"}}
"""


def measure_runs(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure the daemon and the loop, in turn."""
    days, repeats = scale.choose((DAYS, 3), (DAYS, 1), (2, 1))
    flights = [delivery for delivery in read_deliveries() if delivery.path.startswith("flights/")]
    for delivery in flights[:days]:
        delivery.land(folder)
    ours, theirs = [], []
    for number in range(repeats):
        say(f"runs: {days} daily instances through the daemon and in a loop, round {number + 1} of {repeats}")
        ours.append(_through_daemon(folder / f"daemon-{number}", folder / "flights", days))
        theirs.append(_in_loop(folder / "flights", folder / f"loop-{number}", days))
    yield slower(
        Part.RUNS,
        f"{days} ready daily instances through the daemon, from the data's arrival to the last publication",
        median(ours),
        "a plain PySpark loop in one process, from its start to its end",
        median(theirs),
        at_most=AT_MOST,
        note="both with the start of a Spark session; ours with the waits for sensor, queue and worker start too",
    )


def _in_loop(source: Path, target: Path, days: int) -> float:
    begun = time.perf_counter()
    result = run_probe("plain_spark", source, target)
    seconds = time.perf_counter() - begun
    assert result["days"] == days
    return seconds


def _through_daemon(folder: Path, source: Path, days: int) -> float:
    home, data = folder / "home", folder / "data"
    home.mkdir(parents=True)
    data.mkdir()
    (home / "dagster.yaml").write_text(read_dagster_yaml(is_postgres=False), "utf-8")
    (folder / "entities.yaml").write_text(
        _ENTITIES.format(columns=COLUMNS, end=f"{START + timedelta(days=days):%Y-%m-%dT%H:%MZ}")
    )
    shutil.copytree(source, data / ".landing")
    environ = {
        "DAGSTER_HOME": str(home),
        "FEED_ASSETS_ENTITIES": str(folder / "entities.yaml"),
        "FEED_ASSETS_VARIABLES__DATA_ROOT": str(data),
        "FEED_ASSETS_DEMO__REPLAY__REAL_START": SystemClock().now().isoformat(),
        **REPLAY,
    }
    with _daemon(folder, environ) as daemon:
        _wait(home, daemon, "status = 'WAITING'", days)
        begun = time.perf_counter()
        (data / ".landing").rename(data / "flights")
        _wait(home, daemon, "status = 'SUCCEEDED'", days)
        return time.perf_counter() - begun


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
        time.sleep(0.05)
    raise ProbeError(f"{found} of {days} instances with {condition}, {failed} failed; see {home.parent / 'daemon.log'}")
