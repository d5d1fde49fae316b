"""The contexts of attempts and operations: the state, storage, the clocks, and a plan or the current definitions.

What a person names is resolved once: a feed, process or flow, where it is, and which instance of it is meant.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from sqlalchemy import Connection

from feed_assets.access.rights import describe_hidden, find_hidden, reads
from feed_assets.clock import Clock, SystemClock, open_clock
from feed_assets.context.consolidation import Lifecycle
from feed_assets.context.errors import InstanceQueryError
from feed_assets.engines.errors import ServiceError
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.errors import AmbiguousNameError, DefinitionsError, EntityNotFoundError
from feed_assets.entities.flow_names import declared_by, describe_process, is_of_feed
from feed_assets.errors import Fault, WrongUsageError, find_similar
from feed_assets.issues import Issue
from feed_assets.loading.entity_files import values_of
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.removals.records import Sweep
from feed_assets.log.run_names import is_command, origin_of
from feed_assets.patience import Patience
from feed_assets.plan.edges import Key
from feed_assets.plan.location import find_plan_cache, load_location
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.setting_sections import MetadataSettings
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.sequence import InstanceSequence, parse_instance, zone_of_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleContext:
    """The state database, the stores and the clocks, shared by attempts, sweeps, ticks and commands.

    `clock` tells the time of the data, `real_clock` the real time, which leases and durations use. The two differ only
    in replays and simulations. The name `Context` is taken: a `python` workflow receives a `Context`.
    """

    database: Database
    stores: StorePool
    clock: Clock
    real_clock: Clock

    @property
    def as_of(self) -> datetime:
        """The data's present."""
        return self.clock.now()

    @property
    def real_now(self) -> datetime:
        """The real time."""
        return self.real_clock.now()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineContext(LifecycleContext):
    """A context for what follows the current definitions: adds the releases."""

    timeline: ReleaseTimeline

    @property
    def plan(self) -> Plan:
        """The plan of the current definitions."""
        return self.timeline.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext(LifecycleContext):
    """A context for attempts: adds the plan of the active release, and its number.

    `current` is the plan of the current declaration; the plan of a release has only its own.

    `run_id` names a Dagster run, a simulation or a command (see `run_names`). `is_cancelled` tells whether somebody has
    cancelled the run, when it is interrupted; `is_needed`, whether an instance whose lease is held still needs the run.
    """

    plan: Plan
    run_id: str
    release: int | None = None
    current: Plan | None = None
    is_cancelled: Callable[[], bool] = lambda: True
    is_needed: Callable[[datetime], bool] = lambda _: True

    @property
    def origin(self) -> str:
        """The origin of its events."""
        return origin_of(self.run_id)

    @property
    def declared(self) -> Plan:
        """The plan of the current declaration, as far as it is known."""
        return self.current or self.plan

    def datasource(self, name: str) -> Datasource:
        """Return a datasource as it is declared now. Raises ServiceError if it is not declared any more."""
        found = self.declared.datasources.get(name)
        if found is None:
            reason, next_step = "it is not declared any more", "Declare it, or end its imports and exports."
            raise ServiceError(service=f"datasource {name!r}", reason=reason, next_step=next_step)
        return found


