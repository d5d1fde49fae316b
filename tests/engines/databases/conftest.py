from collections.abc import Iterator

import pytest

from feed_assets.engines.java.machine import JavaMachine
from tests.shops import mariadb_port, postgres_port, shop, shop_mariadb, shop_postgres
from tests.spark_session import spark

__all__ = ["mariadb_port", "postgres_port", "shop", "shop_mariadb", "shop_postgres", "spark"]


@pytest.fixture(scope="package")
def machine() -> Iterator[JavaMachine]:
    with JavaMachine() as machine:
        yield machine
