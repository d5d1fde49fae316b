"""Descriptive facts of entities, in their records."""

from dataclasses import dataclass, field
from typing import NamedTuple

from feed_assets.entities.common import Occasion
from feed_assets.entities.metadata import MetadataKey
from feed_assets.receivers import Channel


class SayingRecord(NamedTuple):
    """A property or tag that a file says of an entity, or of one of its columns, and the line; a tag has no value.

    No dataclass: the cached plan of 1,500 entities would take 60 ms longer to load (measured).
    """

    column: str | None
    key: MetadataKey
    value: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRecord:
    """Who is told of an entity, of what, and whether of every attempt."""

    channel: Channel
    to: tuple[str, ...] = field(repr=False)
    on: tuple[Occasion, ...]
    every_attempt: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """What an entity says beside its work: it may change without a new release.

    Descriptive fields are shown in the UI and searched; `says` are metadata of it and its columns. Its messages have a
    user topic unless `has_user_topic` is false.
    """

    description: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = ()
    owner: str | None = None
    file: str | None = None
    line: int | None = None
    says: tuple[SayingRecord, ...] = ()
    notification: NotificationRecord | None = None
    has_user_topic: bool = True
