"""Replication in Dagster: one schedule and one job per cluster, for all feeds that are copied to it.

The arrival sensors create copies at the frequencies of their feeds, and open their gates when the sources have arrived.
The schedule requests the runs of ready copies every minute, and thereby catches up on missed ones. A run copies many
instances at once, on Spark's executors if that is worthwhile. A replica can also be materialized by hand like any
asset.
"""

from dagster import DagsterInstance, RunRequest, SkipReason

from feed_assets.lifecycle.instances.requests import LaunchMode
from feed_assets.operations.restores import HELD
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.location.health import describe_failing
from feed_assets.orchestration.location.reloading import follow_definitions
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.listed_instances import request_runs
from feed_assets.state.tick_records import TickStep

REQUESTS_A_TICK = 50


def run_replication_tick(
    runtime: Runtime, layout: AssetLayout, cluster: str, instance: DagsterInstance
) -> list[RunRequest] | SkipReason:
    """Request runs of ready copies; one query if there are none."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    active = follow_definitions(runtime, layout, database, as_of)
    if active.is_safe_mode:
        return SkipReason("safe mode is on")
    if active.is_restored:
        return SkipReason(HELD)
    requests = request_runs(
        runtime,
        cluster,
        database,
        active,
        as_of,
        mode=LaunchMode.COPIES,
        op_name=names.replication_op(cluster),
        at_most=REQUESTS_A_TICK,
    )
    if not requests:
        failing = describe_failing(database, cluster, TickStep.REQUESTS, TickStep.REPLICATION)
        return SkipReason("no copy is ready, or the limit of concurrent copies is reached" + failing)
    return requests
