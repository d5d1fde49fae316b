"""Workers of the real thing, killed at random moments: nothing partial is ever visible, the next ticks make it whole.

Two kills by default; `FEED_ASSETS_KILLS=20` for the long run, `FEED_ASSETS_SEED` to repeat one.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from dagster import DagsterInstance

from feed_assets.storage.local import LocalStore
from tests.orchestration.dagster_home import Home, materialized, wait_until
from tests.orchestration.small import ENTITIES, JOBS, key, land, total
from tests.orchestration.workers import worker_of

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("FEED_ASSETS_KILLS", "2"))
LONGEST_LIFE = 30.0


def test_no_kill_of_a_worker_leaves_part_of_an_instance(tmp_path: Path) -> None:
    seed = int(os.environ.get("FEED_ASSETS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    chance = random.Random(seed)
    home = Home(folder=tmp_path)
    home.prepare(ENTITIES, JOBS)
    killed: set[int] = set()
    hours = 0
    with home.instance() as instance, home.daemon():
        while len(killed) < KILLS:
            land(home.data, hours, hours, 100)
            hours = min(hours + 1, 23)
            worker = _next_worker(home, instance, killed)
            time.sleep(chance.uniform(0, LONGEST_LIFE))
            if _kill(worker):
                killed.add(worker)
            _require_whole(home)
        land(home.data, hours, hours, 100)
        wanted = {key(hour) for hour in range(hours + 1)}
        wait_until(
            lambda: materialized(instance, "here", "sums") == wanted, 180, lambda: f"seed {seed}\n{home.log()[-5000:]}"
        )
    _require_whole(home)
    assert [total(home.data, hour) for hour in range(hours + 1)] == [hour + 100 for hour in range(hours + 1)]


def _next_worker(home: Home, instance: DagsterInstance, killed: set[int]) -> int:
    found: list[int] = []

    def is_there() -> bool:
        worker = worker_of(instance, "summing")
        if worker is not None and worker not in killed and Path(f"/proc/{worker}").exists():
            found.append(worker)
        elif worker is None or worker in killed:
            return False
        else:
            hour = len(list((home.data / "numbers").glob("*/*")))
            land(home.data, min(hour, 23), min(hour, 23), 100)
        return bool(found)

    wait_until(is_there, 180, home.log)
    return found[0]


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
