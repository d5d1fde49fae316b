"""Jobs for listed instances: the config of their op names a process or flow, and nominal times.

Each cluster has two. That for replication, of all feeds that are copied to it, has a schedule that requests the runs of
ready copies every minute, and thereby catches up on missed ones; the arrival sensors create the copies and open their
gates. That for instances that are not partitions of the current definitions, for example since their release had
another frequency, has a sensor.
"""

import dagster as dg

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.safe_mode import HELD
from feed_assets.context.tick import Tick
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.instances.gates.requests import LaunchMode, LaunchRequest, apply_requests
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout, FindAsset
from feed_assets.orchestration.location.health import describe_failing
from feed_assets.orchestration.location.reloading import build_tick, follow_definitions, follow_plan
from feed_assets.orchestration.location.runtime import ActiveDefinitions, Runtime
from feed_assets.orchestration.runs.instance_runs import InstanceRun
from feed_assets.timing.dates import parse_datetime, render_datetime

COPIES_A_TICK = 50
INSTANCES_A_TICK = 20


def run_listed(runtime: Runtime, find_asset: FindAsset, cluster: str, context: dg.OpExecutionContext) -> None:
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


def run_replication_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance
) -> list[dg.RunRequest] | dg.SkipReason:
    """Request runs of ready copies; one query if there are none."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    active = follow_definitions(runtime, layout, database, as_of)
    if active.is_safe_mode:
        return dg.SkipReason("safe mode is on")
    if active.is_restored:
        return dg.SkipReason(HELD)
    tick = build_tick(runtime, active, cluster, database, as_of)
    requests = _request_runs(runtime, active, tick, LaunchMode.COPIES, COPIES_A_TICK)
    if not requests:
        failing = describe_failing(database, cluster, TickStep.REQUESTS, TickStep.REPLICATION)
        return dg.SkipReason("no copy is ready, or the limit of concurrent copies is reached" + failing)
    return requests


def run_instances_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance
) -> dg.SensorResult:
    """Request runs of ready instances that are not partitions of the current definitions."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    active = follow_definitions(runtime, layout, database, as_of)
    tick = build_tick(runtime, active, cluster, database, as_of)
    requests = _request_runs(runtime, active, tick, LaunchMode.INSTANCES, INSTANCES_A_TICK)
    if not requests:
        return dg.SensorResult(
            skip_reason=dg.SkipReason("every ready instance is a partition of the current definitions")
        )
    return dg.SensorResult(run_requests=requests)


def _request_runs(
    runtime: Runtime, active: ActiveDefinitions, tick: Tick, mode: LaunchMode, at_most: int
) -> list[dg.RunRequest]:
    """Return run requests for the ready instances that are launched in this mode."""
    if active.is_restored:
        return []
    follow_plan(runtime, active.location, tick.database, tick.as_of)
    requests = apply_requests(tick, at_most, mode=mode)
    tick.bulkheads.save(tick.database)
    op_name = names.replication_op if mode is LaunchMode.COPIES else names.instances_op
    return [_build_request(request, op_name(tick.cluster)) for request in requests]


def _build_request(request: LaunchRequest, op_name: str) -> dg.RunRequest:
    process = request.process
    config = {"process": process.process, "times": [render_datetime(time) for time in request.nominal_times]}
    return dg.RunRequest(
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
