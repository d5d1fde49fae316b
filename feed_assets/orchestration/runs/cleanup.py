"""Clean up after old runs: in an op of the retention job, and for a command."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import dagster as dg
from dagster._core.errors import DagsterHomeNotSetError
from dagster._core.scheduler.instigation import InstigatorType, SensorInstigatorData
from dagster._core.storage.compute_log_manager import ComputeIOType

from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.operation import OperationContext, note_target
from feed_assets.context.safe_mode import is_safe_mode
from feed_assets.context.tick import open_tick
from feed_assets.context.tick_failures import TickStep
from feed_assets.errors import SettingsError
from feed_assets.orchestration import names
from feed_assets.orchestration.location.contexts import build_context
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
    apply_history_cleanup,
    apply_message_cleanup,
    begin_cleanup,
)
from feed_assets.retention.history import find_readers
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database

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
    history = apply_history_cleanup(database, told, times, as_of, budget)
    for each in [*done, apply_message_cleanup(database, times, as_of, budget), *history]:
        if each.count or not each.is_complete:
            context.log.info(describe_cleaned(each))


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """What was removed, or would be."""

    cleaned: list[CleanedUp]
    dry_run: bool


def clean_up(
    context: OperationContext,
    clusters: Collection[str],
    *,
    author: str,
    dry_run: bool = False,
    progress: OnProgress | None = None,
) -> CleanUp:
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
            done += apply_cleanup(tick, times, logs, dry_run=dry_run, on_progress=progress)
        told = _find_told(logs, context.database, context.plan)
    database, as_of, ample = context.database, context.as_of, TimeBudget.ample()
    done.append(apply_message_cleanup(database, times, as_of, ample, dry_run=dry_run))
    done += apply_history_cleanup(database, told, times, as_of, ample, dry_run=dry_run)
    if not dry_run and any(each.count for each in done):
        counts = {f"{each.leftover} {each.cluster or ''} {each.unit or ''}".strip(): each.count for each in done}
        removed = {name: count for name, count in counts.items() if count}
        note_target(context, author, "admin cleanup", ", ".join(clusters), **removed)
    return CleanUp(cleaned=done, dry_run=dry_run)


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
        of_job = dg.RunsFilter(job_name=names.retention_job(cluster), created_after=after, created_before=before)
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
        sensors, found = {names.arrival_sensor(cluster): cluster for cluster in clusters}, dict[str, int]()
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
