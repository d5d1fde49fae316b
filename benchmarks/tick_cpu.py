"""CPU milliseconds of idle ticks and of ticks with news, measured through the arrival sensor that Dagster calls.
`python -m benchmarks.tick_cpu [pairs] [news] [rounds]`. It depends only on the definitions and on the clock of their
runtime, so that revisions can be compared.
"""

import json
import os
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
from feed_assets.orchestration.runtime import Runtime, open_runtime
from feed_assets.settings import load_settings

START = datetime(2025, 1, 1, tzinfo=UTC)
LATER = timedelta(minutes=10)


def main(pairs: str = "200", news: str = "100", rounds: str = "7") -> None:
    """Print the medians: `idle` has nothing to poll, `news` finds arrivals and requests runs."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(action="ignore"):
        folder = Path(name)
        (folder / "home").mkdir()
        os.environ["DAGSTER_HOME"] = str(folder / "home")
        with DagsterInstance.local_temp(str(folder / "home")) as instance:
            print(json.dumps(_measure(folder, instance, int(pairs), int(news), int(rounds))))


def _measure(folder: Path, instance: DagsterInstance, pairs: int, news: int, rounds: int) -> dict[str, float]:
    world = pairs_of(pairs)
    write_entities(folder / "entities", world, folder / "data")
    settings = load_settings({"entities": str(folder / "entities")}, environ={}, start=folder)
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

    idle, found = [], []
    for number in range(rounds + 1):
        nominal_time = START + number * HOUR
        now = nominal_time + timedelta(minutes=1)
        tick(now)
        for pair in world[:news]:
            land(folder / "data", pair, nominal_time)
        seconds, result = tick(now + LATER)
        assert len(result.asset_events) >= news, len(result.asset_events)
        found.append(seconds)
        while result.asset_events or result.run_requests:
            _, result = tick(now + LATER)
        idle += [tick(now + LATER)[0] for _ in range(5)]
    return {"idle_ms": 1000 * median(idle[5:]), "news_ms": 1000 * median(found[1:])}  # the first round imports


if __name__ == "__main__":
    main(*sys.argv[1:])
