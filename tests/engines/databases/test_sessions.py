from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.databases.dialects import spark_url
from feed_assets.engines.databases.sessions import add_driver
from feed_assets.engines.errors import ServiceError
from tests.shops import PASSWORD, Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_a_session_that_runs_reads_and_writes_a_database_by_its_driver(spark: SparkSession, shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id int, day date)", "INSERT INTO orders VALUES (1, '2013-11-03'), (2, NULL)")
    for _ in range(2):
        add_driver(spark, shop.address)
    options = {"url": spark_url(shop.url), "driver": shop.driver, "user": "shop", "password": PASSWORD}
    orders = spark.read.format("jdbc").options(dbtable="orders", **options).load()
    assert sorted(row.id for row in orders.collect()) == [1, 2]
    orders.write.format("jdbc").options(dbtable="copies", **options).save()
    assert [str(row[0]) for row in shop.run("SELECT count(*) FROM copies")] == ["2"]


def test_all_threads_of_a_session_have_its_drivers(spark: SparkSession, shop_postgres: Shop) -> None:
    def read() -> int:
        add_driver(spark, shop_postgres.address)
        options = {"url": spark_url(shop_postgres.url), "user": "shop", "password": PASSWORD}
        rows = spark.read.format("jdbc").options(driver=shop_postgres.driver, query="SELECT 7 AS id", **options)
        return int(rows.load().collect()[0].id)

    with ThreadPoolExecutor(1) as pool:
        assert [read(), pool.submit(read).result()] == [7, 7]


def test_a_session_has_one_version_of_a_driver(spark: SparkSession, shop_postgres: Shop, tmp_path: Path) -> None:
    add_driver(spark, shop_postgres.address)
    copy = tmp_path / "copy.jar"
    copy.write_bytes(shop_postgres.jar.read_bytes())
    add_driver(spark, replace(shop_postgres.address, jars=(copy,)))
    copy.write_bytes(copy.read_bytes() + b"0")
    with pytest.raises(ServiceError, match=r"it from .*postgresql.*, and driver\.jars names copy\.jar with another"):
        add_driver(spark, replace(shop_postgres.address, jars=(copy,)))


def test_a_class_that_no_jar_has_is_refused(spark: SparkSession, shop_postgres: Shop) -> None:
    with pytest.raises(ServiceError, match=r"the driver org\.nowhere\.Driver: a Spark session does not find it in"):
        add_driver(spark, replace(shop_postgres.address, driver_class="org.nowhere.Driver"))
