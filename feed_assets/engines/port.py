"""The port between the life cycle of an instance and the work of a process: what an engine receives and returns.

Everything but `newest_event` and `check_reported` is plain data with addresses that Spark can open. Other modules know
the storage behind an address and publish the output. `Context` is public: user code receives it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from zoneinfo import ZoneInfo

from feed_assets.engines.errors import (
    EventRefusedError,
    InputReadError,
    OutputMismatchError,
    WorkflowNotFoundError,
    WorkflowSignatureError,
)
from feed_assets.engines.run_metadata import (
    CheckReported,
    FactValue,
    ReportedMetadata,
    RunMetadata,
    check_fact,
    check_nothing,
)
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.entities.content.event_messages import (
    MARKING_REMEDY,
    PAYLOAD_REMEDY,
    EventMessage,
    find_marking_fault,
    find_payload_fault,
)
from feed_assets.entities.content.made_up import MadeUpColumn
from feed_assets.entities.content.quality import Quality
from feed_assets.entities.copies.options import Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class RowScan(Protocol):
    """The rows of some partitions at one moment, by tasks; see `LakeScan`."""

    @property
    def columns(self) -> "pa.Schema": ...

    @property
    def tasks(self) -> tuple[Any, ...]: ...

    def read(self, task: Any) -> "Iterator[pa.RecordBatch]": ...


class RowBound(Protocol):
    """What a column has in the rows of a partition; see `Bound`."""

    @property
    def column(self) -> str: ...

    @property
    def low(self) -> str: ...

    @property
    def high(self) -> str | None: ...


class TableRows(Protocol):
    """The rows of a table that is opened without Spark; see `LakeRows`."""

    def columns(self) -> "pa.Schema": ...

    def scan(self, partitions: Sequence[Mapping[str, str]]) -> RowScan: ...

    def bounds(self, values: Mapping[str, str]) -> Sequence[RowBound]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table of a catalog; `catalog` is the address of its metastores, `thrift://one:9083,thrift://two:9083`.

    `rows` are those of an Iceberg table, which Spark does not open by its own catalog.
    """

    catalog: str
    database: str
    name: str
    rows: TableRows | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePartition:
    """A partition of a table, by the values of its keys as text; without any it is the whole table."""

    table: TableName
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputInstance:
    """An existing feed instance in an input's window.

    `url` is the instance's directory without the input's partition, for example `file:///data/weather/2013/11/03/05`.
    For a feed in a table, `url` is only a name for the `partition`, which Spark opens through its catalog.
    """

    nominal_time: datetime
    url: str
    partition: TablePartition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEvent:
    """An event of a feed that a batch has taken: it is the same one in each attempt.

    `number` is its place in the event log. `digest` is of the content that the instance had then; None for a signal.
    `marking` and `payload` are what the notice said.
    """

    number: int
    feed: str
    nominal_time: datetime
    recorded_at: datetime
    digest: str | None = None
    marking: str | None = None
    payload: Mapping[str, object] = field(default_factory=dict)


OUTPUT_REMEDY = "Name an output that this function returns; with steps, say it in the last one, which makes the output."

NewestEvent: TypeAlias = Callable[[str], InputEvent | None]
"""Finds the newest event of a feed by its name."""


