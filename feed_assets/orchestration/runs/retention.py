"""Retention in Dagster: one schedule, and one job of several ops, per cluster for all due feeds; and the clean-up after
old runs, in an op of that job and for a command.

The schedule queries every minute which feeds are due, and whether the daily clean-up is. The job plans sweeps, runs
them together with interrupted ones, and removes expired trash. The arrival sensor reports the fate of instances from
the event log.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.errors import DagsterHomeNotSetError
from dagster._core.scheduler.instigation import InstigatorType, SensorInstigatorData
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster_pyspark import LazyPySparkResource
from sqlalchemy import Connection

from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import LONGEST_PAUSE, Bulkheads, TickStep
from feed_assets.context.errors import SafeModeError
from feed_assets.context.operation import ChangeContext, note_target
from feed_assets.context.safe_mode import is_safe_mode, require_mode
from feed_assets.context.tick import Tick, open_tick, tick_step
from feed_assets.errors import SettingsError, describe_error
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import ChunkState, Sweep, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import name_holder
from feed_assets.masking import get_logger
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.health import describe_failing
from feed_assets.orchestration.location.reloading import begin_tick, build_context, find_hold
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.plan.rendering import counted
from feed_assets.retention.cleanup import (
    COUNTED,
    CapturedLogs,
    CleanedUp,
    KeepingTimes,
    OnProgress,
    RetentionRuns,
    apply_cleanup,
    apply_state_cleanup,
    begin_cleanup,
    find_readers,
    is_cleanup_due,
)
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.schedule import (
    apply_retention_schedule,
    find_due,
    reschedule_retention,
    schedule_retention_now,
)
from feed_assets.retention.sweeps.movers import Measurer, Mover
from feed_assets.retention.sweeps.planning import PlannedSweeps, SweepRequest, plan_sweeps
from feed_assets.retention.sweeps.purging import PurgedSweep, find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.sweep_context import SweepContext
from feed_assets.retention.sweeps.sweeping import find_waiting, run_sweep
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateUnreachableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTHOR = "schedule"
_SWEEP = "sweep "

_logger = get_logger(__name__)

_UNENDED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def run_retention_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance
) -> dg.RunRequest | dg.SkipReason:
    """Request a run if there is work for it; a few queries if not."""
    active, tick = begin_tick(runtime, layout, cluster, instance)
    if (hold := find_hold(active)) is not None:
        return dg.SkipReason(hold)
    work = _find_work(tick, runtime)
    tick.bulkheads.save(tick.database)
    if not work:
        failing = describe_failing(tick.database, cluster, TickStep.RETENTION)
        return dg.SkipReason("retention is not due for any feed" + failing)
    unended = dg.RunsFilter(job_name=names.OfCluster.RETENTION_JOB.of(cluster), statuses=_UNENDED)
    if instance.get_runs_count(unended):
        return dg.SkipReason(f"a run is active; afterwards: {work}")
    return dg.RunRequest(tags={names.TAG_CLUSTER: cluster})


@tick_step(TickStep.RETENTION, otherwise="")
def _find_work(tick: Tick, runtime: Runtime) -> str:
    """Describe the work of a run in a few words; empty if there is none. Emptying the trash alone waits until a feed is
    due.
    """
    grace = runtime.settings.retention_grace
    apply_retention_schedule(tick.database, tick.timeline, tick.cluster, tick.as_of, grace)
    with tick.database.read() as connection:
        _forget_ended(connection, tick.bulkheads)
        due = find_due(connection, tick.plan, load_schedules(connection), tick.cluster, tick.as_of)
        cleanup = is_cleanup_due(connection, tick.cluster, KeepingTimes.of(runtime.settings.cleanup), tick.as_of)
        waiting = _waiting(connection, tick.cluster, tick.bulkheads)
        waiting = [each for each in waiting if not _is_worked_on(connection, each, tick.real_now)]
    parts = [f"retention of {len(due)} feeds"] if due else []
    parts += [f"{len(waiting)} approved or interrupted sweeps"] if waiting else []
    parts += ["the daily clean-up"] if cleanup else []
    return " and ".join(parts)


def _waiting(connection: Connection, cluster: str, bulkheads: Bulkheads) -> list[Sweep]:
    """Return the approved and interrupted sweeps, but not those that failed and whose next try is not due."""
    waiting = find_waiting(connection, cluster)
    return [each for each in waiting if not bulkheads.is_put_off(TickStep.RETENTION, _unit(each.sweep_id))]


def _forget_ended(connection: Connection, bulkheads: Bulkheads) -> None:
    """Forget the failures of sweeps that have ended, such as by a newer plan or a command."""
    for failure in bulkheads.failures:
        if failure.step is TickStep.RETENTION and failure.subject.startswith(_SWEEP):
            sweep = Sweeps(connection).find(failure.subject.removeprefix(_SWEEP))
            if sweep is None or sweep.state not in (SweepState.PLANNED, SweepState.RUNNING):
                bulkheads.succeed(TickStep.RETENTION, failure.subject)


def _unit(sweep_id: str) -> str:
    return _SWEEP + sweep_id


def _is_worked_on(connection: Connection, sweep: Sweep, real_now: datetime) -> bool:
    heads = SweepChunks(connection, sweep.sweep_id).heads(state=ChunkState.OPEN)
    return any(head.held_until is not None and head.held_until > real_now for head in heads)


def plan_due_feeds(runtime: Runtime, cluster: str, context: dg.OpExecutionContext) -> list[str]:
    """Plan the sweeps of due feeds; return the ids of the sweeps to run, including interrupted ones."""
    sweep_context = _sweep_context(runtime, context)
    if _is_stopped(context, sweep_context.database):
        return []
    now, grace = sweep_context.clock.now(), runtime.settings.retention_grace
    apply_retention_schedule(sweep_context.database, sweep_context.timeline, cluster, now, grace)
    with sweep_context.database.read() as connection:
        due = find_due(connection, sweep_context.plan, load_schedules(connection), cluster, now)
    request = SweepRequest(
        as_of=now,
        now=now,
        author=AUTHOR,
        origin=sweep_context.origin,
        automatic=True,
        grace=grace,
    )
    planned = plan_sweeps(
        sweep_context,
        cluster,
        [each.record for each in due],
        request,
        measurer=Measurer(sweep_context.stores, _session(context, cluster)),
    )
    bulkheads = _note_failures(sweep_context, cluster, planned)
    pauses = {
        feed: bulkheads.pause(TickStep.RETENTION, feed)
        for feed in (each.record.feed for each in due)
        if bulkheads.has_failed(TickStep.RETENTION, feed)
    }
    with sweep_context.database.begin() as connection:
        reschedule_retention(connection, due, now, pauses)
        waiting = _waiting(connection, cluster, bulkheads)
    _log_plan(context, planned)
    ready = [sweep.sweep_id for sweep in planned.sweeps if sweep.state is SweepState.PLANNED]
    return [*(sweep.sweep_id for sweep in waiting), *ready]


def _is_stopped(context: dg.OpExecutionContext, database: Database) -> bool:
    """Return whether safe mode has come since the schedule requested the run; one that a person starts is refused."""
    try:
        require_mode(database, "run of sweeps")
    except SafeModeError as exc:
        if names.TAG_CLUSTER not in context.run.tags:
            raise
        context.log.warning(f"nothing is done: {exc}")
        return True
    return False


def _note_failures(context: SweepContext, cluster: str, planned: PlannedSweeps) -> Bulkheads:
    """Record the feeds that could not be planned; they are tried again sooner than by their cadence."""
    bulkheads = Bulkheads.open(context.database, cluster, context.real_clock)
    for each in planned.feeds:
        if each.error is None:
            bulkheads.succeed(TickStep.RETENTION, each.record.feed)
        else:
            bulkheads.fail(TickStep.RETENTION, each.record.feed, each.error, next_try_at=_next_try(context))
    bulkheads.save(context.database)
    return bulkheads


def _next_try(context: SweepContext) -> datetime:
    """Return when a run begins at the earliest for what failed now."""
    return context.real_clock.now() + LONGEST_PAUSE


def run_sweeps(runtime: Runtime, cluster: str, context: dg.OpExecutionContext, sweeps: Sequence[str]) -> None:
    """Run sweeps; a sweep that is refused or fails does not affect the others.

    Raises:
        Failure: sweeps failed; each continues in the next run.
    """
    sweep_context = _sweep_context(runtime, context)
    bulkheads = Bulkheads.open(sweep_context.database, cluster, sweep_context.real_clock)
    failed: list[str] = []
    for sweep_id in sweeps:
        try:
            paths = _paths_of(sweep_context.database, sweep_id)
            mover = Mover(sweep_context.stores, paths, _session(context, cluster))
            sweep = run_sweep(sweep_context, sweep_id, mover=mover)
        except SweepRefusedError as exc:
            context.log.warning(str(exc))
            continue
        except StateUnreachableError:
            raise
        except Exception as exc:
            _logger.warning("sweep %s has failed", sweep_id, exc_info=True)
            context.log.error(f"sweep {sweep_id}: {describe_error(exc)}")
            bulkheads.fail(TickStep.RETENTION, _unit(sweep_id), exc, next_try_at=_next_try(sweep_context))
            _plan_again(sweep_context, sweep_id, cluster, runtime.settings.retention_grace)
            failed.append(sweep_id)
            continue
        bulkheads.succeed(TickStep.RETENTION, _unit(sweep_id))
        context.log.info(f"sweep {sweep_id}: {describe_sweep(sweep)}")
        context.add_output_metadata({names.META_SWEEP: sweep_id})
    bulkheads.save(sweep_context.database)
    if failed:
        raise dg.Failure(f"sweeps have failed and continue in the next run: {', '.join(failed)}", allow_retries=False)


def _plan_again(context: SweepContext, sweep_id: str, cluster: str, grace: timedelta) -> None:
    """Make the feeds of a sweep that failed due at its next try: a sweep that has not begun is planned anew."""
    with context.database.begin() as connection:
        sweep = Sweeps(connection).find(sweep_id)
        keys = [(count.feed, cluster) for count in sweep.counts] if sweep is not None else []
        schedule_retention_now(connection, context.timeline, keys, context.clock.now() + LONGEST_PAUSE, grace)


def purge_trash(runtime: Runtime, cluster: str, context: dg.OpExecutionContext) -> None:
    """Remove expired trash for good; a sweep whose trash cannot be removed does not affect the others."""
    sweep_context = _sweep_context(runtime, context)
    if _is_stopped(context, sweep_context.database):
        return
    try:
        found = find_purgeable(sweep_context, cluster, sweep_context.clock.now())
    except SweepRefusedError as exc:
        context.log.warning(str(exc))
        return
    bulkheads = Bulkheads.open(sweep_context.database, cluster, sweep_context.real_clock)
    units = {f"trash of {_unit(sweep.sweep_id)}": sweep for sweep in found}

    def purge(sweeps: Sequence[Sweep]) -> list[PurgedSweep]:
        return purge_sweeps(sweep_context, cluster, sweeps)

    done = bulkheads.run_apart(TickStep.RETENTION, units, purge) if units else purge([])
    bulkheads.save(sweep_context.database)
    for purged in done:
        if purged.obstacle:
            context.log.warning(f"the trash of sweep {purged.sweep.sweep_id} stays: {purged.obstacle}")
        else:
            context.log.info(f"the trash of sweep {purged.sweep.sweep_id} is empty: {counted(purged.files, 'file')}")


def _sweep_context(runtime: Runtime, context: dg.OpExecutionContext) -> SweepContext:
    database = runtime.database(context.instance)
    timeline = runtime.timeline()
    with database.read() as connection:
        timeline.refresh(connection, runtime.clock.now())
    return SweepContext(
        database=database,
        stores=runtime.run_stores,
        timeline=timeline,
        clock=runtime.clock,
        real_clock=runtime.real_clock,
        holder=name_holder(),
        origin=f"run:{context.run.run_id}",
    )


def _session(context: dg.OpExecutionContext, cluster: str) -> "Callable[[], SparkSession]":
    """Return a function that opens the run's Spark session, for sweeps large enough to need it."""
    spark: LazyPySparkResource = getattr(context.resources, names.OfCluster.SPARK.of(cluster))

    def open_session() -> "SparkSession":
        session: SparkSession = spark.spark_session
        return session

    return open_session


