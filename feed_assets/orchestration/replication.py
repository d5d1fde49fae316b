"""Replication in Dagster: one schedule and one job a cluster, for all feeds that are copied to it.

The arrival sensors let copies come into being at the frequencies of their feeds, and open their gates when the sources
have arrived. The schedule asks every minute for the runs of what is ready, and so catches up what was missed. A run
copies many instances at once, on Spark's executors where that is worth it. By hand a replica is materialized like any
asset.
"""

from dagster import (
    DagsterInstance,
    DefaultScheduleStatus,
    JobDefinition,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    schedule,
)

from feed_assets.lifecycle.requests import Way
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import FindAsset
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.listed_instances import ask_for_runs, build_listed_job
from feed_assets.orchestration.reloading import follow_definitions
from feed_assets.orchestration.runtime import Runtime

EVERY_MINUTE = "* * * * *"
REQUESTS_A_TICK = 50


def build_replication_job(runtime: Runtime, find_asset: FindAsset, cluster: str) -> JobDefinition:
    """The job that copies instances to a cluster."""
    return build_listed_job(
        runtime,
        find_asset,
        cluster,
        names.replication_job(cluster),
        names.replication_op(cluster),
        f"Copies instances of a feed from one of its sources to cluster {cluster}.",
    )


def build_replication_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: JobDefinition
) -> ScheduleDefinition:
    """The schedule that asks for the copies to a cluster that are ready."""

    @schedule(
        name=names.replication_job(cluster),
        job=of_job,
        cron_schedule=EVERY_MINUTE,
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"Looks every minute for copies to cluster {cluster} whose sources are there.",
    )
    def replication(context: ScheduleEvaluationContext) -> list[RunRequest] | SkipReason:
        return run_replication_tick(runtime, layout, cluster, context.instance)

    return replication


def run_replication_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: DagsterInstance
) -> list[RunRequest] | SkipReason:
    """Ask for runs of the copies that are ready; one question if there are none."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    present = follow_definitions(runtime, layout, database, as_of)
    if present.is_safe_mode:
        return SkipReason("safe mode is on")
    requests = ask_for_runs(
        runtime,
        cluster,
        database,
        present,
        as_of,
        way=Way.COPIES,
        op_name=names.replication_op(cluster),
        at_most=REQUESTS_A_TICK,
    )
    if not requests:
        return SkipReason("no copy is ready, or as many as may run at once are under way")
    return requests
