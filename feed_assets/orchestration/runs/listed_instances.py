"""Jobs for listed instances: the config of their op names a process or flow, and nominal times.

Each cluster has two. That for replication, of all feeds that are copied to it, has a schedule that requests the runs of
ready copies every minute, and thereby catches up on missed ones; the arrival sensors create the copies and open their
gates. That for instances that are not partitions of the current definitions, for example since their release had
another frequency, has a sensor. Its runs also judge instances of feeds that come from outside.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial

import dagster as dg

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.operation import AttemptContext
from feed_assets.context.tick import Tick
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.errors import describe_error, shorten
from feed_assets.instances.attempts.judging import judge_instance, note_fault
from feed_assets.instances.gates.requests import LaunchMode, LaunchRequest, apply_requests
from feed_assets.instances.late.quality_checks import QualityCheck, QualityChecks, apply_quality_requests
from feed_assets.log.records import FeedKey
from feed_assets.masking import mask
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout, FindAsset
from feed_assets.orchestration.location.health import describe_failing
from feed_assets.orchestration.location.reloading import begin_tick, find_hold, follow_plan
from feed_assets.orchestration.location.runtime import ActiveDefinitions, Runtime
from feed_assets.orchestration.runs.feed_checks import build_quality_evaluation
from feed_assets.orchestration.runs.instance_runs import InstanceRun, open_session
from feed_assets.plan.records import FeedRecord
from feed_assets.sql.errors import StateUnreachableError
from feed_assets.timing.dates import parse_datetime, render_datetime

COPIES_A_TICK = 50
INSTANCES_A_TICK = 20


def run_listed(runtime: Runtime, find_asset: FindAsset, cluster: str, context: dg.OpExecutionContext) -> None:
    """Run the instances listed in the config of the op.

    Raises:
        EntityNotFoundError: there is no such process or feed on the cluster.
    """
    name, times = context.op_config.get("process", ""), context.op_config["times"]
    if (feed := context.op_config.get("feed")) is not None:
        record = runtime.plan.feeds.get((feed, cluster))
        if record is None:
            raise EntityNotFoundError(kind="feed", name=feed, suggestions=())
        parsed = [parse_datetime(text, seconds=True) for text in sorted(times)]

        def report(known: QualityCheck) -> None:
            asset = find_asset(record.key)
            if asset is not None and record.quality is not None and asset[1].sequence.contains(known.nominal_time):
                partition = asset[1].partition(known.nominal_time)
                evaluation = build_quality_evaluation(asset[0], partition, record.quality, known)
                context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster itself accepts it

        judge_instances(context, runtime, record, parsed, report)
        return
    process = runtime.plan.processes.get((name, cluster))
    if process is None:
        raise EntityNotFoundError(kind="process", name=name, suggestions=())
    run = InstanceRun(context=context, runtime=runtime, process=process, find_asset=find_asset)
    run.run({text: parse_datetime(text, seconds=True) for text in sorted(times)})


def judge_instances(
    context: dg.OpExecutionContext | dg.AssetCheckExecutionContext,
    runtime: Runtime,
    record: FeedRecord,
    times: Sequence[datetime],
    report: Callable[[QualityCheck], None] = lambda _: None,
) -> None:
    """Judge the instances of a feed that are held back, and `report` what is known of all of them.

    Raises:
        Failure: some could not be judged, or never had to be.
    """
    database, run_id = runtime.database(context.instance), context.run.run_id
    cluster = runtime.plan.clusters[record.cluster]
    attempt = AttemptContext(
        database=database,
        stores=runtime.run_stores,
        clock=runtime.clock,
        real_clock=runtime.real_clock,
        plan=runtime.plan,
        run_id=run_id,
    )
    spark = getattr(context.resources, names.OfCluster.SPARK.of(record.cluster))
    session, failures = partial(open_session, spark, cluster, run_id), dict[str, str]()
    for time in times:
        label = render_datetime(time)
        try:
            verdict = judge_instance(attempt, record, time, session)
        except StateUnreachableError:
            raise
        except Exception as exc:  # noqa: BLE001 - each instance is judged by itself
            failures[label] = mask(describe_error(exc))
            context.log.error(f"{label} could not be judged: {failures[label]}")
            note_fault(attempt, record, time, failures[label])
        else:
            context.log.info(f"{label}: {verdict.summary if verdict is not None else 'nothing is to be judged'}")
    with database.read() as connection:
        found = QualityChecks(connection).of_instances([FeedKey(*record.key, time) for time in times])
    for _, each in sorted(found.items()):
        if each.facts:
            report(each)
    if failures:
        said = "; ".join(f"{label}: {reason}" for label, reason in failures.items())
        raise dg.Failure(f"feed {record.feed!r} could not be judged: {shorten(said, 1_000)}", allow_retries=False)


def run_replication_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance
) -> list[dg.RunRequest] | dg.SkipReason:
    """Request runs of ready copies; one query if there are none."""
    active, tick = begin_tick(runtime, layout, cluster, instance)
    if (hold := find_hold(active)) is not None:
        return dg.SkipReason(hold)
    requests = _request_runs(runtime, active, tick, LaunchMode.COPIES, COPIES_A_TICK)
    if not requests:
        failing = describe_failing(tick.database, cluster, TickStep.REQUESTS, TickStep.REPLICATION)
        return dg.SkipReason("no copy is ready, or the limit of concurrent copies is reached" + failing)
    return requests


def run_instances_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance
) -> dg.SensorResult:
    """Request runs of ready instances that are not partitions of the current definitions, and of what is to be
    judged.
    """
    active, tick = begin_tick(runtime, layout, cluster, instance)
    requests = _request_checks(active, tick, instance)
    requests += _request_runs(runtime, active, tick, LaunchMode.INSTANCES, INSTANCES_A_TICK)
    if not requests:
        said = "nothing is to be judged, and every ready instance is a partition of the current definitions"
        return dg.SensorResult(skip_reason=dg.SkipReason(said))
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
    op_name = names.OfCluster.REPLICATION_OP.of if mode is LaunchMode.COPIES else names.OfCluster.INSTANCES_OP.of
    return [_build_request(request, op_name(tick.cluster)) for request in requests]


def _request_checks(active: ActiveDefinitions, tick: Tick, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    """Return run requests for instances that are to be judged."""

    def find_alive(requests: Collection[str]) -> set[str]:
        runs = instance.get_runs(dg.RunsFilter(tags={names.TAG_REQUEST: sorted(requests)})) if requests else ()
        return {run.tags[names.TAG_REQUEST] for run in runs if not run.is_finished}

    found = [] if active.is_restored else apply_quality_requests(tick, find_alive)
    return [
        dg.RunRequest(
            run_key=each.key,
            run_config={
                "ops": {
                    names.OfCluster.INSTANCES_OP.of(tick.cluster): {
                        "config": {"feed": each.record.feed, "times": [*map(render_datetime, each.nominal_times)]}
                    }
                }
            },
            tags={
                names.TAG_RUN: f"{len(each.nominal_times)} to judge: {each.record.feed}",
                names.TAG_CLUSTER: tick.cluster,
                names.TAG_REQUEST: each.key,
            },
        )
        for each in found
    ]


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
        **({names.TAG_USER: ", ".join(request.users)} if request.users else {}),
        **({names.TAG_QUEUE: process.queue} if process.queue else {}),
        **({names.TAG_BATCH: render_datetime(request.first)} if process.trigger is not None else {}),
        **names.late_tags(request.late),
    }
