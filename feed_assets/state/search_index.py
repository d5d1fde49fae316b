"""Find described entities by their tokens: a page at a time, by how well they match, by name or by age."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Subquery,
    and_,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    union_all,
)

from feed_assets.entities.metadata import MetadataKind, Scope
from feed_assets.state.metadata_schema import HAS_NUMBER, entity_metadata, metadata_entities, search_tokens

PROPERTIES_FIELD = "properties"
"""The field with the names of properties. A word alone is not looked for there."""

_E = metadata_entities.c
_M = entity_metadata.c
_T = search_tokens.c
_LAST = "\U0010ffff"


class Comparison(StrEnum):
    """The comparisons of numbers."""

    EQUAL = "=="
    AT_LEAST = ">="
    AT_MOST = "<="
    ABOVE = ">"
    BELOW = "<"


class SearchOrder(StrEnum):
    """The orders of what is found; without one, what matches best comes first."""

    NAME_ASC = "entity-name asc"
    NAME_DESC = "entity-name desc"
    AGE_ASC = "creation-time asc"
    AGE_DESC = "creation-time desc"

    @property
    def is_by_age(self) -> bool:
        """Whether the order is that of time, else of names."""
        return self in (SearchOrder.AGE_ASC, SearchOrder.AGE_DESC)

    @property
    def is_descending(self) -> bool:
        """Whether the last comes first."""
        return self in (SearchOrder.NAME_DESC, SearchOrder.AGE_DESC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A condition on one token: its `text`, or the beginning of it; in one `field`, or in any but `properties`."""

    text: str
    is_beginning: bool = False
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of a query: any of the `matches`, a field that begins with `field_beginning`, or a `field` whose number
    compares so with `number`.
    """

    matches: tuple[Match, ...] = ()
    field_beginning: str | None = None
    is_required: bool = False
    field: str = ""
    comparison: Comparison | None = None
    number: float = 0.0


class Position(NamedTuple):
    """A place between entities in an order: behind the one with this name or time, and this number."""

    value: str | datetime
    entity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """What is looked for: entities that meet any of the `terms` and all that are required, of some `kinds`; all without
    terms and kinds. A `scope` limits where terms are met, or without terms to what it describes. `after` needs an
    order.
    """

    terms: tuple[Term, ...]
    kinds: Collection[str] = ()
    scope: Scope | None = None
    shows_hidden: bool = False
    order: SearchOrder | None = None
    after: Position | None = None


class Hit(NamedTuple):
    """An entity that was found, its position in an order, and how many terms it meets."""

    entity: int
    name: str
    created_at: datetime
    terms: int

    def position(self, order: SearchOrder) -> Position:
        """Return the place behind it."""
        return Position(self.created_at if order.is_by_age else self.name, self.entity)


class SearchIndex:
    """The index as one transaction sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, chosen: SearchFilter, limit: int, offset: int) -> list[Hit]:
        """Return a page of entities."""
        statement = _select(chosen).limit(limit).offset(offset)
        return [Hit(*row[:4]) for row in self._connection.execute(statement)]

    def count(self, chosen: SearchFilter) -> int:
        """Return how many entities there are, before `after` and behind it."""
        every = _select(replace(chosen, after=None)).order_by(None).subquery()
        return self._connection.scalar(select(func.count()).select_from(every)) or 0

    def fields_of(self, chosen: SearchFilter, entities: Collection[int]) -> dict[int, list[str]]:
        """Return the fields in which entities meet the terms."""
        if not chosen.terms or not entities:
            return {}
        is_met = and_(_T.entity.in_(sorted(entities)), _is_in(chosen.scope), or_(*map(_meets, chosen.terms)))
        statement = select(_T.entity, _T.field).where(is_met).distinct().order_by(_T.entity, _T.field)
        found: dict[int, list[str]] = {}
        for entity, name in self._connection.execute(statement):
            found.setdefault(entity, []).append(name)
        return found

    def count_keys(self, beginning: str, scope: Scope | None, limit: int) -> list[tuple[str, int]]:
        """Return the names of properties, in small letters, that begin so, and how many entities have each; hidden ones
        are not counted.
        """
        is_key = and_(_T.field == PROPERTIES_FIELD, _begins(_T.token, beginning), _is_in(scope), _IS_SHOWN)
        statement = select(_T.token, func.count(_T.entity.distinct())).where(is_key)
        rows = self._connection.execute(statement.group_by(_T.token).order_by(_T.token).limit(limit))
        return [(name, count) for name, count in rows]

    def values_of(self, key: str, scope: Scope | None, limit: int, most: int) -> list[tuple[str, int, list[str]]]:
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
        return [(value, n, paths) for value, (n, paths) in found.items()]

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
    is_key = and_(_T.token == key, _T.field == PROPERTIES_FIELD, _is_in(scope), _E.hidden.is_(False))
    return said.where(is_key).distinct().subquery("said")


