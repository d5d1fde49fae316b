"""Store metadata of entities, and each change of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Column, ColumnElement, and_, bindparam, delete, func, select, update

from feed_assets.catalog.tables import entity_metadata, metadata_changes, metadata_entities, search_tokens
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import Metadata, MetadataKey, MetadataKind, MetadataValue, Origin, Scope
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import MetadataPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.sql.database import lock_log
from feed_assets.sql.rows import (
    KEY_ROWS,
    RowMapper,
    TableStore,
    has_key,
    insert_rows,
    key_parameters,
    key_rows,
    render_rows,
    select_keys,
)

REVISION = "metadata/revision"
"""The cursor that a person's change of what Dagster shows moves on."""

SHOWN = ("feed", "process", "column")
"""The kinds of entities of which Dagster shows what people say."""

_KINDS_BELOW = ("column", "instance", "run")
"""What stands below declared entities, and runs; people describe other kinds, too."""

_E = metadata_entities.c
_M = entity_metadata.c
_C = metadata_changes.c
_T = search_tokens.c


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedEntity:
    """An entity that has metadata. `uid` is its name for other systems, which a new name does not change."""

    id: int
    uid: str
    path: str
    kind: str
    name: str
    hidden: bool
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """A change of the metadata of an entity; `before` and `after` as `render_metadata` has them."""

    seq: int
    path: str
    author: str
    origin: Origin
    recorded_at: datetime
    before: Mapping[str, Any]
    after: Mapping[str, Any]


class DecidedChange(NamedTuple):
    """A change of the metadata of an entity that is to be recorded."""

    path: str
    author: str
    origin: Origin
    before: Metadata
    after: Metadata


class Token(NamedTuple):
    """A word or a whole text by which an entity is found, the field that has it, and how much that weighs; the number
    that it is, if it can be compared.
    """

    token: str
    field: str
    scope: Scope
    weight: int
    number: float | None = None


_ENTITIES = RowMapper(metadata_entities, DescribedEntity)
_CHANGES = RowMapper(metadata_changes, MetadataChange)
_METADATA_KEY = ("entity", "scope", "kind", "name")
_METADATA_COLUMNS = ("entity", *MetadataKey._fields, *MetadataValue._fields, "updated_at")
_TOKEN_COLUMNS = ("entity", *Token._fields)
_TOKEN_KEY = ("token", "field", "scope", "entity")


def render_metadata(metadata: Metadata) -> dict[str, Any]:
    """Return metadata as JSON: properties and tags of each scope that has any."""
    found: dict[str, Any] = {}
    for key in sorted(metadata):
        of_scope = found.setdefault(key.scope.value, {"properties": {}, "tags": []})
        if key.kind is MetadataKind.TAG:
            of_scope["tags"].append(key.name)
        else:
            of_scope["properties"][key.name] = metadata[key].value
    return found


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


