"""Search described entities by what is said of them, and list the names of properties."""

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.metadata import Scope
from feed_assets.operations.context import OperationContext
from feed_assets.operations.searching.queries import parse_query
from feed_assets.state.metadata_store import MetadataStore, render_metadata
from feed_assets.state.search_index import SearchFilter, SearchIndex, SearchOrder

PAGE = 20
MOST_RESULTS = 1000
MOST_KEYS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What is looked for. A `cursor` of an earlier page replaces `offset` and `limit`; it needs an order, as do
    `cursors`, the number of pages behind this one whose cursors are wanted.
    """

    text: str = "*"
    kinds: Collection[str] = ()
    scope: Scope | None = None
    sort: str | None = None
    offset: int = 0
    limit: int = PAGE
    cursor: str | None = None
    cursors: int = 0
    shows_hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """An entity that was found: the fields that match, and all that is said of it, by scope."""

    entity: str
    kind: str
    name: str
    terms: int
    fields: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """A page of results of `total` ones, and the cursors of the pages behind it; none on the last page."""

    results: tuple[SearchResult, ...]
    total: int
    offset: int
    limit: int
    cursors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyName:
    """A name of properties, in small letters, and how many entities have such a property."""

    name: str
    entities: int


def search(context: OperationContext, query: SearchQuery) -> SearchPage:
    """Return a page of the entities that a query finds.

    Raises:
        MetadataRefusedError: the order or the cursor is wrong, or a cursor has no order.
    """
    order = _parse_order(query.sort)
    query = _with_cursor(query, order)
    terms = parse_query(query.text)
    chosen = SearchFilter(
        terms=terms, kinds=query.kinds, scope=query.scope, shows_hidden=query.shows_hidden, order=order
    )
    with context.read() as connection:
        index, store = SearchIndex(connection), MetadataStore(connection)
        hits = index.find(chosen, query.limit, query.offset)
        total = index.count(chosen)
        ids = [hit.entity for hit in hits]
        entities, said, fields = store.of_ids(ids), store.read_many(ids), index.fields_of(terms, ids)
    results = tuple(
        SearchResult(
            entity=entities[hit.entity].path,
            kind=entities[hit.entity].kind,
            name=entities[hit.entity].name,
            terms=hit.terms,
            fields=tuple(fields.get(hit.entity, ())),
            metadata=render_metadata(said.get(hit.entity, {})),
        )
        for hit in hits
    )
    return SearchPage(
        results=results, total=total, offset=query.offset, limit=query.limit, cursors=_cursors(query, total)
    )


def list_keys(context: OperationContext, beginning: str) -> Sequence[PropertyName]:
    """Return the names of properties that begin so, in order, with the number of entities that have each."""
    with context.read() as connection:
        found = SearchIndex(connection).count_keys(beginning, MOST_KEYS)
    return [PropertyName(name=name, entities=count) for name, count in found]


def _parse_order(sort: str | None) -> SearchOrder | None:
    if sort is None:
        return None
    text = " ".join(sort.lower().split())
    text = text if text.endswith((" asc", " desc")) else f"{text} asc"
    if text not in list(SearchOrder):
        raise MetadataRefusedError(
            entity=f"sort {sort!r}",
            reason="nothing can be sorted so",
            next_step=f"Write one of {', '.join(SearchOrder)}.",
        )
    return SearchOrder(text)


def _with_cursor(query: SearchQuery, order: SearchOrder | None) -> SearchQuery:
    """Return the query of the page at its cursor."""
    if (query.cursor or query.cursors) and order is None:
        raise MetadataRefusedError(
            entity="the search", reason="a cursor needs an order", next_step="Write --sort 'entity-name asc'."
        )
    if not query.cursor:
        return query
    try:
        offset, limit = json.loads(base64.urlsafe_b64decode(query.cursor.encode()))
        if not (isinstance(offset, int) and isinstance(limit, int) and offset >= 0 and 0 < limit <= MOST_RESULTS):
            raise ValueError(query.cursor)
    except (ValueError, TypeError) as exc:
        raise MetadataRefusedError(
            entity=f"cursor {query.cursor[:40]!r}",
            reason="no search has given it",
            next_step="Search again without a cursor.",
        ) from exc
    return replace(query, offset=offset, limit=limit)


def _cursors(query: SearchQuery, total: int) -> tuple[str, ...]:
    starts = range(query.offset + query.limit, total, query.limit)[: query.cursors]
    return tuple(base64.urlsafe_b64encode(json.dumps([start, query.limit]).encode()).decode() for start in starts)
