"""Runs that Dagster believes to be at work, and whose worker is gone: found by their silence, and reported as failed.

The launcher notices that a worker died only while the code server lives that had started it. After a crash of both, or
of the machine, the run would be STARTED for ever and keep its slot.
"""

import logging
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from feed_assets.orchestration import names
from feed_assets.state.database import Database
from feed_assets.state.leases import find_holders

SILENCE = timedelta(seconds=120)
"""Longer than a lease lasts. A worker has one while it works at an instance, and logs when it begins and ends one."""

_logger = logging.getLogger(__name__)


def fail_dead_runs(
    database: Database, cluster: str, instance: DagsterInstance, working: Collection[str], wall: datetime
) -> list[str]:
    """Report as failed the runs of a cluster that are STARTED, hold no lease, and have logged nothing for `SILENCE`.

    Args:
        database: has the leases.
        cluster: whose runs; they have its tag, or are among `working`.
        instance: where the runs are.
        working: the runs that the record believes to be at work; those that people started have no tag.
        wall: the time of day.

    Returns:
        Their ids.
    """
    started = [
        run
        for run in instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.STARTED]))
        if run.run_id in working or run.tags.get(names.TAG_CLUSTER) == cluster
    ]
    if not started:
        return []
    with database.read() as connection:
        held = find_holders(connection, [run.run_id for run in started], wall)
    dead = [run for run in started if run.run_id not in held and _is_silent(instance, run, wall)]
    for run in dead:
        message = f"its worker has no lease and has said nothing for {SILENCE.total_seconds():.0f} seconds: it is gone"
        _logger.warning("run %s is reported as failed: %s", run.run_id, message)
        instance.report_run_failed(run, message)
    return [run.run_id for run in dead]


def _is_silent(instance: DagsterInstance, run: DagsterRun, wall: datetime) -> bool:
    newest = instance.event_log_storage.get_logs_for_run(run.run_id, limit=1, ascending=False)
    return bool(newest) and datetime.fromtimestamp(newest[0].timestamp, UTC) + SILENCE <= wall
