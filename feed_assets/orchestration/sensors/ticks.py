"""One tick of a cluster's arrival sensor: reconcile, poll, open gates, request runs, report arrivals to Dagster. What
has become of the runs that are on record, Dagster is asked.

In this order, one tick handles both an arrival and the runs that it makes ready. The event log, leases and
compare-and-set make a repeated tick harmless: it requests nothing twice.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from feed_assets.alerts.deadlines.checks import note_looked
from feed_assets.context.audit_chain import apply_audit_chain
from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import NotAskedError
from feed_assets.context.heartbeat import note_tick
from feed_assets.context.tick import Tick, tick_step
from feed_assets.engines.spark.addresses import bare_url, check_spark_remote
from feed_assets.engines.spark.local_servers import ServerUse
from feed_assets.engines.spark.sessions import interrupt_run
from feed_assets.entities.flow_names import describe_process
from feed_assets.instances.arrival.polling import ArrivalResult, apply_arrivals, apply_past_polls
from feed_assets.instances.arrival.stored_data import apply_stored_looks, apply_watches
from feed_assets.instances.attempts.exporting import apply_staged_tables
from feed_assets.instances.gates.readiness import ReadinessResult, apply_readiness
from feed_assets.instances.gates.reconciliation import (
    RunState,
    apply_clock,
    apply_reconciliation,
    find_commands,
    find_launched,
    suspend_command,
)
from feed_assets.instances.gates.requests import LaunchMode, LaunchRequest, apply_requests
from feed_assets.instances.gates.retries import apply_retries
from feed_assets.instances.gates.staging_sweep import apply_staging_sweep
from feed_assets.instances.inbox.ingest import apply_inboxes
from feed_assets.instances.late.detection import apply_updates
from feed_assets.instances.lists.ranges import render_ranges
from feed_assets.log.records import FeedEvent, ProcessInstance, ProcessKey
from feed_assets.log.run_names import is_command
from feed_assets.masking import get_logger
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.orchestration.location.dead_runs import RunHeartbeats, fail_dead_runs
from feed_assets.orchestration.location.health import find_health, tell_health
from feed_assets.orchestration.location.reloading import begin_tick, follow_plan
from feed_assets.orchestration.location.runtime import ActiveDefinitions, Runtime
from feed_assets.orchestration.location.spark import LocationServers
from feed_assets.orchestration.runs.feed_checks import evaluate_changed
from feed_assets.orchestration.runs.listed_instances import build_tags
from feed_assets.orchestration.sensors.log_events import DagsterEvent, build_asset_events, find_greyed, find_known_runs
from feed_assets.orchestration.sensors.overdue_notices import describe_oldest, follow_hands, report_overdue
from feed_assets.orchestration.sensors.tick_cursors import TickCursor, notice_restore, parse_cursor, read_unreported
from feed_assets.orchestration.user_assets.materializations import follow_materializations
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.plan.rendering import counted
from feed_assets.registration.ticks import apply_registrations
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import TriggerResult, apply_triggers

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
    changed = set(apply_reconciliation(tick, launched, known_runs, by_request))
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


REQUESTS_A_TICK = 50
EVENTS_A_TICK = 500
KEYS_A_TICK = 2_000

_logger = get_logger(__name__)


def run_tick(
    runtime: Runtime,
    layout: AssetLayout,
    cluster: str,
    instance: dg.DagsterInstance,
    cursor_text: str | None,
    graph: AssetGraph | None = None,
) -> dg.SensorResult:
    """Do the work of one tick of an arrival sensor. Each step runs, whatever happens in the others: see `Bulkheads`.

    `layout` is the layout that Dagster has loaded, and `graph` all assets beside it; the active definitions may be
    newer.
    """
    cursor = parse_cursor(cursor_text)
    rebuilds = notice_restore(runtime.database(instance), cursor)
    active, tick = begin_tick(runtime, layout, cluster, instance)
    if cluster not in active.plan.clusters:
        return dg.SensorResult(
            skip_reason=dg.SkipReason(f"cluster {cluster} is no longer declared"), cursor=cursor_text
        )
    follow_plan(runtime, active.location, tick.database, tick.as_of, tick.bulkheads)
    sensor_tick = _SensorTick(runtime=runtime, active=active, instance=instance, graph=graph, tick=tick)
    return sensor_tick.report(sensor_tick.advance(), cursor, rebuilds)


@dataclass(frozen=True, slots=True)
class _Done:
    """What a tick has done."""

    arrivals: ArrivalResult
    readiness: ReadinessResult
    requests: Sequence[LaunchRequest]
    explained: int
    triggered: TriggerResult


@dataclass(frozen=True, slots=True, kw_only=True)
class _SensorTick:
    """A tick with what Dagster has for it."""

    runtime: Runtime
    active: ActiveDefinitions
    instance: dg.DagsterInstance
    graph: AssetGraph | None
    tick: Tick

    def advance(self) -> _Done:
        """Bring the record up to date, and decide what to launch."""
        tick, layout, instance = self.tick, self.active.layout, self.instance
        note_tick(tick.database, tick.cluster, tick.real_now)
        set_back = apply_clock(tick)
        if set_back is not None:
            _logger.warning("cluster %s: %s", tick.cluster, set_back.render())
        reconcile(tick, use_server(tick, self.runtime.servers), instance, self.runtime.heartbeats)
        apply_staging_sweep(tick)
        apply_staged_tables(tick, self.runtime.root)
        announced = follow_materializations(tick, layout.find_asset, instance, self.graph)
        follow_hands(tick, layout, instance)
        arrivals = ArrivalResult.sum_of(apply_arrivals(tick), apply_watches(tick), apply_inboxes(tick))
        apply_stored_looks(tick)
        apply_past_polls(tick)
        apply_registrations(tick)
        log_exhausted(tick.plan, apply_retries(tick))
        triggered = apply_triggers(tick)
        readiness = apply_readiness(tick)
        updated = apply_updates(tick)
        if arrivals.is_complete and readiness.is_complete:
            note_looked(tick.database, tick.cluster, tick.as_of)
        apply_audit_chain(tick, self.runtime.settings.audit)
        explained = report_overdue(tick, layout, instance)
        requests: Sequence[LaunchRequest] = ()
        if not self.active.is_restored:
            not_yet = self.active.not_yet
            requests = apply_requests(tick, REQUESTS_A_TICK, mode=LaunchMode.PARTITIONS, not_yet=not_yet)
        arrivals = replace(arrivals, arrived=arrivals.arrived + announced)
        readiness = replace(readiness, ready=readiness.ready + updated)
        return _Done(arrivals, readiness, requests, explained, triggered)

    def report(self, done: _Done, cursor: TickCursor, rebuilds: int) -> dg.SensorResult:
        """Build what Dagster is told: runs to start, events, partitions, and the check of the location."""
        tick, layout, location = self.tick, self.active.layout, self.active.location
        cluster, database = tick.cluster, tick.database
        with database.read() as connection:
            unreported = read_unreported(connection, cursor, cluster, EVENTS_A_TICK)
        if unreported.lost is not None:
            _logger.warning("%s", unreported.describe(cluster))
        known_runs = tick.bulkheads.run(TickStep.REPORTS, None, find_known_runs, self.instance, unreported.events)
        if known_runs is None:
            unreported = replace(unreported, events=(), newest=None)
            known_runs = ()
        asset_events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = []
        for event in unreported.events:
            nothing: list[DagsterEvent] = []
            asset_events += tick.bulkheads.run_unit(
                TickStep.REPORTS, event.feed, nothing, build_asset_events, tick, layout, event, known_runs
            )
        at, until, step, nothing_lost = cursor.looked, cursor.last_seq, TickStep.REPORTS, (list[DagsterEvent](), 0)
        greyed, looked = tick.bulkheads.run_unit(
            step, "deleted runs", nothing_lost, find_greyed, tick, layout, self.instance, at, until
        )
        asset_events += greyed
        if cursor.location != location.digest:
            set_pool_limits(tick, layout, self.instance)
            tick.bulkheads.run_unit(TickStep.REPORTS, "definitions", None, self._report_definitions, location.digest)
        partitions = due_keys(tick, layout, self.instance)
        partitions += coming_keys(layout, unreported.events, done.requests)
        tick.bulkheads.save(database)
        health = find_health(database, tick.plan, location.issues, tick.as_of)
        tell_health(database, health, tick.as_of, tick.real_now)
        run_requests = [build_run_request(layout, request) for request in done.requests]
        is_quiet = not (run_requests or asset_events or done.readiness.ready)
        behind = {flow: count for flow, on, count, _ in health.behind if on == cluster}
        asset_events += evaluate_changed(layout, cluster, health.behind, cursor.behind)
        following = unreported.following(location.digest, health.digest, rebuilds)
        following = replace(following, looked=looked, behind=behind)
        said = describe(done, len(asset_events), self.active) + health.describe(cluster)
        if (cursor.location, cursor.health) != (following.location, following.health):
            asset_events.append(health.check(self.runtime.location_key))
        said += describe_oldest(tick, cluster) if is_quiet else ""
        return dg.SensorResult(
            run_requests=run_requests or None,
            asset_events=asset_events,
            dynamic_partitions_requests=partitions,
            cursor=following.render(),
            skip_reason=None if run_requests else dg.SkipReason(said),
        )

    def _report_definitions(self, digest: str) -> None:
        """Show the location's own asset as made: Dagster shows one that never was as missing."""
        made = dg.AssetMaterialization(self.runtime.location_key, metadata={names.META_DIGEST: digest})
        self.instance.report_runless_asset_event(made)


