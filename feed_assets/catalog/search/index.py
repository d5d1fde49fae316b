"""Find described entities by their tokens: a page at a time, by how well they match, by name or by age."""

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import ColumnElement, Subquery, and_, func, select, true

from feed_assets.catalog.search.records import PROPERTIES_FIELD, Hit, PropertyName, PropertyValue, SearchFilter
from feed_assets.catalog.search.statements import (
    ENTITIES,
    LAST,
    LIMIT,
    OFFSET,
    build_count,
    build_fields,
    build_page,
    find_shape,
    is_in,
)
from feed_assets.catalog.tables import entity_metadata, metadata_entities, search_tokens
from feed_assets.entities.metadata import MetadataKind, Scope
from feed_assets.sql.rows import TableStore

_E = metadata_entities.c
_M = entity_metadata.c
_T = search_tokens.c


class SearchIndex(TableStore):
    """The index as one transaction sees it."""

    def find(self, chosen: SearchFilter, limit: int, offset: int) -> list[Hit]:
        """Return a page of entities."""
        shape, words = find_shape(chosen)
        rows = self._connection.execute(build_page(shape), {**words, LIMIT: limit, OFFSET: offset})
        return [Hit(*row) for row in rows]

    def count(self, chosen: SearchFilter) -> int:
        """Return how many entities there are, before `after` and behind it."""
        shape, words = find_shape(replace(chosen, after=None))
        return self._connection.scalar(build_count(shape), words) or 0

    def fields_of(self, chosen: SearchFilter, entities: Collection[int]) -> dict[int, list[str]]:
        """Return the fields in which entities meet the terms."""
        found: dict[int, list[str]] = {}
        if chosen.terms and entities:
            shape, words = find_shape(SearchFilter(terms=chosen.terms, scope=chosen.scope))
            for entity, name in self._connection.execute(build_fields(shape), {**words, ENTITIES: sorted(entities)}):
                found.setdefault(entity, []).append(name)
        return found

    def count_keys(self, beginning: str, scope: Scope | None, limit: int) -> list[PropertyName]:
        """Return the names of properties, in small letters, that begin so, and how many entities have each; hidden ones
        are not counted.
        """
        in_range = _T.token.between(beginning, beginning + LAST) if beginning else true()
        is_key = and_(_T.field == PROPERTIES_FIELD, in_range, is_in(scope), _IS_SHOWN)
        statement = select(_T.token, func.count(_T.entity.distinct())).where(is_key)
        rows = self._connection.execute(statement.group_by(_T.token).order_by(_T.token).limit(limit))
        return [PropertyName(name=name, entities=count) for name, count in rows]

    def values_of(self, key: str, scope: Scope | None, limit: int, most: int) -> tuple[PropertyValue, ...]:
        """Return the values of a property, those of most entities first, with their number and the paths of some. The
        key is in small letters; hidden entities are left out.
        """
        said = _said_of(key, scope)
        count: ColumnElement[int] = func.count()
        counts = select(said.c.value, count).group_by(said.c.value).order_by(count.desc(), said.c.value).limit(limit)
        found: dict[str, tuple[int, list[str]]] = {value: (n, []) for value, n in self._connection.execute(counts)}
        rank = func.row_number().over(partition_by=said.c.value, order_by=said.c.path).label("rank")
        ranked = select(said.c.value, said.c.path, rank).where(said.c.value.in_(list(found))).subquery("ranked")
        some = select(ranked.c.value, ranked.c.path).where(ranked.c.rank <= most).order_by(ranked.c.rank)
        for value, path in self._connection.execute(some):
            found[value][1].append(path)
        return tuple(PropertyValue(value=value, count=n, entities=tuple(paths)) for value, (n, paths) in found.items())

    def count_values(self, key: str, scope: Scope | None) -> tuple[int, int]:
        """Return how many entities have a property, and how many values it has."""
        said = _said_of(key, scope)
        entities, values = func.count(said.c.path.distinct()), func.count(said.c.value.distinct())
        found, different = self._connection.execute(select(entities, values)).one()
        return found, different


_IS_SHOWN = _T.entity.not_in(select(_E.id).where(_E.hidden))


def _said_of(key: str, scope: Scope | None) -> Subquery:
    """Return the values and paths of the entities that have a property."""
    is_said = and_(
        _M.entity == _T.entity,
        _M.scope == _T.scope,
        _M.kind == MetadataKind.PROPERTY,
        func.lower(_M.name) == _T.token,
    )
    said = select(_M.value, _E.path).select_from(search_tokens).join(entity_metadata, is_said)
    said = said.join(metadata_entities, _E.id == _T.entity)
    is_key = and_(_T.token == key, _T.field == PROPERTIES_FIELD, is_in(scope), _E.hidden.is_(False))
    return said.where(is_key).distinct().subquery("said")
