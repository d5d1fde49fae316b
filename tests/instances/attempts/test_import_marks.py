"""Increments by mark of a real table: each row is in one instance, whatever comes late or is run again."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.definitions.datasources.marks import list_marks
from feed_assets.engines.errors import EarlierUnreadError
from feed_assets.entities.content.event_messages import NO_ROWS
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.rebuild.rebuilding import rebuild_instances
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, feed
from tests.shops import PASSWORD, Shop
from tests.spark_session import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.spark, pytest.mark.server]
DAY = timedelta(days=1)
IMPORT = "orders.import"


def nightly(shop: Shop) -> tuple[Datasource, Feed]:
    """A feed of new rows by their time, of which ten minutes are read again."""
    made = feed("orders", "days(1)").model_dump(mode="json", by_alias=True, exclude_defaults=True)
    extract = {"type": "incremental", "delta_column": "at", "by": "mark", "overlap": "minutes(10)", "key": ["id"]}
    source = {"name": "shop", "table": "orders", "extract": extract}
    made["clusters"]["primary"] |= {"type": "source", "import": {"source": source}}
    made["schema"], made["format"] = "id int, at timestamp", "parquet"
    document = {**shop.document, "credential": {"user": "shop", "password": PASSWORD}}
    return Datasource.model_validate(document), Feed.model_validate(made)


@pytest.mark.parametrize(
    ("nights", "late"), [pytest.param(10, 300, marks=pytest.mark.drill), pytest.param(3, 30, marks=pytest.mark.sample)]
)
def test_the_union_has_each_row_once_though_some_come_late_and_a_night_runs_three_times(
    shop_postgres: Shop, spark: SparkSession, tmp_path: Path, nights: int, late: int
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *nightly(shop_postgres))
    shop_postgres.run("CREATE TABLE orders (id serial primary key, at timestamp)")

    def run(night: int) -> None:
        time = START + night * DAY
        runner = replace(lifecycle.runner(time, lifecycle.run_id()), engines=None, session=lambda: spark)
        runner.run(lifecycle.process(IMPORT), time, lambda _: None)

    def add(count: int, at: datetime) -> None:
        times = f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S}' - i * INTERVAL '1 second'"
        shop_postgres.run(f"INSERT INTO orders (at) SELECT {times} FROM generate_series(1, {count}) i")

    for night in range(nights):
        time = START + night * DAY
        add(1_000, time)
        lifecycle.tick(time)
        run(night)
        add(late // nights, time - timedelta(seconds=9))  # they have times that were read already
        if night == 1:
            for _ in range(2):
                run(night)
    lifecycle.tick(START + nights * DAY)
    run(nights)  # without new rows but the late ones of the last night
    frames = [spark.read.parquet(str(lifecycle.folder("orders", START + n * DAY))) for n in range(nights + 1)]
    every = frames[0]
    for frame in frames[1:]:
        every = every.union(frame)
    total = nights * (1_000 + late // nights)
    assert (every.count(), every.select("id").distinct().count()) == (total, total)
    assert frames[-1].count() == late // nights


def test_an_instance_reads_after_the_one_before_and_its_stretch_stays(
    shop_postgres: Shop, spark: SparkSession, tmp_path: Path
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *nightly(shop_postgres))
    shop_postgres.run("CREATE TABLE orders (id serial primary key, at timestamp)")
    second = START + DAY
    requests = lifecycle.tick(second)
    assert [request.nominal_times for request in requests] == [(START,)]
    runner = replace(lifecycle.runner(second, "run"), engines=None, session=lambda: spark)
    with pytest.raises(EarlierUnreadError, match="which has not succeeded"):
        runner.run(lifecycle.process(IMPORT), second, lambda _: None)
    shop_postgres.run("INSERT INTO orders (at) VALUES ('2013-10-31'), ('2013-11-01')")
    runner.run(lifecycle.process(IMPORT), START, lambda _: None)
    shop_postgres.run("INSERT INTO orders (at) VALUES ('2013-11-01 00:00:01')")
    runner.run(lifecycle.process(IMPORT), START, lambda _: None)  # again, with a newer row there
    assert spark.read.parquet(str(lifecycle.folder("orders", START))).count() == 2
    assert lifecycle.statuses(IMPORT)[START] is ProcessInstanceStatus.SUCCEEDED
    (event,) = [each for each in lifecycle.events("orders") if each.payload["attempt"] == 1]
    assert event.payload["stretch"] == '[null, "clock 2013-11-01T00:00:00"]'
    (told,) = list_marks(context_of(lifecycle, second), "orders")
    assert (told.nominal_time, told.above, told.upto, told.rows) == (START, None, "clock 2013-11-01T00:00:00", 2)


def test_a_rebuilt_state_has_the_marks_and_an_instance_without_rows_keeps_them(
    shop_postgres: Shop, spark: SparkSession, tmp_path: Path
) -> None:
    shop_postgres.run("CREATE TABLE orders (id serial primary key, at timestamp)")
    shop_postgres.run("INSERT INTO orders (at) VALUES ('2013-11-01')")
    second, mark = START + DAY, "clock 2013-11-01T00:00:00"
    lifecycle = LifecycleHarness.of(tmp_path, *nightly(shop_postgres))
    lifecycle.tick(START)

    def lose_state(name: str) -> LifecycleHarness:
        rebuilt = LifecycleHarness.of(tmp_path, *nightly(shop_postgres), state=f"sqlite:///{tmp_path / name}")
        rebuild_instances(context_of(rebuilt, second), dry_run=False)
        return rebuilt

    for time in (START, second):
        if time is second:
            lifecycle = lose_state("empty.db")
            lifecycle.tick(second)
        runner = replace(lifecycle.runner(second, f"run-{time.day}"), engines=None, session=lambda: spark)
        runner.run(lifecycle.process(IMPORT), time, lambda _: None)
    told = [(each.nominal_time, each.above, each.upto) for each in list_marks(context_of(lifecycle, second), "orders")]
    assert told == [(second, mark, mark), (START, None, mark)]
    for known in (lifecycle, lose_state("new.db")):
        assert [event.marking for event in known.events("orders")] == [None, NO_ROWS]
