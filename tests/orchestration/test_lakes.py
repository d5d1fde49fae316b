"""Processes over Iceberg tables on S3, run by Dagster on Spark: deleted rows, renamed and other columns, strays, and
what stands in the summary of a snapshot.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dagster import AssetKey
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from tests.lakes import SCHEMA, Lake, append, delete_rows
from tests.object_servers import BUCKET
from tests.orchestration.dagster_home import Home, materialized

pytestmark = [pytest.mark.spark, pytest.mark.server]

ENTITIES = """
    kind: cluster
    name: here
    storage: {storage}
    storage_options: {options}
    catalog: {catalog}
    catalog_options: {{warehouse: "{warehouse}"}}
    spark: {{master: "local[1]", conf: {{spark.sql.shuffle.partitions: "1"}}}}
    ---
    kind: feed
    name: clicks
    frequency: hours(1)
    table: "catalog:web:clicks#at_hour=${{YEAR}}-${{MONTH}}-${{DAY}}-${{HOUR}}"
    clusters: {{here: {{validity: {{start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}}}}
    ---
    kind: feed
    name: sums
    frequency: hours(1)
    columns: add
    table: "catalog:web:sums#region=eu;hour=${{HOUR}};at_day=${{YEAR}}-${{MONTH}}-${{DAY}}"
    clusters: {{here: {{validity: {{start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}}}}
    ---
    kind: feed
    name: strays
    frequency: hours(1)
    table: "catalog:web:sums#region=us;hour=${{HOUR}};at_day=${{YEAR}}-${{MONTH}}-${{DAY}}"
    clusters: {{here: {{validity: {{start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}}}}
    ---
    kind: process
    name: summing
    frequency: hours(1)
    clusters: {{here: {{validity: {{start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}}}}
    inputs: {{clicks: {{feed: clicks, start: "now(0,0)", end: "now(0,0)"}}}}
    outputs: {{sums: {{feed: sums, instance: "now(0,0)"}}}}
    workflow: {{engine: python, path: "jobs_of_test:summing"}}
    timeout: months(60)
    ---
    kind: process
    name: straying
    frequency: hours(1)
    clusters: {{here: {{validity: {{start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}}}}
    inputs: {{clicks: {{feed: clicks, start: "now(0,0)", end: "now(0,0)"}}}}
    outputs: {{strays: {{feed: strays, instance: "now(0,0)"}}}}
    workflow: {{engine: sql, path: straying.sql}}
    timeout: months(60)
"""
JOBS = """
    from pyspark.sql import functions as f

    def summing(clicks, context):
        sums = clicks.groupBy("at").agg(f.sum("number").alias("total"), f.count(f.lit(1)).alias("rows"))
        return sums.withColumn("hour", f.hour("at"))
"""
SUMS = Schema(
    NestedField(1, "at", TimestamptzType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "hour", IntegerType()),
    NestedField(4, "total", LongType()),
)
BY_DAY = PartitionSpec(
    PartitionField(1, 1000, DayTransform(), "at_day"),
    PartitionField(2, 1001, IdentityTransform(), "region"),
    PartitionField(3, 1002, IdentityTransform(), "hour"),
)
ONE = "2026-01-01-01:00"


@pytest.fixture
def lake(tmp_path: Path, s3_options: dict[str, object]) -> Lake:
    made = Lake(tmp_path, f"s3://{BUCKET}/{tmp_path.name}", s3_options)
    clicks = made.make("clicks", PartitionSpec(PartitionField(1, 1000, HourTransform(), "at_hour")), SCHEMA)
    made.make("sums", BY_DAY, SUMS)
    append(clicks, *({"at": datetime(2026, 1, 1, 1, n, tzinfo=UTC), "n": n} for n in (10, 20, 30)))
    append(clicks, {"at": datetime(2026, 1, 1, 2, tzinfo=UTC), "n": 99})
    (first, *_) = [each.file for each in clicks.refresh().scan(row_filter="n < 50").plan_files()]
    delete_rows(clicks, first, [1])
    with clicks.refresh().update_schema() as update:
        update.rename_column("n", "number")
    return made


def test_lakes_are_read_and_written_by_python_and_sql(lake: Lake, tmp_path: Path) -> None:
    home = Home(folder=tmp_path / "home")
    home.folder.mkdir()
    home.prepare(
        ENTITIES.format(
            storage=lake.storage,
            options=json.dumps(lake.options),
            catalog=lake.address,
            warehouse=lake.catalog_options["warehouse"],
        ),
        JOBS,
    )
    (home.folder / "straying.sql").write_text("SELECT at, 'eu' AS region, number AS total FROM clicks")

    done = home.run(
        "asset", "materialize", "-f", "definitions.py", "--select", "here/sums,here/strays", "--partition", ONE
    )

    assert done.returncode == 1
    assert "rows of another partition than region=us/hour=01/at_day=2026-01-01 were returned: 2" in done.stderr
    sums = lake.table("sums")
    rows = sums.scan().to_arrow().to_pylist()
    assert sorted((row["at"].minute, row["region"], row["hour"], row["total"], row["rows"]) for row in rows) == [
        (10, "eu", 1, 10, 1),
        (30, "eu", 1, 30, 1),
    ]
    snapshot = sums.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    told = snapshot.summary.additional_properties
    assert told["feed-assets.process"] == "summing"
    assert told["feed-assets.fence"]
    with home.instance() as instance:
        (event,) = instance.fetch_materializations(AssetKey(["here", "sums"]), limit=10).records
        assert event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        assert metadata["dagster/partition_row_count"].value == 2
        assert materialized(instance, "here", "strays") == set()
