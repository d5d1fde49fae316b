"""What entities compile to: frozen records that sensors, runs, explanations and the Dagster definitions read.

One record a feed or process and cluster; edges between them carry the window functions, so that the process instances
which read a feed instance are computed, never looked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

from feed_assets.entities.common import LocationKind, RetentionAction
from feed_assets.entities.feed import ClusterRole, FeedFormat
from feed_assets.entities.process import CatchUp, Order, RetryPolicy, Workflow
from feed_assets.issues import EntityKey
from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.timing.frequency import Frequency
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import PathTemplate
from feed_assets.timing.windows import Window

Key: TypeAlias = tuple[str, str]
"""(entity name, cluster name): what identifies a feed record or a process record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """A table of a cluster's catalog; `catalog` names every metastore, `thrift://one:9083,thrift://two:9083`."""

    catalog: str
    database: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """A cluster: its storage, its Spark, and the metastores of its catalog (as in `TableRecord`)."""

    name: str
    colo: str
    store: StoreAddress
    catalog: str | None
    spark_master: str | None
    spark_remote: str | None
    spark_conf: tuple[tuple[str, str], ...]
    spark_submit: tuple[tuple[str, str], ...]
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEdge:
    """A process on `cluster` reads a window of a feed on `feed_cluster`: another one where it is a replication.

    `shifts` says which instances the window always holds, counted from the one of the process's own nominal time, first
    and last; None where that varies or there is no such instance.
    """

    name: str
    feed: str
    feed_cluster: str
    process: str
    cluster: str
    window: Window
    shifts: tuple[int, int] | None
    optional: bool
    partition: str | None
    is_late: bool

    @property
    def feed_key(self) -> Key:
        return (self.feed, self.feed_cluster)

    @property
    def process_key(self) -> Key:
        return (self.process, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEdge:
    """A process writes one instance of a feed, both on one cluster: `window` is from one expression to itself.

    `shift` is how many instances after the one of the process's own nominal time; None where that varies.
    """

    name: str
    feed: str
    process: str
    cluster: str
    window: Window
    shift: int | None

    @property
    def feed_key(self) -> Key:
        return (self.feed, self.cluster)

    @property
    def process_key(self) -> Key:
        return (self.process, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """What a flow copies: the instances of its feed on the cluster `source`."""

    source: str
    options: CopyOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory by its store and its path in it."""

    store: StoreAddress
    path: str

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRules:
    """How many snapshots of each side are always kept; older ones than the age go."""

    source_keep: int
    source_age: Frequency
    target_keep: int
    target_age: Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRecord:
    """What a mirror keeps equal: each (source, target) by itself. `share` and `files` limit what one run removes."""

    directories: tuple[tuple[Directory, Directory], ...]
    options: CopyOptions
    share: float
    files: int
    allow_emptying: bool
    snapshots: SnapshotRules | None

    @property
    def work(self) -> str:
        """What is mirrored, for people."""
        return ", ".join(f"{source.url} → {target.url}" for source, target in self.directories)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """What people wrote about an entity for other people, shown in the UI and searched."""

    description: str | None
    tags: tuple[tuple[str, str], ...]
    groups: tuple[str, ...]
    owner: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedLocation:
    """One place of a feed on a cluster that retention looks after.

    `obstacle` is why nothing is ever removed there, as a clause for a message; None where there is no reason.
    """

    kind: LocationKind
    store: StoreAddress
    template: PathTemplate
    obstacle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLimits:
    """What one sweep may take of a feed without asking: a share (0 to 1) and a number of its instances, and bytes."""

    share: float = 0.5
    instances: int = 10_000
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """How long instances of a feed are kept on a cluster; the meaning of each is that of `Retention`.

    At least one of `limit`, `max_instances` and `max_bytes` is there. `stops_at` is the end of the validity where
    retention stops with it: instances are never judged as of a later moment. `cadence` is how often it looks, `trash`
    how long what it removes can be brought back. `priority` is from 2 (first) to -2; `queue` is only told. `archive` is
    for the data; what else belongs to an instance goes to the trash. `partition` is that of a table, in its time zone:
    such an instance is a whole period, and older than the limit when all of it is.
    """

    limit: Frequency | None
    action: RetentionAction = RetentionAction.DELETE
    keep_newest: int = 0
    max_instances: int | None = None
    max_bytes: int | None = None
    until_read_by: tuple[str, ...] = ()
    until_replicated_to: tuple[str, ...] = ()
    stops_at: datetime | None = None
    cadence: Frequency
    trash: Frequency
    sweep_limits: SweepLimits = SweepLimits()
    priority: int = 0
    queue: str | None = None
    locations: tuple[RetainedLocation, ...] = ()
    archive: tuple[StoreAddress, PathTemplate] | None = None
    partition: tuple[PathTemplate, ZoneInfo] | None = None

    @property
    def stops_at_end(self) -> bool:
        """Whether retention stops with the validity."""
        return self.stops_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRecord:
    """One feed on one cluster. Its instances are partitions of a `table`, or directories where that is None."""

    feed: str
    cluster: str
    role: ClusterRole | None
    sequence: InstanceSequence
    store: StoreAddress
    template: PathTemplate
    table: TableRecord | None
    flag: str | None
    format: FeedFormat
    columns: str | None
    options: tuple[tuple[str, str], ...]
    partitions: tuple[str, ...]
    late_cut_off: Frequency | None
    retention: RetentionRecord | None
    sla: tuple[Frequency, Frequency] | None
    inputs_of: tuple[InputEdge, ...]
    outputs_of: tuple[OutputEdge, ...]
    facts: EntityFacts

    @property
    def key(self) -> Key:
        return (self.feed, self.cluster)

    @property
    def retention_limit(self) -> Frequency | None:
        """How long instances are kept; None if age is no reason to remove one."""
        return self.retention.limit if self.retention else None

    @property
    def is_external(self) -> bool:
        """Whether its instances come from outside: no process on this cluster writes them."""
        return not self.outputs_of

    def path(self, nominal_time: datetime) -> str:
        """Path of an instance below the root of its store."""
        return self.template.render(nominal_time, self.sequence.timezone).lstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRecord:
    """How failed instances are tried again: `attempts` times at most, besides the first."""

    policy: RetryPolicy
    delay: Frequency
    attempts: int
    on_timeout: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRecord:
    """When the late inputs of an instance are looked at again; `workflows` are those that inputs have of their own."""

    policy: RetryPolicy
    delay: Frequency
    workflows: tuple[tuple[str, Workflow], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One process on one cluster, or one flow to it: the replication of a feed from a source, which has a `copy` in the
    place of a workflow. A process whose workflow is a `mirror` has that, too.

    `entity` is what declares it. An instance comes into being `delay` after its nominal time. `members` are the
    definitions that it is made of: its own, of its feeds and of its clusters. `sign` says whether others mean a new
    release (see `plan/signs.py`). `priority` is from 2 (first) to -2; `queue` is only told.
    """

    process: str
    cluster: str
    entity: EntityKey
    sequence: InstanceSequence
    delay: timedelta
    inputs: tuple[InputEdge, ...]
    outputs: tuple[OutputEdge, ...]
    workflow: Workflow | None
    copy: CopyRecord | None
    properties: tuple[tuple[str, str], ...]
    parallel: int
    order: Order
    catch_up: CatchUp
    priority: int
    queue: str | None
    timeout: Frequency
    retry: RetryRecord | None
    late: LateRecord | None
    digest: str
    sign: str
    members: tuple[EntityKey, ...]
    facts: EntityFacts
    mirror: MirrorRecord | None = None

    @property
    def key(self) -> Key:
        return (self.process, self.cluster)

    @property
    def engine(self) -> str:
        """What runs it, in a word."""
        return self.workflow.engine.value if self.workflow is not None else "replication"

    @property
    def work(self) -> str:
        """What is run: `python package.module:function`, `replication from east`."""
        if self.workflow is not None:
            return f"{self.engine} {self.mirror.work if self.mirror is not None else self.workflow.path}"
        return f"{self.engine} from {self.copy.source}" if self.copy is not None else self.engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is declared, compiled. Records are found by key; nothing is enumerated to find a neighbour."""

    digest: str
    clusters: Mapping[str, ClusterRecord]
    feeds: Mapping[Key, FeedRecord]
    processes: Mapping[Key, ProcessRecord]
    _reads: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reads: dict[str, set[str]] = {}
        for record in self.processes.values():
            reads.setdefault(record.cluster, {record.cluster}).update(edge.feed_cluster for edge in record.inputs)
        object.__setattr__(self, "_reads", {cluster: frozenset(found) for cluster, found in reads.items()})

    def read_by(self, cluster: str) -> frozenset[str]:
        """The clusters that processes and flows of a cluster read from: itself, and the sources of its replicas."""
        return self._reads.get(cluster, frozenset({cluster}))

    def input_indices(self, edge: InputEdge, nominal_time: datetime) -> range:
        """Indices of the feed instances that the process instance at `nominal_time` reads through `edge`."""
        return edge.window.indices(nominal_time, self.feeds[edge.feed_key].sequence)

    def reader_indices(self, edge: InputEdge, feed_indices: range) -> range:
        """Indices of the process instances that read any of `feed_indices` through `edge`."""
        feed = self.feeds[edge.feed_key].sequence
        process = self.processes[edge.process_key].sequence
        return edge.window.consumers_of_range(feed_indices, feed, process)

    def output_time(self, edge: OutputEdge, nominal_time: datetime) -> datetime | None:
        """Nominal time of the feed instance that the process instance writes; None outside the feed's validity."""
        feed = self.feeds[edge.feed_key].sequence
        indices = edge.window.indices(nominal_time, feed)
        return feed.at(indices[0]) if indices else None

    def writer_indices(self, edge: OutputEdge, feed_index: int) -> range:
        """Indices of the process instances that write feed instance `feed_index` through `edge`."""
        feed = self.feeds[edge.feed_key].sequence
        process = self.processes[edge.process_key].sequence
        return edge.window.consumers(feed_index, feed, process)
