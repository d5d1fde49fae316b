"""The schedules of a cluster. They query every minute whether there is work to do.

Every Dagster run loads the location, so the modules of a schedule are imported by its first tick.
"""

from dagster import (
    DefaultScheduleStatus,
    JobDefinition,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    schedule,
)

from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.runtime import Runtime

EVERY_MINUTE = "* * * * *"


def build_retention_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: JobDefinition
) -> ScheduleDefinition:
    """Build the schedule that starts retention on a cluster when a feed is due."""

    @schedule(
        name=of_job.name,
        job=of_job,
        cron_schedule=EVERY_MINUTE,
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"Checks every minute whether retention is due for a feed on cluster {cluster}.",
    )
    def retention(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        from feed_assets.orchestration.retention import run_retention_tick

        return run_retention_tick(runtime, layout, cluster, context.instance)

    return retention


def build_replication_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: JobDefinition
) -> ScheduleDefinition:
    """Build the schedule that requests ready copies to a cluster."""

    @schedule(
        name=of_job.name,
        job=of_job,
        cron_schedule=EVERY_MINUTE,
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"Requests every minute the ready copies to cluster {cluster}.",
    )
    def replication(context: ScheduleEvaluationContext) -> list[RunRequest] | SkipReason:
        from feed_assets.orchestration.replication import run_replication_tick

        return run_replication_tick(runtime, layout, cluster, context.instance)

    return replication
