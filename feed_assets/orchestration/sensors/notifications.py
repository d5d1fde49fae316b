"""Run one tick of the sensor that delivers messages to people and programs."""

from dagster import DagsterInstance, SkipReason

from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.reloading import follow_definitions
from feed_assets.orchestration.location.runtime import Runtime


def run_notify_tick(runtime: Runtime, layout: AssetLayout, instance: DagsterInstance) -> SkipReason:
    """Deliver what is due, and say what was done. It waits a second for receivers, however many there are."""
    database = runtime.database(instance)
    with runtime.alone(names.NOTIFY_SENSOR) as is_alone:
        if not is_alone:
            return SkipReason("an earlier tick is still at work")
        active = follow_definitions(runtime, layout, database, runtime.clock.now())
        return SkipReason(runtime.notifier.run(database, active.plan, runtime.real_clock).render())
