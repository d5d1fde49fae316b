"""Decide which steps a new attempt runs, and which it keeps from the attempt before it, because they work on the same:
the basis of an attempt.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from feed_assets.context.operation import AttemptContext
from feed_assets.entities.workflow import Step, Workflow, decide_repeated, order_steps
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FrozenInput, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.records import ProcessRecord
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.input_windows import InputState

ASKED = "a new beginning was asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Digests of what the steps of an attempt work on."""

    definition: str
    inputs: str

    def render(self) -> str:
        return f"{self.definition} {self.inputs}"

    def find_difference(self, former: str) -> str | None:
        """Return in what a former basis differs, as a clause; None if it is the same. It is "" after a person has asked
        for a new beginning.

        >>> Basis(definition="a", inputs="b").find_difference("a c")
        'the inputs have changed'
        """
        definition, _, inputs = former.partition(" ")
        if not former:
            return ASKED
        if definition != self.definition:
            return "the definition has changed"
        return None if inputs == self.inputs else "the inputs have changed"


def find_basis(
    context: AttemptContext, process: ProcessRecord, workflow: Workflow, states: Sequence[InputState], key: ProcessKey
) -> Basis:
    """Return the basis of an attempt whose inputs have just been frozen.

    Content of which the record has no fresh digest, that of external feeds, is told by names, sizes and times of files.
    """
    with context.database.read() as connection:
        row = ProcessInstances(connection).get(*key)
    frozen = () if row is None else row.inputs
    return build_basis(process, workflow, frozen, list(_iter_fingerprints(context, states)))


def build_basis(
    process: ProcessRecord, workflow: Workflow, frozen: Sequence[FrozenInput], fingerprints: Sequence[list[str]] = ()
) -> Basis:
    """Return the basis of an attempt with frozen inputs, and the fingerprints of those without a digest.

    The definition is that of the release, with the files that it pins, and the properties of the attempt.
    """
    inputs = [
        [each.name, [render_datetime(time) for time in each.nominal_times], list(each.digests)] for each in frozen
    ]
    work = workflow.model_dump(mode="json", exclude_defaults=True)
    return Basis(
        definition=_digest([process.fingerprint, work, sorted(process.properties)]),
        inputs=_digest([inputs, list(fingerprints)]),
    )


def _iter_fingerprints(context: AttemptContext, states: Sequence[InputState]) -> Iterator[list[str]]:
    for state in states:
        record = context.plan.feeds[state.edge.feed_key]
        if not record.is_external or state.edge.is_late:
            continue
        for time, found in find_records(context.database, context.stores, record, state.present).items():
            (measure,) = context.stores.get(found.store).measure([found.path(time)])
            yield [state.edge.name, render_datetime(time), measure.fingerprint]


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


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
