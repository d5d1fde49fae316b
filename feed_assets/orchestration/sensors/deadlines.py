"""Run one tick of the sensor for deadlines: record and tell what is late, warn of what will probably be, and show it on
the assets; or of the sensor for late data, whose repetitions the arrival sensor requests.

Dagster is told before that is recorded, so a crash may show a partition twice. Messages are written once in any case.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

import dagster as dg
from sqlalchemy import Connection

from feed_assets.alerts.deadlines.alerts import FeedLateness, find_lateness
from feed_assets.alerts.deadlines.checks import LookResult, apply_deadlines, close_all, find_present, revision_of
from feed_assets.alerts.deadlines.records import LateInstance, Recovery, SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.forecasting.forecasts import WatchResult, apply_forecasts
from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import TickStep
from feed_assets.context.operation import OperationContext
from feed_assets.context.tick import Tick, tick_step
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain_instance
from feed_assets.instances.arrival.stored_data import record_gone
from feed_assets.instances.late.detection import LateCheckResult, apply_late_checks
from feed_assets.instances.late.lateness import count
from feed_assets.instances.late.store import LATE_DATA, LateChecks
from feed_assets.log.cursors import Cursors
from feed_assets.masking import get_logger, mask
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.health import describe_failing
from feed_assets.orchestration.location.reloading import begin_tick
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.feed_checks import build_evaluation, feeds_on_time
from feed_assets.orchestration.sensors.overdue_notices import NO_INSTANCE
from feed_assets.plan.rendering import counted
from feed_assets.releases.timeline import BEGINNING
from feed_assets.timing.dates import render_datetime

FORECAST_SECONDS_A_TICK = 10.0
OBSERVED_A_TICK = 100
TOLD_BEHIND = timedelta(minutes=2)

_logger = get_logger(__name__)
CHECKS_A_TICK = 200
_TOLD_VERSION = 1


def run_sla_tick(runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance) -> dg.SkipReason:
    """Do the work of one tick. If no deadline has passed and nothing is late, this takes a handful of queries."""
    database = runtime.database(instance)
    with runtime.alone(names.OfCluster.SLA_SENSOR.of(cluster)) as is_alone:
        said = _work(runtime, layout, cluster, instance) if is_alone else "an earlier tick is at work"
    return dg.SkipReason(
        said + describe_failing(database, cluster, TickStep.DEADLINES, TickStep.FORECASTS, TickStep.REPORTS)
    )


def _work(runtime: Runtime, loaded: AssetLayout, cluster: str, instance: dg.DagsterInstance) -> str:
    active, tick = begin_tick(runtime, loaded, cluster, instance)
    database, as_of = tick.database, tick.as_of
    if cluster not in active.plan.clusters:
        closed = close_all(database, cluster, as_of, Recovery.DELETED)
        return f"cluster {cluster} is no longer declared; {counted(closed, 'deadline')} closed"
    if active.is_restored:
        return "the state was restored from a backup, so that nobody knows yet what is late"
    present = find_present(database, cluster, as_of, runtime.real_clock.now())
    if present == BEGINNING:
        return "arrivals have not been looked for yet, so that nobody knows what is late"
    looking = replace(tick, as_of=present)
    found, watched = apply_deadlines(looking, partial(find_causes, tick)), WatchResult()
    if as_of - present <= TOLD_BEHIND:  # what has come since is not known, and would be forecast as late
        watched = apply_forecasts(replace(looking, budget=TimeBudget(FORECAST_SECONDS_A_TICK)))
    observed = _observe(tick, active.layout, instance)
    shown = report_changed(tick, active.layout, instance, loaded)
    tick.bulkheads.save(database)
    behind = f"; arrivals have been looked for up to {render_datetime(present)}"
    return describe(found, watched, observed, shown) + (behind if as_of - present > TOLD_BEHIND else "")


@tick_step(TickStep.REPORTS, otherwise=0, unit="late instances")
def _observe(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance) -> int:
    """Show missed deadlines at the partitions of the instances; return how many."""
    with tick.database.read() as connection:
        misses = SlaMisses(connection).unshown(tick.cluster, OBSERVED_A_TICK)
    if not misses:
        return 0
    for miss in misses:
        for observation in build_observations(layout, miss):
            instance.report_runless_asset_event(observation)
    with tick.database.begin() as connection:
        SlaMisses(connection).mark_shown(misses, tick.as_of)
    return len(misses)


def build_observations(layout: AssetLayout, miss: SlaMiss) -> list[dg.AssetObservation]:
    """Return the observations of a missed deadline: at the partition of the feed's asset, or of each asset that a run
    of the process materializes.
    """
    what = f"{miss.level.value} missed: due at {render_datetime(miss.due_at)}"
    return [
        dg.AssetObservation(
            asset_key=key,
            partition=partition,
            description=f"{what}, and not there at {render_datetime(miss.missed_at)}",
            metadata={names.META_SLA: what, names.META_NOMINAL: render_datetime(miss.nominal_time)},
        )
        for key, partition in layout.find_partitions(miss.kind, (miss.name, miss.cluster), miss.nominal_time)
    ]


def find_causes(context: OperationContext, instances: Sequence[LateInstance]) -> Mapping[LateInstance, str]:
    """Return the root cause of each late instance, without secrets; left out if there is none by the current
    definitions. An error here is logged: an alert without its cause is better than none.
    """
    found: dict[LateInstance, str] = {}
    if not instances:
        return found
    try:
        with context.read() as connection:
            for each in instances:
                with suppress(*NO_INSTANCE):
                    found[each] = mask(_explain(context, connection, each))
    except Exception:
        _logger.warning("the root cause of a late instance could not be found", exc_info=True)
    return found


def _explain(context: OperationContext, connection: Connection, late: LateInstance) -> str:
    found = explain_instance(context, connection, Kind(late.kind), late.name, late.cluster, late.nominal_time)
    return found.root_sentence


def describe(found: LookResult, watched: WatchResult, observed: int, shown: int) -> str:
    """Return a phrase that summarizes a tick."""
    counts = [
        (found.missed, "missed"),
        (found.recorded, "late meanwhile"),
        (found.recovered, "recovered"),
        (watched.warned, "at risk"),
        (observed, "shown at their partitions"),
    ]
    parts = [f"{count:,} {what}" for count, what in counts if count]
    parts += [f"{counted(shown, 'check')} reported"] if shown else []
    more = "" if found.is_complete and watched.is_complete else "; the next tick continues"
    return (", ".join(parts) or "no deadline has passed") + more


@tick_step(TickStep.REPORTS, otherwise=0, unit=names.ON_TIME_CHECK)
def report_changed(tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance, loaded: AssetLayout) -> int:
    """Report the checks `on_time` whose result is not what was told last, without a run, at most `CHECKS_A_TICK`;
    return how many. One read if none has changed.

    A feed that is deleted, or has lost its SLA, is reported a last time, at the asset that Dagster has `loaded`.
    """
    cluster = tick.cluster
    with tick.database.read() as connection:
        found = Cursors(connection).get_many((revision_of(cluster), _revision_told(cluster)))
        now = f"{found.get(revision_of(cluster), '')} {layout.plan.digest}"
        if found.get(_revision_told(cluster)) == now:
            return 0
        told = _read_told(connection, cluster)
        lateness = find_lateness(connection, cluster)
    none = FeedLateness()
    states = {feed: lateness.get(feed, none) for feed, _ in feeds_on_time(layout, cluster)}
    gone = {feed: none for feed, digest in told.items() if feed not in states and digest}
    changed = [feed for feed, state in (states | gone).items() if told.get(feed) != _digest(state)]
    for feed in changed[:CHECKS_A_TICK]:
        place = layout.find_asset((feed, cluster)) or loaded.find_asset((feed, cluster))
        if place is not None:
            asset, grid = place
            instance.report_runless_asset_event(build_evaluation(asset, grid, (states | gone)[feed]))
    after = {feed: digest for feed, digest in told.items() if feed in states or digest}
    after |= {feed: _digest((states | gone)[feed]) for feed in changed[:CHECKS_A_TICK]}
    with tick.database.begin() as connection:
        Cursors(connection).put(_told(cluster), json.dumps({"version": _TOLD_VERSION, "feeds": after}))
        if len(changed) <= CHECKS_A_TICK:
            Cursors(connection).put(_revision_told(cluster), now)
    return min(len(changed), CHECKS_A_TICK)


def _read_told(connection: Connection, cluster: str) -> dict[str, str]:
    text = Cursors(connection).get(_told(cluster))
    if text is None or (document := json.loads(text))["version"] != _TOLD_VERSION:
        return {}
    return dict(document["feeds"])


def _digest(state: FeedLateness) -> str:
    return hashlib.sha256(state.token.encode()).hexdigest()[:12] if state.token else ""


def _told(cluster: str) -> str:
    return f"sla/told/{cluster}"


def _revision_told(cluster: str) -> str:
    return f"sla/told-revision/{cluster}"


def run_late_tick(runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance) -> dg.SkipReason:
    """Do the work of one tick. If no check is due, this takes two queries.

    Reading contents can take longer than Dagster waits for a tick; the checks then go on, and other ticks leave them.
    """
    database = runtime.database(instance)
    with runtime.alone(names.OfCluster.LATE_SENSOR.of(cluster)) as is_alone:
        said = _check(runtime, layout, cluster, instance) if is_alone else "an earlier tick is still at work"
    return dg.SkipReason(said + describe_failing(database, cluster, TickStep.LATE_DATA))


def _check(runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance) -> str:
    with runtime.database(instance).read() as connection:
        if not LateChecks(connection).due(LATE_DATA, cluster, runtime.clock.now(), 1):
            return "no check for late data is due"
    active, tick = begin_tick(runtime, layout, cluster, instance)
    checked = apply_late_checks(tick)
    record_gone(tick, checked.gone)
    tick.bulkheads.save(tick.database)
    for feed, _, nominal_time in sorted(checked.changed):
        _logger.info("late data: %s %s on %s has changed", feed, render_datetime(nominal_time), cluster)
    for key, reason in checked.refused.items():
        _logger.warning("process %r on %s at %s: %s", *key[:2], render_datetime(key.nominal_time), reason)
    return describe_checked(checked) + ("; safe mode is on" if active.is_safe_mode else "")


def describe_checked(checked: LateCheckResult) -> str:
    """Return a phrase that summarizes a tick."""
    changed = f"; {len(checked.changed)} feed instances have changed" if checked.changed else ""
    more = "" if checked.is_complete else "; the next tick continues"
    return f"{count(checked.verdicts)}{changed}{more}"
