"""Runs that Dagster believes to be at work, and whose worker is gone: found by their silence, and reported as failed.

The launcher notices that a worker died only while the code server lives that had started it. After a crash of both, or
of the machine, the run would be STARTED for ever and keep its slot.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from feed_assets.clock import TimeBudget
from feed_assets.lifecycle.governance import BEGINNING
from feed_assets.lifecycle.leasing import TTL
from feed_assets.orchestration import names
from feed_assets.state.database import Database
from feed_assets.state.leases import find_held
from feed_assets.state.records import ProcessInstance

SILENCE = timedelta(seconds=120)
"""Longer than a lease lasts. A worker renews one while it works at an instance, and logs when it begins and ends."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSign:
    """The last that was heard of a run, by the clocks of its worker: its newest line, and when its leases run out."""

    logged_at: datetime
    expiries: tuple[datetime, ...] = ()

    @property
    def newest(self) -> datetime:
        """When it was given."""
        return max([self.logged_at, *(moment - TTL for moment in self.expiries)])


class Silences:
    """For how long runs have given no new sign of life, seen by one who looks at them again and again.

    It is counted here, from look to look, so that nobody is taken for dead because a clock was set. Only the first look
    at a cluster believes the times that it finds: who was silent for long before is dead at once.
    """

    def __init__(self, patience: timedelta = SILENCE) -> None:
        self._patience = patience
        self._known: dict[str, dict[str, tuple[LifeSign, TimeBudget]]] = {}

    def look(self, cluster: str, signs: Mapping[str, LifeSign], wall: datetime) -> list[str]:
        """Which runs of a cluster are silent for too long by now; `signs` are those of all, `wall` the wall clock."""
        before = self._known.get(cluster)
        known = {}
        for run_id, sign in signs.items():
            found = (before or {}).get(run_id)
            silent = max(wall - sign.newest, timedelta(0)) if before is None else timedelta(0)
            budget = TimeBudget((self._patience - silent).total_seconds())
            known[run_id] = found if found is not None and found[0] == sign else (sign, budget)
        self._known[cluster] = known
        return [run_id for run_id, (_, budget) in known.items() if budget.is_spent]


def fail_dead_runs(
    database: Database,
    cluster: str,
    instance: DagsterInstance,
    running: Sequence[ProcessInstance],
    silences: Silences,
    wall: datetime,
) -> list[str]:
    """Report as failed the runs of a cluster that are STARTED and have given no sign of life for too long.

    Args:
        database: has the leases.
        cluster: whose runs; they have its tag, or are at work on one of `running`.
        instance: where the runs are.
        running: the instances that the record believes to be at work; runs that people started have no tag.
        silences: what the looks before this one have seen.
        wall: the time of day.

    Returns:
        Their ids.
    """
    working = {row.run_id for row in running}
    started = {
        run.run_id: run
        for run in instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.STARTED]))
        if run.run_id in working or run.tags.get(names.TAG_CLUSTER) == cluster
    }
    expiries = _expiries(database, cluster, [row for row in running if row.run_id in started])
    signs = {
        run_id: LifeSign(logged_at=logged_at, expiries=expiries.get(run_id, ()))
        for run_id, run in started.items()
        if (logged_at := _newest_line(instance, run)) is not None
    }
    dead = silences.look(cluster, signs, wall)
    for run_id in dead:
        message = f"its worker has given no sign of life for {SILENCE.total_seconds():.0f} seconds: it is gone"
        _logger.warning("run %s is reported as failed: %s", run_id, message)
        instance.report_run_failed(started[run_id], message)
    return dead


def _newest_line(instance: DagsterInstance, run: DagsterRun) -> datetime | None:
    newest = instance.event_log_storage.get_logs_for_run(run.run_id, limit=1, ascending=False)
    return datetime.fromtimestamp(newest[0].timestamp, UTC) if newest else None


def _expiries(
    database: Database, cluster: str, running: Sequence[ProcessInstance]
) -> Mapping[str, tuple[datetime, ...]]:
    """When the leases of runs on the instances that they work on run out, or have."""
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