class MetadataStore(TableStore):
    """Metadata as one transaction sees them."""

    def find(self, path: str) -> DescribedEntity | None:
        """Return a described entity by its path; None if nobody has described it."""
        return self.find_many([path]).get(path)

    def find_many(self, paths: Collection[str]) -> dict[str, DescribedEntity]:
        """Return described entities by their paths."""
        found = _ENTITIES.of_keys(self._connection, ("path",), [(path,) for path in paths])
        return {each.path: each for each in found}

    def of_ids(self, ids: Collection[int]) -> dict[int, DescribedEntity]:
        """Return described entities by their numbers."""
        found = _ENTITIES.find(self._connection, _ENTITIES.select.where(_E.id.in_(sorted(ids))))
        return {each.id: each for each in found}

    def ids_after(self, last: int, limit: int) -> list[int]:
        """Return the next numbers of described entities, in order."""
        return list(self._connection.scalars(select(_E.id).where(_E.id > last).order_by(_E.id).limit(limit)))

    def count(self) -> int:
        """Return how many entities are described."""
        return self._connection.scalar(select(func.count()).select_from(metadata_entities)) or 0

    def count_orphans(self) -> int:
        """Return how many rows of metadata and of the index belong to no described entity."""
        return sum(
            self._connection.scalar(select(func.count()).select_from(each.table).where(_is_orphan(each))) or 0
            for each in (_M.entity, _T.entity)
        )

    def remove_orphans(self) -> None:
        """Remove the rows of metadata and of the index that belong to no described entity."""
        for each in (_M.entity, _T.entity):
            self._connection.execute(delete(each.table).where(_is_orphan(each)))

    def described(self) -> dict[str, str]:
        """Return the digests of the descriptions of declared entities, by path."""
        rows = self._connection.execute(select(_E.path, _E.described).where(_E.described.is_not(None)))
        return {row.path: row.described for row in rows}

    def set_described(self, digests: Mapping[str, str]) -> None:
        """Record the digests of the descriptions of declared entities, by path."""
        if digests:
            statement = update(metadata_entities).where(_E.path == bindparam("of_path"))
            parameters = [{"of_path": path, "digest": digest} for path, digest in digests.items()]
            self._connection.execute(statement.values(described=bindparam("digest")), parameters)

    def forget(self, paths: Iterable[str], author: str, now: datetime) -> None:
        """Remove entities that are not declared any more, and what is below them; this is the last of their changes."""
        gone = {each.id: each for path in paths for each in self.below(path)}
        if not gone:
            return
        lock_log(self._connection)
        said = self.read_many(gone).items()
        changes = [DecidedChange(gone[each].path, author, Origin.DEFINITION, before, {}) for each, before in said]
        self.append_changes(changes, now)
        self.remove(gone)

    def all(self, kinds: Collection[str] = ()) -> list[DescribedEntity]:
        """Return all described entities, or those of some kinds, in the order of their paths."""
        chosen = _ENTITIES.select.where(_E.kind.in_(sorted(kinds))) if kinds else _ENTITIES.select
        return _ENTITIES.find(self._connection, chosen.order_by(_E.path))

    def require_kinds(self, kinds: Iterable[str]) -> frozenset[str]:
        """Return kinds of entities in small letters. As in CDAP, a kind that nothing can have is ignored beside others.

        Raises:
            MetadataRefusedError: nothing can have any of them.
        """
        small = frozenset(kind.strip().lower() for kind in kinds)
        known = {*Kind, *_KINDS_BELOW, *self._connection.scalars(select(_E.kind).distinct())} if small else small
        if small and small.isdisjoint(known):
            named, listed = ", ".join(sorted(small)), ", ".join(sorted(known))
            raise MetadataRefusedError(
                entity=f"kind {named!r}", reason="nothing has it", next_step=f"Kinds are {listed}."
            )
        return small

    def below(self, path: str) -> list[DescribedEntity]:
        """Return an entity and those whose path goes on behind its own, such as its columns."""
        is_below = and_(_E.path > f"{path}/", _E.path < f"{path}0")  # "0" comes after "/"
        return _ENTITIES.find(self._connection, _ENTITIES.select.where((_E.path == path) | is_below))

    def ids_of(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the ids for other systems of described entities, by path."""
        rows = select_keys(
            self._connection, metadata_entities, ("path",), (_E.path, _E.uid), [(path,) for path in paths]
        )
        return {row.path: row.uid for row in rows}

    def paths_of(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the paths of described entities, by their ids for other systems."""
        rows = select_keys(self._connection, metadata_entities, ("uid",), (_E.uid, _E.path), [(uid,) for uid in ids])
        return {row.uid: row.path for row in rows}

    def add(
        self, entities: Sequence[tuple[str, str, str, str]], now: datetime, ids: Mapping[str, str] = EMPTY
    ) -> dict[str, DescribedEntity]:
        """Add entities that nobody has described yet: path, kind, name and author of each; return them by path.

        `ids` are those that some of them have elsewhere, by path.
        """
        if not entities:
            return {}
        first = (self._connection.scalar(select(func.max(_E.id))) or 0) + 1
        added = [
            DescribedEntity(
                id=number,
                uid=ids.get(path) or str(uuid4()),
                path=path,
                kind=kind,
                name=name,
                hidden=name.startswith("_"),
                created_at=now,
                created_by=author,
            )
            for number, (path, kind, name, author) in enumerate(entities, first)
        ]
        _ENTITIES.insert(self._connection, added)
        return {each.path: each for each in added}

    def remove(self, entities: Collection[int]) -> None:
        """Remove entities with their metadata and tokens; their changes stay."""
        if entities:
            parameters = [{"number": each} for each in entities]
            for table, column in ((search_tokens, _T.entity), (entity_metadata, _M.entity), (metadata_entities, _E.id)):
                self._connection.execute(delete(table).where(column == bindparam("number")), parameters)

    def read(self, entity: int) -> dict[MetadataKey, MetadataValue]:
        """Return the metadata of an entity."""
        return self.read_many([entity]).get(entity, {})

    def read_many(self, entities: Collection[int]) -> dict[int, dict[MetadataKey, MetadataValue]]:
        """Return the metadata of entities; those without any are left out."""
        columns = (_M.entity, _M.scope, _M.kind, _M.name, _M.value, _M.origin, _M.author)
        found: dict[int, dict[MetadataKey, MetadataValue]] = {}
        for entity, scope, kind, name, value, origin, author in self._of(entities, _M.entity, columns):
            found.setdefault(entity, {})[MetadataKey(scope, kind, name)] = MetadataValue(value, origin, author)
        return found

    def said_beside_files(self, kinds: Collection[str] = SHOWN) -> dict[str, dict[MetadataKey, str]]:
        """Return what people and programs say of entities, by path: of those that Dagster shows, or of other kinds."""
        columns = (_E.path, _M.scope, _M.kind, _M.name, _M.value)
        is_theirs = and_(_M.scope == Scope.USER, _M.origin != Origin.DEFINITION, _E.kind.in_(sorted(kinds)))
        statement = select(*columns).join_from(entity_metadata, metadata_entities, _M.entity == _E.id).where(is_theirs)
        found: dict[str, dict[MetadataKey, str]] = {}
        for path, scope, kind, name, value in self._connection.execute(statement):
            found.setdefault(path, {})[MetadataKey(scope, kind, name)] = value
        return found

    def write(self, changes: Iterable[tuple[int, Metadata, Metadata]], now: datetime) -> None:
        """Write what differs between two states of each entity."""
        gone, new = [], []
        for entity, before, after in changes:
            gone += [key_parameters(_METADATA_KEY, (entity, *key)) for key in before if key not in after]
            new += [(entity, *key, *value, now) for key, value in after.items() if before.get(key) != value]
        if gone:
            self._connection.execute(delete(entity_metadata).where(has_key(entity_metadata, _METADATA_KEY)), gone)
        insert_rows(self._connection, entity_metadata, _METADATA_COLUMNS, new, replaces=True)

    def write_tokens(self, changes: Iterable[tuple[int, Set[Token], Set[Token]]]) -> None:
        """Write the tokens that differ between two states of each entity."""
        gone, new = [], []
        for entity, before, after in changes:
            gone += [key_parameters(_TOKEN_KEY, (*each[:3], entity)) for each in before - after]
            new += [(entity, *each) for each in after - before]
        if gone:
            self._connection.execute(delete(search_tokens).where(has_key(search_tokens, _TOKEN_KEY)), gone)
        insert_rows(self._connection, search_tokens, _TOKEN_COLUMNS, new)

    def tokens_of(self, entities: Collection[int]) -> dict[int, set[Token]]:
        """Return the tokens of entities; those without any are left out."""
        columns = (_T.entity, _T.token, _T.field, _T.scope, _T.weight, _T.number)
        found: dict[int, set[Token]] = {}
        for entity, *token in self._of(entities, _T.entity, columns):
            found.setdefault(entity, set()).add(Token(*token))
        return found

    def append_changes(self, changes: Sequence[DecidedChange], now: datetime) -> list[MetadataChange]:
        """Record changes, and the message about each; return them with their numbers."""
        if not changes:
            return []
        first = self.last_change() + 1
        recorded = [
            MetadataChange(
                seq=seq,
                path=each.path,
                author=each.author,
                origin=each.origin,
                recorded_at=now,
                before=render_metadata(each.before),
                after=render_metadata(each.after),
            )
            for seq, each in enumerate(changes, first)
        ]
        _CHANGES.insert(self._connection, recorded)
        Outbox(self._connection).append_many([_message_of(each) for each in recorded])
        return recorded

    def last_change(self) -> int:
        """Return the number of the newest change; 0 before the first."""
        return self._connection.scalar(select(func.max(_C.seq))) or 0

    def said_then(self, asked: Collection[tuple[str, int]]) -> dict[tuple[str, int], Mapping[str, Any]]:
        """Return what was said of entities after the changes with some numbers, as `render_metadata` has it; by path
        and number, of those of which something was said.
        """
        wanted = key_rows(self._dialect, ("path", "seq"))
        its = (wanted.c.path, wanted.c.seq)
        newest = select(*its, func.max(_C.seq).label("last")).where(_C.path == its[0], _C.seq <= its[1])
        found = newest.group_by(*its).subquery()
        columns = (found.c.path, found.c.seq, _C.after)
        statement = select(*columns).join_from(found, metadata_changes, _C.seq == found.c.last)
        rows = self._connection.execute(statement, {KEY_ROWS: render_rows(asked)}) if asked else ()
        return {(path, seq): after for path, seq, after in rows if after}

    def iter_changes_of(self, path: str) -> Iterator[MetadataChange]:
        """Yield the changes of an entity, newest first."""
        statement = _CHANGES.select.where(_C.path == path).order_by(_C.seq.desc())
        yield from map(_CHANGES.load, self._connection.execute(statement))

    def _of(self, entities: Collection[int], column: Column[Any], columns: Sequence[Column[Any]]) -> Iterator[Any]:
        """Yield columns of the rows that have one of the entities in a column."""
        wanted = key_rows(self._dialect, ("id",))
        statement = select(*columns).join_from(wanted, column.table, column == wanted.c.id)
        yield from self._connection.execute(statement, {KEY_ROWS: render_rows([each] for each in entities)})


def _is_orphan(column: Column[Any]) -> ColumnElement[bool]:
    return column.not_in(select(_E.id))


def _message_of(change: MetadataChange) -> OutboxMessage:
    payload = MetadataPayload(
        entity=change.path, author=change.author, origin=change.origin, **compare(change.before, change.after)
    )
    return OutboxMessage(
        recorded_at=change.recorded_at, payload=payload, idempotency_key=f"{payload.topic}:{change.seq}"
    )
