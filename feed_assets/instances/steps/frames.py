"""Keep the frames of steps on the storage of their cluster, in stagings that no reader of feeds sees.

A staging is named by the instance, the step and the attempt that made it. So an attempt that was overtaken never writes
into the frames of another, and what nobody removes goes with the sweep of stagings.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeAlias

from pydantic import TypeAdapter
from sqlalchemy import Connection

from feed_assets.context.operation import AttemptContext
from feed_assets.engines.port import Work, WorkReport
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.masking import get_logger
from feed_assets.plan.records import Plan
from feed_assets.storage.errors import StorageError
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import StagingPlace
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


_LINEAGE = TypeAdapter(ColumnLineage)
_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a finished step has yielded: the rows of each frame, None if they are not known, and where the frames are.

    A last step has no `url`: its frames are outputs of its attempt. `digest` is that of the names and sizes of files.
    `words` is what the step has said, as JSON: an attempt that keeps the step says it. `lineage` has what the columns
    of each frame are made of, as JSON.
    """

    rows: Mapping[str, int | None] = field(default_factory=dict)
    url: str = ""
    digest: str = ""
    words: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, run: StepRun) -> Self:
        """Return what a step in the record has yielded."""
        return cls(**run.frames)  # type: ignore[arg-type]

    @property
    def reported(self) -> ReportedMetadata:
        """What the step has said."""
        return ReportedMetadata.of(self.words)

    @property
    def parts(self) -> tuple[StepPart, ...]:
        """The frames, for the log of a run."""
        return tuple(StepPart(name=name, rows=rows) for name, rows in self.rows.items())

    def made_of(self, frame: str) -> ColumnLineage:
        """Return what the columns of a frame are made of."""
        return _LINEAGE.validate_python(self.lineage.get(frame, {"unknown": "its step has not told"}))

    def render(self) -> dict[str, object]:
        told = {"words": dict(self.words), "lineage": dict(self.lineage)}
        told = {name: words for name, words in told.items() if words}
        return {"rows": dict(self.rows), "url": self.url, "digest": self.digest, **told}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFrames:
    """The stagings of the steps of processes, named by a `token`; `plan` has the storage of their cluster."""

    stores: StorePool
    plan: Plan
    token: str = "steps"

    @classmethod
    def of(cls, context: AttemptContext) -> Self:
        return cls(stores=context.stores, plan=context.plan)

    def stage(self, run: StepRun) -> str:
        """Make an empty staging for the frames of a step; return its URL."""
        return self.stores.get(self.plan.clusters[run.cluster].store).stage(*self._place(run)).url

    def describe(self, run: StepRun, part: Work, report: WorkReport) -> StepResult:
        """Return what a step has yielded, with the digest of its files."""
        rows = {output.name: output.rows for output in report.outputs}
        url = part.step.frames_url if part.step is not None else None
        words = report.reported.render() if report.reported else {}
        if url is None:
            return StepResult(rows=rows, words=words)
        told = {output.name: output.lineage for output in report.outputs if output.lineage is not None}
        lineage = {name: _LINEAGE.dump_python(found, mode="json") for name, found in told.items()}
        return StepResult(rows=rows, url=url, digest=self._digest(run), words=words, lineage=lineage)

    def find_loss(self, run: StepRun) -> str | None:
        """Return why a finished step's frames are gone, as a clause; None if they are there."""
        result = StepResult.of(run)
        if not result.rows:
            return None
        if not result.url:
            return "outputs go with their attempt"
        return None if self._digest(run) == result.digest else "its frames are gone"

    def discard(self, runs: Iterable[StepRun]) -> None:
        """Remove the frames of steps. What cannot be removed now is left to the sweep of stagings."""
        for run in runs:
            is_nowhere = run.status is StepStatus.PENDING or (run.is_done and not StepResult.of(run).url)
            if is_nowhere or run.cluster not in self.plan.clusters:
                continue
            path, token = self._place(run)
            staging = StagingPlace(path=path, token=token, url="", local_path=Path())
            try:
                self.stores.get(self.plan.clusters[run.cluster].store).discard(staging)
            except StorageError as exc:
                _logger.warning("frames of step %s of process '%s' are left: %s", run.step, run.process, exc)

    def _place(self, run: StepRun) -> tuple[str, str]:
        """Return the path and the token of the staging of a step."""
        instance = f"{run.cluster}/{run.process}/{run.nominal_time:%Y%m%dT%H%M%SZ}"
        return f"steps/{instance}/{run.step}", f"{self.token}.{run.made_in}"

    def _digest(self, run: StepRun) -> str:
        files = self.stores.get(self.plan.clusters[run.cluster].store).staged_files(*self._place(run))
        return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()[:32]


def discard_frames(context: AttemptContext, key: ProcessKey) -> None:
    """Remove the frames of an instance that has succeeded."""
    with context.database.read() as connection:
        runs = Steps(connection).of(key)
    StepFrames.of(context).discard(run for run in runs if run.attempt == runs[-1].attempt)
