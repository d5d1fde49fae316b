"""Detect runs whose worker has died, and report them to Dagster as failed.

Dagster's launcher notices that a worker died only while the code server that started the worker lives. After a crash of
both, or of the machine, the run would stay STARTED forever and keep its pool slot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from feed_assets.clock import TimeBudget
from feed_assets.instances.leasing import TTL
from feed_assets.log.leases import find_held
from feed_assets.log.records import ProcessInstance
from feed_assets.masking import get_logger
from feed_assets.orchestration import names
from feed_assets.releases.timeline import BEGINNING
from feed_assets.sql.database import Database

SILENCE = timedelta(seconds=120)
"""The longest silence of a live run; longer than a lease lasts.

A worker renews its lease while it works on an instance, and logs when it begins and ends.
"""

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The newest activity of a run by its worker's clocks: its newest log line, and the expiry times of its leases."""

    logged_at: datetime
    expiries: tuple[datetime, ...] = ()

    @property
    def newest(self) -> datetime:
        """The time of the newest activity."""
        return max([self.logged_at, *(moment - TTL for moment in self.expiries)])


class RunHeartbeats:
    """The observed silence of runs, measured from poll to poll.

    Silence is measured by this process, so a change of the system clock makes no run appear dead. Only the first poll
    of a cluster trusts the times that it finds: a run that was already silent for too long counts as dead at once.
    """

    def __init__(self, patience: timedelta = SILENCE) -> None:
        self._patience = patience
        self._known: dict[str, dict[str, tuple[Heartbeat, TimeBudget]]] = {}

    def update(self, cluster: str, newest: Mapping[str, Heartbeat], real_now: datetime) -> list[str]:
        """Record the heartbeats of all runs of a cluster, and return the runs that have been silent for too long."""
        before = self._known.get(cluster)
        known = {}
        for run_id, heartbeat in newest.items():
            found = (before or {}).get(run_id)
            silent = max(real_now - heartbeat.newest, timedelta(0)) if before is None else timedelta(0)
            budget = TimeBudget((self._patience - silent).total_seconds())
            known[run_id] = found if found is not None and found[0] == heartbeat else (heartbeat, budget)
        self._known[cluster] = known
        return [run_id for run_id, (_, budget) in known.items() if budget.is_spent]


def fail_dead_runs(
    database: Database,
    cluster: str,
    instance: dg.DagsterInstance,
    running: Sequence[ProcessInstance],
    heartbeats: RunHeartbeats,
    real_now: datetime,
) -> list[str]:
    """Report as failed the STARTED runs of a cluster that have shown no activity for too long.

    Args:
        database: contains the leases.
        cluster: the cluster of the runs; they have its tag, or work on one of `running`.
        instance: the Dagster instance of the runs.
        running: the instances that are RUNNING in the record. Needed because runs started by people have no tag.
        heartbeats: the observations of earlier polls.
        real_now: the real time.

    Returns:
        Their ids.
    """
    working = {row.run_id for row in running}
    started = {
        run.run_id: run
        for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        if run.run_id in working or run.tags.get(names.TAG_CLUSTER) == cluster
    }
    expiries = _expiries(database, cluster, [row for row in running if row.run_id in started])
    newest = {
        run_id: Heartbeat(logged_at=logged_at, expiries=expiries.get(run_id, ()))
        for run_id, run in started.items()
        if (logged_at := _newest_line(instance, run)) is not None
    }
    dead = heartbeats.update(cluster, newest, real_now)
    for run_id in dead:
        message = (
            f"its worker has renewed no lease and logged nothing for {SILENCE.total_seconds():.0f} seconds: it is dead"
        )
        _logger.warning("run %s is reported as failed: %s", run_id, message)
        instance.report_run_failed(started[run_id], message)
    return dead


def _newest_line(instance: dg.DagsterInstance, run: dg.DagsterRun) -> datetime | None:
    newest = instance.event_log_storage.get_logs_for_run(run.run_id, limit=1, ascending=False)
    return datetime.fromtimestamp(newest[0].timestamp, UTC) if newest else None


def _expiries(
    database: Database, cluster: str, running: Sequence[ProcessInstance]
) -> Mapping[str, tuple[datetime, ...]]:
    """Return the lease expiry times of each run's instances, including past ones."""
    if not running:
        return {}
    with database.read() as connection:
        keys = [(f"process/{row.process}", cluster, row.nominal_time) for row in running]
        held = find_held(connection, keys, BEGINNING)
    return {
        row.run_id: tuple(sorted(lease.expires_at for lease in held if lease.holder == row.run_id))
        for row in running
        if row.run_id is not None
    }
