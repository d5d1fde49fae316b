"""Run one tick of the sensor that checks for late data. The arrival sensor requests the resulting repetitions."""

from datetime import datetime

import dagster as dg

from feed_assets.context.bulkheads import TickStep
from feed_assets.instances.late.detection import LateCheckResult, apply_late_checks
from feed_assets.instances.late.lateness import count
from feed_assets.instances.late.store import LATE_DATA, LateChecks
from feed_assets.masking import get_logger
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.contexts import build_tick
from feed_assets.orchestration.location.health import describe_failing
from feed_assets.orchestration.location.reloading import follow_definitions
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime

_logger = get_logger(__name__)


def run_late_tick(runtime: Runtime, layout: AssetLayout, cluster: str, instance: dg.DagsterInstance) -> dg.SkipReason:
    """Do the work of one tick. If no check is due, this takes two queries.

    Reading contents can take longer than Dagster waits for a tick; the checks then go on, and other ticks leave them.
    """
    database, as_of = runtime.database(instance), runtime.clock.now()
    with runtime.alone(names.late_sensor(cluster)) as is_alone:
        said = _check(runtime, layout, cluster, database, as_of) if is_alone else "an earlier tick is still at work"
    return dg.SkipReason(said + describe_failing(database, cluster, TickStep.LATE_DATA))


def _check(runtime: Runtime, layout: AssetLayout, cluster: str, database: Database, as_of: datetime) -> str:
    with database.read() as connection:
        if not LateChecks(connection).due(LATE_DATA, cluster, as_of, 1):
            return "no check for late data is due"
    active = follow_definitions(runtime, layout, database, as_of)
    tick = build_tick(runtime, active, cluster, database, as_of)
    checked = apply_late_checks(tick)
    tick.bulkheads.save(database)
    for feed, _, nominal_time in sorted(checked.changed):
        _logger.info("late data: %s %s on %s has changed", feed, render_datetime(nominal_time), cluster)
    for key, reason in checked.refused.items():
        _logger.warning("process %r on %s at %s: %s", *key[:2], render_datetime(key.nominal_time), reason)
    return describe(checked) + ("; safe mode is on" if active.is_safe_mode else "")


def describe(checked: LateCheckResult) -> str:
    """Return a phrase that summarizes a tick."""
    changed = f"; {len(checked.changed)} feed instances have changed" if checked.changed else ""
    more = "" if checked.is_complete else "; the next tick continues"
    return f"{count(checked.verdicts)}{changed}{more}"