def find_no_event(_: str) -> None:
    """Return that nothing has come, where there is no state, such as in a trial or a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputData:
    """One input of a process instance: the instances of a feed, in the caller's order, and how to read them.

    `columns` is the feed's schema as Spark DDL; with None, Spark infers it. `options` are Spark's reader options.
    `partition` is a path or glob below each instance; `partitions` are the partition names that the feed declares. An
    `optional` input may have no instance. For a feed in a `table`, Spark takes format and schema from the table. A
    frame of an earlier step has what its columns are `made_of`.
    """

    name: str
    feed: str
    instances: tuple[InputInstance, ...]
    format: str
    columns: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    partitions: tuple[str, ...] = ()
    optional: bool = False
    table: TableName | None = None
    made_of: ColumnLineage | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that Spark opens: each instance's address with the partition appended, in the order of the
        instances.

        >>> at = datetime(2013, 11, 3)
        >>> us = InputData(name="a", feed="f", format="csv", partition="/us/", instances=(
        ...     InputInstance(nominal_time=at, url="file:///data/00/"),))
        >>> us.paths
        ('file:///data/00/us',)
        """
        below = (self.partition or "").strip("/")
        if not below:
            return tuple(instance.url for instance in self.instances)
        return tuple(f"{instance.url.rstrip('/')}/{below}" for instance in self.instances)

    def unreadable(self, reason: str, next_step: str) -> InputReadError:
        """Return the error that says why it cannot be read."""
        return InputReadError(name=self.name, feed=self.feed, reason=reason, next_step=next_step)

    def without_instance(self) -> InputReadError:
        """Return the error that says that there is nothing to read."""
        next_step = "Wait for the instances, or declare the input with optional: true."
        return self.unreadable("its window contains no instance", next_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTarget:
    """The location and format of one output.

    `url` is a staging directory that belongs to this attempt alone; it may exist, and its content is replaced.
    `columns` is the feed's schema as Spark DDL; None accepts any result of the work; `other_columns` decides about
    those that the schema or the table does not have. `options` are Spark's. Files for a
    `partition` have the table's own format, columns and types; the partition is added to the table when the files are
    published. An `optional` one may be left out. The rows are held to `quality`, which compares them with `others`: the
    earlier instances by `latest(n)`, other feeds by name. Bad ones are also written to the `quarantine`, if there is
    one.
    """

    name: str
    feed: str
    url: str
    format: str
    columns: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition: TablePartition | None = None
    optional: bool = False
    other_columns: Columns = Columns.REFUSE
    quality: Quality | None = None
    others: Mapping[str, InputData] = field(default_factory=dict)
    quarantine: "OutputTarget | None" = None

    @property
    def subject(self) -> str:
        """Its name in error messages.

        >>> OutputTarget(name="delays", feed="daily-delays", url="file:///x", format="csv").subject
        "output 'delays' (feed 'daily-delays')"
        """
        return f"output {self.name!r} (feed {self.feed!r})"

    def mismatch(self, reason: str, next_step: str) -> OutputMismatchError:
        """Return the error that says why its rows are not what the feed declares."""
        return OutputMismatchError(subject=self.subject, reason=reason, next_step=next_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """Options for submitting an external application. With `master` None, spark-submit's own configuration decides.

    `queue` is a queue of YARN, unless `conf` or `more` names another. `args` follow the paths of inputs and outputs on
    the application's command line. `more` are further options by their names without dashes. The fields here, and the
    options that the engine sets itself, take precedence over `more`.
    """

    master: str | None = None
    deploy_mode: str | None = None
    main_class: str | None = None
    queue: str | None = None
    args: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """The step that a work is: its name, and the directory below which each of its frames has one of its own name.

    Frames are Parquet. With `frames_url` None it is a last step: what it yields are some of the outputs of the work.
    """

    name: str
    frames_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpRows:
    """The rows that are made up for an instance of the output, at its nominal time."""

    rows: int
    seed: int
    instance: datetime
    columns: Mapping[str, MadeUpColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The facts of a process instance that its code may use; a `python` workflow receives them as `context`.

    `nominal_time` is UTC; `timezone` is the process's. `attempt` counts from 1. `input_instances` maps the name of each
    input to its instances in reading order. `output_urls` maps the name of each output to its staging directory.
    `events` maps each name of a trigger to the events that the batch has taken, in the order of the log; names without
    events are left out. `messages` are those of `event`, by output. `metadata` says properties and tags of entities,
    and `fact` what the work has counted or measured: both are kept if the instance succeeds.
    """

    process: str
    cluster: str
    nominal_time: datetime
    timezone: ZoneInfo
    run_id: str
    attempt: int
    properties: Mapping[str, str] = field(default_factory=dict)
    input_instances: Mapping[str, tuple[InputInstance, ...]] = field(default_factory=dict)
    output_urls: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, tuple[InputEvent, ...]] = field(default_factory=dict)
    newest_event: NewestEvent = field(default=find_no_event, repr=False)
    metadata: RunMetadata = field(default_factory=RunMetadata, repr=False)
    messages: dict[str, EventMessage] = field(default_factory=dict, init=False)
    facts: dict[str, FactValue] = field(default_factory=dict, init=False)

    @property
    def local_time(self) -> datetime:
        """The nominal time as local time in the process's time zone."""
        return self.nominal_time.astimezone(self.timezone)

    def event(self, output: str, *, payload: Mapping[str, object] | None = None, marking: str | None = None) -> None:
        """Say what the event of an output tells those who take it, once the output is published; the last call counts.

        `payload` is JSON of at most 64 KiB, `marking` a word by which batches may end.

        Raises:
            EventRefusedError: it is no output of this code, or cannot be kept.
        """
        values = {} if payload is None else payload
        for fault, remedy in (
            (find_output_fault(output, self.output_urls), OUTPUT_REMEDY),
            (find_payload_fault(values), PAYLOAD_REMEDY),
            (find_marking_fault(marking), MARKING_REMEDY),
        ):
            if fault is not None:
                raise EventRefusedError(process=self.process, output=output, reason=fault, next_step=remedy)
        self.messages[output] = EventMessage(payload=json.loads(json.dumps(dict(values))), marking=marking)

    def fact(self, name: str, value: FactValue) -> None:
        """Say what the work has counted or measured, such as `rows-read`; the last call counts.

        Raises:
            MetadataRefusedError: the name or value cannot be kept.
        """
        self.facts[name] = check_fact(self.facts, name, value)

    @property
    def reported(self) -> ReportedMetadata:
        """What the code has said so far: metadata and facts."""
        return ReportedMetadata(metadata=dict(self.metadata.reported), facts=dict(self.facts))

    def last_event(self, feed: str) -> InputEvent | None:
        """Return the newest event of a feed of the cluster: a mark of how far it has come. It is read now, so a
        repetition may find a newer one. Of a feed that the process writes, it is one of another instance.

        Raises:
            UnknownFeedError: no such feed is declared on the cluster.
        """
        return self.newest_event(feed)


def find_output_fault(output: str, made: Collection[str]) -> str | None:
    """Return why an event cannot be that of an output, as a clause; None if it is among those that are made.

    >>> find_output_fault("loded", ["loaded"])
    'the outputs here are loaded'
    """
    if output in made:
        return None
    return f"the outputs here are {', '.join(made)}" if made else "no output is made here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One attempt at one process instance, or one `step` of it.

    `path` names the user's code in the notation of the engine; relative files are below `root`, the project's folder.
    `properties` have their variables filled in. `libs` are files beside the code: `.py`, `.zip`, `.egg` or `.jar`.
    `catalog` is the address of the cluster's metastores. `pinned` has the content of files that have changed since the
    instance's release; it replaces what is in the files. `newest_event` and `check_reported` read the state when they
    are called.
    """

    process: str
    cluster: str
    nominal_time: datetime
    timezone: ZoneInfo
    run_id: str
    attempt: int
    inputs: tuple[InputData, ...]
    outputs: tuple[OutputTarget, ...]
    engine: str
    root: Path
    path: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    libs: tuple[str, ...] = ()
    submit: SubmitOptions | None = None
    catalog: str | None = None
    pinned: Mapping[str, bytes] = field(default_factory=dict)
    step: StepPlace | None = None
    events: Mapping[str, tuple[InputEvent, ...]] = field(default_factory=dict)
    newest_event: NewestEvent = field(default=find_no_event, repr=False)
    check_reported: CheckReported = field(default=check_nothing, repr=False)
    made_up: MadeUpRows | None = None

    def read_file(self, name: str) -> bytes:
        """Return the content of a file of the work. Raises `OSError` if it cannot be read."""
        return self.pinned[name] if name in self.pinned else (self.root / name).read_bytes()

    def not_found(self, reason: str, next_step: str, path: str | None = None) -> WorkflowNotFoundError:
        """Return the error that says why its code cannot be run, or the file at another `path`."""
        return WorkflowNotFoundError(
            process=self.process, path=self.path if path is None else path, reason=reason, next_step=next_step
        )

    def mismatch(self, reason: str, next_step: str) -> OutputMismatchError:
        """Return the error that says why it has not made what it ought to."""
        of_step = "" if self.step is None else f"step {self.step.name!r} of "
        return OutputMismatchError(subject=f"{of_step}process {self.process!r}", reason=reason, next_step=next_step)

    def not_fitting(self, faults: Sequence[str], next_step: str) -> WorkflowSignatureError:
        """Return the error that says why its code does not fit its inputs and outputs."""
        reason = "; ".join(faults)
        return WorkflowSignatureError(process=self.process, path=self.path, reason=reason, next_step=next_step)

    def context(self) -> Context:
        return Context(
            process=self.process,
            cluster=self.cluster,
            nominal_time=self.nominal_time,
            timezone=self.timezone,
            run_id=self.run_id,
            attempt=self.attempt,
            properties=MappingProxyType(dict(self.properties)),
            input_instances=MappingProxyType({data.name: data.instances for data in self.inputs}),
            output_urls=MappingProxyType({target.name: target.url for target in self.outputs}),
            events=MappingProxyType(dict(self.events)),
            newest_event=self.newest_event,
            metadata=RunMetadata(self.check_reported),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The rows of an output that was held to the quality of its feed: all, the bad ones, and how many broke each rule.
    `conditions` says why each condition on the instance does not hold; nothing of one that does.

    The published files are those below the folders `kept` of the staging; with None, all files are.
    """

    rows: int
    bad: int
    broken: Mapping[str, int]
    conditions: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] | None = None
    quarantine: "OutputReport | None" = None


STRETCH = "stretch"
"""The note that has the stretch of an increment, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputReport:
    """The result for one output. `rows`, and `columns` as (name, type), are None if the engine does not know them.

    `rows` are those to be published. `message` is what the event of the output says. `lineage` tells what its columns
    were made of; None if nobody has looked. `notes` are also in the manifest and the event.
    """

    name: str
    rows: int | None
    columns: tuple[tuple[str, str], ...] | None = None
    message: EventMessage = field(default_factory=EventMessage)
    judged: Judged | None = None
    lineage: ColumnLineage | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """The result of a work: one report for each output, in the order of `Work.outputs`, and details for the run's page.

    An optional output without a report, or without a file, was left out. A step reports the frames that it has yielded.
    What the work has `reported` is kept if the instance succeeds.
    """

    outputs: tuple[OutputReport, ...]
    details: Mapping[str, str | int | float] = field(default_factory=dict)
    reported: ReportedMetadata = field(default_factory=ReportedMetadata)


class Engine(ABC):
    """A way to run the work of a process. One engine object serves many attempts, one after the other in a session."""

    @abstractmethod
    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        """Run the work to its end and return when every output is written.

        - Inputs are only read. On return, the directory of every reported output holds the complete output and no
          success marker: publication decides what readers see. Others, and all after an error, may hold anything; a
          repetition of the same work replaces their content.
        - A step may yield any number of frames; a single one without a name is called as `name_single` says.
        - `session` is called when Spark is first needed, and never by an engine that starts its own Spark. Mistakes in
          the work (code not found, a parameter that is not an input) are raised before that call.
        - An engine leaves nothing in the session that a later attempt would see.
        - An interruption of the caller (`KeyboardInterrupt` and other `BaseException`s) propagates after the processes
          that the engine started have ended.

        Raises:
            EngineError: the work could not be started or failed; `__cause__` is the exception of user code or Spark.
        """
