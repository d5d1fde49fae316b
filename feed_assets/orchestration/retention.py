"""Retention in Dagster: one schedule and one job of ops a cluster, for all feeds whose turn has come.

The schedule asks the record whose turn it is, every minute. The job plans sweeps, runs them and those that broke off,
and empties the trash of what is over its time. What happened to an instance the arrival sensor tells, from the log.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    In,
    JobDefinition,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    in_process_executor,
    job,
    op,
    schedule,
)
from dagster_pyspark import LazyPySparkResource
from sqlalchemy import Connection

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.retention.holders import name_holder
from feed_assets.lifecycle.retention.movers import choose_measurer, choose_mover
from feed_assets.lifecycle.retention.planning import Ask, Planned, plan_sweeps
from feed_assets.lifecycle.retention.purging import find_purgeable, purge_sweeps
from feed_assets.lifecycle.retention.sweeping import find_waiting, run_sweep
from feed_assets.lifecycle.retention.turns import Due, apply_turns, find_due, pass_turns
from feed_assets.lifecycle.retention.worksite import Worksite
from feed_assets.lifecycle.schedules import load_schedules, state_without_row
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.orchestration import names
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.reloading import follow_definitions
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.records import Plan
from feed_assets.state.database import Database
from feed_assets.state.sweep_chunks import SweepChunks
from feed_assets.state.sweep_records import ChunkState, Sweep, SweepState
from feed_assets.state.sweeps import Sweeps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_MINUTE = "* * * * *"
AUTHOR = "schedule"

_UNENDED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def build_retention_schedule(
    runtime: Runtime, layout: AssetLayout, cluster: str, of_job: JobDefinition
) -> ScheduleDefinition:
    """The schedule that starts retention on a cluster when the turn of a feed has come."""

    @schedule(
        name=names.retention_job(cluster),
        job=of_job,
        cron_schedule=EVERY_MINUTE,
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"Looks every minute whether the retention of a feed on cluster {cluster} has its turn.",
    )
    def retention(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        return run_retention_tick(runtime, layout, cluster, context.instance)

    return retention


def run_retention_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: DagsterInstance
) -> RunRequest | SkipReason:
    """Ask for a run if there is something to do for it; a few questions if not."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    present = follow_definitions(runtime, layout, database, as_of)
    if present.is_safe_mode:
        return SkipReason("safe mode is on")
    apply_turns(database, present.plan, cluster, as_of)
    work = _find_work(runtime, database, present.plan, cluster, as_of)
    if not work:
        return SkipReason("no feed has its turn")
    unended = RunsFilter(job_name=names.retention_job(cluster), statuses=_UNENDED)
    if instance.get_runs_count(unended):
        return SkipReason(f"a run is under way; then: {work}")
    return RunRequest(tags={names.TAG_CLUSTER: cluster})


def _find_work(runtime: Runtime, database: Database, plan: Plan, cluster: str, as_of: datetime) -> str:
    """What a run would do, in a few words; empty if nothing. Emptying the trash alone waits for the next turn."""
    with database.read() as connection:
        due = _find_due(runtime, connection, plan, cluster, as_of)
        wall = runtime.wall.now()
        waiting = [each for each in find_waiting(connection, cluster) if not _is_worked_on(connection, each, wall)]
    parts = [f"the turn of {len(due)} feeds"] if due else []
    parts += [f"{len(waiting)} sweeps that were approved or broke off"] if waiting else []
    return " and ".join(parts)


def _find_due(runtime: Runtime, connection: Connection, plan: Plan, cluster: str, as_of: datetime) -> list[Due]:
    view = load_schedules(connection, state_without_row(runtime.settings.schedule))
    return find_due(connection, plan, view, cluster, as_of)


def _is_worked_on(connection: Connection, sweep: Sweep, wall: datetime) -> bool:
    heads = SweepChunks(connection, sweep.sweep_id).heads(state=ChunkState.OPEN)
    return any(head.held_until is not None and head.held_until > wall for head in heads)


def build_retention_job(runtime: Runtime, cluster: str) -> JobDefinition:
    """The job that plans and runs the sweeps of a cluster and empties its trash."""
    plan, sweep, purge = _plan_op(runtime, cluster), _sweep_op(runtime, cluster), _purge_op(runtime, cluster)

    @job(
        name=names.retention_job(cluster),
        executor_def=in_process_executor,
        description=f"Evicts what retention does not keep on cluster {cluster}; see `feed-assets retention`.",
    )
    def retention() -> None:
        purge(after=sweep(plan()))

    return retention


