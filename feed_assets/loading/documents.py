"""A document as plain values, in whatever language it was written: what reading gives before anything is checked."""

from dataclasses import dataclass, field
from enum import StrEnum

from feed_assets.issues import FieldPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in the text that is refused, and where."""

    code: str
    message: str
    remedy: str
    line: int
    column: int


class NoteKind(StrEnum):
    """What became of a part of the document: taken as it is, made something else of, to be looked at, or not possible
    here.
    """

    CARRIED = "carried over"
    MAPPED = "mapped"
    CHECK = "to check"
    UNABLE = "cannot run here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What people who bring a document should know about a part of it."""

    kind: NoteKind
    message: str
    line: int | None = None


@dataclass(slots=True, kw_only=True)
class PlainDocument:
    """One document: its plain value, the line and column of each key and list item, and what was refused in it.

    `is_presence_checked` says that reading has looked for what is missing, so that nobody needs to say it again.
    """

    line: int
    value: object = None
    positions: dict[FieldPath, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    is_presence_checked: bool = False
