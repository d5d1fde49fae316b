"""Clean up after old runs: in an op of the retention job, and for a command."""

from collections.abc import Collection

from dagster import DagsterInstance, OpExecutionContext
from dagster._core.errors import DagsterHomeNotSetError

from feed_assets.clock import TimeBudget
from feed_assets.errors import SettingsError
from feed_assets.lifecycle.bulkheads import Bulkheads
from feed_assets.lifecycle.cleanup import (
    CleanedUp,
    KeepingTimes,
    OnProgress,
    apply_cleanup,
    apply_message_cleanup,
    begin_cleanup,
)
from feed_assets.operations.audit_notes import note_target
from feed_assets.operations.context import OperationContext
from feed_assets.operations.safe_mode import Operation, is_safe_mode, require_mode
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.captured_logs import DagsterLogs
from feed_assets.plan.rendering import counted
from feed_assets.setting_sections import CleanupSettings
from feed_assets.state.tick_records import TickStep

SECONDS_A_RUN = 300.0
UNIT = "captured logs"
"""The unit of work, as its failures are told."""


def run_cleanup(runtime: Runtime, cluster: str, context: OpExecutionContext) -> None:
    """Clean up after a cluster's old runs, once a day and for a few minutes; the next day goes on.

    What fails, such as an object store for logs that is away, is told like a failure of retention, and fails no run.
    """
    database, as_of, real_now = runtime.database(context.instance), runtime.clock.now(), runtime.real_clock.now()
    with database.begin() as connection:
        if is_safe_mode(connection):
            context.log.info("there is no clean-up: safe mode is on")
            return
        if not begin_cleanup(connection, cluster, as_of):
            context.log.info("the clean-up is not due: it happens once a day")
            return
    times, budget = KeepingTimes.of(runtime.settings.cleanup), TimeBudget(SECONDS_A_RUN)
    logs, nothing = DagsterLogs(context.instance), list[CleanedUp]()
    bulkheads = Bulkheads.open(database, cluster, runtime.real_clock)
    step, plan = TickStep.RETENTION, runtime.plan
    done = bulkheads.run_unit(
        step, UNIT, nothing, apply_cleanup, database, plan, cluster, times, logs, as_of, real_now, budget
    )
    bulkheads.save(database)
    if bulkheads.has_failed(step, UNIT):
        context.log.warning(f"the clean-up has failed, and goes on tomorrow: {bulkheads.reason(step, UNIT)}")
    for each in [*done, apply_message_cleanup(database, times, as_of, budget)]:
        if each.count or not each.is_complete:
            context.log.info(describe_cleaned(each))


def clean_up(
    context: OperationContext,
    settings: CleanupSettings,
    clusters: Collection[str],
    *,
    author: str,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> list[CleanedUp]:
    """Clean up after the old runs of clusters now, however much there is; with `dry_run`, only say what would go.

    Raises:
        SafeModeError: safe mode is on.
        SettingsError: there is no Dagster instance, whose runs these are.
    """
    require_mode(context.database, Operation.CLEANUP)
    times, budget, real_now = KeepingTimes.of(settings), TimeBudget.ample(), context.real_clock.now()
    done: list[CleanedUp] = []
    with _open_instance() as instance:
        logs = DagsterLogs(instance)
        for cluster in sorted(clusters):
            done += apply_cleanup(
                context.database,
                context.plan,
                cluster,
                times,
                logs,
                context.as_of,
                real_now,
                budget,
                dry_run=dry_run,
                on_progress=on_progress,
            )
    done.append(apply_message_cleanup(context.database, times, context.as_of, budget, dry_run=dry_run))
    if not dry_run and any(each.count for each in done):
        counts = {f"{each.leftover} {each.cluster or ''} {each.unit or ''}".strip(): each.count for each in done}
        removed = {name: count for name, count in counts.items() if count}
        note_target(context, author, "admin cleanup", ", ".join(sorted(clusters)), **removed)
    return done


def _open_instance() -> DagsterInstance:
    try:
        return DagsterInstance.get()
    except DagsterHomeNotSetError as exc:
        raise SettingsError(
            setting="DAGSTER_HOME",
            reason="it is not set, and Dagster has the captured logs",
            tried=("the environment",),
            next_step="Set it to the folder that the daemon uses.",
        ) from exc


def describe_cleaned(cleaned: CleanedUp) -> str:
    """Return a sentence about what was removed."""
    noun = "message" if cleaned.unit is None else "run"
    kept = f", kept for {cleaned.limit}" + ("" if cleaned.unit is None else f" with a frequency in {cleaned.unit}")
    more = "" if cleaned.is_complete else "; the next clean-up goes on"
    return f"{cleaned.leftover}: removed of {counted(cleaned.count, noun)}{kept}{more}"
