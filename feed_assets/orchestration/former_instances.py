"""Instances that are no partitions of what is declared now, because the definition that governs them had another
frequency, say: a job of each cluster that is given a process and times, and a sensor that asks for its runs.
"""

from dagster import DagsterInstance, JobDefinition, SensorDefinition, SensorResult, SkipReason

from feed_assets.lifecycle.requests import Way
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import FindAsset
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.listed_instances import ask_for_runs, build_listed_job
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
    requests = ask_for_runs(
        runtime,
        cluster,
        database,
        present,
        as_of,
        way=Way.INSTANCES,
        op_name=names.instances_op(cluster),
        at_most=REQUESTS_A_TICK,
    )
    if not requests:
        return SensorResult(skip_reason=SkipReason("every ready instance is a partition of what is declared"))
    return SensorResult(run_requests=requests)
