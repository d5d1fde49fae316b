"""Workers of the real thing, killed at random moments: nothing partial is ever visible, the next ticks make it whole.

`FEED_ASSETS_SEED` repeats the choices of one.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from dagster import DagsterInstance

from feed_assets.clock import SystemClock
from feed_assets.storage.local.store import LocalStore
from tests.drills import drill_seed
from tests.orchestration.dagster_home import Home, materialized, wait_until
from tests.orchestration.small import ENTITIES, JOBS, key, land, total
from tests.orchestration.workers import worker_of

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(3600)]

KILLS = 20
LONGEST_LIFE = 15.0
KILLS_IN_A_ROW = 3
"""Fewer than the deaths after which an instance is given up."""


def test_no_kill_of_a_worker_leaves_part_of_an_instance(tmp_path: Path) -> None:
    seed = drill_seed()
    chance = random.Random(seed)
    home = Home(folder=tmp_path, settings=_fast_clock())
    home.prepare(ENTITIES.replace("2026-01-02T00:00Z", "2026-03-01T00:00Z"), JOBS)
    killed: set[int] = set()
    landed = 0
    with home.instance() as instance, home.daemon():
        in_a_row = 0
        while len(killed) < KILLS:
            if len(materialized(instance, "here", "sums")) == landed:
                in_a_row = 0
                for hour in (landed, landed + 1):
                    land(home.data, hour, hour, 100)
                landed += 2
            worker = _live_worker(instance, killed)
            if worker is None or in_a_row == KILLS_IN_A_ROW:
                time.sleep(0.2)
                continue
            time.sleep(chance.uniform(0, LONGEST_LIFE))
            if _kill(worker):
                killed.add(worker)
                in_a_row += 1
            _require_whole(home)
        wanted = {key(hour) for hour in range(landed)}
        wait_until(
            lambda: materialized(instance, "here", "sums") == wanted, lambda: f"seed {seed}\n{home.log()[-5000:]}"
        )
    _require_whole(home)
    assert [total(home.data, hour) for hour in range(landed)] == [hour + 100 for hour in range(landed)]


def _fast_clock() -> dict[str, str]:
    """In real time an hour of last winter that is missing is looked at again after hours; here within a second."""
    prefix = "FEED_ASSETS_DEMO__REPLAY__"
    now = SystemClock().now().isoformat()
    return {prefix + "ORIGIN": "2026-02-20T00:00:00Z", prefix + "REAL_START": now, prefix + "SPEED": "20000"}


def _live_worker(instance: DagsterInstance, killed: set[int]) -> int | None:
    worker = worker_of(instance, "summing")
    return worker if worker not in killed and Path(f"/proc/{worker}").exists() else None


def _kill(worker: int) -> bool:
    try:
        os.kill(worker, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _require_whole(home: Home) -> None:
    """Whatever a consumer can see of the output is an instance that agrees with its manifest."""
    store = LocalStore(home.data)
    for folder in (home.data / "sums").glob("*/*"):
        path = str(folder.relative_to(home.data))
        published = store.published_manifest(path)
        assert published is not None, path
        assert (folder / "_SUCCESS").exists(), path
        assert store.manifest(path, "_SUCCESS").digest == published.digest, path