def _plan_op(runtime: Runtime, cluster: str) -> OpDefinition:
    @op(
        name=names.retention_op("plan", cluster),
        out=Out(list[str]),
        required_resource_keys={names.spark_resource(cluster)},
        description="Finds what may go of the feeds whose turn it is, and stores it as sweeps. Nothing is touched.",
    )
    def plan_op(context: OpExecutionContext) -> list[str]:
        site = _site(runtime, context)
        require_mode(site.database, Operation.RETENTION_RUN)
        now = site.clock.now()
        with site.database.read() as connection:
            due = _find_due(runtime, connection, site.plan, cluster, now)
        ask = Ask(as_of=now, now=now, wall=site.wall.now(), author=AUTHOR, origin=site.origin, automatic=True)
        planned = plan_sweeps(
            site.database,
            site.stores,
            site.governance,
            cluster,
            [each.record for each in due],
            ask,
            measurer=choose_measurer(site.stores, _session(context, cluster)),
        )
        with site.database.begin() as connection:
            pass_turns(connection, due, now)
            waiting = find_waiting(connection, cluster)
        _log_plan(context, planned)
        ready = [sweep.sweep_id for sweep in planned.sweeps if sweep.state is SweepState.PLANNED]
        return [*(sweep.sweep_id for sweep in waiting), *ready]

    return plan_op


def _sweep_op(runtime: Runtime, cluster: str) -> OpDefinition:
    @op(
        name=names.retention_op("sweep", cluster),
        out=Out(Nothing),
        required_resource_keys={names.spark_resource(cluster)},
        description="Moves what sweeps take to the trash or archive: few on the driver, many on Spark's executors.",
    )
    def sweep_op(context: OpExecutionContext, sweeps: list[str]) -> None:
        site = _site(runtime, context)
        for sweep_id in sweeps:
            mover = choose_mover(_paths_of(site.database, sweep_id), site.stores, _session(context, cluster))
            try:
                sweep = run_sweep(site, sweep_id, mover=mover)
            except SweepRefusedError as exc:
                context.log.warning(str(exc))
                continue
            context.log.info(f"sweep {sweep_id}: {describe_sweep(sweep)}")
            context.add_output_metadata({names.META_SWEEP: sweep_id})

    return sweep_op


def _purge_op(runtime: Runtime, cluster: str) -> OpDefinition:
    @op(
        name=names.retention_op("purge", cluster),
        ins={"after": In(Nothing)},
        out=Out(Nothing),
        description="Removes for good what has been in the trash for its time.",
    )
    def purge_op(context: OpExecutionContext) -> None:
        site = _site(runtime, context)
        try:
            found = find_purgeable(site, cluster, site.clock.now())
        except SweepRefusedError as exc:
            context.log.warning(str(exc))
            return
        for purged in purge_sweeps(site, cluster, found):
            if purged.obstacle:
                context.log.warning(f"the trash of sweep {purged.sweep.sweep_id} stays: {purged.obstacle}")
            else:
                context.log.info(f"the trash of sweep {purged.sweep.sweep_id} is empty: {purged.files} files")

    return purge_op


def _site(runtime: Runtime, context: OpExecutionContext) -> Worksite:
    database = runtime.database(context.instance)
    governance = runtime.governance()
    with database.read() as connection:
        governance.refresh(connection, runtime.clock.now())
    return Worksite(
        database=database,
        stores=runtime.stores,
        governance=governance,
        clock=runtime.clock,
        wall=runtime.wall,
        holder=name_holder(),
        origin=f"run:{context.run_id}",
    )


def _session(context: OpExecutionContext, cluster: str) -> "Callable[[], SparkSession]":
    """What opens the run's Spark session when there is enough to do for it."""
    spark: LazyPySparkResource = getattr(context.resources, names.spark_resource(cluster))

    def open_session() -> "SparkSession":
        session: SparkSession = spark.spark_session
        return session

    return open_session


def _paths_of(database: Database, sweep_id: str) -> int:
    with database.read() as connection:
        sweep = Sweeps(connection).find(sweep_id)
    return sweep.paths if sweep else 0


def _log_plan(context: OpExecutionContext, planned: Planned) -> None:
    for each in planned.feeds:
        if each.left_out:
            context.log.warning(f"feed {each.record.feed}: left out: {each.left_out}")
        for obstacle in each.obstacles:
            context.log.warning(f"feed {each.record.feed}: sweep {each.sweep_id} asks: {obstacle.sentence}")
    for sweep in planned.sweeps:
        context.log.info(f"sweep {sweep.sweep_id} is {sweep.state.value}: {sweep.paths} paths, {sweep.bytes} bytes")


def describe_sweep(sweep: Sweep) -> str:
    """What became of a sweep, in a sentence part."""
    feeds = [
        f"{count.feed} {count.evicted} evicted"
        + (f", {count.kept} kept" if count.kept else "")
        + (f", {count.failed} failed" if count.failed else "")
        for count in sweep.counts
    ]
    return f"{sweep.state.value}; {'; '.join(feeds) or 'nothing to take'}"
