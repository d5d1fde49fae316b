"""Copies of Iceberg partitions whose process is killed at any moment, while a reader counts the rows."""

import multiprocessing
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest

from tests.drills import drill_seed, sized
from tests.lakes import append
from tests.transfer.test_lake_copies import EU, Lakes

pytestmark = [pytest.mark.sample, pytest.mark.timeout(sized(300, 3600))]
KILLS = sized(2, 100)
FILES = 3


def copy(folder: Path) -> None:
    Lakes(folder).copy()


def test_row_67_a_killed_copy_leaves_old_rows_or_all_new_ones_and_the_next_one_ends_it(tmp_path: Path) -> None:
    rng, forked = random.Random(drill_seed()), multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(["tests.transfer.test_lake_copies"])
    lakes, old, usual, killed, number = Lakes(tmp_path), list[int](), 0.6, 0, 0
    source = lakes.make()
    while killed < KILLS:
        if number:
            source.refresh().delete("region == 'eu'")
        for _ in range(FILES):
            append(source, {"region": "eu", "n": number})
        process = forked.Process(target=copy, args=(tmp_path,))
        process.start()
        process.join(rng.uniform(0, 2 * usual))
        process.kill()
        process.join()
        killed += process.exitcode != 0
        table = lakes.lakes["west"].catalog.find_table("web", "clicks")
        assert table is None or lakes.rows() in (old, [number] * FILES)
        began = monotonic()
        lakes.copy()
        usual = (usual + monotonic() - began) / 2
        old = [number] * FILES
        assert lakes.rows() == old
        number += 1
    store = lakes.stores.get(lakes.side("west").store)
    store.sweep_staging(datetime.now(UTC) + timedelta(days=1))
    versions = Path(lakes.table().location().removeprefix("file://")) / "data/feed-assets" / EU
    summaries = [each.summary["feed-assets.version"] for each in lakes.table().snapshots() if each.summary]
    assert sorted(each.name for each in versions.iterdir()) == sorted({each.rpartition("/")[2] for each in summaries})
    assert list((versions.parents[2] / ".feed-assets/staging").rglob("data")) == []
    print(f"{killed} kills in {number} copies")