def _paths_of(database: Database, sweep_id: str) -> int:
    with database.read() as connection:
        sweep = Sweeps(connection).find(sweep_id)
    return sweep.paths if sweep else 0


def _log_plan(context: dg.OpExecutionContext, planned: PlannedSweeps) -> None:
    for each in planned.feeds:
        if each.left_out:
            context.log.warning(f"feed {each.record.feed}: left out: {each.left_out}")
        for obstacle in each.obstacles:
            context.log.warning(f"feed {each.record.feed}: sweep {each.sweep_id} asks: {obstacle.sentence}")
    for sweep in planned.sweeps:
        context.log.info(f"sweep {sweep.sweep_id} is {sweep.state.value}: {sweep.paths} paths, {sweep.bytes} bytes")


def describe_sweep(sweep: Sweep) -> str:
    """Return a phrase that summarizes the result of a sweep."""
    feeds = [
        f"{count.feed} {count.evicted} evicted"
        + (f", {count.kept} kept" if count.kept else "")
        + (f", {count.failed} failed" if count.failed else "")
        for count in sweep.counts
    ]
    return f"{sweep.state.value}; {'; '.join(feeds) or 'nothing to take'}"


SECONDS_A_RUN = 300.0
UNIT = "captured logs"
"""The unit of work, as its failures are told."""
_FOLDER = "compute_logs"
"""What Dagster's executors append to the id of a run to get the beginning of the keys of its logs."""


