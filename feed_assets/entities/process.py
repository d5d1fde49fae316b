"""Processes: a process is a periodic computation that reads windows of feed instances and writes feed instances."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from feed_assets.entities.common import Entity, EntityModel, Kind, Notification, Validity
from feed_assets.entities.fields import (
    Count,
    FilledText,
    FrequencyField,
    Name,
    Pipelines,
    PropertyName,
    Text,
    Version,
    ZoneName,
    refuse,
)
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.entities.mirror import Mirror
from feed_assets.entities.triggers import Trigger
from feed_assets.issues import FieldPath
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.frequency import Frequency, Unit
from feed_assets.timing.sequence import InstanceSequence

BATCH_FREQUENCY = Frequency(unit=Unit.SECONDS, count=1)
"""The frequency of processes that run when something has come: it only says how exact the times of batches are."""

_SHORTEST_TIMEOUT = Frequency(unit=Unit.MINUTES, count=30)
_TIMEOUT_STEPS = 6


class Order(StrEnum):
    """The order of waiting instances: oldest first, newest first, or only the newest (older ones are skipped)."""

    FIFO = "FIFO"
    LIFO = "LIFO"
    LAST_ONLY = "LAST_ONLY"


class CatchUp(StrEnum):
    """The treatment of instances that fell due while nothing was running: run all, the newest, or none.

    Others are skipped.
    """

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


class OnTimeout(StrEnum):
    """What becomes of an instance that has waited too long: it is given up, or runs with what is there."""

    GIVE_UP = "give-up"
    RUN = "run"


class Take(StrEnum):
    """What an input takes instead of a window: the events that no batch has taken yet."""

    NEW = "new"


class RetryPolicy(StrEnum):
    """The delays of retries: d, d, d; or d, 2d, 4d; or a single one (late data: at the cut-off)."""

    PERIODIC = "periodic"
    EXP_BACKOFF = "exp-backoff"
    FINAL = "final"


class WorkflowEngine(StrEnum):
    """The engine of the work; `steps` have their own. The work of `external` runs elsewhere: somebody's program takes
    its batches. Falcon's `oozie` and `pig` can be declared, but not scheduled.
    """

    PYTHON = "python"
    SQL = "sql"
    SPARK_SUBMIT = "spark-submit"
    DIRECTORY_MIRROR = "directory-mirror"
    STEPS = "steps"
    EXTERNAL = "external"
    OOZIE = "oozie"
    PIG = "pig"

    @property
    def is_supported(self) -> bool:
        """Whether processes with it can be scheduled."""
        return self not in (WorkflowEngine.OOZIE, WorkflowEngine.PIG)


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
    not `recoverable` if a step behind it has to run. An `external` one has no path.
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
}
"""The keys with the work of engines that have no path, and examples."""
_WORK_OF_OTHERS = ("path", '"jobs:run"')


_SCHEMA: dict[str, Any] = {
    "if": {"properties": {"engine": {"const": WorkflowEngine.EXTERNAL.value}}, "required": ["engine"]},
    "else": {
        "anyOf": [{"required": [key]} for key in ("path", "mirror", "steps")],
        "properties": {"steps": {"additionalProperties": {"required": ["path"]}}},
    },
}


class Workflow(EntityModel):
    """The work itself. `master` to `submit` are for `spark-submit` only; paths are relative to the project.

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
        others = [name for name in ("path", "mirror", "steps") if name != work and getattr(self, name)]
        if self.engine in (WorkflowEngine.STEPS, WorkflowEngine.EXTERNAL) and self.lib:
            others.append("lib")
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


class ProcessSla(EntityModel):
    """The time after its nominal time at which an instance should start, and end."""

    should_start_in: FrequencyField | None = None
    should_end_in: FrequencyField | None = None


class ProcessCluster(EntityModel):
    """A process on one cluster."""

    validity: Validity
    sla: ProcessSla | None = None
    version: Version = 0


