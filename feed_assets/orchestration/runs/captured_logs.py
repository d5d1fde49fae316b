"""The captured logs of Dagster's runs: which are ours and have ended, and how they are removed.

Runs themselves stay, with their events: `delete_run` would remove the materializations with them.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from dagster import DagsterInstance, DagsterRun, RunsFilter
from dagster._core.storage.compute_log_manager import ComputeIOType

from feed_assets.lifecycle.cleanup import CapturedLogs, RetentionRuns
from feed_assets.orchestration import names
from feed_assets.plan.edges import Key

_FOLDER = "compute_logs"
"""What Dagster's executors append to the id of a run to get the beginning of the keys of its logs."""


class DagsterLogs(CapturedLogs):
    """The captured logs of a Dagster instance, behind its manager of compute logs."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance

    def find(self, runs: Mapping[str, Collection[Key]]) -> list[str]:
        found = self._instance.get_runs(RunsFilter(run_ids=sorted(runs))) if runs else []
        return sorted(
            run.run_id
            for run in found
            if run.is_finished and self._has_logs(run.run_id) and self._is_of(run, runs[run.run_id])
        )

    def find_retention(self, cluster: str, after: datetime | None, before: datetime, limit: int) -> RetentionRuns:
        of_job = RunsFilter(job_name=names.retention_job(cluster), created_after=after, created_before=before)
        found = self._instance.get_run_records(of_job, limit=limit, order_by="create_timestamp", ascending=True)
        runs = [record.dagster_run for record in found]
        return RetentionRuns(
            run_ids=tuple(run.run_id for run in runs if run.is_finished and self._has_logs(run.run_id)),
            until=found[-1].create_timestamp if found else None,
            is_last=len(found) < limit,
        )

    def remove(self, run_id: str) -> None:
        self._instance.compute_log_manager.delete_logs(prefix=_prefix(run_id))

    def _is_of(self, run: DagsterRun, processes: Iterable[Key]) -> bool:
        """Return whether a run has no steps but those of some processes: another may be somebody else's."""
        own = {name for key in processes for name in names.possible_steps(key)}
        steps = {each.step_key.partition("[")[0] for each in self._instance.get_run_step_stats(run.run_id)}
        return steps <= own

    def _has_logs(self, run_id: str) -> bool:
        """Return whether a run has captured logs; True if the manager cannot say."""
        manager = self._instance.compute_log_manager
        try:
            return any(manager.get_log_keys_for_log_key_prefix(_prefix(run_id), each) for each in ComputeIOType)
        except FileNotFoundError:
            return False
        except NotImplementedError:
            return True


def _prefix(run_id: str) -> list[str]:
    return [run_id, _FOLDER]