def log_exhausted(plan: Plan, exhausted: Sequence[ProcessKey]) -> None:
    """Log an error about the instances of each process that have no retries left."""
    times: dict[Key, list[datetime]] = {}
    for key in exhausted:
        times.setdefault((key.process, key.cluster), []).append(key.nominal_time)
    for (name, cluster), failed in times.items():
        record = plan.processes.get((name, cluster))
        when = ", ".join(map(render_datetime, failed)) if record is None else render_ranges(failed, record.sequence)
        noun = "instance" if len(failed) == 1 else "instances"
        _logger.error("%s on %s: all retries of %s %s have failed", describe_process(name), cluster, noun, when)


def describe(done: _Done, reported: int, active: ActiveDefinitions) -> str:
    """Return a phrase that summarizes a tick without requests: what happened, or that nothing did."""
    arrivals, readiness, triggered = done.arrivals, done.readiness, done.triggered
    new, told = counted(readiness.materialized, "new process instance"), counted(reported, "event")
    cut = f"{len(triggered.batches)} new {'batch' if len(triggered.batches) == 1 else 'batches'}"
    counts = [counted(arrivals.polled, "poll"), counted(arrivals.arrived, "arrival"), cut, new]
    counts += [f"{readiness.ready} ready", f"{readiness.timed_out} timed out"]
    counts += [f"{told} reported", f"{done.explained} explained"]
    said = ", ".join(text for text in counts if not text.startswith("0 ")) or "nothing new"
    is_complete = arrivals.is_complete and readiness.is_complete and triggered.is_complete
    said += "" if is_complete else "; the next tick continues"
    match len(active.not_yet):
        case 0:
            pass
        case 1:
            said += "; 1 process waits for Dagster to load it"
        case waiting:
            said += f"; {waiting} processes wait for Dagster to load them"
    return f"{said}; safe mode is on" if active.is_safe_mode else said


