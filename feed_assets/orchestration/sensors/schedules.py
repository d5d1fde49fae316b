"""The schedules of a cluster. They query every minute whether there is work to do.

Every Dagster run loads the location, so the modules of a schedule are imported by its first tick.
"""

from collections.abc import Callable

from dagster import (
    DefaultScheduleStatus,
    JobDefinition,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    schedule,
)

from feed_assets.masking import masked_errors
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.runtime import Runtime

EVERY_MINUTE = "* * * * *"


def build_retention_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: JobDefinition
) -> ScheduleDefinition:
    """Build the schedule that starts retention on a cluster when a feed is due."""

    def tick(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        from feed_assets.orchestration.runs.retention import run_retention_tick

        return run_retention_tick(runtime, layout, cluster, context.instance)

    description = f"Checks every minute whether retention is due for a feed on cluster {cluster}."
    return _build_schedule(of_job, tick, description)


def build_replication_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: JobDefinition
) -> ScheduleDefinition:
    """Build the schedule that requests ready copies to a cluster."""

    def tick(context: ScheduleEvaluationContext) -> list[RunRequest] | SkipReason:
        from feed_assets.orchestration.runs.listed_instances import run_replication_tick

        return run_replication_tick(runtime, layout, cluster, context.instance)

    return _build_schedule(of_job, tick, f"Requests every minute the ready copies to cluster {cluster}.")


def _build_schedule(
    of_job: JobDefinition,
    tick: Callable[[ScheduleEvaluationContext], RunRequest | list[RunRequest] | SkipReason],
    description: str,
) -> ScheduleDefinition:
    """Build a schedule from a tick function. It runs every minute and has the name of its job."""

    @schedule(
        name=of_job.name,
        job=of_job,
        cron_schedule=EVERY_MINUTE,
        default_status=DefaultScheduleStatus.RUNNING,
        description=description,
    )
    def evaluate(context: ScheduleEvaluationContext) -> RunRequest | list[RunRequest] | SkipReason:
        with masked_errors():
            return tick(context)

    return evaluate
