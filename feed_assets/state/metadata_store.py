"""Store metadata of entities, and each change of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from feed_assets.entities.metadata import Metadata, MetadataKey, MetadataKind, MetadataValue, Origin, Scope
from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows, select_keyed
from feed_assets.state.metadata_schema import entity_metadata, metadata_changes, metadata_entities, search_tokens
from feed_assets.state.rows import RowMapper
from feed_assets.state.upserts import build_upsert

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


class MetadataStore:
    """Metadata as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, path: str) -> DescribedEntity | None:
        """Return a described entity by its path; None if nobody has described it."""
        return _ENTITIES.find_one(self._connection, _ENTITIES.select.where(_E.path == path))

    def of_ids(self, ids: Collection[int]) -> dict[int, DescribedEntity]:
        """Return described entities by their numbers."""
        found = _ENTITIES.find(self._connection, _ENTITIES.select.where(_E.id.in_(sorted(ids))))
        return {each.id: each for each in found}

    def described(self) -> dict[str, str]:
        """Return the digests of the descriptions of declared entities, by path."""
        rows = self._connection.execute(select(_E.path, _E.described).where(_E.described.is_not(None)))
        return {row.path: row.described for row in rows}

    def set_described(self, path: str, digest: str) -> None:
        """Record the digest of the description of a declared entity."""
        self._connection.execute(update(metadata_entities).where(_E.path == path).values(described=digest))

    def forget(self, path: str) -> None:
        """Remove an entity that is not declared any more, and what is below it."""
        for each in self.below(path):
            self.remove(each.id)

    def all(self, kinds: Collection[str] = ()) -> list[DescribedEntity]:
        """Return all described entities, or those of some kinds, in the order of their paths."""
        chosen = _ENTITIES.select.where(_E.kind.in_(sorted(kinds))) if kinds else _ENTITIES.select
        return _ENTITIES.find(self._connection, chosen.order_by(_E.path))

    def below(self, path: str) -> list[DescribedEntity]:
        """Return an entity and those whose path goes on behind its own, such as its columns."""
        is_below = and_(_E.path > f"{path}/", _E.path < f"{path}0")  # "0" comes after "/"
        return _ENTITIES.find(self._connection, _ENTITIES.select.where((_E.path == path) | is_below))

    def ids_of(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the ids for other systems of described entities, by path."""
        statement = select_keyed(self._connection.dialect.name, metadata_entities, ("path",), (_E.path, _E.uid))
        rows = self._connection.execute(statement, {KEY_ROWS: render_rows([path] for path in paths)})
        return {row.path: row.uid for row in rows}

    def paths_of(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the paths of described entities, by their ids for other systems."""
        statement = select_keyed(self._connection.dialect.name, metadata_entities, ("uid",), (_E.uid, _E.path))
        rows = self._connection.execute(statement, {KEY_ROWS: render_rows([uid] for uid in ids)})
        return {row.uid: row.path for row in rows}

    def add(
        self,
        path: str,
        kind: str,
        name: str,
        author: str,
        now: datetime,
        *,
        hidden: bool,
        uid: str | None = None,
    ) -> DescribedEntity:
        """Add an entity, which nobody has described yet, with an id that it has elsewhere or with a new one."""
        number = (self._connection.scalar(select(func.max(_E.id))) or 0) + 1
        entity = DescribedEntity(
            id=number,
            uid=uid or str(uuid4()),
            path=path,
            kind=kind,
            name=name,
            hidden=hidden,
            created_at=now,
            created_by=author,
        )
        self._connection.execute(insert(metadata_entities), _ENTITIES.values(entity))
        return entity

    def remove(self, entity: int) -> None:
        """Remove an entity with its metadata and tokens; its changes stay."""
        for table, column in ((search_tokens, _T.entity), (entity_metadata, _M.entity), (metadata_entities, _E.id)):
            self._connection.execute(delete(table).where(column == entity))

    def read(self, entity: int) -> dict[MetadataKey, MetadataValue]:
        """Return the metadata of an entity."""
        return self.read_many([entity]).get(entity, {})

    def read_many(self, entities: Collection[int]) -> dict[int, dict[MetadataKey, MetadataValue]]:
        """Return the metadata of entities; those without any are left out."""
        columns = (_M.entity, _M.scope, _M.kind, _M.name, _M.value, _M.origin, _M.author)
        found: dict[int, dict[MetadataKey, MetadataValue]] = {}
        wanted = key_rows(self._connection.dialect.name, ("id",))
        statement = select(*columns).join_from(wanted, entity_metadata, _M.entity == wanted.c.id)
        rows = self._connection.execute(statement, {KEY_ROWS: render_rows([each] for each in entities)})
        for entity, scope, kind, name, value, origin, author in rows:
            found.setdefault(entity, {})[MetadataKey(scope, kind, name)] = MetadataValue(value, origin, author)
        return found

    def write(self, entity: int, before: Metadata, after: Metadata, now: datetime) -> None:
        """Write what differs between two states of an entity."""
        gone = [key for key in before if key not in after]
        if gone:
            is_gone = and_(
                _M.entity == entity,
                _M.scope == bindparam("of_scope"),
                _M.kind == bindparam("of_kind"),
                _M.name == bindparam("of_name"),
            )
            parameters = [{"of_scope": key.scope, "of_kind": key.kind, "of_name": key.name} for key in gone]
            self._connection.execute(delete(entity_metadata).where(is_gone), parameters)
        new = [
            {
                "entity": entity,
                **key._asdict(),
                **value._asdict(),
                "updated_at": now,
            }
            for key, value in after.items()
            if before.get(key) != value
        ]
        if new:
            self._connection.execute(build_upsert(self._connection.dialect.name, entity_metadata), new)

    def write_tokens(self, entity: int, before: Iterable[Token], after: Iterable[Token]) -> None:
        """Write the tokens that differ."""
        old, new = set(before), set(after)
        gone = [{"of_token": each.token, "of_field": each.field, "of_scope": each.scope} for each in old - new]
        if gone:
            is_gone = and_(
                _T.token == bindparam("of_token"),
                _T.field == bindparam("of_field"),
                _T.scope == bindparam("of_scope"),
                _T.entity == entity,
            )
            self._connection.execute(delete(search_tokens).where(is_gone), gone)
        rows = [{**each._asdict(), "entity": entity} for each in new - old]
        if rows:
            self._connection.execute(insert(search_tokens), rows)

    def tokens_of(self, entity: int) -> set[Token]:
        """Return the tokens of an entity."""
        statement = select(_T.token, _T.field, _T.scope, _T.weight, _T.number).where(_T.entity == entity)
        return {Token(*row) for row in self._connection.execute(statement)}

    def append_change(
        self, path: str, author: str, origin: Origin, now: datetime, before: Metadata, after: Metadata
    ) -> MetadataChange:
        """Record a change; return it with its number."""
        seq = (self._connection.scalar(select(func.max(_C.seq))) or 0) + 1
        change = MetadataChange(
            seq=seq,
            path=path,
            author=author,
            origin=origin,
            recorded_at=now,
            before=render_metadata(before),
            after=render_metadata(after),
        )
        self._connection.execute(insert(metadata_changes), _CHANGES.values(change))
        return change

    def iter_changes_of(self, path: str) -> Iterator[MetadataChange]:
        """Yield the changes of an entity, newest first."""
        statement = _CHANGES.select.where(_C.path == path).order_by(_C.seq.desc())
        yield from map(_CHANGES.load, self._connection.execute(statement))
