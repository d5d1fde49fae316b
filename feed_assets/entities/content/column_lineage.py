"""Which columns of its inputs an output was made of, as they are recorded with the data.

A source has a `kind`: its value is in the column, or it has only decided which rows are there and in which order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SourceKind(StrEnum):
    """How a column goes into another one: `direct` by its value, `indirect` by a filter, join, grouping or order."""

    DIRECT = "direct"
    INDIRECT = "indirect"


DECLARED = "as declared"
"""Stands for the expression of a source that a definition declares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSource:
    """A column of an input of the process, and the expression's text by which it has gone in, without secrets."""

    input: str
    column: str
    kind: SourceKind
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLineage:
    """What each column of an output was made of.

    `indirect` are the sources of which the rows depend, thus all columns. `beyond` are names `external/<address>` of
    what was read without being an input. With a reason why it is `unknown`, `columns` is empty.
    """

    columns: Mapping[str, tuple[ColumnSource, ...]] = field(default_factory=dict)
    indirect: tuple[ColumnSource, ...] = ()
    beyond: tuple[str, ...] = ()
    unknown: str | None = None
