"""Parser of a feed's schema for display: names and types of Spark's DDL, without Spark."""

import re

from feed_assets.entities.errors import ColumnsError

_CLOSES = {")": "(", ">": "<"}
_QUOTES = "`'\""
_COLUMN = re.compile(r"(?:`((?:[^`]|``)+)`|([^\s:`]+))(?:\s*:\s*|\s+)(\S.*)", re.DOTALL)  # a int; a: int; `a b` date


def parse_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Return the column names and types of a DDL text, in order; comments and constraints stay with the type.

    Raises:
        ColumnsError: a column has no type, or brackets or quotes do not match.

    >>> parse_columns("origin string, stops array<struct<a: int, b: decimal(10,2)>>, `a b` date COMMENT 'y, m'")
    (('origin', 'string'), ('stops', 'array<struct<a: int, b: decimal(10,2)>>'), ('a b', "date COMMENT 'y, m'"))
    """
    return tuple(_column(text, part.strip()) for part in _split(text))


def _split(text: str) -> list[str]:
    """Split the text at commas outside brackets and quotes."""
    parts, start, opened, quote = [], 0, "", ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in _CLOSES.values():
            opened += character
        elif character in _CLOSES:
            if not opened.endswith(_CLOSES[character]):
                raise _unmatched(text)
            opened = opened[:-1]
        elif character == "," and not opened:
            parts.append(text[start:position])
            start = position + 1
    if opened or quote:
        raise _unmatched(text)
    return [*parts, text[start:]]


def _unmatched(text: str) -> ColumnsError:
    return ColumnsError(text=text, reason="its brackets or quotes do not match")


def _column(text: str, part: str) -> tuple[str, str]:
    found = _COLUMN.fullmatch(part)
    if found is None:
        raise ColumnsError(text=text, reason=f"{part!r} is not a name and a type")
    quoted, plain, kind = found.groups()
    return quoted.replace("``", "`") if quoted else plain, kind
