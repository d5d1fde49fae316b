"""A process as work in a Dagster run: the instances of the run's partitions, one after the other in one session.

Each instance is published and told of by itself, so one that fails takes no other along; the run then fails naming it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    Failure,
    MaterializeResult,
    MetadataValue,
)
from dagster_pyspark import LazyPySparkResource

from feed_assets.engines.sessions import session_conf
from feed_assets.entities.process import Order
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.execution import InstanceRunner, Published
from feed_assets.orchestration import names
from feed_assets.orchestration.partitions import Grid
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.records import ClusterRecord, Key, ProcessRecord
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstanceStatus, ProcessKey
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA_VERSION = "dagster/data_version"
ALREADY_TOLD = "__source_asset_observation__"
"""Metadata key by which Dagster leaves out the event it would write for an output. It is Dagster's own, not public:
a ranged run has told of each partition already, and there is no public way to yield an output without an event for
every partition of the range, those that failed included. `tests/orchestration` holds it against the real thing.
"""


def materialize_process(
    context: AssetExecutionContext,
    runtime: Runtime,
    process: ProcessRecord,
    grid: Grid,
    keys: Mapping[Key, tuple[AssetKey, Grid]],
    own_key: AssetKey | None,
) -> Iterator[MaterializeResult[None]]:
    """Run the instances of the run's partitions and tell Dagster of each output as it is published."""
    database = runtime.database(context.instance)
    spark: LazyPySparkResource = getattr(context.resources, names.spark_resource(process.cluster))
    runner = InstanceRunner(
        database=database,
        stores=runtime.stores,
        plan=runtime.plan,
        clock=runtime.clock,
        wall=runtime.wall,
        root=runtime.root,
        run_id=context.run_id,
        session=lambda: _session(spark, runtime.plan.clusters[process.cluster], context.run_id),
    )
    request = None if context.run.parent_run_id else context.run.tags.get(names.TAG_REQUEST)
    failures: dict[str, str] = {}
    for partition in in_order(process.order, context.partition_keys):
        try:
            nominal_time = process.sequence.at(process.sequence.index(grid.nominal_time(partition)))
            if request is not None and not _is_wanted(runtime, context, process, nominal_time, request):
                context.log.info(f"{partition} needs no run any more")
                continue
            published = runner.run(process, nominal_time, lambda done: _tell(context, done, keys))
            if own_key is not None:
                context.log_event(_own_event(own_key, partition, process, published))
        except Exception as exc:
            failures[partition] = f"{type(exc).__name__}: {exc}"
            context.log.error(
                f"{partition} failed: {failures[partition]}", exc_info=not isinstance(exc, FeedAssetsError)
            )
    if failures:
        raise Failure(
            description=_describe(process, failures, len(context.partition_keys)),
            metadata={partition: MetadataValue.text(reason) for partition, reason in failures.items()},
            allow_retries=False,
        )
    for key in context.selected_asset_keys:
        yield MaterializeResult(asset_key=key, metadata={ALREADY_TOLD: True})


def _session(spark: LazyPySparkResource, cluster: ClusterRecord, run_id: str) -> "SparkSession":
    """The run's session; on a Spark Connect server it has the run's id, so that others can stop what it left behind."""
    if cluster.spark_remote is not None and spark.spark_config.get("spark.remote") == cluster.spark_remote:
        conf = session_conf(remote=cluster.spark_remote, conf=dict(cluster.spark_conf), run_id=run_id)
        spark = LazyPySparkResource(spark_config=conf)
    session: SparkSession = spark.spark_session
    return session


def in_order(order: Order, partitions: Sequence[str]) -> Sequence[str]:
    """The partitions of a range as the process takes them: newest first with LIFO, else oldest first."""
    return partitions[::-1] if order is Order.LIFO else partitions


def _describe(process: ProcessRecord, failures: Mapping[str, str], total: int) -> str:
    others = "" if len(failures) == total else f" The other {total - len(failures)} are published."
    first = next(iter(failures.values()))
    return f"process '{process.process}' failed for {', '.join(failures)}: {first}{others}"


def _is_wanted(
    runtime: Runtime, context: AssetExecutionContext, process: ProcessRecord, nominal_time: datetime, request: str
) -> bool:
    """Whether the instance still is what the sensor asked for; a run started or repeated by hand always is."""
    with runtime.database(context.instance).read() as connection:
        row = ProcessInstances(connection).get(*ProcessKey(*process.key, nominal_time))
    return row is None or (
        row.request_key == request and row.status in {ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING}
    )


def _tell(context: AssetExecutionContext, done: Published, keys: Mapping[Key, tuple[AssetKey, Grid]]) -> None:
    key, grid = keys[done.record.key]
    context.log_event(
        AssetMaterialization(
            asset_key=key,
            partition=grid.key(done.nominal_time),
            metadata=published_metadata(done),
            tags={DATA_VERSION: done.manifest.digest},
        )
    )


def published_metadata(done: Published) -> dict[str, MetadataValue | str | int | float]:
    """What a partition's page shows of a published instance."""
    metadata: dict[str, MetadataValue | str | int | float] = {
        "dagster/uri": MetadataValue.url(done.url),
        names.META_NOMINAL: render_datetime(done.nominal_time),
        names.META_BYTES: done.manifest.bytes,
        names.META_FILES: done.manifest.files,
        names.META_INPUTS: MetadataValue.json(dict(done.inputs)),
        names.META_ATTEMPT: done.attempt,
        names.META_SECONDS: round(done.seconds, 3),
    }
    if done.rows is not None:
        metadata["dagster/partition_row_count"] = MetadataValue.int(done.rows)
    if done.missing:
        missing = {name: [render_datetime(time) for time in times] for name, times in done.missing.items()}
        metadata[names.META_MISSING] = MetadataValue.json(missing)
    for name, value in done.details.items():
        metadata[names.META_DETAIL + name] = value
    return metadata


def _own_event(
    key: AssetKey, partition: str, process: ProcessRecord, published: tuple[Published, ...]
) -> AssetMaterialization:
    written = {done.output: f"{done.record.feed} {render_datetime(done.nominal_time)}" for done in published}
    return AssetMaterialization(
        asset_key=key,
        partition=partition,
        metadata={names.META_OUTPUT + name: text for name, text in written.items()},
        description=f"process '{process.process}' has run",
    )
