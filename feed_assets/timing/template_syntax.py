"""The syntax of path templates: literal text and `${…}` variables, with their widths and possible values."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeAlias

from feed_assets.timing.errors import TemplateError


class TimeVariable(StrEnum):
    """The variables of a path, coarsest first; widths are fixed: four digits for the year and two for the others."""

    YEAR = "YEAR"
    MONTH = "MONTH"
    DAY = "DAY"
    HOUR = "HOUR"
    MINUTE = "MINUTE"
    SECOND = "SECOND"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterVariable:
    """A `${cluster.<name>}` that `PathTemplate.with_cluster` has not replaced yet."""

    name: str


Piece: TypeAlias = str | TimeVariable | ClusterVariable
"""Literal text or a variable."""

_VARIABLE = re.compile(r"\$\{([^{}]*)(\}?)")  # ${YEAR}, ${cluster.colo}; an unclosed ${YEAR too
_CLUSTER = "cluster."
_VALUES = {
    TimeVariable.YEAR: "[0-9]{4}",
    TimeVariable.MONTH: "0[1-9]|1[0-2]",
    TimeVariable.DAY: "0[1-9]|[12][0-9]|3[01]",
    TimeVariable.HOUR: "[01][0-9]|2[0-3]",
    TimeVariable.MINUTE: "[0-5][0-9]",
    TimeVariable.SECOND: "[0-5][0-9]",
}
_ORDER = tuple(TimeVariable)


def iter_pieces(text: str, *, allow_unknown: bool) -> Iterator[Piece]:
    """Yield the literal pieces and variables of a template, in order.

    Raises:
        TemplateError: a variable is unknown or not closed, unless `allow_unknown` treats it as literal text.
    """
    end = 0
    for found in _VARIABLE.finditer(text):
        yield text[end : found.start()]
        name, closed = found.groups()
        end = found.end()
        if closed and name in _ORDER:
            yield TimeVariable(name)
        elif closed and name.startswith(_CLUSTER) and name != _CLUSTER:
            yield ClusterVariable(name=name.removeprefix(_CLUSTER))
        elif allow_unknown:
            yield found.group()
        else:
            raise _refused_variable(text, found.group(), name, closed=bool(closed))
    yield text[end:]


def _refused_variable(text: str, written: str, name: str, *, closed: bool) -> TemplateError:
    if not closed:
        return TemplateError(text=text, reason=f"{written} is not closed", next_step="Add the closing brace.")
    close = get_close_matches(name.upper(), _ORDER, n=1)
    known = "${" + "}, ${".join(_ORDER) + "} or ${cluster.<property>}"
    return TemplateError(
        text=text,
        reason=f"{written} is not a variable of paths",
        next_step=f"Did you mean ${{{close[0]}}}?" if close else f"Use {known}.",
    )


def merge_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return the pieces with neighbouring literal texts joined and empty texts removed."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and is_literal(piece) and is_literal(merged[-1]):
            merged[-1] = f"{merged[-1]}{piece}"
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


def is_literal(piece: Piece) -> bool:
    """Return whether the piece is text, not a variable."""
    return not isinstance(piece, (TimeVariable, ClusterVariable))


def text_of(piece: Piece) -> str:
    """Return the piece as it is written in a template."""
    if isinstance(piece, ClusterVariable):
        return f"${{{_CLUSTER}{piece.name}}}"
    return f"${{{piece.value}}}" if isinstance(piece, TimeVariable) else piece


def format_of(piece: Piece) -> str:
    """Return the piece in `%` formatting."""
    if isinstance(piece, TimeVariable):
        return "%04d" if piece is TimeVariable.YEAR else "%02d"
    return text_of(piece).replace("%", "%%")


def pattern_of(pieces: Iterable[Piece]) -> str:
    """Return a regular expression with one group per time variable; a repeated variable must repeat its value.

    >>> pattern_of(("/d/", TimeVariable.YEAR, "/", TimeVariable.YEAR))
    '/d/(?P<YEAR>[0-9]{4})/(?P=YEAR)'
    """
    seen: set[TimeVariable] = set()
    parts: list[str] = []
    for piece in pieces:
        if isinstance(piece, ClusterVariable):
            parts.append("[^/]+")
        elif not isinstance(piece, TimeVariable):
            parts.append(re.escape(piece))
        elif piece in seen:
            parts.append(f"(?P={piece.value})")
        else:
            seen.add(piece)
            parts.append(f"(?P<{piece.value}>{_VALUES[piece]})")
    return "".join(parts)
