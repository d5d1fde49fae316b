"""What a run tells: the steps of its instances in its log, its columns and rows, and a warning when columns change."""

import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.orchestration.dagster_home import Home
from tests.orchestration.in_process import Materializer, materializer
from tests.orchestration.small import ENTITIES, key, land
from tests.orchestration.told import lineage

JOBS = """
from pyspark.sql import functions as f

def summing(numbers, context):
    total = f.sum("n").alias("total")
    columns = {1: [total, f.lit("x").alias("kind")], 2: [total.cast("double").alias("total")]}
    return numbers.agg(*columns.get(context.nominal_time.hour, [total]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(folder=tmp_path, settings={"FEED_ASSETS_PREVIEWS": "true"})
    declared = ENTITIES.replace("feed: sums, inst", "feed: sums, column_lineage: {total: numbers.n}, inst")
    made.prepare(declared.replace('    schema: "total bigint"\n', ""), JOBS)
    return made


@pytest.fixture
def made(home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Materializer]:
    with home.instance() as instance, materializer(home, instance, spark, monkeypatch) as made:
        yield made


def lines_of(made: Materializer, done: dg.ExecuteInProcessResult) -> list[str]:
    """The lines of a run's log that we wrote, without figures of time and size."""
    entries = made.instance.all_logs(done.run_id)
    texts = (each.user_message for each in entries if not each.is_dagster_event and each.level == 20)
    return [re.sub(r"[\d,]+ bytes|\d+\.\d s", "…", text) for text in texts]


@pytest.mark.spark
def test_a_run_tells_its_steps_and_warns_of_changed_columns(home: Home, made: Materializer) -> None:
    for hour in range(3):
        land(home.data, hour, 1, 2)
    first = made.run(key(0))
    assert lines_of(made, first) == [
        "2026-01-01T00:00Z reads numbers (1 instance, 1 file, …) in …",
        "2026-01-01T00:00Z Spark session started in …",
        "2026-01-01T00:00Z staged sums (1 row) in …",
        "2026-01-01T00:00Z verified sums in …",
        "2026-01-01T00:00Z published sums (1 file, …) in …",
    ]
    assert [each.passed for each in first.get_asset_check_evaluations()] == [True]
    (told,) = made.instance.fetch_materializations(dg.AssetKey(["here", "sums"]), limit=1).records
    assert told.asset_materialization is not None
    schema = told.asset_materialization.metadata["dagster/column_schema"].value
    described = [(column.name, column.type, column.description) for column in schema.columns]
    assert described == [("total", "bigint", "of numbers.n")]
    made_of = told.asset_materialization.metadata["dagster/column_lineage"].value
    assert made_of == lineage(total=[("here/numbers", "n")])
    assert told.asset_materialization.metadata["feed_assets/rows"].value == 1
    preview = told.asset_materialization.metadata["feed_assets/preview"]
    assert isinstance(preview, dg.TableMetadataValue)
    assert [dict(row.data) for row in preview.records] == [{"total": "3"}]

    (found,) = made.run(key(1), key(2)).get_asset_check_evaluations()
    assert (found.passed, found.severity, found.check_name) == (
        False,
        dg.AssetCheckSeverity.WARN,
        "column_schema_change",
    )
    assert (found.description or "").splitlines() == [
        "- 2026-01-01-01:00: kind (string) was added",
        "- 2026-01-01-02:00: kind (string) is gone",
        "- 2026-01-01-02:00: total was bigint and is double",
    ]
