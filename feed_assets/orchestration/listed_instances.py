"""Jobs that are told which instances to run: the config of their op names a process or flow, and nominal times."""

from datetime import datetime

from dagster import JobDefinition, OpExecutionContext, RunRequest, in_process_executor, job, op

from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.lifecycle.requests import LaunchRequest, Way, apply_requests
from feed_assets.lifecycle.schedules import state_without_row
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import FindAsset, InstanceRun
from feed_assets.orchestration.present import Present
from feed_assets.orchestration.releases import follow_plan
from feed_assets.orchestration.runtime import Runtime
from feed_assets.state.database import Database
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


def ask_for_runs(
    runtime: Runtime,
    cluster: str,
    database: Database,
    present: Present,
    as_of: datetime,
    *,
    way: Way,
    op_name: str,
    at_most: int,
) -> list[RunRequest]:
    """The runs of such a job that are to be asked for now: of what is ready and launched this way."""
    requests = apply_requests(
        database,
        follow_plan(runtime, present.location, database, as_of),
        cluster,
        as_of,
        runtime.wall.now(),
        at_most,
        way=way,
        without_row=state_without_row(runtime.settings.schedule),
    )
    return [_build_request(request, op_name) for request in requests]


def _build_request(request: LaunchRequest, op_name: str) -> RunRequest:
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
