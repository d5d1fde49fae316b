"""`steps`: the steps of an instance, for each of its attempts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from feed_assets.context.consolidation import Consolidated, consolidate
from feed_assets.context.operation import OperationContext
from feed_assets.context.subjects import Subject
from feed_assets.instances.steps.frames import StepResult
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime


@shows("run", "cluster, nominal_time, attempt, step, status, made_in, started_at, ended_at, reason")
@dataclass(frozen=True, slots=True)
class InstanceStep:
    """One step of one attempt. `made_in` is the attempt that has run it, an earlier one if it was KEPT.

    `frames` are the rows of what it has yielded, None if they are not known.
    """

    run: Hidden[StepRun]

    @shown
    def frames(self) -> Mapping[str, int | None]:
        """The rows of each frame."""
        return StepResult.of(self.run).rows if self.run.is_done else {}

    @property
    def written(self) -> str:
        """The frames, for people."""
        found = self.frames.items()
        return ", ".join(f"{name} ({counted(rows, 'row')})" if rows is not None else name for name, rows in found)

    @property
    def state(self) -> str:
        """The status, or the attempt that has made what was kept."""
        run = self.run
        return f"KEPT from {run.made_in}" if run.made_in != run.attempt else run.status.value


def find_steps(context: OperationContext, subject: Subject) -> Consolidated[InstanceStep]:
    """Return the steps of an instance on each of some clusters, in the order of attempts and of running."""
    with context.read() as connection:

        def read(cluster: str) -> Sequence[InstanceStep]:
            return list(_iter_steps(connection, ProcessKey(subject.name, cluster, subject.instance)))

        found = consolidate(subject.asked, read)
    nothing = f"{subject.name} at {render_datetime(subject.instance)}: no attempt with steps has begun"
    return found if found.items else replace(found, remarks=(nothing,))


def _iter_steps(connection: Connection, key: ProcessKey) -> Iterator[InstanceStep]:
    """Yield the steps; one that was running when its attempt ended has ended with it."""
    attempts = {attempt.attempt: attempt for attempt in Attempts(connection).of(key)}
    for run in Steps(connection).of(key):
        attempt = attempts.get(run.attempt)
        if run.status is StepStatus.RUNNING and attempt is not None and attempt.ended_at is not None:
            is_killed = attempt.status is ProcessInstanceStatus.KILLED
            status = StepStatus.KILLED if is_killed else StepStatus.FAILED
            yield InstanceStep(replace(run, status=status, ended_at=attempt.ended_at, reason=attempt.reason))
        else:
            yield InstanceStep(run)
