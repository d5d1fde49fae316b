"""Write metadata in the transaction of what they are about: values, tokens for searches, the change, its message."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.catalog.search.tokens import index_entity
from feed_assets.catalog.store import REVISION, SHOWN, DecidedChange, DescribedEntity, MetadataStore, compare
from feed_assets.entities.metadata import Metadata, Mutation, Origin, decide_mutations
from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.sql.database import lock_definitions, lock_log

METADATA = "metadata"
"""The action in the audit that stands for a change of metadata."""

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
    """Mutations of the metadata of one entity, and their author."""

    target: Target
    mutations: Sequence[Mutation]
    author: str


def write_metadata(
    connection: Connection, target: Target, mutations: Iterable[Mutation], *, author: str, origin: Origin, now: datetime
) -> Written:
    """Change the metadata of an entity, as `write_many`."""
    writing = Writing(target=target, mutations=tuple(mutations), author=author)
    return write_many(connection, [writing], origin=origin, now=now)[0]


def write_many(connection: Connection, writings: Sequence[Writing], *, origin: Origin, now: datetime) -> list[Written]:
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
            changed.append((each, written))
    new = [each for each, _ in changed if each.target.path not in known]
    known |= store.add([(each.target.path, each.target.kind, each.target.name, each.author) for each in new], now)
    _write(store, known, changed, now)
    _record(connection, store, changed, origin, now)
    if origin is Origin.PERSON and any(each.target.kind in SHOWN for each, _ in changed):
        Cursors(connection).advance(REVISION)
    return done


def _write(
    store: MetadataStore,
    known: Mapping[str, DescribedEntity],
    changed: Sequence[tuple[Writing, Written]],
    now: datetime,
) -> None:
    """Write what differs, with the tokens; what nobody describes any more, and is not declared, is gone."""
    found = [
        (known[each.target.path], each.target.is_declared or bool(written.after), written) for each, written in changed
    ]
    kept = {entity.id: (entity, written) for entity, stays, written in found if stays}
    store.remove([entity.id for entity, stays, _ in found if not stays])
    store.write([(number, written.before, written.after) for number, (_, written) in kept.items()], now)
    tokens = store.tokens_of(kept)
    store.write_tokens(
        (number, tokens.get(number, set()), index_entity(entity.path, entity.kind, entity.name, written.after))
        for number, (entity, written) in kept.items()
    )


def _record(
    connection: Connection,
    store: MetadataStore,
    changed: Sequence[tuple[Writing, Written]],
    origin: Origin,
    now: datetime,
) -> None:
    decided = [
        DecidedChange(each.target.path, each.author, _origin_of(written, origin), written.before, written.after)
        for each, written in changed
    ]
    entries = [
        AuditEntry(
            recorded_at=now,
            author=each.author,
            action=METADATA,
            target=each.path,
            details=compare(each.before, each.after),
        )
        for each in store.append_changes(decided, now)
        if each.origin in _AUDITED
    ]
    if entries:
        Audit(connection).append_many(entries)


def _origin_of(written: Written, origin: Origin) -> Origin:
    is_declared = origin is Origin.SYSTEM and _declared(written.before) != _declared(written.after)
    return Origin.DEFINITION if is_declared else origin


def _declared(metadata: Metadata) -> Metadata:
    return {key: each for key, each in metadata.items() if each.origin is Origin.DEFINITION}
