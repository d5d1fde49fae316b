"""What people say of entities: properties and tags in the scope USER, read, written and removed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection

from feed_assets.access.rights import require_acts
from feed_assets.catalog.descriptions import NOBODY, by_cluster
from feed_assets.catalog.run_metadata import Facts
from feed_assets.catalog.store import DescribedEntity, MetadataChange, MetadataStore, compare, render_metadata
from feed_assets.catalog.targets import INSTANCE, RUN, find_target, refuse_declared, require_room
from feed_assets.catalog.writing import Target, Writing, Written, write_many
from feed_assets.context.operation import ChangeContext, OperationContext
from feed_assets.context.preconditions import require_demanded
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError, MetadataRefusedError
from feed_assets.entities.metadata import (
    Create,
    MetadataKey,
    MetadataKind,
    MetadataValue,
    Mutation,
    Origin,
    Remove,
    Scope,
    Update,
    find_fault,
)
from feed_assets.json_form import Hidden, shows
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEvent, FeedKey, ProcessKey
from feed_assets.log.run_names import find_run
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.sql.database import lock_definitions
from feed_assets.timing.dates import NEVER, parse_datetime, render_datetime


@shows("said", "value, origin, author")
@shows("key", "scope, kind, name")
@dataclass(frozen=True, slots=True)
class ListedMetadata:
    """One property or tag of an entity; `value` is "" for a tag."""

    key: Hidden[MetadataKey]
    said: Hidden[MetadataValue]


@shows("row", "uid, created_at, created_by")
@dataclass(frozen=True, slots=True, kw_only=True)
class EntityMetadata:
    """The metadata of an entity. `uid` names it for other systems; it and the beginning are None if nobody has said
    anything of it.
    """

    entity: str
    scope: Hidden[Scope | None]
    row: Hidden[DescribedEntity | None]
    metadata: tuple[ListedMetadata, ...]

    @property
    def summary(self) -> str:
        """That nothing is said of it, if so."""
        where = f" in the scope {self.scope}" if self.scope else ""
        return "" if self.metadata else f"Nothing is said of {self.entity}{where}."

    def by_scope(self) -> dict[str, Any]:
        """Return the properties and tags in each scope, as JSON."""
        return render_metadata({each.key: each.said for each in self.metadata})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResult:
    """A change of the metadata of an entity: all before and after it, what was added and what is gone."""

    entity: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    additions: Mapping[str, Any]
    deletions: Mapping[str, Any]
    dry_run: bool

    @property
    def is_change(self) -> bool:
        """Whether anything was changed."""
        return bool(self.additions or self.deletions)

    @property
    def sentence(self) -> str:
        """What was changed."""
        said = {"added": _phrase(self.additions), "removed": _phrase(self.deletions)}
        changes = ", ".join(f"{word} {phrase}" for word, phrase in said.items() if phrase)
        without = " (dry run: nothing was changed)" if changes and self.dry_run else ""
        return f"{self.entity}: {changes or 'nothing is different'}{without}"


@shows("change", "seq, recorded_at, author, origin")
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """An earlier change of the metadata of an entity: all before it, what was added and what is gone."""

    change: Hidden[MetadataChange]
    previous: Mapping[str, Any]
    additions: Mapping[str, Any]
    deletions: Mapping[str, Any]

    @property
    def added(self) -> str:
        """What was added, in one line."""
        return _phrase(self.additions)

    @property
    def removed(self) -> str:
        """What is gone, in one line."""
        return _phrase(self.deletions)


def _phrase(said: Mapping[str, Any]) -> str:
    """Return properties and tags in one line: `owner=ann checked`."""
    properties = [f"{name}={value}" for scope in said.values() for name, value in scope["properties"].items()]
    return " ".join([*properties, *(tag for scope in said.values() for tag in scope["tags"])])


def get_metadata(context: OperationContext, path: str, scope: Scope | None = None) -> EntityMetadata:
    """Return the metadata of an entity, maybe in one scope only, with what the record knows of it.

    Raises:
        MetadataRefusedError: this is no path of an entity.
        EntityNotFoundError: it does not exist.
    """
    with context.read() as connection:
        target = find_target(context.plan, connection, path)
        store = MetadataStore(connection)
        entity = store.find(target.path)
        found = store.read(entity.id) if entity is not None else {}
        recorded = find_recorded(connection, context.plan, target)
    for name, value in recorded.items():
        key = MetadataKey(Scope.SYSTEM, MetadataKind.PROPERTY, name)
        found.setdefault(key, MetadataValue(value, Origin.SYSTEM, NOBODY))
    listed = [ListedMetadata(key, found[key]) for key in sorted(found) if scope in (None, key.scope)]
    return EntityMetadata(entity=target.path, scope=scope, row=entity, metadata=tuple(listed))


def update_metadata(
    context: ChangeContext,
    path: str,
    properties: Mapping[str, str],
    tags: Iterable[str],
    *,
    origin: Origin = Origin.PERSON,
) -> MetadataResult:
    """Add properties and tags to an entity, and overwrite properties that are there.

    Raises:
        MetadataRefusedError: a name or value cannot be written, or this is no path of an entity.
        EntityNotFoundError: the entity does not exist.
    """
    named = {MetadataKey(Scope.USER, MetadataKind.PROPERTY, name): value for name, value in properties.items()}
    named |= {MetadataKey(Scope.USER, MetadataKind.TAG, name): "" for name in tags}
    values = {key: MetadataValue(value, origin, context.author) for key, value in named.items()}
    return mutate(context, {path: [Update(values)]}, origin=origin)[0]


def remove_metadata(
    context: ChangeContext, path: str, *, names: Collection[str] | None, kinds: Collection[MetadataKind]
) -> MetadataResult:
    """Remove what people have said of an entity: the named properties or tags, or all of some kinds but for what
    declarations say.

    What is not there is not missed.

    Raises:
        MetadataRefusedError: a declaration says it, or this is no path of an entity.
        EntityNotFoundError: the entity does not exist.
    """
    if names is None:
        removal = Remove(None, [Scope.USER], kinds, [Origin.PERSON, Origin.PROGRAM])
    else:
        removal = Remove([MetadataKey(Scope.USER, kind, name) for kind in kinds for name in names])
    return mutate(context, {path: [removal]})[0]


def list_changes(
    context: OperationContext, path: str, limit: int, scope: Scope | None = None
) -> Sequence[RecordedChange]:
    """Return the newest changes of the metadata of an entity, newest first, maybe in one scope only; also of one that
    is gone.

    Raises:
        MetadataRefusedError: this is no path of an entity.
    """
    with context.read() as connection:
        try:
            path = find_target(context.plan, connection, path).path
        except EntityNotFoundError:
            path = path.strip("/")
        found = (_recorded(each, scope) for each in MetadataStore(connection).iter_changes_of(path))
        return list(islice((each for each in found if scope is None or each.additions or each.deletions), limit))


def _recorded(change: MetadataChange, scope: Scope | None) -> RecordedChange:
    chosen = [each.value for each in Scope if scope in (None, each)]
    before, after = ({name: state[name] for name in chosen if name in state} for state in (change.before, change.after))
    return RecordedChange(change=change, **compare(before, after))


def mutate(
    context: ChangeContext, mutations: Mapping[str, Sequence[Mutation]], *, origin: Origin = Origin.PERSON
) -> tuple[MetadataResult, ...]:
    """Change entities, by path, in one transaction: all of them or, if one is refused, none.

    Several paths of one entity make one change.

    Raises:
        MetadataRefusedError: a name or value cannot be written, a declaration says it, or this is no path of an entity.
        EntityNotFoundError: an entity does not exist.
    """
    with context.database.begin() as connection:
        lock_definitions(connection)
        require_demanded()
        context.timeline.refresh(connection, context.as_of)
        wanted: dict[Target, list[Mutation]] = defaultdict(list)
        for path, of_entity in mutations.items():
            _require_valid(context, path, of_entity)
            wanted[find_target(context.plan, connection, path)] += of_entity
        require_acts(_iter_run_processes(connection, wanted))
        writings = [Writing(target=target, mutations=found, author=context.author) for target, found in wanted.items()]
        done = write_many(connection, writings, origin=origin, now=context.as_of)
        for target, written in zip(wanted, done, strict=True):
            _require_own(context, target, written)
            require_room(target.path, written.before, written.after, "Remove what nobody needs.")
        if context.dry_run:
            connection.rollback()
    return tuple(
        _result(target, written, dry_run=context.dry_run) for target, written in zip(wanted, done, strict=True)
    )


def _result(target: Target, written: Written, *, dry_run: bool) -> MetadataResult:
    after = render_metadata(written.after)
    changed = compare(render_metadata(written.before), after)
    return MetadataResult(
        entity=target.path,
        before=changed["previous"],
        after=after,
        additions=changed["additions"],
        deletions=changed["deletions"],
        dry_run=dry_run,
    )


def _iter_run_processes(connection: Connection, targets: Iterable[Target]) -> Iterator[tuple[str, str]]:
    """Yield the processes of runs: who may act on them says something of a run."""
    for kind, name, *_ in (each.path.split("/") for each in targets):
        if kind == RUN:
            yield from ((Kind.PROCESS.value, each.key.process) for each in Attempts(connection).of_run(name))


def _require_valid(context: OperationContext, path: str, mutations: Iterable[Mutation]) -> None:
    for mutation in mutations:
        for key, each in mutation.values.items() if isinstance(mutation, Update | Create) else ():
            fault = find_fault(key, each.value, is_strict=context.metadata.strict)
            if fault is not None:
                raise MetadataRefusedError(entity=path, reason=fault[0], next_step=fault[1])


def _require_own(context: OperationContext, target: Target, written: Written) -> None:
    """Raise MetadataRefusedError if a person has changed what a declaration says."""
    for key, each in written.before.items():
        if each.origin is Origin.DEFINITION and written.after.get(key) != each:
            refuse_declared(context.plan, target.path, key, "Change it there.")


def find_recorded(connection: Connection, plan: Plan, target: Target) -> dict[str, str]:
    """Return what the record knows of an entity, by the names of SYSTEM properties; empty for most kinds. Nothing of it
    is stored twice: it is read when somebody asks, so that a publication costs nothing more, and an instance that
    retention has removed says so.

    Costs at most four statements, for a feed one for each of its clusters and one more.
    """
    kind, name, *below = target.path.split("/")
    if kind == Kind.FEED and not below:
        found = _iter_feed(connection, plan, name)
    elif target.kind == INSTANCE and target.is_declared:
        time = parse_datetime(below[3], seconds=True)
        is_feed = kind == Kind.FEED
        found = (
            _iter_feed_instance(connection, plan.feeds[name, below[1]], plan, time)
            if is_feed
            else _iter_process_instance(connection, ProcessKey(name, below[1], time))
        )
    else:
        return {}
    return {key: str(value) for key, value in found if value is not None}


def _iter_feed(connection: Connection, plan: Plan, name: str) -> Iterator[tuple[str, object]]:
    instances = FeedInstances(connection)
    clusters = [cluster for feed, cluster in plan.feeds if feed == name]
    keys = [FeedKey(name, on, time) for on in clusters for time in instances.latest_available(name, on, NEVER, 1)]
    if newest := {key.cluster: row for key, row in sorted(instances.get_many(keys).items())}:
        times = {each: render_datetime(row.nominal_time) for each, row in newest.items()}
        yield "newest-instance", by_cluster({each: times.get(each, "none") for each in clusters})
        yield "newest-at", by_cluster({each: _time(newest[each].available_at) for each in newest})


def _iter_feed_instance(
    connection: Connection, record: FeedRecord, plan: Plan, time: datetime
) -> Iterator[tuple[str, object]]:
    row = FeedInstances(connection).get_many([FeedKey(*record.key, time)]).get(FeedKey(*record.key, time))
    if row is None:
        return
    yield "status", row.status.value
    yield "bytes", row.bytes
    yield "files", row.files
    yield "digest", row.manifest_digest
    yield "available-at", _time(row.available_at)
    event = EventLog(connection).of_numbers([row.event_seq]).get(row.event_seq) if row.event_seq is not None else None
    if event is None:
        return
    for name in ("rows", "process", "output", "attempt", "seconds"):
        yield name, event.payload.get(name)
    yield "event", event.kind.value
    run = find_run(event.origin)
    yield ("by", event.origin) if run is None else ("run", run)
    yield from _facts(connection, record, plan, event)


def _facts(connection: Connection, record: FeedRecord, plan: Plan, event: FeedEvent) -> Iterator[tuple[str, object]]:
    """Yield the facts of the attempt that has published an instance."""
    for edge in record.outputs_of:
        if edge.process == event.payload.get("process"):
            for time in plan.writer_times(edge, event.nominal_time, event.maker and event.maker.nominal_time):
                for fact in Facts(connection).of(ProcessKey(*edge.process_key, time)):
                    if fact.attempt == event.payload.get("attempt"):
                        yield f"{fact.category}/{fact.name}", fact.value


def _iter_process_instance(connection: Connection, key: ProcessKey) -> Iterator[tuple[str, object]]:
    row = ProcessInstances(connection).get(*key)
    if row is None:
        return
    yield "status", row.status.value
    yield "reason", row.reason
    yield "attempt", row.attempt or None
    yield "run", row.run_id
    yield "release", row.release
    yield "started-at", _time(row.started_at)
    yield "ended-at", _time(row.ended_at)
    for fact in Facts(connection).of(key):
        yield f"{fact.category}/{fact.name}", fact.value


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else render_datetime(moment.replace(microsecond=0))
