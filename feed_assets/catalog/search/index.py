"""Find described entities by their tokens: a page at a time, by how well they match, by name or by age.

There is one statement for all queries of the same shape, whose words are parameters: building it takes longer than
executing it for few rows.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Subquery,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    true,
    union_all,
)

from feed_assets.access.rights import find_hidden
from feed_assets.catalog.search.records import (
    PROPERTIES_FIELD,
    Comparison,
    Hit,
    Match,
    Position,
    PropertyName,
    PropertyValue,
    SearchFilter,
    SearchOrder,
    Term,
)
from feed_assets.catalog.tables import HAS_NUMBER, entity_metadata, metadata_entities, search_tokens
from feed_assets.entities.metadata import MetadataKind, Scope
from feed_assets.sql.rows import TableStore

LIMIT, OFFSET, KINDS, ENTITIES = "page_limit", "page_offset", "of_kinds", "of_entities"
_WITHOUT = "without"
_CHUNK = 200

_E = metadata_entities.c
_M = entity_metadata.c
_T = search_tokens.c
_SURE, _NEIGHBOURS = 2, 2_000
LAST = "\U0010ffff"
_AFTER, _AFTER_ENTITY = "after_value", "after_entity"
_SHAPES = 512
_IS_OWN = _T.field.not_in(("inputs", "outputs", "readers", "writers"))
"""Not of what names others: by these, who may not read some could find out their names."""


class Search(NamedTuple):
    """The shape of a search, which has names of parameters instead of words, and the parameters."""

    shape: SearchFilter
    parameters: Mapping[str, Any]


def find_shape(chosen: SearchFilter) -> Search:
    """Return the shape of a search, which is the same for other words of the same kind."""
    words = _Words()
    return Search(
        replace(
            chosen,
            terms=tuple(_shape_of(term, words) for term in chosen.terms),
            kinds=(KINDS,) if chosen.kinds else (),
            after=Position(_AFTER, 0) if chosen.after is not None else None,
            without=(0,) if chosen.without else (),
        ),
        {
            **words.values,
            **({KINDS: sorted(chosen.kinds)} if chosen.kinds else {}),
            **({_WITHOUT: chosen.without} if chosen.without else {}),
            **({_AFTER: chosen.after.value, _AFTER_ENTITY: chosen.after.entity} if chosen.after is not None else {}),
        },
    )


class _Words:
    """The words of a search by the names of their parameters."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def add(self, value: str | float) -> str:
        """Return the name of a parameter."""
        name = f"word{len(self.values)}"
        self.values[name] = value
        return name

    def add_beginning(self, text: str) -> str:
        """Return the name of the parameter with the beginning of a range; "" for the range of everything."""
        name = self.add(text) if text else ""
        if name:
            self.values[f"{name}_end"] = text + LAST
        return name


def _shape_of(term: Term, words: _Words) -> Term:
    if term.comparison is not None:
        field = words.add(term.field)
        words.values[f"{field}_number"] = term.number
        return replace(term, field=field, number=0.0)
    matches = tuple(
        replace(
            match,
            text=words.add_beginning(match.text) if match.is_beginning else words.add(match.text),
            field=words.add(match.field) if match.field is not None else None,
        )
        for match in term.matches
    )
    beginning = None if term.field_beginning is None else words.add_beginning(term.field_beginning)
    return replace(term, matches=matches, field_beginning=beginning)


@lru_cache(_SHAPES)
def build_page(shape: SearchFilter) -> Select[Any]:
    """Return the statement that selects a page: number, name, creation time and met terms of each entity, in order."""
    return _select(shape).limit(bindparam(LIMIT)).offset(bindparam(OFFSET))


@lru_cache(_SHAPES)
def build_count(shape: SearchFilter) -> Select[Any]:
    """Return the statement that counts entities, before `after` and behind it."""
    every = _select(replace(shape, after=None)).order_by(None).subquery()
    return select(func.count()).select_from(every)


