"""Jobs that are told which instances to run: the config of their op names a process or flow, and nominal times."""

from dagster import JobDefinition, OpExecutionContext, RunRequest, in_process_executor, job, op

from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.lifecycle.requests import LaunchRequest
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import FindAsset, InstanceRun
from feed_assets.orchestration.runtime import Runtime
from feed_assets.timing.dates import parse_datetime, render_datetime


def build_listed_job(
    runtime: Runtime, find_asset: FindAsset, cluster: str, name: str, op_name: str, description: str
) -> JobDefinition:
    """A job of one op that runs listed instances on a cluster. Its config is `process` and `times`."""

    @op(
        name=op_name,
        config_schema={"process": str, "times": [str]},
        required_resource_keys={names.spark_resource(cluster)},
        description=description,
    )
    def run_listed(context: OpExecutionContext) -> None:
        name, times = context.op_config["process"], context.op_config["times"]
        process = runtime.plan.processes.get((name, cluster))
        if process is None:
            raise EntityNotFoundError(kind="process", name=name, suggestions=())
        run = InstanceRun(context=context, runtime=runtime, process=process, find_asset=find_asset)
        run.run({text: parse_datetime(text) for text in sorted(times)})

    @job(name=name, executor_def=in_process_executor, description=description)
    def listed() -> None:
        run_listed()

    return listed


def build_listed_request(request: LaunchRequest, op_name: str) -> RunRequest:
    """The run of such a job for a launch request."""
    process = request.process
    config = {"process": process.process, "times": [render_datetime(time) for time in request.nominal_times]}
    return RunRequest(
        run_key=request.key,
        run_config={"ops": {op_name: {"config": config}}},
        tags={
            names.TAG_PROCESS: process.process,
            names.TAG_CLUSTER: process.cluster,
            names.TAG_REQUEST: request.key,
            **({names.PRIORITY: str(request.priority)} if request.priority else {}),
            **({names.TAG_QUEUE: process.queue} if process.queue else {}),
            **names.late_tags(request.late),
        },
    )
