"""One tick of a cluster's arrival sensor: reconcile, poll, open gates, request runs, report arrivals to Dagster.

In this order, one tick handles both an arrival and the runs that it makes ready. The event log, leases and
compare-and-set make a repeated tick harmless: it requests nothing twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from feed_assets.alerts.deadlines.watermarks import note_looked
from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick_failures import TickStep
from feed_assets.entities.flow_names import describe_process
from feed_assets.explain.tick_failures import note_tick
from feed_assets.instances.arrival.announcements import AnnouncedResult
from feed_assets.instances.arrival.polling import ArrivalResult, apply_past_polls
from feed_assets.instances.arrivals import look_for_arrivals
from feed_assets.instances.gates.clock_setback import apply_clock
from feed_assets.instances.gates.readiness import ReadinessResult, apply_readiness
from feed_assets.instances.gates.requests import RUN_TIME, LaunchMode, LaunchRequest, apply_requests
from feed_assets.instances.gates.retries import RetryResult, apply_retries
from feed_assets.instances.gates.staging_sweep import apply_staging_sweep
from feed_assets.instances.late.detection import apply_updates
from feed_assets.instances.lists.ranges import render_ranges
from feed_assets.log.records import FeedEvent
from feed_assets.masking import get_logger
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.orchestration.location.contexts import build_context
from feed_assets.orchestration.location.health import find_health, tell_health
from feed_assets.orchestration.location.reloading import follow_definitions, follow_plan
from feed_assets.orchestration.location.runtime import ActiveDefinitions, Runtime
from feed_assets.orchestration.runs.feed_checks import evaluate_changed
from feed_assets.orchestration.runs.listed_instances import build_tags
from feed_assets.orchestration.sensors.hand_reports import follow_hands
from feed_assets.orchestration.sensors.log_events import DagsterEvent, build_asset_events, find_greyed, find_known_runs
from feed_assets.orchestration.sensors.overdue_notices import describe_oldest, report_overdue
from feed_assets.orchestration.sensors.run_states import reconcile
from feed_assets.orchestration.sensors.tick_cursors import TickCursor, notice_restore, parse_cursor, read_unreported
from feed_assets.orchestration.user_assets.materializations import follow_materializations
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.plan.rendering import counted
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.apply_triggers import TriggerResult, apply_triggers

SECONDS_A_TICK = 20.0
NO_RETRIES = RetryResult(again=(), exhausted=())
NOTHING_READY = ReadinessResult(materialized=0, ready=0, timed_out=0, is_complete=True)
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
    database = runtime.database(instance)
    as_of = runtime.clock.now()
    rebuilds = notice_restore(database, cursor, cluster)
    active = follow_definitions(runtime, layout, database, as_of)
    if cluster not in active.plan.clusters:
        return dg.SensorResult(
            skip_reason=dg.SkipReason(f"cluster {cluster} is no longer declared"), cursor=cursor_text
        )
    bulkheads = Bulkheads.open(database, cluster, runtime.real_clock, runtime.patience)
    timeline = follow_plan(runtime, active.location, database, as_of, bulkheads)
    tick = _Tick(
        runtime=runtime,
        active=active,
        cluster=cluster,
        instance=instance,
        graph=graph,
        context=build_context(runtime, timeline, database, as_of),
        bulkheads=bulkheads,
    )
    done = tick.advance()
    return tick.report(done, cursor, rebuilds)


@dataclass(frozen=True, slots=True)
class _Done:
    """What a tick has done."""

    arrivals: ArrivalResult
    readiness: ReadinessResult
    requests: Sequence[LaunchRequest]
    explained: int
    triggered: TriggerResult


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tick:
    """One tick of a cluster."""

    runtime: Runtime
    active: ActiveDefinitions
    cluster: str
    instance: dg.DagsterInstance
    graph: AssetGraph | None
    context: OperationContext
    bulkheads: Bulkheads

    def advance(self) -> _Done:
        """Bring the record up to date, and decide what to launch."""
        context, cluster, bulkheads, instance = self.context, self.cluster, self.bulkheads, self.instance
        database, timeline, as_of, stores = context.database, context.timeline, context.as_of, context.stores
        plan, real_now, budget = self.active.plan, self.runtime.real_clock.now(), TimeBudget(SECONDS_A_TICK)
        note_tick(database, cluster, real_now)
        set_back = apply_clock(database, timeline, cluster, as_of, real_now)
        if set_back is not None:
            _logger.warning("cluster %s: %s", cluster, set_back.render())
        record, heartbeats = plan.clusters[cluster], self.runtime.heartbeats
        run = bulkheads.run
        use = run(TickStep.SPARK, None, self.runtime.servers.use, record)
        step = TickStep.RECONCILIATION
        run(step, None, reconcile, database, plan, record, use, instance, heartbeats, as_of, real_now, bulkheads)
        run(TickStep.STAGING_SWEEP, None, apply_staging_sweep, database, stores, plan, cluster, real_now, bulkheads)
        layout, reports, without_row = self.active.layout, TickStep.REPORTS, context.without_row
        followed = (
            database,
            stores,
            plan,
            layout.find_asset,
            cluster,
            instance,
            self.graph,
            as_of,
            real_now,
            bulkheads,
        )
        announced = run(TickStep.MATERIALIZATIONS, AnnouncedResult(), follow_materializations, *followed)
        bulkheads.run_unit(reports, "by hand", None, follow_hands, context, layout, cluster, instance, bulkheads)
        is_held = self.active.is_restored or self.active.is_safe_mode
        arrivals = look_for_arrivals(
            database, stores, plan, cluster, as_of, real_now, budget, bulkheads, may_take=not is_held
        )
        run(TickStep.PAST_ARRIVALS, None, apply_past_polls, database, stores, timeline, cluster, as_of, bulkheads)
        retried = run(TickStep.RETRIES, NO_RETRIES, apply_retries, database, timeline, cluster, as_of, bulkheads)
        log_exhausted(plan, retried)
        work, events = (cluster, as_of, budget, bulkheads), partial(apply_triggers, may_cut=not is_held)
        triggered = run(TickStep.EVENTS, TriggerResult(), events, database, plan, *work, without_row=without_row)
        gates = partial(apply_readiness, without_row=without_row)
        readiness = run(TickStep.GATES, NOTHING_READY, gates, database, timeline, *work)
        updated = run(TickStep.UPDATES, 0, apply_updates, database, timeline, *work, is_held=is_held)
        readiness = replace(readiness, ready=readiness.ready + updated)
        if arrivals.is_complete and readiness.is_complete:
            note_looked(database, cluster, as_of)
        explained = report_overdue(context, layout, cluster, instance)
        nothing, run_time = list[LaunchRequest](), self.runtime.clock.span(RUN_TIME)
        request = partial(apply_requests, mode=LaunchMode.PARTITIONS, not_yet=self.active.not_yet, run_time=run_time)
        asked = (database, timeline, cluster, as_of, real_now, REQUESTS_A_TICK, bulkheads)
        requests = nothing
        if not self.active.is_restored:
            requests = run(TickStep.REQUESTS, nothing, request, *asked, without_row=without_row)
        arrivals = ArrivalResult.sum_of(arrivals, ArrivalResult(arrived=announced.arrived))
        return _Done(arrivals, readiness, requests, explained, triggered)

    def report(self, done: _Done, cursor: TickCursor, rebuilds: int) -> dg.SensorResult:
        """Build what Dagster is told: runs to start, events, partitions, and the check of the location."""
        cluster, layout, location, database = self.cluster, self.active.layout, self.active.location, self.database
        with database.read() as connection:
            unreported = read_unreported(connection, cursor, cluster, EVENTS_A_TICK)
        if unreported.lost is not None:
            _logger.warning("%s", unreported.describe(cluster))
        known_runs = self.bulkheads.run(TickStep.REPORTS, None, find_known_runs, self.instance, unreported.events)
        if known_runs is None:
            unreported = replace(unreported, events=())
            known_runs = ()
        asset_events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = []
        for event in unreported.events:
            nothing: list[DagsterEvent] = []
            asset_events += self.bulkheads.run_unit(
                TickStep.REPORTS, event.feed, nothing, build_asset_events, database, layout, event, known_runs
            )
        at, until, step, nothing_lost = cursor.looked, cursor.last_seq, TickStep.REPORTS, (list[DagsterEvent](), 0)
        greyed, looked = self.bulkheads.run_unit(
            step, "deleted runs", nothing_lost, find_greyed, database, layout, cluster, self.instance, at, until
        )
        asset_events += greyed
        if cursor.location != location.digest:
            self.bulkheads.run(TickStep.POOLS, None, set_pool_limits, layout, cluster, self.instance)
            self.bulkheads.run_unit(TickStep.REPORTS, "definitions", None, self._report_definitions, location.digest)
        partitions = due_keys(layout, cluster, self.instance, self.context.as_of, self.bulkheads)
        partitions += coming_keys(layout, unreported.events, done.requests)
        self.bulkheads.save(database)
        health = find_health(database, self.active.plan, location.issues, self.context.as_of)
        tell_health(database, health, self.context.as_of, self.runtime.real_clock.now())
        run_requests = [build_run_request(layout, request) for request in done.requests]
        is_quiet = not (run_requests or asset_events or done.readiness.ready)
        behind = {flow: count for flow, on, count, _ in health.behind if on == cluster}
        asset_events += evaluate_changed(layout, cluster, health.behind, cursor.behind)
        following = unreported.following(location.digest, health.digest, rebuilds)
        following = replace(following, looked=looked, behind=behind)
        said = describe(done, len(asset_events), self.active) + health.describe(cluster)
        if (cursor.location, cursor.health) != (following.location, following.health):
            asset_events.append(health.check(self.runtime.location_key))
        said += describe_oldest(self.context, cluster) if is_quiet else ""
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

    @property
    def database(self) -> Database:
        """The state."""
        return self.context.database


def log_exhausted(plan: Plan, retried: RetryResult) -> None:
    """Log an error about the instances of each process that have no retries left."""
    times: dict[Key, list[datetime]] = {}
    for key in retried.exhausted:
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
    first, last = run_grid.key(request.first), run_grid.key(request.last)
    if first == last:
        return dg.RunRequest(run_key=request.key, asset_selection=selection, partition_key=first, tags=tags)
    tags |= {names.RANGE_START: first, names.RANGE_END: last}
    return dg.RunRequest(run_key=request.key, asset_selection=selection, tags=tags)


def set_pool_limits(layout: AssetLayout, cluster: str, instance: dg.DagsterInstance) -> None:
    """Set the limit of each process's pool to its `parallel`, once per plan, so that a limit set by hand persists."""
    storage = instance.event_log_storage
    default = instance.get_concurrency_config().pool_config.default_pool_limit
    known = {pool.name: pool.limit for pool in storage.get_pool_limits() if not pool.from_default}
    for process in layout.plan.processes.values():
        pool = names.pool_name(process)
        if process.is_elsewhere:
            continue
        if process.cluster == cluster and known.get(pool, default) != process.parallel:
            storage.set_concurrency_slots(pool, process.parallel)


def due_keys(
    layout: AssetLayout, cluster: str, instance: dg.DagsterInstance, as_of: datetime, bulkheads: Bulkheads
) -> list[dg.AddDynamicPartitionsRequest]:
    """Return requests for the keys that dynamic grids lack, oldest first."""
    requests: dict[str, dg.AddDynamicPartitionsRequest] = {}
    for grid in layout.dynamic[cluster]:
        keys: Sequence[str] = bulkheads.run_unit(
            TickStep.PARTITIONS, grid.dynamic_name, (), _missing_keys, grid, instance, as_of
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
