"""Stop the Dagster runs of killed instances from outside these runs."""

from collections.abc import Sequence
from contextlib import nullcontext

from dagster import DagsterInstance, DagsterRun, RunsFilter

from feed_assets.errors import describe_error
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import RunsNotStoppedError
from feed_assets.state.records import ProcessInstance


def stop_runs_of(stopped: Sequence[ProcessInstance], of: DagsterInstance | None = None) -> int:
    """Stop the runs that instances were in or had requested, and return how many there were; by default those of the
    Dagster instance of the environment.

    Raises:
        RunsNotStoppedError: some runs could not be stopped; the others were.
    """
    try:
        with DagsterInstance.get() if of is None else nullcontext(of) as instance:
            runs = _runs_of(instance, stopped)
            failed = [run.run_id for run in runs.values() if not instance.run_coordinator.cancel_run(run.run_id)]
    except Exception as exc:
        found = sorted({row.run_id for row in stopped if row.run_id})
        raise RunsNotStoppedError(runs=tuple(found), reason=describe_error(exc)) from exc
    if failed:
        raise RunsNotStoppedError(runs=tuple(failed), reason="Dagster refused to end them")
    return len(runs)


def _runs_of(instance: DagsterInstance, stopped: Sequence[ProcessInstance]) -> dict[str, DagsterRun]:
    ids = sorted({row.run_id for row in stopped if row.run_id})
    requests = sorted({row.request_key for row in stopped if row.request_key})
    found = list(instance.get_runs(RunsFilter(run_ids=ids))) if ids else []
    if requests:
        found += instance.get_runs(RunsFilter(tags={names.TAG_REQUEST: requests}))
    return {run.run_id: run for run in found if not run.is_finished}
