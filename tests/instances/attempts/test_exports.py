"""Exports as attempts: what they record and leave, and what updates do."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.definitions.checks.live_checks import check_reachability
from feed_assets.engines.errors import ServiceError
from feed_assets.entities.bundle import Bundle
from feed_assets.instances.attempts.exporting import InstanceStagings, apply_staged_tables
from feed_assets.issues import SourceMap
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from tests.instances.attempts.transfer_benches import ROWS, ExportBench
from tests.instances.harness import START, at
from tests.shops import PASSWORD, Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

EXPORT, NOON = "orders.export", at("01T12")
OLD, NEW = "old", "new"


@pytest.fixture
def bench(tmp_path: Path, shop_postgres: Shop) -> ExportBench:
    shop_postgres.run("CREATE TABLE orders (id int PRIMARY KEY, name text)")
    return ExportBench(tmp_path, shop_postgres)


def test_an_export_waits_for_the_feed_and_ends_with_its_counts(bench: ExportBench, spark: SparkSession) -> None:
    lifecycle = bench.lifecycle
    lifecycle.tick(NOON)
    assert lifecycle.statuses(EXPORT)[START] is ProcessInstanceStatus.WAITING
    bench.land(OLD)
    (request,) = lifecycle.tick(at("01T13"))
    assert (request.process.process, request.nominal_times) == (EXPORT, (START,))
    bench.run(lambda: spark, at("01T14"))
    assert lifecycle.statuses(EXPORT)[START] is ProcessInstanceStatus.SUCCEEDED
    assert (bench.counts(), bench.left(), bench.noted()) == ({OLD: ROWS}, [], [])


def test_late_data_of_the_feed_are_exported_again(bench: ExportBench) -> None:
    lifecycle = bench.lifecycle
    bench.land(OLD)
    lifecycle.tick(NOON)
    lifecycle.run(EXPORT, START, at("01T13"))
    bench.land(NEW, first=100)
    lifecycle.look_for_late(at("01T23"))
    (request,) = lifecycle.tick(at("01T23"))
    assert (request.process.process, request.nominal_times) == (EXPORT, (START,))
    assert lifecycle.instances(EXPORT)[START].reason == "late data: orders 2013-11-01T00:00Z changed"


def test_a_database_that_refuses_is_told_by_its_words(bench: ExportBench, spark: SparkSession) -> None:
    bench.land(OLD)
    bench.lifecycle.tick(NOON)
    bench.shop.run("DROP TABLE orders")
    with pytest.raises(ServiceError, match='it refuses: ERROR: relation "orders" does not exist'):
        bench.run(lambda: spark)
    row = bench.lifecycle.instances(EXPORT)[START]
    assert (row.status, PASSWORD in str(row.reason)) == (ProcessInstanceStatus.FAILED, False)
    assert "refuses" in str(row.reason)


def test_a_live_check_asks_for_the_table_and_its_key(bench: ExportBench) -> None:
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


def test_a_table_that_a_dead_attempt_has_left_is_dropped_later(bench: ExportBench) -> None:
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
