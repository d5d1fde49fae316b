from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance

from tests.orchestration.dagster_home import Home, open_dagster
from tests.orchestration.hand_ticked import LocationHarness
from tests.spark_session import spark

__all__ = ["spark"]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """A Dagster instance of its own, in a folder beside the project's."""
    with open_dagster(tmp_path / "instance") as made:
        yield made


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> LocationHarness:
    """The small declaration at noon."""
    return LocationHarness(Home(folder=tmp_path), instance)
