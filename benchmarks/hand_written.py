"""The peer of a loaded location: the same assets, hand-written for Dagster in one Python module."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.workload import Pair

_HEAD = """\
from dagster import (
    AssetDep, AssetExecutionContext, AssetSelection, AssetSpec, BackfillPolicy, Definitions, SkipReason, TableColumn,
    TableSchema, TimeWindowPartitionMapping, TimeWindowPartitionsDefinition, asset, in_process_executor, sensor,
)
from dagster_pyspark import LazyPySparkResource

hours = TimeWindowPartitionsDefinition(
    start="2025-01-01-00:00", end="2027-01-01-00:00", fmt="%Y-%m-%d-%H:%M", cron_schedule="0 * * * *", end_offset=1
)
same_hour = TimeWindowPartitionMapping(start_offset=0, end_offset=0, allow_nonexistent_upstream_partitions=True)
"""
_PAIR = """
source_{n} = AssetSpec(
    ["primary", "source-{n}"],
    partitions_def=hours,
    group_name="group_{group}",
    description="Source {number}",
    metadata={{
        "frequency": "hours(1)",
        "validity": "2025-01-01T00:00Z to 2027-01-01T00:00Z",
        "timezone": "UTC",
        "format": "parquet",
        "path": "/source-{n}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}",
        "availability_flag": "_SUCCESS",
        "retention": "days(800)",
        "dagster/uri": "file:///data/source-{n}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}",
        "dagster/column_schema": TableSchema(
            columns=[
                TableColumn("id", "string"), TableColumn("amount", "double"), TableColumn("recorded_at", "timestamp"),
            ]
        ),
    }},
    owners=["team:ops"],
    tags={{"owner": "ops", "classification": "public"}},
    kinds={{"parquet", "feed"}},
)


@asset(
    key=["primary", "result-{n}"],
    deps=[AssetDep(["primary", "source-{n}"], partition_mapping=same_hour)],
    partitions_def=hours,
    group_name="group_{group}",
    description="Result {number}",
    metadata={{
        "frequency": "hours(1)",
        "validity": "2025-01-01T00:00Z to 2027-01-01T00:00Z",
        "timezone": "UTC",
        "format": "parquet",
        "path": "/result-{n}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}",
        "availability_flag": "_SUCCESS",
        "retention": "days(800)",
        "dagster/uri": "file:///data/result-{n}/${{YEAR}}/${{MONTH}}/${{DAY}}/${{HOUR}}",
        "dagster/column_schema": TableSchema(
            columns=[
                TableColumn("id", "string"), TableColumn("amount", "double"), TableColumn("recorded_at", "timestamp"),
            ]
        ),
        "workflow": "python jobs:result",
        "parallel": 2,
        "order": "FIFO",
        "timeout": "hours(12)",
        "input": "source-{n} now(0,0) to now(0,0)",
        "retry": "exp-backoff, minutes(5), 3 attempts",
    }},
    owners=["team:ops"],
    tags={{"owner": "ops", "classification": "public"}},
    kinds={{"parquet", "spark", "python"}},
    pool="process-{n}",
    backfill_policy=BackfillPolicy.single_run(),
    required_resource_keys={{"spark"}},
)
def result_{n}(context: AssetExecutionContext) -> None:
    context.resources.spark.spark_session.range(1).write.parquet(f"/data/result-{n}/{{context.partition_key}}")
"""
_TAIL = """
@sensor(asset_selection=AssetSelection.all())
def arrival(context):
    return SkipReason("nothing has arrived")


defs = Definitions(
    assets=[{names}],
    sensors=[arrival],
    resources={{"spark": LazyPySparkResource(spark_config={{}})}},
    executor=in_process_executor,
)
"""


def write_hand_written(folder: Path, pairs: Sequence[Pair]) -> None:
    """Write the module `definitions` to its own folder."""
    folder.mkdir(parents=True)
    bodies = [_PAIR.format(n=f"{pair.number:04d}", number=pair.number, group=pair.group) for pair in pairs]
    names = ", ".join(f"source_{pair.number:04d}, result_{pair.number:04d}" for pair in pairs)
    (folder / "definitions.py").write_text(_HEAD + "".join(bodies) + _TAIL.format(names=names))
