"""Instances that are no partitions of what is declared now, because the definition that governs them had another
frequency, say: a job of each cluster that is given a process and times, and a sensor that asks for its runs.
"""

from dagster import DagsterInstance, JobDefinition, SensorDefinition, SensorResult, SkipReason

from feed_assets.lifecycle.requests import Way, apply_requests
from feed_assets.lifecycle.schedules import state_without_row
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import FindAsset
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.listed_instances import build_listed_job, build_listed_request
from feed_assets.orchestration.releases import follow_plan
from feed_assets.orchestration.reloading import follow_definitions
from feed_assets.orchestration.runtime import Runtime
from feed_assets.orchestration.sensors import build_sensor

MINIMUM_SECONDS = 10
REQUESTS_A_TICK = 20


def build_instances_job(runtime: Runtime, find_asset: FindAsset, cluster: str) -> JobDefinition:
    """The job that runs such instances of any process of a cluster."""
    return build_listed_job(
        runtime,
        find_asset,
        cluster,
        names.instances_job(cluster),
        names.instances_op(cluster),
        f"Runs instances on cluster {cluster} that are no partitions of what is declared now, by the definitions that "
        "govern them.",
    )


def build_instances_sensor(runtime: Runtime, layout: AssetLayout, cluster: str) -> SensorDefinition:
    """The sensor that asks for runs of instances that are no partitions of what is declared now."""
    return build_sensor(
        names.instances_job(cluster),
        lambda context: run_instances_tick(runtime, layout, cluster, context.instance),
        description=f"Requests instances on cluster {cluster} that a definition of the past governs.",
        minimum_seconds=MINIMUM_SECONDS,
        job_name=names.instances_job(cluster),
    )


def run_instances_tick(runtime: Runtime, layout: AssetLayout, cluster: str, instance: DagsterInstance) -> SensorResult:
    """Ask for runs of what is ready and no partition of what is declared now."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    present = follow_definitions(runtime, layout, database, as_of)
    governance = follow_plan(runtime, present.location, database, as_of)
    requests = apply_requests(
        database,
        governance,
        cluster,
        as_of,
        runtime.wall.now(),
        REQUESTS_A_TICK,
        way=Way.INSTANCES,
        without_row=state_without_row(runtime.settings.schedule),
    )
    if not requests:
        return SensorResult(skip_reason=SkipReason("every ready instance is a partition of what is declared"))
    op_name = names.instances_op(cluster)
    return SensorResult(run_requests=[build_listed_request(request, op_name) for request in requests])
