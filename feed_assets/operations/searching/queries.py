"""Parse the queries of searches. The syntax is that of CDAP 6.

Terms are separated by blanks. One of them is enough, and more of them rank an entity higher; `+term` is required. A
term is a word or a whole text; `word*` is a beginning, `*` is everything. `name:word` is a word of that property, or of
`tags`, `schema`, `entity-name`, or the kind; `name:*` has it. `name:>10`, `>=`, `<`, `<=` and `==` compare numbers,
dates and times, and are required.
"""

import re

from feed_assets.lifecycle.metadata.tokens import fold, parse_number
from feed_assets.state.search_index import Comparison, Match, Term

EVERYTHING = "*"

_AROUND_COLON = re.compile(r"\s*:\s*")
_COMPARISON = re.compile(r"(==|>=|<=|>|<)(.+)", re.DOTALL)


def parse_query(text: str) -> tuple[Term, ...]:
    """Return the terms of a query; none means everything.

    >>> [term.is_required for term in parse_query("+owner : ops  dep*")]
    [True, False]
    >>> parse_query("  "), parse_query("*")
    ((), ())
    """
    words = _AROUND_COLON.sub(":", text.strip()).split()
    if all(word == EVERYTHING for word in words):
        return ()
    return tuple(_parse_term(word) for word in words)


def _parse_term(word: str) -> Term:
    is_required = len(word) > 1 and word.startswith("+")
    word = word[1:] if is_required else word
    name, has_field, rest = word.partition(":")
    if has_field and (compared := _COMPARISON.fullmatch(rest)) is not None:
        number = parse_number(compared[2])
        if number is not None:
            return Term(is_required=True, field=fold(name), comparison=Comparison(compared[1]), number=number)
    matches = [_match(word, None)]
    if has_field and name and rest:
        matches.append(_match(rest, fold(name)))
    return Term(matches=tuple(matches), is_required=is_required)


def _match(text: str, field: str | None) -> Match:
    is_beginning = text.endswith(EVERYTHING)
    text = text[:-1].lower() if is_beginning else fold(text)
    return Match(text=text, is_beginning=is_beginning, field=field)
