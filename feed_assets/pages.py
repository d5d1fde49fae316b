"""Pages: some of many things as the result of an operation, and how many there are, as far as they are counted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

PAGES = "--num-results and --offset show more"
COUNTED = 10_000
"""So many rows are counted; of more it is said that there are more, as to count millions takes seconds."""
_Item = TypeVar("_Item")


class MoreThan(int):
    """A number of things, of which there are more."""


def up_to(count: int, end: int) -> int:
    """Return a number of things, as far as they are counted: never less than those up to the `end` of a page.

    >>> up_to(7, 10), up_to(11_000, 10), up_to(11_000, 10_990), isinstance(up_to(11_000, 10), MoreThan)
    (7, 10000, 10990, True)
    """
    most = max(COUNTED, end)
    return MoreThan(most) if count > most else count


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[_Item]):
    """Some of all `total` things, from `offset` on; `summary` says so, and which options show others."""

    items: tuple[_Item, ...]
    total: int
    what: str
    more: str = "--limit shows more"
    offset: int = 0
    """How many of all things stand before these."""
    none: str = ""
    """What is said if there is nothing at all."""

    @classmethod
    def of(cls, items: Iterable[_Item]) -> Self:
        """Return a page with all things."""
        found = tuple(items)
        return cls(items=found, total=len(found), what="")

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form, with the things under a name."""
        return {
            name: self.items,
            "total": self.total,
            "more_than_total": isinstance(self.total, MoreThan),
            "has_more": has_more(self.offset + len(self.items), self.total),
        }

    @property
    def has_failed(self) -> bool:
        """Whether one of them has failed."""
        return any(getattr(each, "has_failed", False) for each in self.items)

    @property
    def summary(self) -> str:
        """How many of all are there, if not all are."""
        return tell_shown(len(self.items), self.total, self.what, self.more) if self.total else self.none

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of those that have some."""
        return tuple(note for each in self.items for note in getattr(each, "notes", ()))


def has_more(shown: int, total: int) -> bool:
    """Return whether there are others behind the first ones that were shown."""
    return total > shown or isinstance(total, MoreThan)


def tell_shown(shown: int, total: int, what: str, more: str) -> str:
    """Return how many of all things are shown, and which options show others; nothing if all are.

    >>> tell_shown(10, up_to(20_000, 10), "instances", PAGES)
    '10 of more than 10,000 instances; --num-results and --offset show more'
    """
    of = "more than " if isinstance(total, MoreThan) else ""
    return f"{shown:,} of {of}{total:,} {what}; {more}" if has_more(shown, total) else ""