@lru_cache(_SHAPES)
def build_fields(shape: SearchFilter) -> Select[Any]:
    """Return the statement that selects the fields in which entities meet terms."""
    is_theirs = _T.entity.in_(bindparam(ENTITIES, expanding=True))
    is_met = and_(is_theirs, is_in(shape.scope), or_(*(each for term in shape.terms for each in _conditions(term))))
    return select(_T.entity, _T.field).where(is_met).distinct().order_by(_T.entity, _T.field)


def _select(shape: SearchFilter) -> Select[Any]:
    conditions: list[ColumnElement[bool]] = []
    if shape.kinds:
        conditions.append(_E.kind.in_(bindparam(KINDS, expanding=True)))
    if shape.without:
        conditions.append(_E.id.not_in(bindparam(_WITHOUT, expanding=True)))
    if not shape.shows_hidden:
        conditions.append(_E.hidden.is_(False))
    if shape.order is not None and shape.after is not None:
        conditions.append(_is_behind(shape.order))
    if not shape.terms:
        if shape.scope is not None:
            conditions.append(exists().where(and_(_M.entity == _E.id, _M.scope == shape.scope)))
        statement = select(_E.id, _E.name, _E.created_at, literal_column("0")).where(*conditions)
        return statement.order_by(*_ordered(shape.order or SearchOrder.NAME_ASC))
    hits = _find_hits(shape)
    statement = select(_E.id, _E.name, _E.created_at, hits.c.terms).where(*conditions)
    statement = statement.join_from(hits, metadata_entities, hits.c.entity == _E.id)
    if shape.order is not None:
        return statement.order_by(*_ordered(shape.order))
    return statement.order_by(hits.c.terms.desc(), hits.c.weight.desc(), _E.name, _E.id)


def _find_hits(shape: SearchFilter) -> Subquery:
    """Return the entities that meet terms, how many, and what these weigh."""
    is_met = and_(is_in(shape.scope), _IS_OWN if shape.without else true())
    parts = [_find_met(number, term, is_met) for number, term in enumerate(shape.terms)]
    if len(parts) == 1:
        one = parts[0].subquery("met")
        return select(one.c.entity, one.c.weight, literal_column("1").label("terms")).subquery("hits")
    met = union_all(*parts).subquery("met")
    terms: ColumnElement[int] = func.count()
    weights: ColumnElement[int] = func.sum(met.c.weight)
    hits = select(met.c.entity, weights.label("weight"), terms.label("terms")).group_by(met.c.entity)
    required: list[ColumnElement[int]] = [
        literal_column(str(number)) for number, term in enumerate(shape.terms) if term.is_required
    ]
    if required:
        hits = hits.having(func.sum(case((met.c.term.in_(required), 1), else_=0)) == literal_column(str(len(required))))
    return hits.subquery("hits")


def _find_met(number: int, term: Term, is_met: ColumnElement[bool]) -> Select[Any]:
    """Return the entities that meet a term; each condition asks the index for itself, which `OR` does not."""
    some = union_all(*(select(_T.entity, _T.weight).where(each, is_met) for each in _conditions(term)))
    found = some.subquery(f"found{number}")
    weight: ColumnElement[int] = func.max(found.c.weight)
    term_number: ColumnElement[int] = literal_column(str(number))
    return select(found.c.entity, term_number.label("term"), weight.label("weight")).group_by(found.c.entity)


def _ordered(order: SearchOrder) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    by: ColumnElement[Any] = _E.created_at if order.is_by_age else _E.name
    return (by.desc(), _E.id.desc()) if order.is_descending else (by.asc(), _E.id.asc())


def _is_behind(order: SearchOrder) -> ColumnElement[bool]:
    by: ColumnElement[Any] = _E.created_at if order.is_by_age else _E.name
    value: BindParameter[Any] = bindparam(_AFTER)
    entity: BindParameter[int] = bindparam(_AFTER_ENTITY)
    if order.is_descending:
        return and_(by <= value, or_(by < value, _E.id < entity))
    return and_(by >= value, or_(by > value, _E.id > entity))


