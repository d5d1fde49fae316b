"""Pages: some of many things as the result of an operation, and how many there are in all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

PAGES = "--num-results and --offset show more"
_Item = TypeVar("_Item")


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
        return {name: self.items, "total": self.total, "has_more": self.total > self.offset + len(self.items)}

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


def tell_shown(shown: int, total: int, what: str, more: str) -> str:
    """Return how many of all things are shown, and which options show others; nothing if all are."""
    return f"{shown:,} of {total:,} {what}; {more}" if total > shown else ""
