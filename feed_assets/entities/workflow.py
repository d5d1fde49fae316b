"""The work of a process: its engine, its code and its steps."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationInfo, ValidatorFunctionWrapHandler, field_validator, model_validator
from pydantic_core import PydanticKnownError

from feed_assets.entities.common import EntityModel
from feed_assets.entities.content.made_up import MadeUpColumn
from feed_assets.entities.copies.mirror import Mirror
from feed_assets.entities.fields import Count, FilledText, Name, PropertyName, Text, refuse
from feed_assets.entities.maps import EMPTY, Map


class WorkflowEngine(StrEnum):
    """The engine of the work; `steps` have their own. `generate` makes up data. The work of `external` runs elsewhere:
    somebody's program takes its batches. Falcon's `oozie` and `pig` can be declared, but not scheduled.
    """

    PYTHON = "python"
    SQL = "sql"
    SPARK_SUBMIT = "spark-submit"
    GENERATE = "generate"
    DIRECTORY_MIRROR = "directory-mirror"
    STEPS = "steps"
    EXTERNAL = "external"
    OOZIE = "oozie"
    PIG = "pig"

    @property
    def is_supported(self) -> bool:
        """Whether processes with it can be scheduled."""
        return self not in (WorkflowEngine.OOZIE, WorkflowEngine.PIG)

    @property
    def has_path(self) -> bool:
        """Whether its work is code with a path."""
        return self not in _WORK_OF


class StepEngine(StrEnum):
    """The engine of a step; an application of spark-submit is a process of its own. The steps of a workflow that runs
    elsewhere are `external`, whether it is written or not.
    """

    PYTHON = "python"
    SQL = "sql"
    EXTERNAL = "external"


class Step(EntityModel):
    """One step of a workflow.

    It reads the inputs of the process and the frames of the steps in `after`. A rerun repeats a finished step that is
    not `recoverable` if a step after it has to run. An `external` one has no path.
    """

    engine: StepEngine = StepEngine.PYTHON
    path: Annotated[FilledText, Field(validate_default=True)] = ""
    lib: tuple[FilledText, ...] = ()
    after: tuple[Name, ...] = ()
    recoverable: bool = True

    @field_validator("path", mode="wrap")
    @classmethod
    def _require_path(cls, value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        if value == "" and "engine" in info.data:
            if info.data["engine"] is not StepEngine.EXTERNAL:
                raise PydanticKnownError("missing")
            return value
        return check(value)

    @model_validator(mode="after")
    def _check_work(self) -> Self:
        for name in ("path", "lib") if self.engine is StepEngine.EXTERNAL else ():
            if getattr(self, name):
                raise refuse("workflow", f"{name!r} has no meaning for a step that runs elsewhere", f"Remove {name}.")
        return self


_WORK_OF: Mapping[WorkflowEngine, tuple[str, str]] = {
    WorkflowEngine.DIRECTORY_MIRROR: ("mirror", "{source: {directory: /a}, target: {directory: /b}}"),
    WorkflowEngine.STEPS: ("steps", '{extract: {path: "jobs:extract"}, load: {path: "jobs:load", after: [extract]}}'),
    WorkflowEngine.EXTERNAL: ("steps", "{extract: {}, load: {after: [extract]}}"),
    WorkflowEngine.GENERATE: ("columns", "{delay: {range: [0, 90]}}"),
}
"""The keys with the work of engines that have no path, and examples."""
_WORK_OF_OTHERS = ("path", '"jobs:run"')
_MOST_ROWS = 1_000_000_000


_SCHEMA: dict[str, Any] = {
    "if": {"properties": {"engine": {"const": WorkflowEngine.EXTERNAL.value}}, "required": ["engine"]},
    "else": {
        "anyOf": [{"required": [key]} for key in ("path", "mirror", "steps", "columns")],
        "properties": {"steps": {"additionalProperties": {"required": ["path"]}}},
    },
}


class Workflow(EntityModel):
    """The work itself. `master` to `submit` are for `spark-submit` only, `rows`, `seed` and `columns` for `generate`
    only; paths are relative to the project.

    `path` is `package.module:function` or `file.py:function` for `python`, a file for `sql`, and a .py file or jar for
    `spark-submit`. `submit` contains further options of spark-submit by their names without dashes, such as
    `num-executors: 2`. `mirror` replaces the path, for `directory-mirror` only. So do `steps`, by their names; the
    engine is `steps` then, whether it is written or not. With `external` there is no path: somebody's program takes the
    batches, and its steps have names only.
    """

    model_config = ConfigDict(json_schema_extra=_SCHEMA)

    engine: WorkflowEngine = WorkflowEngine.PYTHON
    path: FilledText = ""
    mirror: Mirror | None = None
    steps: Map[Name, Step] = EMPTY
    lib: tuple[FilledText, ...] = ()
    name: Text | None = None
    version: Text = "1.0"
    master: FilledText | None = None
    deploy_mode: FilledText | None = None
    main_class: FilledText | None = None
    args: tuple[Text, ...] = ()
    conf: Map[PropertyName, Text] = EMPTY
    submit: Map[PropertyName, Text] = EMPTY
    rows: Annotated[Count, Field(ge=1, le=_MOST_ROWS)] | None = None
    seed: Annotated[Count, Field(ge=0, le=2**63 - 1)] | None = None
    columns: Map[FilledText, MadeUpColumn] = EMPTY

    @model_validator(mode="before")
    @classmethod
    def _name_engine(cls, value: object) -> object:
        """Steps name the engine; if that is elsewhere, it is theirs, too."""
        if not isinstance(value, Mapping) or not value.get("steps"):
            return value
        if "engine" not in value:
            return {**value, "engine": WorkflowEngine.STEPS}
        if value["engine"] != WorkflowEngine.EXTERNAL or not isinstance(value["steps"], Mapping):
            return value
        elsewhere = {"engine": StepEngine.EXTERNAL}
        steps = {
            name: elsewhere | dict(step or {}) if isinstance(step, Mapping | None) else step
            for name, step in value["steps"].items()
        }
        return {**value, "steps": steps}

    @model_validator(mode="after")
    def _check_work(self) -> Self:
        is_elsewhere = self.engine is WorkflowEngine.EXTERNAL
        work, example = _WORK_OF.get(self.engine, _WORK_OF_OTHERS)
        if not getattr(self, work) and not is_elsewhere:
            raise refuse(
                "missing-key", f"{work!r} is missing for engine {self.engine.value}", f"Add {work}: {example}."
            )
        others = [name for name in ("path", "mirror", "steps", "columns") if name != work and getattr(self, name)]
        if self.engine in (WorkflowEngine.STEPS, WorkflowEngine.EXTERNAL, WorkflowEngine.GENERATE) and self.lib:
            others.append("lib")
        if self.engine is not WorkflowEngine.GENERATE:
            others += [name for name in ("rows", "seed") if getattr(self, name) is not None]
        elif self.rows is None:
            raise refuse("missing-key", "'rows' is missing for engine generate", "Add rows: 1000.")
        for name, step in self.steps.items():
            if (step.engine is StepEngine.EXTERNAL) is not is_elsewhere:
                message = f"step {name!r} has engine {step.engine.value}, but the workflow {self.engine.value}"
                raise refuse("workflow", message, "Let a workflow run here or elsewhere as a whole.")
        for other in others:
            message = f"{other!r} has no meaning for engine {self.engine.value}"
            raise refuse("workflow", message, f"Remove {other}, or write another engine.")
        return self

    def parts(self) -> Iterator[tuple[tuple[str, ...], "Workflow"]]:
        """Yield the workflow of each step with its path below this one; this one if it has no steps that run here."""
        if not self.steps or self.engine is WorkflowEngine.EXTERNAL:
            yield (), self
            return
        for name, step in self.steps.items():
            yield ("steps", name), Workflow(engine=WorkflowEngine(step.engine), path=step.path, lib=step.lib)


def order_steps(steps: Mapping[str, Step]) -> tuple[str, ...]:
    """Return the names of steps in the order in which they run; among those that could be next, as they are written.

    >>> load, clean = Step(path="jobs:load", after=("clean",)), Step(path="jobs:clean")
    >>> order_steps({"load": load, "clean": clean})
    ('clean', 'load')
    """
    ordered: dict[str, None] = {}
    while len(ordered) < len(steps):
        free = (name for name, step in steps.items() if name not in ordered and ordered.keys() >= set(step.after))
        ordered[next(free)] = None
    return tuple(ordered)


def find_ring(steps: Mapping[str, Step]) -> tuple[str, ...]:
    """Return steps of which each comes after the one before it, the first also after the last; empty if there are none.

    Names that are no steps are ignored.
    """
    sorter = TopologicalSorter({name: [each for each in step.after if each in steps] for name, step in steps.items()})
    try:
        sorter.prepare()
    except CycleError as exc:
        return tuple(exc.args[1][:-1])
    return ()


def last_steps(steps: Mapping[str, Step]) -> frozenset[str]:
    """Return the steps that no other step comes after."""
    return frozenset(steps) - {name for step in steps.values() for name in step.after}


def decide_repeated(steps: Mapping[str, Step], kept: Collection[str]) -> frozenset[str]:
    """Decide which steps a new attempt runs; `kept` are the finished ones whose results are still there.

    Run are the steps that have not finished; each step before one that runs, unless its result is kept and it is
    recoverable; and each step behind one that runs. A last step that is not recoverable runs, too.

    >>> steps = {"a": Step(path="j:a"), "b": Step(path="j:b", after=("a",), recoverable=False),
    ...          "c": Step(path="j:c", after=("b",))}
    >>> sorted(decide_repeated(steps, {"a", "b"})), sorted(decide_repeated(steps, {"a"}))
    (['b', 'c'], ['b', 'c'])
    """
    usable = {name for name in kept if steps[name].recoverable}
    found = {name for name in last_steps(steps) if name not in usable}
    found |= {name for name in steps if name not in kept}
    while new := {*_lacking(steps, found, usable), *_behind(steps, found)} - found:
        found |= new
    return frozenset(found)


def _lacking(steps: Mapping[str, Step], found: Collection[str], usable: Collection[str]) -> Iterator[str]:
    return (each for name in found for each in steps[name].after if each not in usable)


def _behind(steps: Mapping[str, Step], found: Collection[str]) -> Iterator[str]:
    return (name for name, step in steps.items() if not set(step.after).isdisjoint(found))