_Record = TypeVar("_Record", FeedRecord, ProcessRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext(TimelineContext):
    """A context for queries. It adds `as_of`, the data's present; `as_of` stays fixed while
    `clock` advances. `webserver` is the URL of Dagster's webserver, for links to runs, and `server_url` that of our
    server, for links to its pages. Commands also have the `settings`, for the receivers of messages, and the `errors`
    that keep entities out of the plan.
    """

    as_of: datetime = field()  # without it, the property above would be its default
    webserver: str | None = None
    server_url: str | None = None
    retention_grace: timedelta = timedelta(0)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    settings: Settings | None = None
    errors: tuple[Issue, ...] = ()

    def by(self, author: str, *, dry_run: bool = False) -> "ChangeContext":
        """Return the context of a call that changes something in the name of an author."""
        return ChangeContext(**self.shared(), author=author, dry_run=dry_run)

    def shared(self) -> dict[str, Any]:
        """Return what a context for something more than queries has of it."""
        return {each.name: getattr(self, each.name) for each in fields(OperationContext)}

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a read transaction with the releases of the same moment."""
        with self.database.read() as connection:
            self.timeline.refresh(connection, self.as_of)
            yield connection

    def run_url(self, run_id: str | None) -> str | None:
        """Return the URL of a run in Dagster; None without a run or a configured webserver."""
        if not run_id or is_command(run_id) or not self.webserver:
            return None
        return f"{self.webserver.rstrip('/')}/runs/{run_id}"

    def feed_url(self, record: FeedRecord, nominal_time: datetime) -> str:
        """Return the URL of a feed's instance; an empty one if the feed has no data of its own. Where those
        are that who asks may not read is not told.
        """
        if (acl := find_hidden().get((Kind.FEED.value, record.key[0]))) is not None:
            return describe_hidden(acl)
        if not record.has_data:
            return ""
        return self.stores.url(record.store, record.path(nominal_time))

    def records(self, kind: Kind) -> Mapping[Key, FeedRecord | ProcessRecord]:
        """Return all feeds or all processes; nothing of a kind that has no instances."""
        found: dict[Kind, Mapping[Key, FeedRecord | ProcessRecord]]
        found = {Kind.FEED: self.plan.feeds, Kind.PROCESS: self.plan.processes}
        return found.get(kind, {})

    def clusters_of(self, kind: Kind, name: str) -> tuple[str, ...]:
        """Return the clusters of a feed or process, by name.

        Raises:
            EntityNotFoundError: it is on no cluster.
            DefinitionsError: it is declared, but has errors.
        """
        records = self.records(kind)
        found = tuple(cluster for cluster in sorted(self.plan.clusters) if (name, cluster) in records)
        return found or self._not_found((kind,), name)

    def kinds_of(self, name: str, kind: Kind | None = None) -> tuple[Kind, ...]:
        """Return which of process and feed, or of one kind, have this name, at least one.

        Raises:
            EntityNotFoundError: none has it.
            DefinitionsError: what has it has errors.
        """
        kinds = (Kind.PROCESS, Kind.FEED) if kind is None else (kind,)
        found = [each for each in kinds if any((name, cluster) in self.records(each) for cluster in self.plan.clusters)]
        return tuple(found) or self._not_found(kinds, name)

    def datasource(self, name: str) -> Datasource:
        """Return a datasource. Raises EntityNotFoundError if there is none, DefinitionsError if it has errors."""
        return self.plan.datasources.get(name) or self._not_found([Kind.DATASOURCE], name)

    def _not_found(self, kinds: Sequence[Kind], name: str) -> NoReturn:
        labels = {label_of((kind, name)) for kind in kinds}
        if issues := [each for each in self.errors if labels.intersection((each.entity, *each.followers))]:
            wrong = labels.intersection(label for each in issues for label in (each.entity, *each.followers))
            raise DefinitionsError(location=" and ".join(sorted(wrong)), issues=issues, next_step="Correct it first:")
        known = sorted({entity for kind in kinds for entity, _ in self.records(kind) if reads(kind, entity)})
        if Kind.DATASOURCE in kinds:
            known = sorted(name for name in self.plan.datasources if reads(Kind.DATASOURCE, name))
        with self.read() as connection:
            renames = Definitions(connection).renames()
        now = tuple(each.name for each in renames if each.kind in kinds and each.former == name)
        suggestions = tuple(find_similar(name, known, n=2))
        unread = [each for each in self.errors if each.entity is None]
        if unread and not suggestions and not now:
            raise DefinitionsError(
                location=" or ".join(sorted(labels)),
                issues=unread,
                reason="it is in no file that can be read",
                next_step="It may be in one of these:",
            )
        raise EntityNotFoundError(kind=" or ".join(sorted(kinds)), name=name, suggestions=suggestions, now=now)

    def require_clusters(self, clusters: Iterable[str]) -> None:
        """Require that clusters are declared. Raises InstanceQueryError if one is not."""
        _require_known(clusters, self.plan.clusters, "it is not declared", "Declared are")

    def clusters_ever(self, connection: Connection, asked: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the clusters that are asked for; by default all that ever were declared.

        Raises:
            InstanceQueryError: one never was.
        """
        known = sorted({*self.plan.clusters, *Definitions(connection).names_ever(Kind.CLUSTER)})
        _require_known(asked, known, "it never was declared", "Known are")
        return tuple(asked or known)

    def kinds_ever(self, connection: Connection, name: str, kind: Kind | None = None) -> Sequence[Kind]:
        """Return which of feed and process, or of one kind, have this name or had it once, at least one; of a feed that
        is declared now the feed alone.

        Raises:
            EntityNotFoundError: none ever had it.
            WrongUsageError: the kind has no instances.
        """
        if is_of_feed(name):
            of, declared = declared_by(name)
            self.kinds_ever(connection, declared, of)
            return (Kind.PROCESS,)
        kinds = (Kind.FEED, Kind.PROCESS) if kind is None else (kind,)
        if kinds[0] not in LIFECYCLES:
            raise WrongUsageError(f"A {kind} has no instances. Name a feed or a process, with KIND feed or process.")
        definitions = Definitions(connection)
        now = [each for each in kinds if any(of == name for of, _ in self.records(each))]
        ever = [each for each in kinds if each in now or definitions.find_newest(each, name) is not None]
        if not ever:
            self._not_found(kinds, name)
        return now[:1] if Kind.FEED in now else ever

    def feed_on(self, name: str, cluster: str) -> FeedRecord:
        """Return a feed on a cluster. Raises InstanceQueryError if the feed is not on it."""
        record = self.plan.feeds.get((name, cluster))
        return record if record is not None else self._not_on(Kind.FEED, name, cluster)

    def process_on(self, name: str, cluster: str) -> ProcessRecord:
        """Return a process on a cluster. Raises InstanceQueryError if the process is not on it."""
        record = self.plan.processes.get((name, cluster))
        return record if record is not None else self._not_on(Kind.PROCESS, name, cluster)

    def feeds_of(self, name: str, cluster: str | None = None) -> tuple[FeedRecord, ...]:
        """Return a feed on a cluster, or on all its clusters if none is named.

        Raises:
            EntityNotFoundError: there is no such feed.
            InstanceQueryError: it is not on the cluster.
        """
        return tuple(self.feed_on(name, on) for on in ((cluster,) if cluster else self.clusters_of(Kind.FEED, name)))

    def processes_of(self, name: str, cluster: str | None = None) -> tuple[ProcessRecord, ...]:
        """Return a process on a cluster, or on all its clusters if none is named. Raises as `feeds_of`."""
        found = (cluster,) if cluster else self.clusters_of(Kind.PROCESS, name)
        return tuple(self.process_on(name, on) for on in found)

    def only_feed(self, name: str, cluster: str | None) -> FeedRecord:
        """Return a feed as `feeds_of`. Raises InstanceQueryError if it is on several clusters and none is named."""
        return _only(self.feeds_of(name, cluster), f"feed {name!r}", "is on")

    def only_process(self, name: str, cluster: str | None) -> ProcessRecord:
        """Return a process as `only_feed`."""
        return _only(self.processes_of(name, cluster), f"process {name!r}", "runs on")

    def active_release(self, connection: Connection, name: str, cluster: str, nominal_time: datetime) -> ActiveRelease:
        """Return the definitions that govern an instance of a process.

        Raises:
            InstanceQueryError: the process is not on the cluster.
            InstanceError: the time is no instance of it.
        """
        record = self.process_on(name, cluster)
        active = self.timeline.find_or_declared(connection, record.key, nominal_time)
        if active is None:
            record.sequence.index(nominal_time)
            raise InstanceError(
                subject=render_datetime(nominal_time),
                reason="the release of this time has no such instance",
                next_step=f"List the instances of process {name!r} around it.",
            )
        return active

    def _not_on(self, kind: Kind, name: str, cluster: str) -> NoReturn:
        raise InstanceQueryError(
            subject=describe_process(name) if kind is Kind.PROCESS else label_of((kind, name)),
            reason=f"it is not on cluster {cluster!r}",
            next_step=f"It is on {', '.join(self.clusters_of(kind, name))}.",
            fault=Fault.MISSING,
        )

    def find_sequence(self, kind: Kind, name: str, cluster: str) -> InstanceSequence | None:
        """Return the instances of a feed or process on a cluster; None if it is not on it."""
        record = self.records(kind).get((name, cluster))
        return record.sequence if record is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeContext(OperationContext):
    """A context for one call of what changes something, for `author`; with `dry_run` nothing is changed."""

    author: str
    dry_run: bool


def _require_known(clusters: Iterable[str], known: Iterable[str], reason: str, told: str) -> None:
    for cluster in sorted({*clusters} - {*known}):
        subject, next_step = f"cluster {cluster!r}", f"{told} {', '.join(sorted(known))}."
        raise InstanceQueryError(subject=subject, reason=reason, next_step=next_step, fault=Fault.MISSING)


def _only(records: Sequence[_Record], label: str, verb: str) -> _Record:
    if len(records) > 1:
        on = ", ".join(record.cluster for record in records)
        raise InstanceQueryError(subject=label, reason=f"it {verb} {on}", next_step="Choose one with --cluster.")
    return records[0]


def open_context(settings: Settings, database: Database, timeline: ReleaseTimeline | None = None) -> OperationContext:
    """Open the context that the settings name. It leaves out entities with errors. A `timeline` has definitions that
    are loaded already.

    Raises:
        DefinitionsError: the location of the definitions cannot be read.
    """
    clock = open_clock(settings)
    as_of = clock.now()
    errors: tuple[Issue, ...] = ()
    if timeline is None:
        location = load_location(settings, find_plan_cache(os.environ))
        timeline, errors = ReleaseTimeline(location.plan, values_of(settings)), location.errors
    return OperationContext(
        timeline=timeline,
        database=database,
        stores=StorePool(patience=Patience(settings.tick_patience)),
        clock=clock,
        real_clock=SystemClock(),
        as_of=as_of,
        webserver=settings.webserver,
        retention_grace=settings.retention_grace,
        metadata=settings.metadata,
        settings=settings,
        errors=errors,
    )


def note(context: ChangeContext, action: str, sweep: Sweep, **details: object) -> None:
    """Write an audit entry about a sweep."""
    note_target(context, action, f"sweep {sweep.sweep_id}", cluster=sweep.cluster, **details)


def note_target(context: ChangeContext, action: str, target: str | None, **details: object) -> None:
    """Write an audit entry about any target, or about none."""
    entry = AuditEntry(recorded_at=context.as_of, author=context.author, action=action, target=target, details=details)
    with context.database.begin() as connection:
        Audit(connection).append(entry)


LIFECYCLES = {
    Kind.PROCESS: (Lifecycle.EXECUTION,),
    Kind.FEED: (Lifecycle.REPLICATION, Lifecycle.IMPORT, Lifecycle.EXPORT, Lifecycle.EVICTION),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A feed, or a process or flow (`kind` PROCESS), with its records on all its clusters, by cluster.

    `clusters` are those that are asked for, none for all; the subject need not be on them. `nominal_time` is None if no
    single instance is meant; of a current one `version` is a time at which the meant version stood in its place, None
    if it is the instance. `lifecycles` are the requested ones; if empty, each operation has a default.
    """

    kind: Kind
    name: str
    records: tuple[FeedRecord | ProcessRecord, ...]
    clusters: tuple[str, ...] = ()
    nominal_time: datetime | None = None
    lifecycles: frozenset[Lifecycle] = frozenset()
    version: datetime | None = None

    @property
    def is_current(self) -> bool:
        """Whether it is a feed with one instance, which has versions."""
        return self.kind is Kind.FEED and any(each.sequence.is_single for each in self.records)

    @property
    def on(self) -> tuple[str, ...]:
        """The clusters where it is, by name."""
        return tuple(record.cluster for record in self.records)

    @property
    def asked(self) -> tuple[str, ...]:
        """The clusters to ask: those that are named, else all where it is."""
        return self.clusters or self.on

    @property
    def instance(self) -> datetime:
        """The nominal time of the instance that is meant."""
        assert self.nominal_time is not None
        return self.nominal_time

    def parse(self, text: str) -> datetime:
        """Parse the nominal time of an instance, in the time zone of the entity unless it is a UTC time.

        Raises:
            DateTimeError: the text is not a time.
        """
        return parse_instance(text, zone_of_keys(self.records[0].sequence))


def resolve_subject(
    context: OperationContext,
    name: str,
    instance: str | datetime | None = None,
    *,
    kind: Kind | None = None,
    preferred: Kind | None = None,
    clusters: Iterable[str] = (),
    lifecycles: Iterable[str] = (),
) -> Subject:
    """Resolve the name of a feed, process or flow. Where a feed and a process share it, the kind or a lifecycle of one
    of them tells which is meant, else it is the `preferred` one.

    Raises:
        EntityNotFoundError: nothing of that name and kind is declared.
        DefinitionsError: it is declared, but has errors.
        AmbiguousNameError: nothing tells whether the feed or the process is meant.
        DateTimeError: the instance is not a time.
    """
    wanted = frozenset(map(Lifecycle, lifecycles))
    kinds = context.kinds_of(name, Kind.PROCESS if is_of_feed(name) else kind)
    chosen = [each for each in kinds if wanted and wanted.issubset(LIFECYCLES[each])] or kinds
    if len(chosen) > 1 and preferred is None:
        raise AmbiguousNameError(name=name, kinds=kinds)
    of_kind = next((each for each in chosen if each is preferred), chosen[0])
    records = context.records(of_kind)
    found = Subject(
        kind=of_kind,
        name=name,
        records=tuple(records[name, cluster] for cluster in context.clusters_of(of_kind, name)),
        clusters=tuple(clusters),
        lifecycles=wanted,
    )
    if instance is None:
        return found
    found = replace(found, nominal_time=found.parse(instance) if isinstance(instance, str) else instance)
    return as_version(found) if found.is_current else found


def as_version(subject: Subject) -> Subject:
    """Return a current instance as what is meant, and another time than its own as that of a version."""
    time, start = subject.nominal_time, subject.records[0].sequence.start
    return replace(subject, nominal_time=start, version=None if time == start else time)