def run_cleanup(runtime: Runtime, cluster: str, context: dg.OpExecutionContext) -> None:
    """Clean up after a cluster's old runs, once a day and for a few minutes; the next day goes on.

    What fails, such as an object store for logs that is away, is told like a failure of retention, and fails no run.
    """
    database, as_of = runtime.database(context.instance), runtime.clock.now()
    with database.begin() as connection:
        if is_safe_mode(connection):
            context.log.info("there is no clean-up: safe mode is on")
            return
        if not begin_cleanup(connection, cluster, as_of):
            context.log.info("the clean-up is not due: it happens once a day")
            return
    times, budget = KeepingTimes.of(runtime.settings.cleanup), TimeBudget(SECONDS_A_RUN)
    bulkheads, step = Bulkheads.open(database, cluster, runtime.real_clock), TickStep.RETENTION
    operations = build_context(runtime, runtime.timeline(), database, as_of)
    tick = open_tick(operations, cluster, bulkheads, budget=budget)
    done = bulkheads.run_unit(step, UNIT, (), apply_cleanup, tick, times, DagsterLogs(context.instance))
    bulkheads.save(database)
    if bulkheads.has_failed(step, UNIT):
        context.log.warning(f"the clean-up has failed, and goes on tomorrow: {bulkheads.reason(step, UNIT)}")
    told = _find_told(DagsterLogs(context.instance), database, tick.plan)
    of_state = apply_state_cleanup(database, told, times, as_of, budget, audit=runtime.settings.audit)
    for each in [*done, *of_state]:
        if each.count or not each.is_complete:
            context.log.info(describe_cleaned(each))