def _select(chosen: SearchFilter) -> Select[Any]:
    """Return the statement that selects the rows of `Hit`, in order."""
    conditions: list[ColumnElement[bool]] = []
    if chosen.kinds:
        conditions.append(_E.kind.in_(sorted(chosen.kinds)))
    if not chosen.shows_hidden:
        conditions.append(_E.hidden.is_(False))
    if chosen.order is not None and chosen.after is not None:
        conditions.append(_is_behind(chosen.order, chosen.after))
    if not chosen.terms:
        if chosen.scope is not None:
            is_described = and_(_M.entity == _E.id, _M.scope == chosen.scope)
            conditions.append(exists().where(is_described))
        statement = select(_E.id, _E.name, _E.created_at, literal(0)).where(*conditions)
        return statement.order_by(*_ordered(chosen.order or SearchOrder.NAME_ASC))
    parts = [
        select(_T.entity, literal(number).label("term"), func.max(_T.weight).label("weight"))
        .where(_meets(term), _is_in(chosen.scope))
        .group_by(_T.entity)
        for number, term in enumerate(chosen.terms)
    ]
    hits = union_all(*parts).subquery("hits")
    met: ColumnElement[int] = func.count()
    statement = select(_E.id, _E.name, _E.created_at, met).join_from(hits, metadata_entities, hits.c.entity == _E.id)
    statement = statement.where(*conditions).group_by(_E.id, _E.name, _E.created_at)
    required = [number for number, term in enumerate(chosen.terms) if term.is_required]
    if required:
        statement = statement.having(func.sum(case((hits.c.term.in_(required), 1), else_=0)) == len(required))
    if chosen.order is not None:
        return statement.order_by(*_ordered(chosen.order))
    return statement.order_by(met.desc(), func.sum(hits.c.weight).desc(), _E.name, _E.id)


def _ordered(order: SearchOrder) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    by: ColumnElement[Any] = _E.created_at if order.is_by_age else _E.name
    return (by.desc(), _E.id.desc()) if order.is_descending else (by.asc(), _E.id.asc())


def _is_behind(order: SearchOrder, place: Position) -> ColumnElement[bool]:
    by: ColumnElement[Any] = _E.created_at if order.is_by_age else _E.name
    if order.is_descending:
        return and_(by <= place.value, or_(by < place.value, _E.id < place.entity))
    return and_(by >= place.value, or_(by > place.value, _E.id > place.entity))


def _is_in(scope: Scope | None) -> ColumnElement[bool]:
    return true() if scope is None else _T.scope == scope


def _meets(term: Term) -> ColumnElement[bool]:
    if term.comparison is None:
        fields = () if term.field_beginning is None else (_begins(_T.field, term.field_beginning),)
        return or_(*map(_matches, term.matches), *fields)
    compared = {
        Comparison.EQUAL: _T.number == term.number,
        Comparison.AT_LEAST: _T.number >= term.number,
        Comparison.AT_MOST: _T.number <= term.number,
        Comparison.ABOVE: _T.number > term.number,
        Comparison.BELOW: _T.number < term.number,
    }
    return and_(_T.field == term.field, HAS_NUMBER, compared[term.comparison])


def _matches(match: Match) -> ColumnElement[bool]:
    in_field = _T.field != PROPERTIES_FIELD if match.field is None else _T.field == match.field
    return and_(_begins(_T.token, match.text) if match.is_beginning else _T.token == match.text, in_field)


def _begins(column: ColumnElement[str], beginning: str) -> ColumnElement[bool]:
    return and_(column >= beginning, column < beginning + _LAST) if beginning else true()
