"""`steps`: the steps of an instance, for each of its attempts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.json_form import NominalTime
from feed_assets.lifecycle.instances.step_frames import StepResult
from feed_assets.operations.consolidation import Consolidated, consolidate
from feed_assets.operations.context import OperationContext
from feed_assets.operations.instances.subjects import Subject
from feed_assets.state.attempts import Attempts
from feed_assets.state.records import ProcessInstanceStatus, ProcessKey
from feed_assets.state.step_records import StepStatus
from feed_assets.state.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStep:
    """One step of one attempt. `made_in` is the attempt that has run it, an earlier one if it was KEPT.

    `frames` are the rows of what it has yielded, None if they are not known.
    """

    cluster: str
    nominal_time: NominalTime
    attempt: int
    step: str
    status: StepStatus
    made_in: int
    started_at: datetime | None
    ended_at: datetime | None
    frames: Mapping[str, int | None]
    reason: str | None


def find_steps(context: OperationContext, subject: Subject) -> Consolidated[InstanceStep]:
    """Return the steps of an instance on each of some clusters, in the order of attempts and of running."""
    with context.read() as connection:

        def read(cluster: str) -> Sequence[InstanceStep]:
            return list(_iter_steps(connection, ProcessKey(subject.name, cluster, subject.instance)))

        return consolidate(subject.asked, read)


def _iter_steps(connection: Connection, key: ProcessKey) -> Iterator[InstanceStep]:
    """Yield the steps; one that was running when its attempt ended has ended with it."""
    attempts = {attempt.attempt: attempt for attempt in Attempts(connection).of(key)}
    for run in Steps(connection).of(key):
        status, ended_at, reason = run.status, run.ended_at, run.reason
        attempt = attempts.get(run.attempt)
        if status is StepStatus.RUNNING and attempt is not None and attempt.ended_at is not None:
            is_killed = attempt.status is ProcessInstanceStatus.KILLED
            status = StepStatus.KILLED if is_killed else StepStatus.FAILED
            ended_at, reason = attempt.ended_at, attempt.reason
        yield InstanceStep(
            cluster=key.cluster,
            nominal_time=key.nominal_time,
            attempt=run.attempt,
            step=run.step,
            status=status,
            made_in=run.made_in,
            started_at=run.started_at,
            ended_at=ended_at,
            frames=StepResult.of(run).rows if run.is_done else {},
            reason=reason,
        )
