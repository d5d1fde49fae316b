"""Decide which steps a new attempt runs, and which it keeps from the attempt before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from feed_assets.entities.workflow import Step, decide_repeated, order_steps
from feed_assets.instances.steps.basis import Basis
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerSteps:
    """The steps of the newest attempt before, and those of them that have finished, by name; none count any more after
    it has succeeded.
    """

    runs: tuple[StepRun, ...]
    finished: Mapping[str, StepRun]

    @classmethod
    def load(cls, connection: Connection, key: ProcessKey, attempt: int) -> "FormerSteps":
        """Load the steps before an attempt."""
        former = [run for run in Steps(connection).of(key) if run.attempt < attempt]
        newest = tuple(run for run in former if run.attempt == former[-1].attempt)
        ended = {each.attempt: each.status for each in Attempts(connection).of(key)}
        has_succeeded = bool(newest) and ended.get(newest[-1].attempt) is ProcessInstanceStatus.SUCCEEDED
        finished = {run.step: run for run in newest if run.is_done and not has_succeeded}
        return cls(runs=newest, finished=finished)


def plan_steps(
    steps: Mapping[str, Step],
    key: ProcessKey,
    attempt: int,
    basis: Basis,
    former: FormerSteps,
    find_loss: Callable[[StepRun], str | None] = lambda _: None,
) -> list[StepRun]:
    """Return the steps of a new attempt in order: those that it keeps, and those that it has to run, with the reason if
    they have finished before. `find_loss` says why what a finished step has yielded is not there any more.
    """
    faults = {name: basis.find_difference(run.basis) or find_loss(run) for name, run in former.finished.items()}
    repeated = decide_repeated(steps, {name for name, fault in faults.items() if fault is None})
    runs = []
    for position, name in enumerate(order_steps(steps)):
        run = StepRun(
            **key._asdict(),
            attempt=attempt,
            step=name,
            position=position,
            status=StepStatus.PENDING,
            basis=basis.render(),
            made_in=attempt,
        )
        before = former.finished.get(name)
        if before is not None and name in repeated:
            again = "a step before it runs again" if steps[name].recoverable else "it is not recoverable"
            reason = faults[name] or again
            run = replace(run, reason=f"again, although attempt {before.made_in} has finished it: {reason}")
        elif before is not None:
            run = replace(before, attempt=attempt, position=position, status=StepStatus.KEPT, reason=None)
        runs.append(run)
    return runs
