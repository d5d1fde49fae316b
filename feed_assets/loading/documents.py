"""Documents as plain values, whatever language they were written in: the result of parsing, before validation."""

from dataclasses import dataclass, field
from enum import StrEnum

from feed_assets.errors import shorten
from feed_assets.issues import FieldPath
from feed_assets.json_form import Hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A mistake in the text, with its position."""

    code: str
    message: str
    remedy: str
    line: int
    column: int


class NoteKind(StrEnum):
    """How a part of the document was imported: unchanged, in another form, to be checked by a person, refused by
    `validate` as it is, or not supported here.
    """

    CARRIED = "carried over"
    MAPPED = "mapped"
    CHECK = "to check"
    REFUSED = "validate refuses"
    UNABLE = "cannot run here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An import note about a part of a document, for the person who imports it; `path` leads to the part."""

    kind: NoteKind
    message: str
    line: int | None = None
    path: Hidden[FieldPath] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shorten(self.message))


@dataclass(slots=True, kw_only=True)
class PlainDocument:
    """One document: its plain value, the line and column of each key and list item, and the mistakes found in it.

    `readable` is what stands above a syntax error, if it can be read by itself. `is_presence_checked` means that
    parsing has already reported missing keys, so they are not reported again.
    """

    line: int
    value: object = None
    readable: object = None
    positions: dict[FieldPath, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    is_presence_checked: bool = False
