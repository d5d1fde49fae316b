from collections.abc import Iterator

import pytest

from feed_assets.engines.java.machine import JavaMachine
from tests.spark_session import spark

__all__ = ["spark"]


@pytest.fixture(scope="package")
def machine() -> Iterator[JavaMachine]:
    with JavaMachine() as machine:
        yield machine
