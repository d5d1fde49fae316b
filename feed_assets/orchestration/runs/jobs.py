"""The jobs of a cluster: listed instances, copies, and retention; and the checks that judge what comes from outside.

Every Dagster run loads the location, so the modules that an op needs are imported when it runs.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from feed_assets.command_lines import command_line
from feed_assets.masking import masked_errors
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout, FindAsset
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.feed_checks import build_quality_check, build_quality_evaluation, to_result
from feed_assets.orchestration.runs.operation import Operation
from feed_assets.plan.records import FeedRecord

if TYPE_CHECKING:
    from feed_assets.instances.late.quality_checks import QualityCheck


def build_instances_job(runtime: Runtime, find_asset: FindAsset, cluster: str) -> dg.JobDefinition:
    """Build the job that runs instances of any process of a cluster that are not partitions of the current
    definitions, and judges those of feeds that come from outside.
    """
    return _build_listed_job(
        runtime,
        find_asset,
        cluster,
        names.OfCluster.INSTANCES_JOB.of(cluster),
        names.OfCluster.INSTANCES_OP.of(cluster),
        f"Runs instances on cluster {cluster} that are not partitions of the current definitions, by the release that "
        "applies to them, and judges the rows of instances of feeds that come from outside.",
    )


def build_replication_job(runtime: Runtime, find_asset: FindAsset, cluster: str) -> dg.JobDefinition:
    """Build the job that copies instances to a cluster."""
    return _build_listed_job(
        runtime,
        find_asset,
        cluster,
        names.OfCluster.REPLICATION_JOB.of(cluster),
        names.OfCluster.REPLICATION_OP.of(cluster),
        f"Copies instances of a feed from one of its sources to cluster {cluster}.",
    )


def _build_listed_job(
    runtime: Runtime, find_asset: FindAsset, cluster: str, name: str, op_name: str, description: str
) -> dg.JobDefinition:
    """Build a job of one op that runs listed instances on a cluster. Its config is `process`, or `feed` whose instances
    are judged, and `times`.
    """

    @dg.op(
        name=op_name,
        config_schema={
            "process": dg.Field(str, is_required=False),
            "feed": dg.Field(str, is_required=False),
            "times": [str],
        },
        required_resource_keys={names.OfCluster.SPARK.of(cluster)},
        description=description,
    )
    def listed_op(context: dg.OpExecutionContext) -> None:
        from feed_assets.orchestration.runs.listed_instances import run_listed

        with masked_errors():
            run_listed(runtime, find_asset, cluster, context)

    @dg.job(name=name, executor_def=dg.in_process_executor, description=description)
    def listed() -> None:
        listed_op()

    return listed


def build_operate_job(runtime: Runtime) -> dg.JobDefinition:
    """Build the job for what Dagster has no button for."""

    @dg.op(name=names.OPERATE_OP)
    def operate_op(context: dg.OpExecutionContext, config: Operation) -> None:
        from feed_assets.orchestration.runs.operating import operate

        with masked_errors():
            operate(runtime, context, config)

    @dg.job(
        name=names.OPERATE_JOB,
        executor_def=dg.in_process_executor,
        description="Does what Dagster has no button for, as the commands do it: rerun, kill, suspend and resume "
        "instances, hold them, approve a sweep or undo it. In the launchpad, fill "
        "in `action` and `name`, and `instance` or `start` and `end`; `dry_run` changes nothing. A rerun with "
        "`downstream` needs the `digest` that its dry run says.",
    )
    def operate_job() -> None:
        operate_op()

    return operate_job


def build_retention_job(runtime: Runtime, cluster: str) -> dg.JobDefinition:
    """Build the job that plans and runs the sweeps of a cluster, empties its trash, and cleans up after old runs."""
    plan, sweep, purge = _plan_op(runtime, cluster), _sweep_op(runtime, cluster), _purge_op(runtime, cluster)
    clean = _clean_op(runtime, cluster)

    @dg.job(
        name=names.OfCluster.RETENTION_JOB.of(cluster),
        executor_def=dg.in_process_executor,
        description=f"Evicts expired instances on cluster {cluster}. Its sweeps: "
        f"`{command_line('retention', 'list', clusters=[cluster])}`",
    )
    def retention() -> None:
        purge(after=sweep(plan()))
        clean()

    return retention


def _plan_op(runtime: Runtime, cluster: str) -> dg.OpDefinition:
    @dg.op(
        name=names.retention_op("plan", cluster),
        out=dg.Out(list[str]),
        required_resource_keys={names.OfCluster.SPARK.of(cluster)},
        description="Plans sweeps of the feeds for which retention is due, and stores them. Removes nothing.",
    )
    def plan_op(context: dg.OpExecutionContext) -> list[str]:
        from feed_assets.orchestration.runs.retention import plan_due_feeds

        with masked_errors():
            return plan_due_feeds(runtime, cluster, context)

    return plan_op


def _sweep_op(runtime: Runtime, cluster: str) -> dg.OpDefinition:
    @dg.op(
        name=names.retention_op("sweep", cluster),
        out=dg.Out(dg.Nothing),
        required_resource_keys={names.OfCluster.SPARK.of(cluster)},
        description="Moves expired instances to the trash or archive: small sweeps on the driver, "
        "large ones on Spark's executors.",
    )
    def sweep_op(context: dg.OpExecutionContext, sweeps: list[str]) -> None:
        from feed_assets.orchestration.runs.retention import run_sweeps

        with masked_errors():
            run_sweeps(runtime, cluster, context, sweeps)

    return sweep_op


def _purge_op(runtime: Runtime, cluster: str) -> dg.OpDefinition:
    @dg.op(
        name=names.retention_op("purge", cluster),
        ins={"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        description="Removes expired trash for good.",
    )
    def purge_op(context: dg.OpExecutionContext) -> None:
        from feed_assets.orchestration.runs.retention import purge_trash

        with masked_errors():
            purge_trash(runtime, cluster, context)

    return purge_op


def _clean_op(runtime: Runtime, cluster: str) -> dg.OpDefinition:
    @dg.op(
        name=names.retention_op("clean", cluster),
        out=dg.Out(dg.Nothing),
        description="Removes the captured logs of old runs, once a day. Runs and materializations stay.",
    )
    def clean_op(context: dg.OpExecutionContext) -> None:
        from feed_assets.orchestration.runs.retention import run_cleanup

        with masked_errors():
            run_cleanup(runtime, cluster, context)

    return clean_op


def build_outside_checks(runtime: Runtime, layout: AssetLayout, cluster: str) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the feeds on a cluster whose instances come from outside and are judged. Sensors request
    runs that judge; the op of a check judges a partition, too, and tells what is known of it.
    """
    feeds = [each for each in layout.plan.feeds.values() if each.cluster == cluster and each.is_judged]
    return [_build_outside_check(runtime, layout, each) for each in feeds]


def _build_outside_check(runtime: Runtime, layout: AssetLayout, feed: FeedRecord) -> dg.AssetChecksDefinition:
    asset, grid = layout.feed_asset(feed.key)

    @dg.multi_asset_check(
        name=names.quality_op(feed.key),
        specs=build_quality_check(asset, feed, grid),
        required_resource_keys={names.OfCluster.SPARK.of(feed.cluster)},
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from feed_assets.orchestration.runs.listed_instances import judge_instances

        with masked_errors():
            known: list[QualityCheck] = []
            partition = None if grid.is_single else context.partition_key
            judge_instances(context, runtime, feed, [grid.nominal_time(partition or "")], known.append)
            assert feed.quality is not None
            for each in known:
                yield to_result(build_quality_evaluation(asset, partition, feed.quality, each))

    return check
