"""Copies of partitions whose process is killed at any moment, while a reader lists the partitions and counts rows."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

import pytest

import feed_assets
from feed_assets.storage.errors import StagingLostError
from feed_assets.storage.table.partition_names import parse_partition_name
from tests.drills import IS_DRILL, drill_seed, sized
from tests.servers import run_metastore
from tests.transfer.test_table_copies import Tables, make_tables

PROJECT = Path(feed_assets.__path__[0]).parent
pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.sample, pytest.mark.timeout(sized(900, 3600))]
KILLS = sized(2, 100)
FILES, ROWS = 12, 50
COPIER = """
import os
import sys
from pathlib import Path
from tests.transfer.test_table_copies import Tables
ports = {"east": int(sys.argv[3]), "west": int(sys.argv[4])}
tables = Tables(folder=Path(sys.argv[1]), name=sys.argv[2], ports=ports)
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        tables.copy(line.strip())
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Reader(threading.Thread):
    """Lists the partitions of the target and counts the rows of each by its version, all the time."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(daemon=True)
        self.tables = tables
        self.looks = 0
        self.wrong: list[str] = []
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.001):
            west = self.tables.catalogs["west"]
            table = west.find_table(f"{self.tables.name}_west", "clicks")
            for name in west.partition_names(table, {}) if table is not None else ():
                self._count(name, tuple(parse_partition_name(name).values()))

    def _count(self, name: str, values: tuple[str, ...]) -> None:
        partition = self.tables.partition(*values)
        if partition is None:
            self.wrong.append(f"{name} is listed and not there")
            return
        folder = Path(partition.location.removeprefix("file:"))
        try:
            rows = [row for file in folder.glob("part-*") for row in file.read_text().splitlines()]
        except FileNotFoundError as exc:
            rows = [str(exc)]
        now = self.tables.partition(*values)
        if now is None or now.location != partition.location:
            return  # what was replaced meanwhile is removed
        self.looks += 1
        if len(rows) != FILES * ROWS or len(set(rows)) != 1:
            self.wrong.append(f"{name}: {len(rows)} rows of {sorted(set(rows))[:3]}")

    def stop(self) -> None:
        self._is_over.set()
        self.join()


@contextmanager
def copier(tables: Tables) -> Iterator["subprocess.Popen[str]"]:
    """A process that makes each copy in a child of its own, and tells its id, and how it has ended."""
    places = [str(tables.folder), tables.name, str(tables.ports["east"]), str(tables.ports["west"])]
    command = [sys.executable, "-c", COPIER, *places]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=PROJECT, text=True, bufsize=1, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def copy_until_killed(process: "subprocess.Popen[str]", path: str, seconds: float) -> bool:
    """Return whether the copy was killed before it had ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{path}\n")
    child = int(process.stdout.readline())
    sleep(seconds)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return int(process.stdout.readline()) == signal.SIGKILL


@pytest.fixture(scope="module")
def other_port(metastore_port: int) -> Iterator[int]:
    """A second metastore, in drills."""
    if not IS_DRILL:
        yield metastore_port
        return
    with run_metastore() as port:
        yield port


def test_row_67_readers_see_no_row_or_all_rows_of_a_partition_whose_copier_is_killed(
    metastore_port: int, other_port: int, tmp_path: Path
) -> None:
    rng = random.Random(drill_seed())
    tables = make_tables(tmp_path, metastore_port, other_port)
    tables.make()
    reader, killed, number, usual = Reader(tables), 0, 0, 1.0
    reader.start()
    with copier(tables) as process:
        while killed < KILLS:
            values = (f"2013-11-{number // 3 % 28 + 1:02}", "eu")  # each is there three times: new, then replaced
            files = {f"part-{part:02}": f"version {number}\n".encode() * ROWS for part in range(FILES)}
            tables.add(files, *values)
            path = tables.table("east").render(values)
            killed += copy_until_killed(process, path, rng.uniform(0, 2 * usual))
            began = datetime.now(UTC)
            try:
                tables.copy(path)
            except StagingLostError:  # the metastore still did what the killed one had asked for
                tables.copy(path)
            usual = 0.5 * usual + 0.5 * (datetime.now(UTC) - began).total_seconds()
            assert tables.read(path=path) == files
            number += 1
    reader.stop()
    assert reader.wrong == []
    assert reader.looks > KILLS
    store = tables.stores.get(tables.side("west").store)
    store.sweep_staging(datetime.now(UTC) + timedelta(days=1))
    versions = tables.folder / "west/warehouse/clicks/_feed-assets"
    assert len(list(versions.glob("*/*/*"))) == len(tables.catalogs["west"].partition_names(tables.table(), {}))
    assert list((versions.parent / ".feed-assets/staging").rglob("data")) == []
    print(f"{killed} kills in {number} copies, {reader.looks} looks")
