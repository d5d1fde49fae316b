"""One tick of a cluster's arrival sensor: reconcile, look, open gates, ask for runs, tell Dagster what has arrived.

The order makes an arrival, and the runs that it makes ready, one tick. The event log, leases and compare-and-set
decide; a tick that is repeated asks for nothing twice.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dagster import (
    AddDynamicPartitionsRequest,
    AssetCheckEvaluation,
    AssetCheckSeverity,
    DagsterInstance,
    DagsterRunStatus,
    MetadataValue,
    RunRequest,
    RunsFilter,
    SensorResult,
    SkipReason,
)

from feed_assets.clock import TimeBudget
from feed_assets.engines.sessions import interrupt_run
from feed_assets.entities.flow_names import describe_process
from feed_assets.issues import Issue, Severity
from feed_assets.lifecycle.arrivals import Found, apply_arrivals
from feed_assets.lifecycle.clock_steps import apply_clock
from feed_assets.lifecycle.former_inputs import apply_former_looks
from feed_assets.lifecycle.readiness import Readied, apply_readiness
from feed_assets.lifecycle.reconciliation import RunState, apply_reconciliation, find_commands, find_launched
from feed_assets.lifecycle.requests import LaunchRequest, Way, apply_requests
from feed_assets.lifecycle.retries import Retried, apply_retries
from feed_assets.lifecycle.run_names import is_command
from feed_assets.lifecycle.staging import apply_staging_sweep
from feed_assets.orchestration import names
from feed_assets.orchestration.dead_runs import Silences, fail_dead_runs
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.log_events import build_told
from feed_assets.orchestration.partitions import Grid
from feed_assets.orchestration.present import Present
from feed_assets.orchestration.releases import follow_plan
from feed_assets.orchestration.reloading import follow_definitions
from feed_assets.orchestration.runtime import Runtime
from feed_assets.orchestration.telling import build_scene, describe_oldest, tell_why
from feed_assets.plan.records import ClusterRecord
from feed_assets.state.database import Database
from feed_assets.state.event_log import EventLog
from feed_assets.timing.dates import render_datetime

SECONDS_A_TICK = 20.0
REQUESTS_A_TICK = 50
EVENTS_A_TICK = 500
KEYS_A_TICK = 2_000

_logger = logging.getLogger(__name__)

_CURSOR_VERSION = 1
_OVER = {DagsterRunStatus.SUCCESS: RunState.ENDED, DagsterRunStatus.FAILURE: RunState.ENDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TickCursor:
    """What a sensor remembers in Dagster: the last event told, and the plan whose issues are shown."""

    told: int = 0
    checked: str = ""

    def render(self) -> str:
        return json.dumps({"version": _CURSOR_VERSION, "told": self.told, "checked": self.checked})


def parse_cursor(text: str | None) -> TickCursor:
    """Read a cursor; None is the cursor of a sensor that has never run.

    Raises:
        ValueError: it is none of ours; it is never restarted silently.
    """
    if text is None:
        return TickCursor()
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.get("version") != _CURSOR_VERSION:
        raise ValueError(f"cursor {text!r} is not of version {_CURSOR_VERSION}; reset it with `dagster sensor cursor`")
    return TickCursor(told=int(fields["told"]), checked=str(fields["checked"]))


def run_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: DagsterInstance, cursor_text: str | None
) -> SensorResult:
    """Everything an arrival sensor does in one tick. `layout` is what Dagster was given; the definitions in force may
    be newer by now.
    """
    cursor = parse_cursor(cursor_text)
    database = runtime.database(instance)
    as_of, budget = runtime.clock.now(), TimeBudget(SECONDS_A_TICK)
    present = follow_definitions(runtime, layout, database, as_of)
    plan, layout = present.plan, present.layout
    if cluster not in plan.clusters:
        return SensorResult(skip_reason=SkipReason(f"cluster {cluster} is not declared any more"), cursor=cursor_text)
    governance = follow_plan(runtime, present.location, database, as_of)
    scene = build_scene(runtime, governance, database, as_of)
    set_back = apply_clock(database, governance, cluster, as_of, runtime.wall.now())
    if set_back is not None:
        _logger.warning("cluster %s: %s", cluster, set_back.render())
    reconcile(database, plan.clusters[cluster], instance, runtime.silences, as_of, runtime.wall.now())
    apply_staging_sweep(database, runtime.stores, plan, cluster, runtime.wall.now())
    found = apply_arrivals(database, runtime.stores, plan, cluster, as_of, budget)
    apply_former_looks(database, runtime.stores, governance, cluster, as_of)
    tell_exhausted(apply_retries(database, governance, cluster, as_of))
    readied = apply_readiness(database, governance, cluster, as_of, budget, without_row=scene.without_row)
    explained = tell_why(scene, layout, cluster, instance)
    requests = apply_requests(
        database,
        governance,
        cluster,
        as_of,
        runtime.wall.now(),
        REQUESTS_A_TICK,
        way=Way.PARTITIONS,
        without_row=scene.without_row,
        not_yet=present.not_yet,
    )
    with database.read() as connection:
        events = EventLog(connection).read(cursor.told, EVENTS_A_TICK, clusters=[cluster])
    told = list(build_told(layout, events))
    checks = []
    if cursor.checked != present.location.digest:
        set_pool_limits(layout, cluster, instance)
        checks.append(issues_check(present.location.issues))
    run_requests = [build_run_request(layout, request) for request in requests]
    is_quiet = not (run_requests or told or readied.ready)
    oldest = describe_oldest(scene, cluster) if is_quiet else ""
    following = replace(cursor, told=events[-1].seq if events else cursor.told, checked=present.location.digest)
    return SensorResult(
        run_requests=run_requests or None,
        asset_events=[*told, *checks],
        dynamic_partitions_requests=dynamic_keys(layout, cluster, instance, as_of),
        cursor=following.render(),
        skip_reason=None
        if run_requests
        else SkipReason(describe(found, readied, len(told), explained, present) + oldest),
    )


def tell_exhausted(retried: Retried) -> None:
    """Say loudly which instances have failed for good."""
    for key in retried.exhausted:
        when = render_datetime(key.nominal_time)
        who = describe_process(key.process)
        _logger.error("%s on %s: all retries of instance %s have failed", who, key.cluster, when)


def describe(found: Found, readied: Readied, told: int, explained: int, present: Present) -> str:
    """What a tick without requests did, in a sentence."""
    more = "" if found.is_complete and readied.is_complete else "; more is left for the next tick"
    more += f"; {len(present.not_yet)} processes wait until Dagster has loaded them" if present.not_yet else ""
    more += "; safe mode is on" if present.is_safe_mode else ""
    return (
        f"{found.looked} looks, {found.arrived} arrivals, {readied.materialized} new process instances, "
        f"{readied.ready} ready, {readied.timed_out} timed out, {told} events told, {explained} explained{more}"
    )


def reconcile(
    database: Database,
    cluster: ClusterRecord,
    instance: DagsterInstance,
    silences: Silences,
    as_of: datetime,
    wall: datetime,
) -> None:
    """Ask Dagster what became of the runs that the record believes in, and correct the record."""
    launched = find_launched(database, cluster.name, wall)
    run_ids = sorted({item.run_id for item in launched.running if item.run_id and not is_command(item.run_id)})
    fail_dead_runs(database, cluster.name, instance, launched.running, silences, wall)
    requests = sorted({item.request_key for item in launched.requested if item.request_key})
    by_run = {}
    if run_ids:
        found = {run.run_id: run.status for run in instance.get_runs(RunsFilter(run_ids=run_ids))}
        by_run = {run_id: _state(found.get(run_id)) for run_id in run_ids}
    by_request = {}
    if requests:
        runs = instance.get_runs(RunsFilter(tags={names.TAG_REQUEST: requests}))
        by_request = {run.tags[names.TAG_REQUEST]: _state(run.status) for run in reversed(runs)}  # newest wins
    commands = find_commands(database, launched, wall)
    apply_reconciliation(database, launched, by_run | commands, by_request, as_of)
    if cluster.spark_remote is not None:
        _stop_leftovers(
            cluster.spark_remote, [run_id for run_id, state in by_run.items() if state is not RunState.ALIVE]
        )


def _stop_leftovers(remote: str, run_ids: Sequence[str]) -> None:
    """End what runs that are over still compute on a Spark Connect server."""
    for run_id in run_ids:
        try:
            interrupt_run(remote, run_id)
        except Exception:
            _logger.warning("what run %s left on %s could not be stopped", run_id, remote, exc_info=True)


def _state(status: DagsterRunStatus | None) -> RunState:
    match status:
        case None:
            return RunState.UNKNOWN
        case DagsterRunStatus.CANCELED:
            return RunState.CANCELED
        case _:
            return _OVER.get(status, RunState.ALIVE)


def build_run_request(layout: AssetLayout, request: LaunchRequest) -> RunRequest:
    """The run for a launch request: one partition, or a range of them."""
    process = request.process
    run_grid = layout.process_grid(process)
    tags = {
        names.TAG_PROCESS: process.process,
        names.TAG_CLUSTER: process.cluster,
        names.TAG_REQUEST: request.key,
        **({names.PRIORITY: str(request.priority)} if request.priority else {}),
        **({names.TAG_QUEUE: process.queue} if process.queue else {}),
        **names.late_tags(request.late),
    }
    selection = (
        [names.process_key(layout.plan, process)]
        if layout.is_own_asset(process)
        else [layout.feed_asset(edge.feed_key)[0] for edge in process.outputs]
    )
    first, last = run_grid.key(request.first), run_grid.key(request.last)
    if first == last:
        return RunRequest(run_key=request.key, asset_selection=selection, partition_key=first, tags=tags)
    tags |= {names.RANGE_START: first, names.RANGE_END: last}
    return RunRequest(run_key=request.key, asset_selection=selection, tags=tags)


def dynamic_keys(
    layout: AssetLayout, cluster: str, instance: DagsterInstance, as_of: datetime
) -> list[AddDynamicPartitionsRequest]:
    """Keys that dynamic grids lack, oldest first."""
    requests: dict[str, AddDynamicPartitionsRequest] = {}
    for grid in layout.dynamic[cluster]:
        keys = _missing_keys(grid, instance, as_of)
        if keys:
            requests[grid.dynamic_name] = grid.add_request(keys)
    return list(requests.values())


def _missing_keys(grid: Grid, instance: DagsterInstance, as_of: datetime) -> Sequence[str]:
    sequence = grid.sequence
    stop = sequence.index_at_or_before(as_of) + 1
    if sequence.size is not None:
        stop = min(stop, sequence.size)
    if stop <= 0 or instance.has_dynamic_partition(grid.dynamic_name, grid.key(sequence.at(stop - 1))):
        return ()
    known = instance.get_dynamic_partitions(grid.dynamic_name)
    start = sequence.index(grid.nominal_time(known[-1])) + 1 if known else 0
    return [grid.key(sequence.at(index)) for index in range(start, min(stop, start + KEYS_A_TICK))]


def set_pool_limits(layout: AssetLayout, cluster: str, instance: DagsterInstance) -> None:
    """Make the limit of each process's pool its `parallel`; done when a plan is new, so a limit set by hand stays."""
    storage = instance.event_log_storage
    default = instance.get_concurrency_config().pool_config.default_pool_limit
    known = {pool.name: pool.limit for pool in storage.get_pool_limits() if not pool.from_default}
    for process in layout.plan.processes.values():
        pool = names.pool_name(process)
        if process.cluster == cluster and known.get(pool, default) != process.parallel:
            storage.set_concurrency_slots(pool, process.parallel)


def issues_check(issues: Sequence[Issue]) -> AssetCheckEvaluation:
    """The result of the check on the location's own asset: passed when every entity file is in order."""
    errors = [issue for issue in issues if issue.severity is Severity.ERROR]
    return AssetCheckEvaluation(
        asset_key=names.LOCATION_KEY,
        check_name=names.LOCATION_CHECK,
        passed=not errors,
        severity=AssetCheckSeverity.ERROR,
        description=f"{len(errors)} errors, {len(issues) - len(errors)} warnings",
        metadata={"issues": MetadataValue.md("\n".join(f"- {issue.render()}" for issue in issues) or "none")},
    )
