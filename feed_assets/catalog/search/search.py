"""Search described entities by what is said of them, and list the names and values of properties.

The syntax of queries is that of CDAP 6. Terms are separated by blanks. One of them is enough, and more of them rank an
entity higher; `+term` is required. A term is a word or a whole text; `word*` is a beginning, `*` is everything.
`name:word` is a word of that property, or of `tags`, `schema`, `entity-name`, or the kind; `name:*` has it. `name:>10`,
`>=`, `<`, `<=` and `==` compare numbers, dates and times, and are required.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from feed_assets.catalog.search.index import SearchIndex
from feed_assets.catalog.search.records import (
    Comparison,
    Hit,
    Match,
    Position,
    SearchFilter,
    SearchOrder,
    SearchQuery,
    Term,
)
from feed_assets.catalog.search.tokens import PUNCTUATION, fold, parse_number, small
from feed_assets.catalog.store import MetadataStore, render_metadata
from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.errors import shorten
from feed_assets.json_form import Hidden, parse_json
from feed_assets.pages import tell_shown
from feed_assets.sql.database import Database

EVERYTHING = "*"
MOST_TERMS = 50

_AROUND_COLON = re.compile(r"\s*:\s*")
_COMPARISON = re.compile(r"(==|>=|<=|>|<)(.+)", re.DOTALL)


def parse_query(text: str) -> tuple[Term, ...]:
    """Return the terms of a query, each once; none means everything.

    >>> [term.is_required for term in parse_query("+owner : ops  dep*")]
    [True, False]
    >>> parse_query("  "), parse_query("*")
    ((), ())

    Raises:
        MetadataRefusedError: it has more than 50 terms, or characters that cannot be printed.
    """
    words = list(dict.fromkeys(_AROUND_COLON.sub(":", text.strip()).split()))
    if len(words) > MOST_TERMS:
        reason = f"it has {len(words):,} terms, more than {MOST_TERMS}"
        raise MetadataRefusedError(entity="the query", reason=reason, next_step="Look for fewer words.")
    if not all(map(str.isprintable, words)):
        raise MetadataRefusedError(
            entity="the query", reason="it has characters that cannot be printed", next_step="Look for letters."
        )
    return () if words in ([], [EVERYTHING]) else tuple(map(_parse_term, words))


def _parse_term(word: str) -> Term:
    is_required = len(word) > 1 and word.startswith("+")
    word = word.removeprefix("+") if is_required else word
    name, _, rest = word.partition(":")
    if (compared := _COMPARISON.fullmatch(rest)) is not None and (number := parse_number(compared[2])) is not None:
        return Term(is_required=True, field=fold(name), comparison=Comparison(compared[1]), number=number)
    is_beginning = word.endswith(EVERYTHING)
    word = word.removesuffix(EVERYTHING) if is_beginning else word
    matches = [*_iter_matches(word, is_beginning=is_beginning)]
    colons = [at for at, character in enumerate(word) if character == ":" and at]
    for at in colons:
        if is_beginning or word[at + 1 :]:
            matches += _iter_matches(word[at + 1 :], is_beginning=is_beginning, field=fold(word[:at]))
    return Term(
        matches=tuple(matches),
        field_beginning=small(word) if is_beginning and colons else None,
        is_required=is_required,
    )


def _iter_matches(text: str, *, is_beginning: bool, field: str | None = None) -> Iterator[Match]:
    yield Match(text=small(text) if is_beginning else fold(text), is_beginning=is_beginning, field=field)
    bare = text.strip(PUNCTUATION)
    if bare and bare != text and not is_beginning:
        yield Match(text=fold(bare), is_beginning=False, field=field)


MOST_RESULTS = 1000
MOST_CURSORS = 100
_MOST_NEAR = 5

_VERSION = 1
_LARGEST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """An entity that was found: how many terms it meets, in which fields, and all that is said of it, by scope."""

    entity: str
    kind: str
    name: str
    terms: int
    fields: tuple[str, ...]
    metadata: Mapping[str, Any]

    @property
    def description(self) -> str:
        """What people say that it is, else what the program says; "" if neither does."""
        texts = [said["properties"].get("description") for _, said in sorted(self.metadata.items(), reverse=True)]
        return next((text for text in texts if text), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """A page of results of `total` ones, and the cursors of the pages behind it; none on the last page."""

    results: tuple[SearchResult, ...]
    total: int
    offset: int
    limit: int
    cursors: tuple[str, ...]
    near: Hidden[tuple[str, ...]] = ()
    """Words of the index close to those that nothing has."""

    @property
    def notes(self) -> Iterator[str]:
        """What to do if nothing is found, how many of all are here, and how to see the pages behind this one."""
        if not self.total:
            yield f"did you mean {' or '.join(self.near)}?" if self.near else ""
            yield "nothing is found; a term is a whole word, and word* is the beginning of one"
        yield tell_shown(len(self.results), self.total, "entities", "--offset shows the next ones")
        for number, cursor in enumerate(self.cursors, 1):
            yield f"{number * self.limit:,} further: --cursor {cursor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PageStart:
    """The beginning of a page of `limit` results. One that has a place is read from there, however many `offset` are
    before it now.
    """

    offset: int
    limit: int
    after: Position | None = None


def search(database: Database | None, query: SearchQuery) -> SearchPage:
    """Return a page of the entities that a query finds; of a namespace that does not exist, nothing.

    Raises:
        MetadataRefusedError: the query, a kind, the order or the cursor is wrong, or a cursor has no order.
    """
    order = _parse_order(query.sort)
    start = _find_start(query, order)
    terms = parse_query(query.text)
    chosen = SearchFilter(
        terms=terms,
        scope=query.scope,
        shows_hidden=query.hidden,
        order=order,
        after=start.after,
    )
    if database is None:
        return SearchPage(results=(), total=0, offset=start.offset, limit=start.limit, cursors=())
    with database.read() as connection:
        index, store = SearchIndex(connection), MetadataStore(connection)
        chosen = replace(chosen, kinds=store.require_kinds(query.kinds), without=index.find_unread())
        wanted = start.limit * (query.cursors + 1) + 1
        found = index.find(chosen, wanted, 0 if start.after else start.offset)
        hits = found[: start.limit]
        is_all = start.after is None and len(found) < wanted and (found or not start.offset)
        total = start.offset + len(found) if is_all else index.count(chosen)
        words = [] if total else [each.text for term in terms for each in term.matches if not each.is_beginning]
        near = tuple(dict.fromkeys(word for each in words[:_MOST_NEAR] for word in index.near(each)))
        ids = [hit.entity for hit in hits]
        entities, said, fields = store.of_ids(ids), store.read_many(ids), index.fields_of(chosen, ids)
    results = tuple(
        SearchResult(
            entity=entities[hit.entity].path,
            kind=entities[hit.entity].kind,
            name=hit.name,
            terms=hit.terms,
            fields=tuple(fields.get(hit.entity, ())),
            metadata=render_metadata(said.get(hit.entity, {})),
        )
        for hit in hits
    )
    cursors = () if order is None else _cursors(found, start, order, query.cursors)
    return SearchPage(results=results, total=total, offset=start.offset, limit=start.limit, cursors=cursors, near=near)


def _parse_order(sort: str | None) -> SearchOrder | None:
    if sort is None:
        return None
    text = " ".join(sort.lower().split())
    if text not in list(SearchOrder):
        orders = ", ".join(map(repr, map(str, SearchOrder)))
        raise MetadataRefusedError(
            entity=f"sort {sort!r}", reason="nothing can be sorted so", next_step=f"Write one of {orders}."
        )
    return SearchOrder(text)


def _find_start(query: SearchQuery, order: SearchOrder | None) -> _PageStart:
    """Return where a query begins: at its cursor, if it has one."""
    if order is None and (query.cursor or query.cursors):
        raise MetadataRefusedError(
            entity="the search", reason="a cursor needs an order", next_step="Write --sort 'entity-name asc'."
        )
    for name, number, least, most in (
        ("offset", query.offset, 0, 2**31),
        ("limit", query.limit, 1, MOST_RESULTS),
        ("cursors", query.cursors, 0, MOST_CURSORS),
    ):
        if not least <= number <= most:
            raise MetadataRefusedError(
                entity=f"{name} {number:,}", reason="there is no such page", next_step=f"Ask for {least} to {most:,}."
            )
    if order is None or not query.cursor:
        return _PageStart(offset=query.offset, limit=query.limit)
    return _parse_cursor(query.cursor, order)


def _cursors(found: Sequence[Hit], start: _PageStart, order: SearchOrder, most: int) -> tuple[str, ...]:
    """Return the cursors of the pages behind the first one of what was found, if there is anything."""
    ends = range(start.limit, len(found), start.limit)[:most]
    starts = [replace(start, offset=start.offset + end, after=found[end - 1].position(order)) for end in ends]
    return tuple(_render_cursor(each, order) for each in starts)


def _render_cursor(start: _PageStart, order: SearchOrder) -> str:
    """Return the beginning of a page, which has a place, as a cursor."""
    assert start.after is not None
    value, entity = start.after
    text = value.isoformat() if isinstance(value, datetime) else value
    content = json.dumps([_VERSION, order.value, text, entity, start.offset, start.limit], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode()


def _parse_cursor(text: str, order: SearchOrder) -> _PageStart:
    """Return the beginning of the page at a cursor.

    Raises:
        MetadataRefusedError: no search in this order has given it.
    """
    try:
        version, sort, value, entity, offset, limit = parse_json(base64.urlsafe_b64decode(text.encode()))
        is_ours = (version, sort, str(value).isprintable()) == (_VERSION, order.value, True)
        if not is_ours or not (0 < entity < _LARGEST and 0 <= offset < _LARGEST and 0 < limit <= MOST_RESULTS):
            raise ValueError(text)
        place = datetime.fromisoformat(value).astimezone(UTC) if order.is_by_age else str(value)
        return _PageStart(offset=int(offset), limit=int(limit), after=Position(place, int(entity)))
    except (ValueError, TypeError) as exc:
        raise MetadataRefusedError(
            entity=f"cursor {shorten(text, 40)!r}",
            reason="no search in this order has given it",
            next_step="Search again without a cursor.",
        ) from exc
