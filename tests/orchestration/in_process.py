"""Runs of Dagster in this process, on the Spark session of the tests: all but a daemon, a worker and their start."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from dagster import AssetKey, DagsterInstance, ExecuteInProcessResult
from pyspark.sql import SparkSession

from feed_assets.orchestration.definitions import build_definitions
from feed_assets.settings import load_settings
from feed_assets.testing.projects import GivenSpark
from tests.orchestration.dagster_home import Home


@dataclass
class Materializer:
    """Materializes the sums of a project, as a worker of Dagster does."""

    home: Home
    instance: DagsterInstance
    spark: SparkSession

    def run(
        self,
        first: str,
        last: str | None = None,
        tags: Mapping[str, str] | None = None,
        assets: Sequence[str] = ("sums",),
    ) -> ExecuteInProcessResult:
        """A run of one partition, or of a range, of some assets on `here`."""
        settings = load_settings(
            environ={
                "FEED_ASSETS_ENTITIES": "entities",
                "FEED_ASSETS_VARIABLES__DATA_ROOT": str(self.home.data),
                **self.home.settings,
            },
            start=self.home.folder,
        )
        made = build_definitions(settings=settings, resources={"spark_here": GivenSpark(self.spark)})
        ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        return made.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[AssetKey(["here", asset]) for asset in assets],
            partition_key=None if last else first,
            tags={**(tags or {}), **({name: value for name, value in ends.items() if value} if last else {})},
            instance=self.instance,
            raise_on_error=False,
        )


@contextmanager
def materializer(
    home: Home, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Materializer]:
    """With the jobs of a project, which other projects have by the same name."""
    monkeypatch.syspath_prepend(str(home.folder))
    monkeypatch.delitem(sys.modules, "jobs_of_test", raising=False)
    yield Materializer(home, instance, spark)
    sys.modules.pop("jobs_of_test", None)
