"""CPU milliseconds of ticks, measured through the arrival sensor that Dagster calls: `python -m benchmarks.tick_cpu
[pairs] [news] [rounds]`. It depends only on the definitions, on the clock of their runtime and on the statuses in the
state, so that revisions can be compared.
"""

import json
import os
import sqlite3
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from dagster import DagsterInstance, SensorResult, build_sensor_context

from benchmarks.workload import CLUSTER, HOUR, land, pairs_of, write_entities
from feed_assets.clock import FrozenClock
from feed_assets.orchestration import definitions as building
from feed_assets.orchestration.location.runtime import Runtime, open_runtime
from feed_assets.settings import load_settings

START = datetime(2025, 1, 1, tzinfo=UTC)
LATER = timedelta(minutes=10)
EXPLAINED_A_TICK = 20


def main(pairs: str = "200", news: str = "100", rounds: str = "7") -> None:
    """Print the medians: `news` finds arrivals and requests runs, `overdue` explains waiting instances to Dagster, and
    `idle` has nothing to do while these go on waiting.
    """
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(action="ignore"):
        folder = Path(name)
        (folder / "home").mkdir()
        os.environ["DAGSTER_HOME"] = str(folder / "home")
        with DagsterInstance.local_temp(str(folder / "home")) as instance:
            print(json.dumps(_measure(folder, instance, int(pairs), int(news), int(rounds))))


def _measure(folder: Path, instance: DagsterInstance, pairs: int, news: int, rounds: int) -> dict[str, float]:
    chosen = pairs_of(pairs)
    write_entities(folder / "entities", chosen, folder / "data")
    settings = load_settings(
        {"entities": str(folder / "entities"), "state": f"sqlite:///{folder / 'state.db'}"}, environ={}, start=folder
    )
    runtimes: list[Runtime] = []

    def noting(*arguments: Any, **named: Any) -> Runtime:
        runtimes.append(open_runtime(*arguments, **named))
        return runtimes[-1]

    with patch.object(building, "open_runtime", noting):
        repository = building.build_definitions(settings=settings).get_repository_def()
    (runtime,), sensor = runtimes, repository.get_sensor_def(f"arrival_{CLUSTER}")
    cursor: str | None = None

    def tick(at: datetime) -> tuple[float, SensorResult]:
        nonlocal cursor
        runtime.clock = FrozenClock(at)
        context = build_sensor_context(instance, cursor=cursor, repository_def=repository)
        begun = time.process_time()
        result = sensor(context)
        seconds = time.process_time() - begun
        assert isinstance(result, SensorResult)
        cursor = result.cursor
        return seconds, result

    def settle(status: str) -> None:
        with sqlite3.connect(folder / "state.db") as connection:
            connection.execute("UPDATE fa_process_instances SET status = 'SUCCEEDED' WHERE status = ?", (status,))

    idle, found, overdue = [], [], []
    for number in range(rounds + 1):
        nominal_time = START + 2 * number * HOUR
        now = nominal_time + timedelta(minutes=1)
        tick(now)
        for pair in chosen[:news]:
            land(folder / "data", pair, nominal_time)
        seconds, result = tick(now + LATER)
        assert len(result.asset_events) >= news, len(result.asset_events)
        found.append(seconds)
        while result.asset_events or result.run_requests:
            _, result = tick(now + LATER)
        settle("READY")
        tick(now + HOUR)  # creates the instances of the next hour
        overdue += [tick(now + HOUR)[0] for _ in range((pairs - news) // EXPLAINED_A_TICK - 1)]
        tick(now + HOUR)
        idle += [tick(now + HOUR)[0] for _ in range(5)]
        settle("WAITING")
    measured = {"idle_ms": idle, "news_ms": found, "overdue_ms": overdue}
    return {name: 1000 * median(each[len(each) // (rounds + 1) :]) for name, each in measured.items()}  # not the first


if __name__ == "__main__":
    main(*sys.argv[1:])
