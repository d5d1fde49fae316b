"""The records that entities compile to: frozen, and read by sensors, runs, explanations and the Dagster definitions.

There is one record for each feed or process and cluster. Edges between them carry the window functions, so the process
instances that read a feed instance are computed without a search.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TypeAlias, TypeVar, assert_never
from zlib import crc32

from feed_assets.entities.common import Kind, LocationKind, RetentionAction, SweepLimits
from feed_assets.entities.content.quality import Quality
from feed_assets.entities.copies.options import Columns, Existing
from feed_assets.entities.datasource import TABLE, Datasource, ExportTarget, ImportSource, IncrementBy
from feed_assets.entities.feed import ClusterRole, FeedFormat
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.process import CatchUp, OnTimeout, Order, Retry, RetryPolicy
from feed_assets.entities.triggers import OnUpdate
from feed_assets.entities.workflow import Step, Workflow, WorkflowEngine, order_steps
from feed_assets.issues import EntityKey
from feed_assets.plan.copy_records import CopyRecord, Directory, MirrorRecord, StoreAddress
from feed_assets.plan.edges import InputEdge, Key, OutputEdge, TriggerInput, TriggerRecord
from feed_assets.plan.facts import EntityFacts, SlaRecord
from feed_assets.plan.transfers import ExportRecord, ImportRecord
from feed_assets.timing.sequence import Frequency, InstanceSequence
from feed_assets.timing.templates import PathTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedLocation:
    """A location of a feed on a cluster that is under retention.

    `obstacle` is why nothing is ever removed there, as a clause for a message; None if there is no obstacle.
    """

    kind: LocationKind
    store: StoreAddress
    template: PathTemplate
    obstacle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """How long instances of a feed are kept on a cluster; the fields have the meaning of those of `Retention`.

    At least one of `limit`, `max_instances` and `max_bytes` is set. `stops_at` is the end of the validity if retention
    stops with it: instances are never judged as of a later moment. `cadence` is the interval between sweeps, `trash`
    the time for which removed data can be restored. `priority` is from 2 (first) to -2; `queue` is only displayed.
    `archive` is for the data; accompanying files go to the trash. `partition` is that of a table: such an
    instance is a whole period, and older than the limit when all of the period is.
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
    sweep_limits: SweepLimits = field(default_factory=SweepLimits)
    priority: int = 0
    queue: str | None = None
    locations: tuple[RetainedLocation, ...] = ()
    archive: tuple[StoreAddress, PathTemplate] | None = None
    partition: PathTemplate | None = None

    def judged_at(self, as_of: datetime) -> datetime:
        """Return the moment as of which instances are judged: at the latest the time at which retention stops."""
        return as_of if self.stops_at is None else min(as_of, self.stops_at)

    def has_expired(self, nominal_time: datetime, as_of: datetime) -> bool:
        """Return whether an instance is older than the limit of age, if there is one."""
        return self.limit is not None and self.judged_at(as_of) - nominal_time > self.limit.as_duration()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """A table of a cluster's catalog; `catalog` names every metastore, `thrift://one:9083,thrift://two:9083`."""

    catalog: str
    database: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRecord:
    """The table in which instances at locations are partitions: its address, and the template of the partitions."""

    table: TableRecord
    store: StoreAddress
    template: PathTemplate

    @property
    def name(self) -> str:
        """The table for people: `web.clicks`."""
        return f"{self.table.database}.{self.table.name}"

    @property
    def address(self) -> str:
        """The table and the form of its partitions."""
        return f"{self.store.url}#{self.template.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """A cluster: its storage, its Spark, and the metastores of its catalog (as in `TableRecord`), or its `lake`, an
    Iceberg catalog.

    With `keeps_server`, sessions are those of a Spark Connect server that has the `spark_master`. If it `is_elsewhere`,
    another server works on it, and here only sources of copies are read.
    """

    name: str
    colo: str
    store: StoreAddress
    catalog: str | None
    spark_master: str | None
    spark_remote: str | None
    keeps_server: bool
    spark_conf: tuple[tuple[str, str], ...]
    spark_submit: tuple[tuple[str, str], ...]
    properties: tuple[tuple[str, str], ...]
    lake: StoreAddress | None = None
    is_elsewhere: bool = False

    @property
    def uses_connect(self) -> bool:
        """Whether sessions use Spark Connect, whose executors cannot run the code of this package."""
        return self.spark_remote is not None or self.keeps_server


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRecord:
    """The inbox of a feed: a directory below the root of a store, and which files are taken from there, and when.

    With `leaves` they stay there, and nothing is written or removed.
    """

    store: StoreAddress
    directory: str
    pattern: str
    settle: Frequency
    takes_duplicates: bool
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRecord:
    """A feed on one cluster. Its instances are partitions of a `table`, or directories if that is None.

    `produced_by` is the key of the asset whose materializations are the arrivals of its instances, if there is one.
    Instances are `is_expected` at their nominal times, or come as they come. Without `has_data` each is only the news
    that something happened, and the location means nothing. `watch` is how often the location is looked at for
    instances that come as they come; those of an `inbox` are made of the files that are put there. `quality` is what
    processes that write it are held to; where none does, its instances are judged before they are available. If it
    `is_current`, its sequence has one instance, in whose place one version follows another, `watch` is how often it is
    looked at, and `versions` former ones stay in the trash. `registration` is the table in which its instances are
    partitions, too.
    """

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
    existing: Existing
    other_columns: Columns
    preview: bool | None
    retention: RetentionRecord | None
    sla: SlaRecord | None
    inputs_of: tuple[InputEdge, ...]
    outputs_of: tuple[OutputEdge, ...]
    facts: EntityFacts
    produced_by: tuple[str, ...] | None = None
    is_expected: bool = True
    has_data: bool = True
    watch: Frequency | None = None
    inbox: InboxRecord | None = None
    quality: Quality | None = None
    is_current: bool = False
    versions: int = 0
    registration: RegistrationRecord | None = None

    @property
    def key(self) -> Key:
        return (self.feed, self.cluster)

    def as_source(self) -> "FeedRecord":
        """Return what is seen of it from another colo, where only copies read it."""
        return replace(self, retention=None, sla=None, produced_by=None, inbox=None, quality=None, registration=None)

    @property
    def retention_limit(self) -> Frequency | None:
        """How long instances are kept; None if age is not a reason for removal."""
        return self.retention.limit if self.retention else None

    @property
    def is_external(self) -> bool:
        """Whether its instances come from outside: no process on this cluster writes them."""
        return not self.outputs_of

    @property
    def is_judged(self) -> bool:
        """Whether a run judges the rows of what comes from outside before it is available."""
        return self.quality is not None and self.is_external and self.has_data

    @property
    def is_polled(self) -> bool:
        """Whether its instances are looked for from their nominal time on: nobody says when they arrive."""
        return self.is_expected and self.is_external and self.produced_by is None

    @property
    def is_watched(self) -> bool:
        """Whether its location is looked at for instances that come as they come."""
        return self.watch is not None and not self.is_current

    @property
    def producer(self) -> str:
        """The asset that produces its instances, for messages: `team/orders`."""
        return "/".join(self.produced_by or ())

    @property
    def place(self) -> int:
        """The number of its location in the record: of the store, the template with its zone, and the flag."""
        where = (self.store.url, self.template.text, self.template.zone.key, self.flag)
        return crc32(repr(where).encode()) >> 1

    @property
    def second_of_day(self) -> int:
        """When its data are looked at each day: feeds are spread over the day."""
        return crc32("/".join(self.key).encode()) % 86_400

    def path(self, nominal_time: datetime) -> str:
        """Return the path of an instance below the root of its store."""
        return self.template.render(nominal_time).lstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRecord:
    """The times of late-data checks of an instance; `workflows` are those of single inputs."""

    policy: RetryPolicy
    delay: Frequency
    workflows: tuple[tuple[str, Workflow], ...]


EngineWork: TypeAlias = Workflow | MirrorRecord | ImportRecord | ExportRecord
"""The work of an engine, which makes one instance after the other."""

AnyWork: TypeAlias = EngineWork | CopyRecord
"""What a process does: the code of users, or what this program does itself. Copies are made many at once."""


def steps_of(work: AnyWork) -> Mapping[str, Step]:
    """Return the steps of which a work consists, by name; none of other work."""
    return work.steps if isinstance(work, Workflow) else EMPTY


DEFINITION_DIGITS = 16
"""So many digits of the digest of a definition stand with an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process on one cluster, or a flow to it: the replication of a feed from a source.

    `entity` is the declaring entity, of a flow the feed. An instance is created `delay` after its nominal time.
    `members` are the definitions that the record consists of: its own, its feeds' and its clusters'. `fingerprint`
    decides whether other definitions mean a new release (see `plan/release_fingerprint.py`). `priority` is from 2
    (first) to -2; `queue` is a queue of YARN. If it `is_enumerated`, there is an instance at every time of its
    sequence; else something makes each: a batch, or the event that a flow copies. Without a `timeout` it waits for
    ever: the one copy of a current instance.
    """

    process: str
    cluster: str
    entity: EntityKey
    sequence: InstanceSequence
    delay: timedelta
    inputs: tuple[InputEdge, ...]
    outputs: tuple[OutputEdge, ...]
    work: AnyWork
    properties: tuple[tuple[str, str], ...]
    parallel: int
    order: Order
    catch_up: CatchUp
    priority: int
    queue: str | None
    timeout: Frequency | None
    retry: Retry | None
    late: LateRecord | None
    digest: str
    fingerprint: str
    members: tuple[EntityKey, ...]
    facts: EntityFacts
    is_enumerated: bool = True
    trigger: TriggerRecord | None = None
    on_timeout: OnTimeout = OnTimeout.GIVE_UP
    on_update: OnUpdate = OnUpdate.IGNORE
    sla: SlaRecord | None = None

    @property
    def key(self) -> Key:
        return (self.process, self.cluster)

    @property
    def own_outputs(self) -> tuple[OutputEdge, ...]:
        """The outputs that its work makes: all but the quarantines."""
        return tuple(edge for edge in self.outputs if edge.quarantine_of is None)

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """Its workflow, and those for late inputs."""
        late = [workflow for _, workflow in self.late.workflows] if self.late is not None else []
        return (*([self.work] if isinstance(self.work, Workflow) else []), *late)

    @property
    def definition_digest(self) -> str:
        """The beginning of its digest: enough to tell its definitions apart."""
        return self.digest[:DEFINITION_DIGITS]

    @property
    def has_steps(self) -> bool:
        """Whether one of its workflows consists of steps."""
        return any(workflow.steps for workflow in self.workflows)

    def deadline_after(self, moment: datetime) -> datetime | None:
        """Return until when an instance waits that begins to wait now; None for ever."""
        return moment + self.timeout.as_duration() if self.timeout is not None else None

    @property
    def follows_updates(self) -> bool:
        """Whether ended instances run again when what they have read gets other content."""
        return self.on_update is not OnUpdate.IGNORE

    @property
    def is_elsewhere(self) -> bool:
        """Whether its work runs elsewhere: somebody's program takes the batches, and no run is requested."""
        return isinstance(self.work, Workflow) and self.work.engine is WorkflowEngine.EXTERNAL

    @property
    def is_of_feed(self) -> bool:
        """Whether a feed declares it: it has the schedule of the feed, and what people say of it they say of that."""
        return self.entity[0] == Kind.FEED

    @property
    def reads_in_turn(self) -> bool:
        """Whether each instance reads after the one before it: an increment by mark."""
        return isinstance(self.work, ImportRecord) and self.work.source.extract.increment is IncrementBy.MARK

    @property
    def superseded(self) -> str | None:
        """Why an instance is skipped for a newer one, where not the declared order is the reason."""
        is_whole = isinstance(self.work, ImportRecord)
        return "a whole table is read as it is now, for the newest due instance only" if is_whole else None

    @property
    def is_flow(self) -> bool:
        """Whether it copies a feed from another cluster."""
        return isinstance(self.work, CopyRecord)

    @property
    def copied(self) -> CopyRecord:
        """What a flow copies."""
        assert isinstance(self.work, CopyRecord)
        return self.work

    @property
    def directories(self) -> tuple[tuple[Directory, Directory], ...]:
        """The directories of a mirror, each (source, target): it writes straight there. None of other work."""
        return self.work.directories if isinstance(self.work, MirrorRecord) else ()

    @property
    def places(self) -> tuple[Sequence[str], Sequence[str]]:
        """What it reads, and what it writes, that is no feed: the directories of a mirror, a table of a datasource."""
        match self.work:
            case MirrorRecord(directories=directories):
                return [source.url for source, _ in directories], [target.url for _, target in directories]
            case ImportRecord(source=ImportSource(name=name, table=str(table))):
                return [f"{TABLE}/{name}/{table}"], []
            case ExportRecord(target=ExportTarget(name=name, table=table)):
                return [], [f"{TABLE}/{name}/{table}"]
            case _:
                return [], []

    @property
    def engine(self) -> str:
        """The name of the engine, in a word."""
        return str(self.work.engine)

    @property
    def work_text(self) -> str:
        """The work: `python package.module:function`, `steps extract, load`, `generate 1,000 rows`, `replication from
        east`.
        """
        match self.work:
            case Workflow(steps=steps, rows=rows, path=path):
                text = ", ".join(order_steps(steps)) or (path if rows is None else f"{rows:,} rows")
            case MirrorRecord(directories=directories):
                text = ", ".join(f"{source.url} → {target.url}" for source, target in directories)
            case CopyRecord(source=cluster):
                text = f"from {cluster}"
            case ImportRecord() | ExportRecord():
                text = self.work.text
            case _:
                assert_never(self.work)
        return f"{self.engine} {text}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All declarations, compiled. Records are found by key; neighbours are found without enumeration.

    `facts` are those of every declared entity, also of feeds without a location and processes that cannot run here. If
    it has a `colo`, only what is on clusters there is worked on, and only that has records, with the sources of copies.
    """

    digest: str
    clusters: Mapping[str, ClusterRecord]
    feeds: Mapping[Key, FeedRecord]
    processes: Mapping[Key, ProcessRecord]
    datasources: Mapping[str, Datasource] = EMPTY
    facts: Mapping[EntityKey, EntityFacts] = EMPTY
    colo: str | None = None
    _reads: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    _announced: Mapping[str, tuple[FeedRecord, ...]] = field(init=False, repr=False, compare=False)
    _watched: Mapping[str, tuple[FeedRecord, ...]] = field(init=False, repr=False, compare=False)
    _with_inbox: Mapping[str, tuple[FeedRecord, ...]] = field(init=False, repr=False, compare=False)
    _stored: Mapping[str, tuple[FeedRecord, ...]] = field(init=False, repr=False, compare=False)
    _registered: Mapping[str, tuple[FeedRecord, ...]] = field(init=False, repr=False, compare=False)
    _triggered: Mapping[str, tuple[ProcessRecord, ...]] = field(init=False, repr=False, compare=False)
    _triggers: Mapping[Key, tuple[tuple[ProcessRecord, TriggerInput], ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        reads: dict[str, set[str]] = {}
        for record in self.processes.values():
            reads.setdefault(record.cluster, {record.cluster}).update(edge.feed_cluster for edge in record.inputs)
        object.__setattr__(self, "_reads", {cluster: frozenset(found) for cluster, found in reads.items()})
        outside = [feed for feed in self.feeds.values() if feed.is_external]
        announced = _by_cluster(feed for feed in outside if feed.produced_by is not None)
        object.__setattr__(self, "_announced", announced)
        object.__setattr__(self, "_watched", _by_cluster(feed for feed in outside if feed.is_watched))
        object.__setattr__(self, "_with_inbox", _by_cluster(feed for feed in outside if feed.inbox is not None))
        stored = sorted((feed for feed in self.feeds.values() if feed.has_data), key=attrgetter("second_of_day"))
        object.__setattr__(self, "_stored", _by_cluster(stored))
        registered = _by_cluster(feed for feed in self.feeds.values() if feed.registration is not None)
        object.__setattr__(self, "_registered", registered)
        triggered = _by_cluster(record for record in self.processes.values() if record.trigger is not None)
        object.__setattr__(self, "_triggered", triggered)
        triggers: dict[Key, list[tuple[ProcessRecord, TriggerInput]]] = {}
        for record in self.processes.values():
            if record.trigger is not None:
                for each in record.trigger.inputs:
                    triggers.setdefault((each.feed, each.feed_cluster), []).append((record, each))
        object.__setattr__(self, "_triggers", {key: tuple(found) for key, found in triggers.items()})

    def follows_updates(self, cluster: str) -> bool:
        """Return whether ended instances of a process on a cluster run again for updates."""
        return any(record.follows_updates and record.cluster == cluster for record in self.processes.values())

    def triggered_on(self, cluster: str) -> tuple[ProcessRecord, ...]:
        """Return the processes of a cluster whose instances are batches."""
        return self._triggered.get(cluster, ())

    def triggers_of(self, feed: Key) -> tuple[tuple[ProcessRecord, TriggerInput], ...]:
        """Return the processes that a feed triggers, and the name under which they take its events."""
        return self._triggers.get(feed, ())

    def rivals_of(self, process: Key) -> tuple[Key, ...]:
        """Return the other processes that write a feed of a process whose instances come as they come: no two of them
        have an instance of one second.
        """
        shared = (self.feeds[edge.feed_key] for edge in self.processes[process].outputs)
        found = (edge.process_key for feed in shared if not feed.is_expected for edge in feed.outputs_of)
        return tuple(dict.fromkeys(key for key in found if key != process))

    def announced_on(self, cluster: str) -> tuple[FeedRecord, ...]:
        """Return the feeds of a cluster whose instances other assets produce and announce."""
        return self._announced.get(cluster, ())

    def watched_on(self, cluster: str) -> tuple[FeedRecord, ...]:
        """Return the feeds of a cluster whose locations are looked at for instances that come as they come."""
        return self._watched.get(cluster, ())

    def with_inbox_on(self, cluster: str) -> tuple[FeedRecord, ...]:
        """Return the feeds of a cluster whose instances are made of files in an inbox."""
        return self._with_inbox.get(cluster, ())

    def stored_on(self, cluster: str) -> tuple[FeedRecord, ...]:
        """Return the feeds of a cluster with data, in the order of their seconds of the day."""
        return self._stored.get(cluster, ())

    def registered_on(self, cluster: str) -> tuple[FeedRecord, ...]:
        """Return the feeds of a cluster whose instances are partitions of a table, too."""
        return self._registered.get(cluster, ())

    def read_by(self, cluster: str) -> frozenset[str]:
        """Return the clusters from which processes and flows of a cluster read: itself, and the sources of replicas."""
        return self._reads.get(cluster, frozenset({cluster}))

    def input_indices(self, edge: InputEdge, nominal_time: datetime) -> range:
        """Return the indices of the feed instances that the process instance at `nominal_time` reads through `edge`."""
        assert edge.window is not None
        return edge.window.indices(nominal_time, self.feeds[edge.feed_key].sequence)

    def reader_indices(self, edge: InputEdge, feed_indices: range) -> range:
        """Return the indices of the process instances that read any of `feed_indices` through `edge`."""
        if edge.window is None:
            return range(0)
        feed = self.feeds[edge.feed_key].sequence
        process = self.processes[edge.process_key].sequence
        return edge.window.consumers_of_range(feed_indices, feed, process)

    def output_time(self, edge: OutputEdge, nominal_time: datetime) -> datetime | None:
        """Return the nominal time of the feed instance that the process instance writes.

        None outside the feed's validity.
        """
        feed = self.feeds[edge.feed_key].sequence
        indices = edge.window.indices(nominal_time, feed)
        return feed.at(indices[0]) if indices else None

    def writer_times(self, edge: OutputEdge, feed_time: datetime, told: datetime | None = None) -> list[datetime]:
        """Return the nominal times of the process instances that write a feed instance. All of them write a current
        one, so it is the one that its event has `told`.
        """
        if self.feeds[edge.feed_key].is_current:
            return [] if told is None else [told]
        feed = self.feeds[edge.feed_key].sequence
        process = self.processes[edge.process_key].sequence
        index = feed.index(feed_time)
        found = map(process.at, edge.window.consumers_of_range(range(index, index + 1), feed, process))
        return [time for time in found if self.output_time(edge, time) == feed_time]


_Record = TypeVar("_Record", FeedRecord, ProcessRecord)


def _by_cluster(records: Iterable[_Record]) -> dict[str, tuple[_Record, ...]]:
    """Return records by their clusters, in order."""
    found: dict[str, list[_Record]] = {}
    for record in records:
        found.setdefault(record.cluster, []).append(record)
    return {cluster: tuple(those) for cluster, those in found.items()}
