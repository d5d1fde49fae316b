"""The sensor that looks for late data on a cluster. What is to be run again for them the arrival sensor asks for."""

import logging

from dagster import DagsterInstance, SensorDefinition, SkipReason

from feed_assets.clock import TimeBudget
from feed_assets.lifecycle.late_detection import Checked, apply_late_checks
from feed_assets.lifecycle.lateness import count
from feed_assets.orchestration import names
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.reloading import follow_definitions
from feed_assets.orchestration.runtime import Runtime
from feed_assets.orchestration.sensors import build_sensor
from feed_assets.state.late_checks import LateChecks
from feed_assets.timing.dates import render_datetime

MINIMUM_SECONDS = 10
SECONDS_A_TICK = 20.0

_logger = logging.getLogger(__name__)


def build_late_sensor(runtime: Runtime, layout: AssetLayout, cluster: str) -> SensorDefinition:
    """The sensor that makes the checks for late data that are due on a cluster."""
    return build_sensor(
        names.late_sensor(cluster),
        lambda context: run_late_tick(runtime, layout, cluster, context.instance),
        description=f"Looks for late data on cluster {cluster}; lets instances whose inputs have changed run again.",
        minimum_seconds=MINIMUM_SECONDS,
    )


def run_late_tick(runtime: Runtime, layout: AssetLayout, cluster: str, instance: DagsterInstance) -> SkipReason:
    """Everything the sensor does in one tick; without a check that is due one question."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    with database.read() as connection:
        if not LateChecks(connection).due(cluster, as_of, 1):
            return SkipReason("no check for late data is due")
    present = follow_definitions(runtime, layout, database, as_of)
    checked = apply_late_checks(
        database,
        runtime.stores,
        runtime.governance(present.location),
        cluster,
        as_of,
        runtime.wall.now(),
        TimeBudget(SECONDS_A_TICK),
        is_safe_mode=present.is_safe_mode,
    )
    for feed, _, nominal_time in sorted(checked.changed):
        _logger.info("late data: %s %s on %s has changed", feed, render_datetime(nominal_time), cluster)
    for key, reason in checked.refused.items():
        _logger.warning("process %r on %s at %s: %s", *key[:2], render_datetime(key.nominal_time), reason)
    return SkipReason(describe(checked) + ("; safe mode is on" if present.is_safe_mode else ""))


def describe(checked: Checked) -> str:
    """What a tick has found, in a sentence."""
    changed = f"; {len(checked.changed)} feed instances have changed" if checked.changed else ""
    more = "" if checked.is_complete else "; more is left for the next tick"
    return f"{count(checked.verdicts)}{changed}{more}"
