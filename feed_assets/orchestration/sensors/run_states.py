"""Ask Dagster what has become of the runs that are on record, and correct the record."""

from collections.abc import Collection, Sequence

import dagster as dg

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import NotAskedError
from feed_assets.context.tick import Tick, tick_step
from feed_assets.engines.spark.addresses import bare_url, check_spark_remote
from feed_assets.engines.spark.local_servers import ServerUse
from feed_assets.engines.spark.sessions import interrupt_run
from feed_assets.entities.flow_names import describe_process
from feed_assets.instances.gates.reconciliation import (
    RunState,
    apply_reconciliation,
    find_commands,
    find_launched,
    suspend_command,
)
from feed_assets.log.records import ProcessInstance, ProcessKey
from feed_assets.log.run_names import is_command
from feed_assets.orchestration import names
from feed_assets.orchestration.location.dead_runs import RunHeartbeats, fail_dead_runs
from feed_assets.orchestration.location.spark import LocationServers
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime

_OVER = {
    dg.DagsterRunStatus.SUCCESS: RunState.ENDED,
    dg.DagsterRunStatus.FAILURE: RunState.ENDED,
    dg.DagsterRunStatus.CANCELED: RunState.CANCELED,
}


@tick_step(TickStep.SPARK, otherwise=None)
def use_server(tick: Tick, servers: LocationServers) -> ServerUse | None:
    """Return the use of the cluster's Spark server; None if the cluster keeps none."""
    return servers.use(tick.plan.clusters[tick.cluster])


@tick_step(TickStep.RECONCILIATION, otherwise=None)
def reconcile(tick: Tick, use: ServerUse | None, instance: dg.DagsterInstance, heartbeats: RunHeartbeats) -> None:
    """Ask Dagster for the state of the recorded runs, and correct the record. `use` is that of the cluster's server."""
    launched = find_launched(tick.database, tick.cluster, tick.real_now)
    run_ids = sorted({item.run_id for item in launched.running if item.run_id and not is_command(item.run_id)})
    fail_dead_runs(tick.database, tick.cluster, instance, launched.running, heartbeats, tick.real_now)
    requests = sorted({item.request_key for item in launched.requested if item.request_key})
    by_run = {}
    if run_ids:
        known = {run.run_id: run.status for run in instance.get_runs(dg.RunsFilter(run_ids=run_ids))}
        by_run = {run_id: _state(known.get(run_id)) for run_id in run_ids}
    runs = {}
    if requests:
        found = instance.get_runs(dg.RunsFilter(tags={names.TAG_REQUEST: requests}))
        runs = {run.tags[names.TAG_REQUEST]: run for run in reversed(found)}  # newest wins
    by_request = {key: _state(run.status) for key, run in runs.items()}
    known_runs = by_run | find_commands(tick.database, launched, tick.real_now)
    changed = set(apply_reconciliation(tick.database, launched, known_runs, by_request, tick.as_of, tick.plan))
    for key, run in runs.items():
        if by_request[key] is RunState.CANCELED:
            _tell_not_begun(instance, run, [row for row in launched.requested if row.request_key == key], changed)
    ended = [run_id for run_id, state in by_run.items() if state is not RunState.ALIVE]
    remote = use.find() if use is not None and ended else tick.plan.clusters[tick.cluster].spark_remote
    if remote is not None:
        _stop_leftovers(tick, remote, ended)


def _tell_not_begun(
    instance: dg.DagsterInstance, run: dg.DagsterRun, rows: Sequence[ProcessInstance], changed: Collection[ProcessKey]
) -> None:
    """Say in the log of a cancelled run what becomes of the instances that it had not begun."""
    rows = [row for row in rows if row.key in changed]
    if rows:
        which = " to ".join(sorted({render_datetime(row.nominal_time) for row in (rows[0], rows[-1])}))
        message = (
            f"{counted(len(rows), 'instance')} had not begun ({which}): READY again, and the next tick requests a run. "
            f"To stop {describe_process(rows[0].process)}: {suspend_command(rows[0].process, rows[0].cluster)}"
        )
        instance.report_engine_event(message, run)


def _stop_leftovers(tick: Tick, remote: str, run_ids: Sequence[str]) -> None:
    """Stop the remaining work of ended runs on a Spark Connect server; a server that failed is tried again."""
    server = bare_url(remote)
    if not run_ids and not tick.bulkheads.has_failed(TickStep.SPARK, server):
        return

    def stop() -> None:
        check_spark_remote(remote)
        for run_id in run_ids:
            interrupt_run(remote, run_id)

    answer = tick.bulkheads.ask(TickStep.SPARK, {server: stop})[server]
    if isinstance(answer, Exception) and not isinstance(answer, NotAskedError):
        tick.bulkheads.fail(TickStep.SPARK, server, answer)


def _state(status: dg.DagsterRunStatus | None) -> RunState:
    return RunState.UNKNOWN if status is None else _OVER.get(status, RunState.ALIVE)
