"""Descriptive facts of entities, in their records."""

from dataclasses import dataclass
from typing import NamedTuple

from feed_assets.entities.metadata import MetadataKey


class SayingRecord(NamedTuple):
    """A property or tag that a file says of an entity, or of one of its columns, and the line; a tag has no value.

    No dataclass: the cached plan of 1,500 entities would take 60 ms longer to load (measured).
    """

    column: str | None
    key: MetadataKey
    value: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """Descriptive fields of an entity, shown in the UI and searched; `says` are metadata of it and its columns."""

    description: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = ()
    owner: str | None = None
    file: str | None = None
    line: int | None = None
    says: tuple[SayingRecord, ...] = ()
