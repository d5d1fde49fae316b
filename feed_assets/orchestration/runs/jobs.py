"""The jobs of a cluster: listed instances, copies, and retention; and the checks that judge what comes from outside.

Every Dagster run loads the location, so the modules that an op needs are imported when it runs.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

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


_LISTED = {
    names.OfCluster.INSTANCES_JOB: (
        names.OfCluster.INSTANCES_OP,
        "Runs instances on cluster {} that are not partitions of the current definitions, by the release that applies "
        "to them, and judges the rows of instances of feeds that come from outside.",
    ),
    names.OfCluster.REPLICATION_JOB: (
        names.OfCluster.REPLICATION_OP,
        "Copies instances of a feed from one of its sources to cluster {}.",
    ),
}
"""The jobs for listed instances, each with its op and what it does on a cluster."""


def build_listed_job(runtime: Runtime, find_asset: FindAsset, cluster: str, job: names.OfCluster) -> dg.JobDefinition:
    """Build a job of one op that runs listed instances on a cluster. Its config is `process`, or `feed` whose instances
    are judged, and `times`.
    """
    of_op, what = _LISTED[job]
    description = what.format(cluster)

    @dg.op(
        name=of_op.of(cluster),
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

    @dg.job(name=job.of(cluster), executor_def=dg.in_process_executor, description=description)
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


_RETENTION: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "plan": (
        "Plans sweeps of the feeds for which retention is due, and stores them. Removes nothing.",
        {"out": dg.Out(list[str])},
    ),
    "sweep": (
        "Moves expired instances to the trash or archive: small sweeps on the driver, large ones on Spark's executors.",
        {"ins": {"sweeps": dg.In(list[str])}, "out": dg.Out(dg.Nothing)},
    ),
    "purge": (
        "Removes expired trash for good.",
        {"ins": {"after": dg.In(dg.Nothing)}, "out": dg.Out(dg.Nothing)},
    ),
    "clean": (
        "Removes the captured logs of old runs, once a day. Runs and materializations stay.",
        {"out": dg.Out(dg.Nothing)},
    ),
}
"""What the ops of retention do, and their inputs and outputs."""


def build_retention_job(runtime: Runtime, cluster: str) -> dg.JobDefinition:
    """Build the job that plans and runs the sweeps of a cluster, empties its trash, and cleans up after old runs."""
    plan, sweep, purge, clean = (_retention_op(runtime, cluster, step) for step in _RETENTION)

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


def _retention_op(runtime: Runtime, cluster: str, step: str) -> dg.OpDefinition:
    description, ends = _RETENTION[step]

    @dg.op(
        name=names.retention_op(step, cluster),
        required_resource_keys={names.OfCluster.SPARK.of(cluster)},
        description=description,
        **ends,
    )
    def work(context: dg.OpExecutionContext, **given: list[str]) -> list[str] | None:
        from feed_assets.orchestration.runs.retention import STEPS

        with masked_errors():
            return STEPS[step](runtime, cluster, context, **given)

    return work


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
