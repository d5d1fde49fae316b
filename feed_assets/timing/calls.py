"""A parsed expression as a tree of calls; see `grammar` for the syntax."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A name without parentheses.

    No function accepts one; it is parsed so that the error can say that quotes are missing.
    """

    name: str


Argument: TypeAlias = "int | str | Word | Call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function call: its name, its arguments, and the position of each in the text (counted from 0)."""

    name: str
    arguments: tuple[Argument, ...]
    position: int
    argument_positions: tuple[int, ...]
