"""The one Spark session of a test run: `from tests.spark_session import spark` makes the fixture known to a folder."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.engines.spark.sessions import session_conf

with warnings.catch_warnings():
    # Where this warning is an error, pyspark's import breaks off and leaves half a module behind.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    import pyspark.sql.connect.client  # noqa: F401
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder
    warehouse = tmp_path_factory.mktemp("warehouse")
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": warehouse.as_uri()}
    for name, value in session_conf(master="local[2]", conf=conf, root=Path(__file__).parents[1]).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
