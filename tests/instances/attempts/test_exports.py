"""Exports as attempts: what they record and leave, what updates do, and whoever is killed at any moment."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from feed_assets.definitions.checks.live_checks import check_reachability
from feed_assets.engines.databases.connections import DatabaseConnection
from feed_assets.engines.errors import ServiceError
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.attempts.exporting import InstanceStagings, StagedTablesAgenda, apply_staged_tables
from feed_assets.issues import SourceMap
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.timing.dates import NEVER
from tests.connect_server import ConnectServer
from tests.deaths import die_before
from tests.drills import drill_seed, sized
from tests.instances.harness import START, LifecycleHarness, at
from tests.processes import PROCESSES
from tests.shops import PASSWORD, Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

EXPORT, NOON = "orders.export", at("01T12")
_OLD, _NEW, _ROWS = "old", "new", 500
KILLS = sized(2, 20)
_STEPS, _SECONDS = 45, 4.0
"""An export has about so many changes, and takes about so long."""


class Bench:
    """A feed of CSV with an export to the table `orders` of a shop, in a folder with the state."""

    def __init__(self, root: Path, shop: Shop) -> None:
        self.shop, self.lifecycle = shop, LifecycleHarness.of(root)
        (root / "password").write_text(PASSWORD)
        datasource = {**shop.document, "credential": {"user": "shop", "password_file": "password"}}
        load = {"target": {"name": "shop", "table": "orders", "load": {"type": "allowinsert"}}}
        orders = {
            "name": "orders",
            "frequency": "days(1)",
            "format": "csv",
            "schema": "id int, name string",
            "late_arrival": {"cut_off": "days(2)"},
            "locations": {"data": "/orders/${YEAR}/${MONTH}/${DAY}"},
            "clusters": {
                "primary": {"validity": {"start": START}, "export": {**load, "arguments": {"--update-key": "id"}}}
            },
        }
        self.declared = (Datasource.model_validate(datasource), Feed.model_validate(orders))
        self.lifecycle.declare(*self.declared)

    def land(self, name: str, first: int = 0) -> None:
        rows = "".join(f"{number},{name}\n" for number in range(first, first + _ROWS))
        for file in self.lifecycle.folder("orders", START).glob("*"):
            file.unlink()
        self.lifecycle.land("orders", START, text=f"id,name\n{rows}")

    def run(self, session: Any, now: Any = NOON, run_id: str = "run-1") -> None:
        runner: InstanceRunner = replace(self.lifecycle.runner(now, run_id), engines=None, session=session)
        runner.run(self.lifecycle.process(EXPORT), START, lambda _: None)

    def left(self) -> list[str]:
        """Staging tables in the database."""
        sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.shop.schema}'"
        return sorted(name for (name,) in self.shop.run(sql) if name.startswith("fa_"))

    def noted(self) -> list[str]:
        """Staging tables on the agenda."""
        with self.lifecycle.database.read() as connection:
            found = StagedTablesAgenda(connection).due([AgendaKind.STAGED_TABLES], "primary", NEVER, 10)
        return [table for each in found for table in each.tables]

    def counts(self) -> dict[str, int]:
        found = self.shop.run("SELECT name, count(*) FROM orders GROUP BY name")
        return {str(name): int(count) for name, count in found}


@pytest.fixture
def bench(tmp_path: Path, shop_postgres: Shop) -> Bench:
    shop_postgres.run("CREATE TABLE orders (id int PRIMARY KEY, name text)")
    return Bench(tmp_path, shop_postgres)


def test_an_export_waits_for_the_feed_and_ends_with_its_counts(bench: Bench, spark: SparkSession) -> None:
    lifecycle = bench.lifecycle
    lifecycle.tick(NOON)
    assert lifecycle.statuses(EXPORT)[START] is ProcessInstanceStatus.WAITING
    bench.land(_OLD)
    (request,) = lifecycle.tick(at("01T13"))
    assert (request.process.process, request.nominal_times) == (EXPORT, (START,))
    bench.run(lambda: spark, at("01T14"))
    assert lifecycle.statuses(EXPORT)[START] is ProcessInstanceStatus.SUCCEEDED
    assert (bench.counts(), bench.left(), bench.noted()) == ({_OLD: _ROWS}, [], [])


def test_late_data_of_the_feed_are_exported_again(bench: Bench) -> None:
    lifecycle = bench.lifecycle
    bench.land(_OLD)
    lifecycle.tick(NOON)
    lifecycle.run(EXPORT, START, at("01T13"))
    bench.land(_NEW, first=100)
    lifecycle.look_for_late(at("01T23"))
    (request,) = lifecycle.tick(at("01T23"))
    assert (request.process.process, request.nominal_times) == (EXPORT, (START,))
    assert lifecycle.instances(EXPORT)[START].reason == "late data: orders 2013-11-01T00:00Z changed"


def test_a_database_that_refuses_is_told_by_its_words(bench: Bench, spark: SparkSession) -> None:
    bench.land(_OLD)
    bench.lifecycle.tick(NOON)
    bench.shop.run("DROP TABLE orders")
    with pytest.raises(ServiceError, match='it refuses: ERROR: relation "orders" does not exist'):
        bench.run(lambda: spark)
    row = bench.lifecycle.instances(EXPORT)[START]
    assert (row.status, PASSWORD in str(row.reason)) == (ProcessInstanceStatus.FAILED, False)
    assert "refuses" in str(row.reason)


def test_a_live_check_asks_for_the_table_and_its_key(bench: Bench) -> None:
    def ask() -> list[str]:
        bundle, (_, orders) = Bundle(entities=bench.declared), bench.declared
        found = check_reachability(bundle, [orders.key], sources=SourceMap(), root=bench.lifecycle.root)
        return [issue.message for issue in found]

    assert ask() == []
    bench.shop.run("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    (message,) = ask()
    assert (
        "table orders cannot be used: nothing is exported to the table orders of shop: id is no unique key" in message
    )


def test_a_table_that_a_dead_attempt_has_left_is_dropped_later(bench: Bench) -> None:
    key = ProcessKey(EXPORT, "primary", START)
    runner = bench.lifecycle.runner(NOON)
    stagings = InstanceStagings(context=runner.context, key=key, datasource="shop")
    for table in ("fa_dead", "fa_gone"):
        stagings.begin(table)
    bench.shop.run("CREATE TABLE fa_dead (id int)", "CREATE TABLE fa_other (id int)")
    for moment, left in ((at("01T12:30"), ["fa_dead", "fa_other"]), (at("01T13"), ["fa_other"])):
        apply_staged_tables(bench.lifecycle.open_tick(moment), bench.lifecycle.root)
        assert bench.left() == left
    assert bench.noted() == []


def export_until_killed(root: Path, shop: Shop, url: str, steps: int, seconds: float) -> None:
    """In a process of its own: export, and die before the n-th change, or after a while."""
    os.environ["SPARK_REMOTE"] = url
    bench = Bench(root, shop)
    session = SparkSession.builder.remote(url).create()
    step = die_before(steps)
    for name in ("execute", "commit"):
        setattr(DatabaseConnection, name, _stepping(getattr(DatabaseConnection, name), step))
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    bench.run(lambda: session)
    os._exit(0)


def _stepping(own: Any, step: Any) -> Any:
    def call(*arguments: Any) -> Any:
        step(own)
        return own(*arguments)

    return call


@contextmanager
def _watching(shop: Shop, whole: list[dict[str, int]]) -> Iterator[list[dict[str, int]]]:
    """Read the table all the time; yield what was seen that is none of the whole states."""
    from psycopg2 import connect

    port = int(shop.url.partition("127.0.0.1:")[2].partition("/")[0])
    seen: list[dict[str, int]] = []
    ended = threading.Event()

    def watch() -> None:
        with closing(connect(host="127.0.0.1", port=port, user="shop", dbname="postgres")) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                while not ended.wait(0.002):
                    cursor.execute(f"SELECT name, count(*) FROM {shop.schema}.orders GROUP BY name")
                    found = dict(cursor.fetchall())
                    if found not in whole:
                        seen.append(found)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@pytest.mark.sample
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whoever_is_killed_a_reader_sees_old_rows_or_new_ones(tmp_path: Path, shop_postgres: Shop) -> None:
    shop, chosen = shop_postgres, random.Random(drill_seed())
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, name text)")
    old, new = {_OLD: _ROWS}, {_OLD: 100, _NEW: _ROWS}
    ends: list[int | None] = []
    with ConnectServer(log_file=tmp_path / "log", master="local[2]") as server:
        for number in range(KILLS):
            root = tmp_path / str(number)
            root.mkdir()
            shop.run(
                "TRUNCATE orders", f"INSERT INTO orders SELECT id, '{_OLD}' FROM generate_series(0, {_ROWS - 1}) id"
            )
            bench = Bench(root, shop)
            bench.land(_NEW, first=100)
            bench.lifecycle.tick(NOON)
            steps, seconds = (
                (chosen.randrange(1, _STEPS), 600.0) if number % 2 else (10_000, chosen.random() * _SECONDS)
            )
            with _watching(shop, [old, new]) as halves:
                child = PROCESSES.Process(
                    target=export_until_killed, args=(root, _portable(shop), server.url, steps, seconds)
                )
                child.start()
                child.join()
                ends.append(child.exitcode)
                assert bench.counts() in (old, new)
                again = PROCESSES.Process(target=_export_again, args=(root, _portable(shop), server.url))
                again.start()
                again.join()
            assert (halves, again.exitcode, bench.counts()) == ([], 0, new), (number, steps, seconds)
            assert (bench.left(), bench.noted()) == ([], [])
            assert bench.lifecycle.statuses(EXPORT)[START] is ProcessInstanceStatus.SUCCEEDED
    assert -signal.SIGKILL in ends


def _portable(shop: Shop) -> Shop:
    """A shop for another process, which does not ask it."""
    return replace(shop, run=list)


def _export_again(root: Path, shop: Shop, url: str) -> None:
    bench = Bench(root, shop)
    session = SparkSession.builder.remote(url).create()
    bench.run(lambda: session, NOON + timedelta(days=1), "run-2")
