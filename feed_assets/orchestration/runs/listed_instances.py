"""Jobs for listed instances: the config of their op names a process or flow, and nominal times."""

from datetime import datetime
from functools import partial

from dagster import OpExecutionContext, RunRequest

from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.lifecycle.bulkheads import Bulkheads
from feed_assets.lifecycle.instances.requests import RUN_TIME, LaunchMode, LaunchRequest, apply_requests
from feed_assets.lifecycle.instances.schedules import state_without_row
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import FindAsset
from feed_assets.orchestration.location.active_definitions import ActiveDefinitions
from feed_assets.orchestration.location.releases import follow_plan
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.instance_runs import InstanceRun
from feed_assets.state.database import Database
from feed_assets.state.tick_records import TickStep
from feed_assets.timing.dates import parse_datetime, render_datetime


def run_listed(runtime: Runtime, find_asset: FindAsset, cluster: str, context: OpExecutionContext) -> None:
    """Run the instances listed in the config of the op.

    Raises:
        EntityNotFoundError: there is no such process on the cluster.
    """
    name, times = context.op_config["process"], context.op_config["times"]
    process = runtime.plan.processes.get((name, cluster))
    if process is None:
        raise EntityNotFoundError(kind="process", name=name, suggestions=())
    run = InstanceRun(context=context, runtime=runtime, process=process, find_asset=find_asset)
    run.run({text: parse_datetime(text, seconds=True) for text in sorted(times)})


def request_runs(
    runtime: Runtime,
    cluster: str,
    database: Database,
    active: ActiveDefinitions,
    as_of: datetime,
    *,
    mode: LaunchMode,
    op_name: str,
    at_most: int,
) -> list[RunRequest]:
    """Return run requests for the ready instances that are launched in this mode."""
    if active.is_restored:
        return []
    bulkheads = Bulkheads.open(database, cluster, runtime.real_clock)
    nothing, timeline = list[LaunchRequest](), follow_plan(runtime, active.location, database, as_of)
    without_row, run_time = state_without_row(runtime.settings.schedule), runtime.clock.span(RUN_TIME)
    request = partial(apply_requests, mode=mode, without_row=without_row, run_time=run_time)
    work = (database, timeline, cluster, as_of, runtime.real_clock.now(), at_most, bulkheads)
    requests = bulkheads.run(TickStep.REQUESTS, nothing, request, *work)
    bulkheads.save(database)
    return [_build_request(request, op_name) for request in requests]


def _build_request(request: LaunchRequest, op_name: str) -> RunRequest:
    process = request.process
    config = {"process": process.process, "times": [render_datetime(time) for time in request.nominal_times]}
    return RunRequest(
        run_key=request.key,
        run_config={"ops": {op_name: {"config": config}}},
        tags=build_tags(request),
    )


def build_tags(request: LaunchRequest) -> dict[str, str]:
    """Return the tags of a requested run."""
    process = request.process
    return {
        names.TAG_RUN: request.describe(),
        names.TAG_PROCESS: process.process,
        names.TAG_CLUSTER: process.cluster,
        names.TAG_REQUEST: request.key,
        **({names.PRIORITY: str(request.priority)} if request.priority else {}),
        **({names.TAG_QUEUE: process.queue} if process.queue else {}),
        **({names.TAG_BATCH: render_datetime(request.first)} if process.trigger is not None else {}),
        **names.late_tags(request.late),
    }
