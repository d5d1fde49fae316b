"""Whoever publishes, registers, removes or restores, and is killed before any change: files, record and table agree
when ticks have gone on, and the repeat ends as if nothing had happened.
"""

import os
import random
import signal
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from feed_assets.definitions.store import record_declared
from feed_assets.engines.port import Work
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.log.removals.records import SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.location import declare_location
from feed_assets.registration.verifying import RegistrationQuery, verify_registrations
from feed_assets.settings import Settings
from feed_assets.storage.table.partitions import plain_location
from tests.deaths import die_before
from tests.drills import drill_seed, sized
from tests.instances.harness import START, LifecycleHarness, feed, process
from tests.retention.harness import RetentionHarness
from tests.tables import Catalog

KILLS = sized(1, 50)
_CHANGES = 250
"""A life has more."""
NEXT = START + timedelta(days=1)
GONE = START + timedelta(days=4)
_EVERYTHING = RegistrationQuery(feed="sales", cluster=None, start=None, end=None)


class Bench:
    """A process that writes a feed of Parquet files which is registered, in a folder with the state."""

    def __init__(self, root: Path, port: int | None) -> None:
        self.root, self._port = root, port
        self._database = f"killed_{os.getpid() if not (root / 'name').exists() else (root / 'name').read_text()}"
        address = f"sqlite:///{root}/catalog.db"
        lake = {"catalog": f"iceberg+{address}", "catalog_options": {"warehouse": (root / "warehouse").as_uri()}}
        given = lake if port is None else {"catalog": f"thrift://127.0.0.1:{port}"}
        cluster = Cluster.model_validate({"name": "primary", "storage": f"file://{root}/primary", **given})
        made = process("make", inputs={"raw": "now(0,0)"}, outputs={"sales": "now(0,0)"}, frequency="days(1)")
        sales = {
            "name": "sales",
            "frequency": "days(1)",
            "schema": "day date, amount long",
            "locations": {"data": "/sales/${YEAR}/${MONTH}/${DAY}"},
            "clusters": {"primary": {"validity": {"start": START}, "retention": {"limit": "days(2)"}}},
            "catalog_table": f"catalog:{self._database}:sales#day=${{YEAR}}-${{MONTH}}-${{DAY}}",
        }
        self.lifecycle = LifecycleHarness.of(root)
        location = declare_location([cluster, feed("raw", frequency="days(1)"), made, Feed.model_validate(sales)])
        record_declared(self.lifecycle.database, location.declared or (), START, Settings())
        self.lifecycle.use(location.plan)
        self.retention = RetentionHarness(lifecycle=self.lifecycle)
        if not (root / "name").exists():
            (root / "name").write_text(self._database.removeprefix("killed_"))
            if port is None:
                self._catalog().create_namespace(self._database)
            else:
                Catalog(port).make_database(self._database, root / "warehouse")

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog("default", uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}/warehouse")

    def live(self, shift: timedelta, amounts: tuple[int, int, int]) -> None:
        """Publish two instances, and one again; remove them, and restore them; sooner or later."""

        def job(work: Work) -> Mapping[str, str]:
            (target,) = work.outputs
            rows = pa.table({"day": [time.date()], "amount": [amount]})
            folder = Path(urlsplit(target.url).path)
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, folder / f"part-{amount}.parquet")
            return {"sales": ""}

        harness, self.lifecycle.job = self.lifecycle, job
        harness.land("raw", START, NEXT)
        harness.tick(NEXT + shift)
        for time, amount in zip((START, NEXT, START), amounts, strict=True):
            harness.run("make", time, NEXT + shift + timedelta(minutes=amount), run_id=f"run-{amount}")
        harness.tick(NEXT + shift + timedelta(hours=1))
        self.retention.wait(GONE + shift)
        self.retention.undo(self.retention.sweep_now("sales"))
        harness.tick(GONE + shift + timedelta(hours=1))

    def go_on(self, shift: timedelta) -> None:
        """What the daemon does after a death: ticks, and sweeps that go on."""
        self.retention.lag = timedelta(hours=2)
        self.retention.wait(GONE + shift)
        with self.lifecycle.database.read() as connection:
            open_sweeps = Sweeps(connection).with_state("primary")
        for sweep in open_sweeps:
            if sweep.state is SweepState.UNDOING:
                self.retention.undo(sweep)
            else:
                self.retention.run(self.retention.approve(sweep) if sweep.state is SweepState.ASKING else sweep)
        for minutes in (0, 2, 4):
            self.lifecycle.tick(GONE + shift + timedelta(minutes=minutes))

    def shown(self) -> set[Path]:
        """The files that readers of the table open."""
        if self._port is None:
            if not self._catalog().table_exists((self._database, "sales")):
                return set()
            tasks = self._catalog().load_table((self._database, "sales")).scan().plan_files()
            return {Path(urlsplit(task.file.file_path).path) for task in tasks}
        metastore = Catalog(self._port)
        table = metastore.find_table(self._database, "sales")
        names = [] if table is None else metastore.partition_names(table, {})
        folders = [] if table is None else metastore.find_partitions(table, names)
        return {Path(urlsplit(plain_location(each.location)).path) for each in folders}

    def stands(self) -> set[Path]:
        """The files, or directories, of AVAILABLE instances."""
        found = self.lifecycle.feed_statuses("sales")
        there = [time for time, status in found.items() if status is FeedInstanceStatus.AVAILABLE]
        folders = [self.lifecycle.folder("sales", time) for time in there]
        return {file for each in folders for file in each.glob("*.parquet")} if self._port is None else set(folders)

    def differences(self) -> list[str]:
        context = self.lifecycle.context(GONE + timedelta(days=30))
        return [each.reason for each in verify_registrations(context, _EVERYTHING).differences]


def live_until_killed(root: Path, port: int | None, number: int) -> None:
    """In a process of its own: live, and die before the n-th change."""
    bench = Bench(root, port)
    die_before(number)
    bench.live(timedelta(0), (1, 2, 3))
    os._exit(0)


def _in_child(work: Callable[..., None], *arguments: object) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
        finally:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.sample
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "kind", ["iceberg", pytest.param("hive", marks=[pytest.mark.server, pytest.mark.spark, pytest.mark.drill])]
)
def test_whoever_is_killed_files_record_and_table_agree(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    port = request.getfixturevalue("metastore_port") if kind == "hive" else None
    chosen, wrong = random.Random(drill_seed()), []
    for at in range(KILLS):
        number, root = chosen.randrange(1, _CHANGES), tmp_path / str(at)
        root.mkdir()
        assert _in_child(live_until_killed, root, port, number) == -signal.SIGKILL
        bench = Bench(root, port)
        bench.go_on(timedelta(hours=3))
        if bench.shown() != bench.stands() or bench.differences():
            wrong.append((number, "after", bench.shown(), bench.stands(), bench.differences()))
        bench.live(timedelta(days=1), (4, 5, 6))
        if bench.shown() != bench.stands() or bench.differences() or len(bench.stands()) != len((START, NEXT)):
            wrong.append((number, "end", bench.shown(), bench.stands(), bench.differences()))
    assert wrong == []