def is_in(scope: Scope | None) -> ColumnElement[bool]:
    """Return the condition that a scope has a token."""
    return true() if scope is None else _T.scope == scope


def _conditions(term: Term) -> list[ColumnElement[bool]]:
    """Return conditions of which a token that meets a term meets one."""
    if term.comparison is None:
        fields = [] if term.field_beginning is None else [_begins(_T.field, term.field_beginning)]
        return [*map(_matches, term.matches), *fields]
    number: BindParameter[float] = bindparam(f"{term.field}_number")
    compared = {
        Comparison.EQUAL: _T.number == number,
        Comparison.AT_LEAST: _T.number >= number,
        Comparison.AT_MOST: _T.number <= number,
        Comparison.ABOVE: _T.number > number,
        Comparison.BELOW: _T.number < number,
    }
    return [and_(_T.field == bindparam(term.field), HAS_NUMBER, compared[term.comparison])]


def _matches(match: Match) -> ColumnElement[bool]:
    field: ColumnElement[str] = literal_column(f"'{PROPERTIES_FIELD}'")
    in_field = _T.field != field if match.field is None else _T.field == bindparam(match.field)
    return and_(_begins(_T.token, match.text) if match.is_beginning else _T.token == bindparam(match.text), in_field)


def _begins(column: ColumnElement[str], beginning: str) -> ColumnElement[bool]:
    """Return the condition that a text begins as the parameter of this name; without a name it is always met."""
    return and_(column >= bindparam(beginning), column < bindparam(f"{beginning}_end")) if beginning else true()


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

    def find_unread(self) -> tuple[int, ...]:
        """Return the numbers of what who asks may not read: of hidden entities, and of all that is below them."""
        paths, found = sorted("/".join(key) for key in find_hidden()), list[int]()
        for at in range(0, len(paths), _CHUNK):
            some = paths[at : at + _CHUNK]
            below = (_E.path.between(f"{path}/", f"{path}/{LAST}") for path in some)
            found += self._connection.scalars(select(_E.id).where(or_(_E.path.in_(some), *below)))
        return tuple(found)

    def near(self, word: str) -> list[str]:
        """Return words of the index that are close to one, and begin as it does; it looks at `_NEIGHBOURS` of them."""
        beginning = word[:_SURE]
        statement = select(_T.token).distinct().where(_T.token.between(beginning, beginning + LAST), self._is_shown())
        known = self._connection.scalars(statement.order_by(_T.token).limit(_NEIGHBOURS))
        return get_close_matches(word, known.all(), n=2, cutoff=0.75)

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
        is_key = and_(_T.field == PROPERTIES_FIELD, in_range, is_in(scope), self._is_shown())
        statement = select(_T.token, func.count(_T.entity.distinct())).where(is_key)
        rows = self._connection.execute(statement.group_by(_T.token).order_by(_T.token).limit(limit))
        return [PropertyName(name=name, entities=count) for name, count in rows]

    def values_of(self, key: str, scope: Scope | None, limit: int, most: int) -> tuple[PropertyValue, ...]:
        """Return the values of a property, those of most entities first, with their number and the paths of some. The
        key is in small letters; hidden entities are left out.
        """
        said = _said_of(key, scope, self.find_unread())
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
        said = _said_of(key, scope, self.find_unread())
        entities, values = func.count(said.c.path.distinct()), func.count(said.c.value.distinct())
        found, different = self._connection.execute(select(entities, values)).one()
        return found, different

    def _is_shown(self) -> ColumnElement[bool]:
        unread = self.find_unread()
        is_shown = _T.entity.not_in(select(_E.id).where(_E.hidden))
        return and_(is_shown, _T.entity.not_in(unread), _IS_OWN) if unread else is_shown


def _said_of(key: str, scope: Scope | None, unread: Collection[int] = ()) -> Subquery:
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
    is_key = and_(is_key, _E.id.not_in(unread)) if unread else is_key
    return said.where(is_key).distinct().subquery("said")
