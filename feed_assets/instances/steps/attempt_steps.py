"""The steps of an attempt, for the log of a run: what was read, staged, verified and published, and the time taken.

The work may consist of steps of its own, those of the workflow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedKey
from feed_assets.triggers.input_windows import InputState


class StepKind(StrEnum):
    """A step of an attempt. Verification reads what was staged; publication makes it visible. A STEP is one of several
    that the workflow declares. LEFT_OUT tells the optional outputs that the work has not made.
    """

    INPUTS = "inputs"
    STEP = "step"
    WORK = "work"
    VERIFICATION = "verification"
    PUBLICATION = "publication"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """An input or output of a step, with its figures; None is unknown or does not apply."""

    name: str
    instances: int | None = None
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStep:
    """A step that has been taken, and how long it took; `name` is that of a declared step."""

    kind: StepKind
    nominal_time: datetime
    seconds: float
    parts: tuple[StepPart, ...]
    name: str = ""


OnStep: TypeAlias = Callable[[AttemptStep], None]


def measure_inputs(connection: Connection, states: Sequence[InputState]) -> tuple[StepPart, ...]:
    """Return the inputs of an attempt with the files and bytes that the record has of their instances."""
    instances = FeedInstances(connection)
    parts = []
    for state in states:
        rows = instances.get_many([FeedKey(*state.edge.feed_key, time) for time in state.present]).values()
        parts.append(
            StepPart(
                name=state.edge.name,
                instances=len(state.present),
                files=sum(row.files or 0 for row in rows),
                bytes=sum(row.bytes or 0 for row in rows),
            )
        )
    return tuple(parts)
