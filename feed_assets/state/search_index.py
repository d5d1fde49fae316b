"""Find described entities by their tokens: a page at a time, by how well they match, by name or by age."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, literal, or_, select, true, union_all

from feed_assets.entities.metadata import Scope
from feed_assets.state.metadata_schema import HAS_NUMBER, metadata_entities, search_tokens

PROPERTIES_FIELD = "properties"
"""The field with the names of properties. A word alone is not looked for there."""

_E = metadata_entities.c
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A condition on one token: its `text`, or the beginning of it; in one `field`, or in any but `properties`."""

    text: str
    is_beginning: bool
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of a query: any of the `matches`, or a `field` whose number compares so with `number`."""

    matches: tuple[Match, ...] = ()
    is_required: bool = False
    field: str = ""
    comparison: Comparison | None = None
    number: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """What is looked for: entities that meet any of the `terms` and all that are required, in one `scope`, of some
    `kinds`; no terms and no kinds mean all.
    """

    terms: tuple[Term, ...]
    kinds: Collection[str] = ()
    scope: Scope | None = None
    shows_hidden: bool = False
    order: SearchOrder | None = None


class Hit(NamedTuple):
    """An entity that was found, and how many terms it meets."""

    entity: int
    terms: int


class SearchIndex:
    """The index as one transaction sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, chosen: SearchFilter, limit: int, offset: int) -> list[Hit]:
        """Return a page of entities."""
        met, weight, statement = _select(chosen)
        statement = statement.order_by(*_order(chosen.order, met, weight)).limit(limit).offset(offset)
        return [Hit(*row) for row in self._connection.execute(statement)]

    def count(self, chosen: SearchFilter) -> int:
        """Return how many entities there are."""
        _, _, statement = _select(chosen)
        return self._connection.scalar(select(func.count()).select_from(statement.subquery())) or 0

    def fields_of(self, terms: Sequence[Term], entities: Collection[int]) -> dict[int, list[str]]:
        """Return the fields in which entities meet terms."""
        conditions = [_meets(term) for term in terms]
        if not conditions or not entities:
            return {}
        is_theirs = _T.entity.in_(sorted(entities))
        statement = select(_T.entity, _T.field).where(is_theirs, or_(*conditions)).distinct().order_by(_T.field)
        found: dict[int, list[str]] = {}
        for entity, name in self._connection.execute(statement):
            found.setdefault(entity, []).append(name)
        return found

    def count_keys(self, beginning: str, limit: int) -> list[tuple[str, int]]:
        """Return the names of properties, in small letters, that begin so, and how many entities have each."""
        is_key = and_(_T.field == PROPERTIES_FIELD, _begins(beginning.lower()))
        statement = select(_T.token, func.count(_T.entity.distinct())).where(is_key)
        rows = self._connection.execute(statement.group_by(_T.token).order_by(_T.token).limit(limit))
        return [(name, count) for name, count in rows]


def _select(chosen: SearchFilter) -> tuple[ColumnElement[int], ColumnElement[int], Select[Any]]:
    """Return the terms that an entity meets, their weight, and the statement that selects entities."""
    conditions: list[ColumnElement[bool]] = []
    if chosen.kinds:
        conditions.append(_E.kind.in_(sorted(chosen.kinds)))
    if not chosen.shows_hidden:
        conditions.append(_E.hidden.is_(False))
    if not chosen.terms:
        none: ColumnElement[int] = literal(0)
        return none, none, select(_E.id, none.label("terms")).where(*conditions)
    in_scope = true() if chosen.scope is None else _T.scope == chosen.scope
    parts = [
        select(_T.entity, literal(number).label("term"), func.max(_T.weight).label("weight"))
        .where(_meets(term), in_scope)
        .group_by(_T.entity)
        for number, term in enumerate(chosen.terms)
    ]
    hits = union_all(*parts).subquery("hits")
    met: ColumnElement[int] = func.count()
    weight: ColumnElement[int] = func.sum(hits.c.weight)
    statement = select(_E.id, met.label("terms")).join_from(hits, metadata_entities, hits.c.entity == _E.id)
    statement = statement.where(*conditions).group_by(_E.id, _E.name, _E.created_at)
    required = [number for number, term in enumerate(chosen.terms) if term.is_required]
    if required:
        statement = statement.having(func.sum(case((hits.c.term.in_(required), 1), else_=0)) == len(required))
    return met, weight, statement


def _order(
    order: SearchOrder | None, met: ColumnElement[int], weight: ColumnElement[int]
) -> tuple[ColumnElement[Any], ...]:
    match order:
        case SearchOrder.NAME_ASC:
            return (_E.name.asc(), _E.id.asc())
        case SearchOrder.NAME_DESC:
            return (_E.name.desc(), _E.id.desc())
        case SearchOrder.AGE_ASC:
            return (_E.created_at.asc(), _E.id.asc())
        case SearchOrder.AGE_DESC:
            return (_E.created_at.desc(), _E.id.desc())
        case None:
            return (met.desc(), weight.desc(), _E.name.asc(), _E.id.asc())


def _meets(term: Term) -> ColumnElement[bool]:
    if term.comparison is None:
        return or_(*map(_matches, term.matches))
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
    if not match.is_beginning:
        return and_(_T.token == match.text, in_field)
    return and_(_begins(match.text), in_field) if match.text else in_field


def _begins(beginning: str) -> ColumnElement[bool]:
    return and_(_T.token >= beginning, _T.token < beginning + _LAST)
