"""Parse the queries of searches. The syntax is that of CDAP 6.

Terms are separated by blanks. One of them is enough, and more of them rank an entity higher; `+term` is required. A
term is a word or a whole text; `word*` is a beginning, `*` is everything. `name:word` is a word of that property, or of
`tags`, `schema`, `entity-name`, or the kind; `name:*` has it. `name:>10`, `>=`, `<`, `<=` and `==` compare numbers,
dates and times, and are required.
"""

import re
from collections.abc import Iterator

from feed_assets.catalog.search.records import Comparison, Match, Term
from feed_assets.catalog.search.tokens import PUNCTUATION, fold, parse_number, small
from feed_assets.entities.errors import MetadataRefusedError

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
