"""Tell what the steps of an attempt work on, so that steps of an earlier attempt are kept only if that is the same."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from feed_assets.context.lifecycle import AttemptContext
from feed_assets.entities.workflow import Workflow
from feed_assets.instances.arrival.past_locations import find_records
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FrozenInput, ProcessKey
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
