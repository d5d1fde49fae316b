"""A feed's schema as written, taken apart for display: names and types of Spark's DDL, without Spark."""

from feed_assets.errors import ColumnsError

_OPEN, _CLOSE = "<(", ">)"


def parse_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Column names and types of a DDL text, in order; comments and constraints stay with the type.

    Raises:
        ColumnsError: a column has no type, or brackets do not match.

    >>> parse_columns("origin string, stops array<struct<a: int, b: decimal(10,2)>>, `a b` date")
    (('origin', 'string'), ('stops', 'array<struct<a: int, b: decimal(10,2)>>'), ('a b', 'date'))
    """
    return tuple(_column(text, part.strip()) for part in _split(text))


def _split(text: str) -> list[str]:
    parts, depth, start, quoted = [], 0, 0, False
    for position, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif quoted:
            continue
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        if depth < 0:
            break
    if depth or quoted:
        raise ColumnsError(text=text, reason="its brackets or quotes do not match")
    return [*parts, text[start:]]


def _column(text: str, part: str) -> tuple[str, str]:
    if part.startswith("`"):
        name, _, kind = part[1:].partition("`")
    else:
        name, _, kind = part.replace(":", " ", 1).partition(" ") if ":" in part.split("<")[0] else part.partition(" ")
    if not name or not kind.strip():
        raise ColumnsError(text=text, reason=f"{part!r} is not a name and a type")
    return name, kind.strip()
