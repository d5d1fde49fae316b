"""Write metadata in the transaction of what they are about: values, tokens for searches, the change, its message."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.metadata import Metadata, Mutation, Origin, decide_mutations
from feed_assets.lifecycle.metadata.tokens import index_entity
from feed_assets.state.audit import Audit
from feed_assets.state.cursors import Cursors
from feed_assets.state.database import lock_definitions, lock_log
from feed_assets.state.definition_records import AuditEntry
from feed_assets.state.metadata_store import REVISION, SHOWN, TOPIC, MetadataStore, compare

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


def write_metadata(
    connection: Connection, target: Target, mutations: Iterable[Mutation], *, author: str, origin: Origin, now: datetime
) -> Written:
    """Change the metadata of an entity; a change that changes nothing is no change.

    If this program changes what declarations say, the change is by definition. Takes the locks of definitions, for what
    is audited, and of the log, in this order.
    """
    if origin in _AUDITED:
        lock_definitions(connection)
    lock_log(connection)
    store = MetadataStore(connection)
    entity = store.find(target.path)
    before = store.read(entity.id) if entity is not None else {}
    after = decide_mutations(before, mutations)
    written = Written(before=before, after=after)
    if after == before:
        return written
    if entity is None:
        is_hidden = target.name.startswith("_")
        entity = store.add(target.path, target.kind, target.name, author, now, hidden=is_hidden)
    if origin is Origin.SYSTEM and _declared(before) != _declared(after):
        origin = Origin.DEFINITION
    change = store.append_change(target.path, author, origin, now, before, after)
    if after or target.is_declared:
        store.write(entity.id, before, after, now)
        tokens = index_entity(target.path, target.kind, target.name, after, is_declared=target.is_declared)
        store.write_tokens(entity.id, store.tokens_of(entity.id), tokens)
    else:
        store.remove(entity.id)
    if origin is Origin.PERSON and target.kind in SHOWN:
        Cursors(connection).advance(REVISION)
    if origin in _AUDITED:
        changed = compare(change.before, change.after)
        entry = AuditEntry(recorded_at=now, author=author, action=TOPIC, target=target.path, details=changed)
        Audit(connection).append(entry)
    return written


def _declared(metadata: Metadata) -> Metadata:
    return {key: each for key, each in metadata.items() if each.origin is Origin.DEFINITION}
