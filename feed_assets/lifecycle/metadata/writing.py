"""Write metadata in the transaction of what they are about: values, tokens for searches, the change, its message."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.metadata import Metadata, Mutation, Origin, decide_mutations
from feed_assets.lifecycle.metadata.tokens import index_entity
from feed_assets.state.audit import Audit
from feed_assets.state.database import lock_definitions, lock_log
from feed_assets.state.definition_records import AuditEntry
from feed_assets.state.metadata_store import TOPIC, DecidedChange, MetadataStore, compare

_AUDITED = (Origin.PERSON, Origin.DEFINITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An entity that metadata describe. One that is not `is_declared` is there because somebody describes it."""

    path: str
    kind: str
    name: str
    is_declared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The metadata of an entity before and after mutations."""

    before: Metadata
    after: Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Mutations of the metadata of one entity."""

    target: Target
    mutations: Sequence[Mutation]


def write_metadata(
    connection: Connection, target: Target, mutations: Iterable[Mutation], *, author: str, origin: Origin, now: datetime
) -> Written:
    """Change the metadata of an entity, as `write_many`."""
    writing = Writing(target=target, mutations=tuple(mutations))
    return write_many(connection, [writing], author=author, origin=origin, now=now)[0]


def write_many(
    connection: Connection, writings: Sequence[Writing], *, author: str, origin: Origin, now: datetime
) -> list[Written]:
    """Change the metadata of entities, each of them once; a change that changes nothing is no change.

    If this program changes what declarations say, the change is by definition. Takes the locks of definitions, for what
    is audited, and of the log, in this order. The number of statements does not depend on that of entities.
    """
    if origin in _AUDITED:
        lock_definitions(connection)
    lock_log(connection)
    store = MetadataStore(connection)
    known = store.find_many([each.target.path for each in writings])
    said = store.read_many([each.id for each in known.values()])
    done, changed = [], []
    for each in writings:
        entity = known.get(each.target.path)
        before = said.get(entity.id, {}) if entity is not None else {}
        written = Written(before=before, after=decide_mutations(before, each.mutations))
        done.append(written)
        if written.after != written.before:
            changed.append((each.target, written))
    new = [target for target, _ in changed if target.path not in known]
    known |= store.add([(target.path, target.kind, target.name) for target in new], author, now)
    _write(store, {path: entity.id for path, entity in known.items()}, changed, now)
    _record(connection, store, changed, author, origin, now)
    return done


def _write(
    store: MetadataStore, ids: Mapping[str, int], changed: Sequence[tuple[Target, Written]], now: datetime
) -> None:
    """Write what differs, with the tokens; what nobody describes any more, and is not declared, is gone."""
    kept = [(target, each) for target, each in changed if each.after or target.is_declared]
    store.remove([ids[target.path] for target, each in changed if not each.after and not target.is_declared])
    store.write(((ids[target.path], each.before, each.after) for target, each in kept), now)
    tokens = store.tokens_of([ids[target.path] for target, _ in kept])
    store.write_tokens(
        (
            ids[target.path],
            tokens.get(ids[target.path], set()),
            index_entity(target.path, target.kind, target.name, each.after),
        )
        for target, each in kept
    )


def _record(
    connection: Connection,
    store: MetadataStore,
    changed: Sequence[tuple[Target, Written]],
    author: str,
    origin: Origin,
    now: datetime,
) -> None:
    decided = [
        DecidedChange(target.path, _origin_of(each, origin), each.before, each.after) for target, each in changed
    ]
    entries = [
        AuditEntry(
            recorded_at=now,
            author=author,
            action=TOPIC,
            target=each.path,
            details=compare(each.before, each.after),
        )
        for each in store.append_changes(decided, author, now)
        if each.origin in _AUDITED
    ]
    if entries:
        Audit(connection).append_many(entries)


def _origin_of(written: Written, origin: Origin) -> Origin:
    is_declared = origin is Origin.SYSTEM and _declared(written.before) != _declared(written.after)
    return Origin.DEFINITION if is_declared else origin


def _declared(metadata: Metadata) -> Metadata:
    return {key: each for key, each in metadata.items() if each.origin is Origin.DEFINITION}