def build_run_request(layout: AssetLayout, request: LaunchRequest) -> dg.RunRequest:
    """Build the run request for a launch request: one partition, or a range of them."""
    process = request.process
    run_grid = layout.process_grid(process)
    tags = build_tags(request)
    selection = [key for key, _ in layout.run_assets(process)]
    first, last = run_grid.partition(request.first), run_grid.partition(request.last)
    if first == last:
        return dg.RunRequest(run_key=request.key, asset_selection=selection, partition_key=first, tags=tags)
    tags |= {names.RANGE_START: str(first), names.RANGE_END: str(last)}
    return dg.RunRequest(run_key=request.key, asset_selection=selection, tags=tags)


@tick_step(TickStep.POOLS, otherwise=None)
def set_pool_limits(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance) -> None:
    """Set the limit of each process's pool to its `parallel`, once per plan, so that a limit set by hand persists."""
    storage = instance.event_log_storage
    default = instance.get_concurrency_config().pool_config.default_pool_limit
    known = {pool.name: pool.limit for pool in storage.get_pool_limits() if not pool.from_default}
    for process in layout.plan.processes.values():
        pool = names.pool_name(process)
        if process.is_elsewhere:
            continue
        if process.cluster == tick.cluster and known.get(pool, default) != process.parallel:
            storage.set_concurrency_slots(pool, process.parallel)


def due_keys(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance) -> list[dg.AddDynamicPartitionsRequest]:
    """Return requests for the keys that dynamic grids lack, oldest first."""
    requests: dict[str, dg.AddDynamicPartitionsRequest] = {}
    for grid in layout.dynamic[tick.cluster]:
        keys: Sequence[str] = tick.bulkheads.run_unit(
            TickStep.PARTITIONS, grid.dynamic_name, (), _missing_keys, grid, instance, tick.as_of
        )
        if keys:
            requests[grid.dynamic_name] = grid.add_request(keys)
    return list(requests.values())


def coming_keys(
    layout: AssetLayout, events: Sequence[FeedEvent], requests: Sequence[LaunchRequest]
) -> list[dg.AddDynamicPartitionsRequest]:
    """Return requests for the keys of instances that came as they come: of feeds, and of what is to run now."""
    keys: dict[Grid, dict[str, None]] = {}
    for event in events:
        found = layout.find_asset((event.feed, event.cluster))
        if found is not None and found[1].owner:
            keys.setdefault(found[1], {})[found[1].key(event.nominal_time)] = None
    for request in requests:
        if (grid := layout.process_grid(request.process)).owner:
            keys.setdefault(grid, {}).update(dict.fromkeys(map(grid.key, request.nominal_times)))
    return [grid.add_request(list(found)) for grid, found in keys.items()]


def _missing_keys(grid: Grid, instance: dg.DagsterInstance, as_of: datetime) -> Sequence[str]:
    sequence = grid.sequence
    stop = sequence.index_at_or_before(as_of) + 1
    if sequence.size is not None:
        stop = min(stop, sequence.size)
    if stop <= 0 or instance.has_dynamic_partition(grid.dynamic_name, grid.key(sequence.at(stop - 1))):
        return ()
    known = instance.get_dynamic_partitions(grid.dynamic_name)
    start = sequence.index(grid.nominal_time(known[-1])) + 1 if known else 0
    return [grid.key(sequence.at(index)) for index in range(start, min(stop, start + KEYS_A_TICK))]
