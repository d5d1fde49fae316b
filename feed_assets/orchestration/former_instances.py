"""Instances that are no partitions of what is declared now, because the definition that governs them had another
frequency, say: a job of each cluster that is given a process and times, and a sensor that asks for its runs.
"""

from dagster import (
    DagsterInstance,
    JobDefinition,
    OpExecutionContext,
    RunRequest,
    SensorDefinition,
    SensorResult,
    SkipReason,
    in_process_executor,
    job,
    op,
)

from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.lifecycle.requests import LaunchRequest, Way, apply_requests
from feed_assets.lifecycle.schedules import state_without_row
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import FindAsset, InstanceRun
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.releases import follow_plan
from feed_assets.orchestration.reloading import follow_definitions
from feed_assets.orchestration.runtime import Runtime
from feed_assets.orchestration.sensors import build_sensor
from feed_assets.timing.dates import parse_datetime, render_datetime

MINIMUM_SECONDS = 10
REQUESTS_A_TICK = 20


def build_instances_job(runtime: Runtime, find_asset: FindAsset, cluster: str) -> JobDefinition:
    """The job that runs listed instances of any process of a cluster. Its op's config is `process` and `times`."""

    @op(
        name=names.instances_op(cluster),
        config_schema={"process": str, "times": [str]},
        required_resource_keys={names.spark_resource(cluster)},
        description="Runs instances of a process by the definitions that govern them.",
    )
    def run_listed(context: OpExecutionContext) -> None:
        name, times = context.op_config["process"], context.op_config["times"]
        process = runtime.plan.processes.get((name, cluster))
        if process is None:
            raise EntityNotFoundError(kind="process", name=name, suggestions=())
        run = InstanceRun(context=context, runtime=runtime, process=process, find_asset=find_asset)
        run.run({text: parse_datetime(text) for text in sorted(times)})

    @job(
        name=names.instances_job(cluster),
        executor_def=in_process_executor,
        description=f"Runs instances on cluster {cluster} that are no partitions of what is declared now.",
    )
    def instances() -> None:
        run_listed()

    return instances


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
    return SensorResult(run_requests=[build_instances_request(request) for request in requests])


def build_instances_request(request: LaunchRequest) -> RunRequest:
    """The run of the cluster's job for a launch request."""
    process = request.process
    config = {"process": process.process, "times": [render_datetime(time) for time in request.nominal_times]}
    return RunRequest(
        run_key=request.key,
        run_config={"ops": {names.instances_op(process.cluster): {"config": config}}},
        tags={
            names.TAG_PROCESS: process.process,
            names.TAG_CLUSTER: process.cluster,
            names.TAG_REQUEST: request.key,
            **({names.PRIORITY: str(request.priority)} if request.priority else {}),
            **({names.TAG_QUEUE: process.queue} if process.queue else {}),
            **names.late_tags(request.late),
        },
    )