class Input(EntityModel):
    """A window of a feed, from `start` to `end`, both inclusive; each is an expression such as `today(0,0)`.

    With `take: new` it is no window, but what has come since the last batch. `partition` is a path below each instance.
    The process does not wait for an `optional` input. It waits for all instances of a window, or for `at_least` so many
    of them, or until `missing_at_most` so many are missing.
    """

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["start", "end"]}, {"required": ["take"]}]},
    )

    feed: Name
    take: Take | None = None
    start: Annotated[FilledText, Field(validate_default=True)] = ""
    end: Annotated[FilledText, Field(validate_default=True)] = ""
    partition: FilledText | None = None
    optional: bool = False
    at_least: Annotated[Count | None, Field(ge=1)] = None
    missing_at_most: Annotated[Count | None, Field(ge=1)] = None

    @field_validator("start", "end", mode="wrap")
    @classmethod
    def _require_window(cls, value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        if value == "" and "take" in info.data:
            if info.data["take"] is None:
                raise PydanticKnownError("missing")
            return value
        return check(value)

    @property
    def takes_new(self) -> bool:
        """Whether it takes what has come since the last batch, instead of a window."""
        return self.take is Take.NEW

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        counts = [name for name in ("at_least", "missing_at_most") if getattr(self, name) is not None]
        if self.takes_new:
            for name in ("start", "end", *counts):
                if getattr(self, name):
                    remedy = "Remove one of them." if name in ("start", "end") else "Write trigger.batch.min."
                    raise refuse("take", f"{name!r} is of a window, but 'take: new' takes what has come", remedy)
            return self
        if len(counts) > 1:
            raise refuse("window-count", "both at_least and missing_at_most are written", "Remove one of them.")
        if counts and self.optional:
            message = f"{counts[0]} has no meaning for an optional input: the process does not wait for it"
            raise refuse("window-count", message, "Remove one of them.")
        return self


class Output(EntityModel):
    """The feed instance that is written; `instance` is an expression such as `now(0,0)`.

    An `optional` one may be left out by the workflow: then nothing is published.
    """

    feed: Name
    instance: FilledText
    optional: bool = False


class Retry(EntityModel):
    """The retry policy of failed instances."""

    policy: RetryPolicy
    delay: FrequencyField
    attempts: Annotated[Count, Field(ge=1, le=65_535)]
    on_timeout: bool = False


def _names_to_map(value: object) -> object:
    """Return a list of input names as a map without workflows of their own."""
    if isinstance(value, Mapping) or not isinstance(value, list | tuple):
        return value
    inputs = {name: None for name in value if isinstance(name, str)}
    if len(inputs) < len(value):
        raise refuse("late-inputs", "an input is listed twice, or is not a name", "List each input once, by its name.")
    return inputs


_NAMES_TO_MAP = BeforeValidator(_names_to_map, json_schema_input_type=list[Name] | dict[Name, Workflow | None])


class LateProcess(EntityModel):
    """The treatment of late data: the watched inputs, the times of the checks, and the workflow for each input.

    `inputs` is a list of input names, or a map from input name to a workflow for late data of this input.
    """

    policy: RetryPolicy
    delay: FrequencyField
    inputs: Annotated[Map[Name, Workflow | None], Field(min_length=1), _NAMES_TO_MAP]


def effective_timeout(written: Frequency | None, frequency: Frequency) -> Frequency:
    """Return how long instances wait for their inputs: as written, else 6 × frequency, at least 30 minutes.

    >>> effective_timeout(None, Frequency(unit=Unit.HOURS, count=1)).render()
    'hours(6)'
    """
    if written is not None:
        return written
    longer = Frequency(unit=frequency.unit, count=frequency.count * _TIMEOUT_STEPS)
    return longer if longer.as_duration() >= timedelta(minutes=30) else _SHORTEST_TIMEOUT


class Process(Entity):
    """A computation, with one instance every `frequency` on each cluster, or one whenever its `trigger` lets a batch
    run.

    At most `parallel` instances run at the same time. An instance that has waited `timeout` for its inputs is given up,
    or runs with what is there (`on_timeout: run`).
    """

    kind: ClassVar[Kind] = Kind.PROCESS
    derived_keys: ClassVar[Mapping[str, FieldPath]] = MappingProxyType({"frequency": ("trigger",)})

    pipelines: Pipelines = ()
    clusters: Annotated[Map[Name, ProcessCluster], Field(min_length=1)]
    parallel: Annotated[Count, Field(ge=1, le=12)] = 1
    order: Order = Order.FIFO
    catch_up: CatchUp = CatchUp.ALL
    timeout: FrequencyField | None = None
    on_timeout: OnTimeout = OnTimeout.GIVE_UP
    trigger: Trigger | None = None
    frequency: Annotated[FrequencyField, Field(validate_default=True)] = BATCH_FREQUENCY
    timezone: ZoneName = "UTC"
    sla: ProcessSla | None = None
    inputs: Map[Name, Input] = EMPTY
    outputs: Map[Name, Output] = EMPTY
    workflow: Workflow
    retry: Retry | None = None
    late_process: LateProcess | None = None
    notification: Notification | None = None

    @field_validator("frequency")
    @classmethod
    def _require_frequency(cls, frequency: Frequency, info: ValidationInfo) -> Frequency:
        if frequency == BATCH_FREQUENCY and "trigger" in info.data and info.data["trigger"] is None:
            raise PydanticKnownError("missing")
        return frequency

    @model_validator(mode="after")
    def _check_trigger(self) -> Self:
        new = [name for name, item in self.inputs.items() if item.takes_new]
        if new and self.trigger is None:
            message = f"input {new[0]!r} takes what is new, but the process has no trigger"
            raise refuse("trigger", message, f"Add trigger: {{when: {new[0]}}}, or give the input a window.")
        if not self.makes_batches:
            if self.frequency == BATCH_FREQUENCY:
                raise refuse("missing-key", "'frequency' is missing", "Add frequency: hours(1), or trigger: {when: …}.")
            return self
        if self.frequency != BATCH_FREQUENCY:
            message = "a process has a frequency, or runs when something has come, but not both"
            raise refuse("trigger", message, "Remove frequency; to run at times too, write trigger.or_every.")
        if self.trigger is not None and self.trigger.when is None and all(self.inputs[name].optional for name in new):
            message = "nothing triggers: there is no trigger.when, and no mandatory input takes what is new"
            raise refuse("trigger", message, "Add trigger.when, or take: new to an input.")
        return self

    @property
    def makes_batches(self) -> bool:
        """Whether its instances are batches of what has come, instead of one every `frequency`."""
        if self.trigger is None:
            return False
        return self.trigger.makes_batches or any(item.takes_new for item in self.inputs.values())

    def effective_timeout(self) -> Frequency:
        """Return the timeout; the default is 6 × frequency, at least 30 minutes."""
        return effective_timeout(self.timeout, self.frequency)

    def sla_on(self, cluster: str) -> ProcessSla | None:
        """Return the SLA in force on a cluster."""
        return self.clusters[cluster].sla or self.sla

    def sequence_on(self, cluster: str) -> InstanceSequence:
        """Return the instances on a cluster."""
        validity = self.clusters[cluster].validity
        return InstanceSequence(
            start=validity.start,
            frequency=self.frequency,
            timezone=parse_timezone(self.timezone),
            end=None if validity.is_endless else validity.end,
        )
