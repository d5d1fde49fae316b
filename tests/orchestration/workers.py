"""Finding the worker process of a run."""

import re

from dagster import DagsterEventType, DagsterInstance

from tests.orchestration.dagster_home import runs_of


def worker_of(instance: DagsterInstance, process: str) -> int | None:
    """The process id of the worker that executes the newest run of a process, once it does."""
    for run in runs_of(instance, process)[-1:]:
        for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
            found = re.search(r"Executing steps in process \(pid: (\d+)\)", entry.user_message or entry.message)
            if found:
                return int(found.group(1))
    return None