STEPS: Mapping[str, Callable[..., list[str] | None]] = {
    "plan": plan_due_feeds,
    "sweep": run_sweeps,
    "purge": purge_trash,
    "clean": run_cleanup,
}
"""What the ops of the job do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """What was removed, or would be."""

    cleaned: list[CleanedUp]
    dry_run: bool


def clean_up(context: ChangeContext, clusters: Collection[str], *, progress: OnProgress | None = None) -> CleanUp:
    """Clean up after the old runs of clusters, or of all, now; with `dry_run`, only say what would go.

    Raises:
        SettingsError: there is no Dagster instance, whose runs these are.
    """
    context.require_clusters(clusters)
    clusters, settings = sorted(clusters or context.plan.clusters), context.settings or load_settings()
    times, done = KeepingTimes.of(settings.cleanup), list[CleanedUp]()
    with _open_instance() as instance:
        logs = DagsterLogs(instance)
        for cluster in clusters:
            tick = open_tick(context, cluster)
            done += apply_cleanup(tick, times, logs, dry_run=context.dry_run, on_progress=progress)
        told = _find_told(logs, context.database, context.plan)
    database, as_of, ample = context.database, context.as_of, TimeBudget.ample()
    done += apply_state_cleanup(database, told, times, as_of, ample, audit=settings.audit, dry_run=context.dry_run)
    if not context.dry_run and any(each.count for each in done):
        counts = {f"{each.leftover} {each.cluster or ''} {each.unit or ''}".strip(): each.count for each in done}
        removed = {name: count for name, count in counts.items() if count}
        note_target(context, "admin cleanup", ", ".join(clusters), **removed)
    return CleanUp(cleaned=done, dry_run=context.dry_run)


def _find_told(logs: "DagsterLogs", database: Database, plan: Plan) -> dict[str, int]:
    """Return how far Dagster was told of the clusters that are in the plan, and of those that have read the log."""
    with database.read() as connection:
        return logs.find_told({*plan.clusters, *find_readers(connection, {})})


def _open_instance() -> dg.DagsterInstance:
    try:
        return dg.DagsterInstance.get()
    except DagsterHomeNotSetError as exc:
        raise SettingsError(
            setting="DAGSTER_HOME",
            reason="it is not set, and Dagster has the captured logs",
            tried=("the environment",),
            next_step="Set it to the folder that the daemon uses.",
        ) from exc


def describe_cleaned(cleaned: CleanedUp) -> str:
    """Return a sentence about what was removed."""
    noun = COUNTED.get(cleaned.leftover, "run")
    kept = f", kept for {cleaned.limit}" + ("" if cleaned.unit is None else f" with a frequency in {cleaned.unit}")
    more = "" if cleaned.is_complete else "; the next clean-up goes on"
    return f"{cleaned.leftover}: removed of {counted(cleaned.count, noun)}{kept}{more}"


class DagsterLogs(CapturedLogs):
    """The captured logs of a Dagster instance, behind its manager of compute logs.

    Runs themselves stay, with their events: `delete_run` would remove the materializations with them.
    """

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def find(self, runs: Mapping[str, Collection[Key]]) -> list[str]:
        found = self._instance.get_runs(dg.RunsFilter(run_ids=sorted(runs))) if runs else []
        return sorted(
            run.run_id
            for run in found
            if run.is_finished and self._has_logs(run.run_id) and self._is_of(run, runs[run.run_id])
        )

    def find_retention(self, cluster: str, after: datetime | None, before: datetime, limit: int) -> RetentionRuns:
        of_job = dg.RunsFilter(
            job_name=names.OfCluster.RETENTION_JOB.of(cluster), created_after=after, created_before=before
        )
        found = self._instance.get_run_records(of_job, limit=limit, order_by="create_timestamp", ascending=True)
        runs = [record.dagster_run for record in found]
        return RetentionRuns(
            run_ids=tuple(run.run_id for run in runs if run.is_finished and self._has_logs(run.run_id)),
            until=found[-1].create_timestamp if found else None,
            is_last=len(found) < limit,
        )

    def remove(self, run_id: str) -> None:
        self._instance.compute_log_manager.delete_logs(prefix=_prefix(run_id))

    def find_told(self, clusters: Collection[str]) -> dict[str, int]:
        """Return the last event of each cluster that the sensors have reported; nothing of those that never ran."""
        sensors, found = {names.OfCluster.ARRIVAL_SENSOR.of(cluster): cluster for cluster in clusters}, dict[str, int]()
        for state in self._instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
            cluster, data = sensors.get(state.name), state.instigator_data
            if cluster is not None and isinstance(data, SensorInstigatorData) and data.cursor is not None:
                seq = int(json.loads(data.cursor)["told"])
                found[cluster] = min(seq, found.get(cluster, seq))
        return found

    def _is_of(self, run: dg.DagsterRun, processes: Iterable[Key]) -> bool:
        """Return whether a run has no steps but those of some processes: another may be somebody else's."""
        own = {name for key in processes for name in names.possible_steps(key)}
        steps = {each.step_key.partition("[")[0] for each in self._instance.get_run_step_stats(run.run_id)}
        return steps <= own

    def _has_logs(self, run_id: str) -> bool:
        """Return whether a run has captured logs; True if the manager cannot say."""
        manager = self._instance.compute_log_manager
        try:
            return any(manager.get_log_keys_for_log_key_prefix(_prefix(run_id), each) for each in ComputeIOType)
        except FileNotFoundError:
            return False
        except NotImplementedError:
            return True


def _prefix(run_id: str) -> list[str]:
    return [run_id, _FOLDER]
