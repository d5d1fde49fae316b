"""Request runs of instances that are not partitions of the current definitions.

For example, their release had another frequency. Each cluster has a job that receives a process and times, and a sensor
that requests its runs.
"""

from dagster import DagsterInstance, SensorResult, SkipReason

from feed_assets.lifecycle.instances.requests import LaunchMode
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.reloading import follow_definitions
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.listed_instances import request_runs

REQUESTS_A_TICK = 20


def run_instances_tick(runtime: Runtime, layout: AssetLayout, cluster: str, instance: DagsterInstance) -> SensorResult:
    """Request runs of ready instances that are not partitions of the current definitions."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    active = follow_definitions(runtime, layout, database, as_of)
    requests = request_runs(
        runtime,
        cluster,
        database,
        active,
        as_of,
        mode=LaunchMode.INSTANCES,
        op_name=names.instances_op(cluster),
        at_most=REQUESTS_A_TICK,
    )
    if not requests:
        return SensorResult(skip_reason=SkipReason("every ready instance is a partition of the current definitions"))
    return SensorResult(run_requests=requests)
