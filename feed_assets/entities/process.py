"""Processes: a process is a periodic computation that reads windows of feed instances and writes feed instances."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, ClassVar, Self

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

from feed_assets.entities.common import Entity, EntityModel, Kind, Notification, SlaTerms, Validity
from feed_assets.entities.fields import (
    Count,
    FilledText,
    FrequencyField,
    Name,
    Pipelines,
    SourceColumns,
    Version,
    ZoneName,
    refuse,
)
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.entities.triggers import Trigger
from feed_assets.entities.workflow import Workflow
from feed_assets.issues import FieldPath
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit

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


class ProcessSla(SlaTerms):
    """The time after its nominal time at which an instance should start, and end: a warning, and an error."""

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

    An `optional` one may be left out by the workflow: then nothing is published. `column_lineage` says of columns which
    columns of inputs they are made of, where that cannot be read from the work, or is read wrongly.
    """

    feed: Name
    instance: FilledText
    optional: bool = False
    column_lineage: Map[FilledText, SourceColumns] = EMPTY


class Retry(EntityModel):
    """The retry policy of failed instances: at most `attempts` retries after the first attempt."""

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

    def slas(self) -> Iterator[tuple[tuple[str, ...], ProcessSla]]:
        """Yield the SLA of the process and those of its clusters, with their paths."""
        own = ((("clusters", name, "sla"), entry.sla) for name, entry in self.clusters.items())
        for path, sla in ((("sla",), self.sla), *own):
            if sla is not None:
                yield path, sla

    def sla_on(self, cluster: str) -> ProcessSla | None:
        """Return the SLA in force on a cluster."""
        return self.clusters[cluster].sla or self.sla

    def sequence_on(self, cluster: str) -> InstanceSequence:
        """Return the instances on a cluster."""
        return self.clusters[cluster].validity.sequence(self.frequency, self.timezone)


def iter_workflows(process: Process) -> Iterator[tuple[FieldPath, Workflow]]:
    """Yield the workflow of a process and those for late inputs, with their paths; of each, the parts with a path."""
    for where, workflow in iter_whole_workflows(process):
        for below, part in workflow.parts():
            yield (*where, *below), part


def iter_whole_workflows(process: Process) -> Iterator[tuple[FieldPath, Workflow]]:
    """Yield the workflow of a process and those for late inputs, with their paths."""
    yield ("workflow",), process.workflow
    if process.late_process is not None:
        for name, workflow in process.late_process.inputs.items():
            if workflow is not None:
                yield ("late_process", "inputs", name), workflow
