"""Write metadata in the transaction of what they are about: values, tokens for searches, the change, its message."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from feed_assets.entities.metadata import Metadata, Mutation, Origin, decide_mutations
from feed_assets.lifecycle.metadata.tokens import index_entity
from feed_assets.state.audit import Audit
from feed_assets.state.database import lock_definitions, lock_log
from feed_assets.state.definition_records import AuditEntry
from feed_assets.state.metadata_store import MetadataStore
from feed_assets.state.outbox import Outbox
from feed_assets.state.sweep_records import OutboxMessage

TOPIC = "metadata"
"""The topic of the messages about changes."""

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

    Takes the locks of definitions, for what is audited, and of the log, in this order.
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
    change = store.append_change(target.path, author, origin, now, before, after)
    if after or target.is_declared:
        store.write(entity.id, before, after, now)
        tokens = index_entity(target.path, target.kind, target.name, after)
        store.write_tokens(entity.id, store.tokens_of(entity.id), tokens)
    else:
        store.remove(entity.id)
    changed = compare(change.before, change.after)
    said = {"entity": target.path, "author": author, "origin": origin.value, **changed}
    message = OutboxMessage(topic=TOPIC, recorded_at=now, payload=said, idempotency_key=f"{TOPIC}:{change.seq}")
    Outbox(connection).append_many([message])
    if origin in _AUDITED:
        entry = AuditEntry(recorded_at=now, author=author, action=TOPIC, target=target.path, details=changed)
        Audit(connection).append(entry)
    return written


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change between two states of `render_metadata`: what was there, what was added and what is gone. A value
    that was overwritten is among both.

    >>> change = compare({"USER": {"properties": {"a": "1"}, "tags": []}}, {"USER": {"properties": {}, "tags": ["b"]}})
    >>> change["additions"], change["deletions"]
    ({'USER': {'properties': {}, 'tags': ['b']}}, {'USER': {'properties': {'a': '1'}, 'tags': []}})
    """
    return {"previous": before, "additions": _subtract(after, before), "deletions": _subtract(before, after)}


def _subtract(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for scope, said in one.items():
        known = other.get(scope, {"properties": {}, "tags": []})
        properties = {
            name: value for name, value in said["properties"].items() if known["properties"].get(name) != value
        }
        tags = [tag for tag in said["tags"] if tag not in known["tags"]]
        if properties or tags:
            found[scope] = {"properties": properties, "tags": tags}
    return found
