"""Values about deadlines: a missed deadline of an instance, how it ended, and the pauses that move deadlines."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from feed_assets.json_form import NominalTime
from feed_assets.log.messages.levels import SlaLevel


class Recovery(StrEnum):
    """Why an instance is not late any more."""

    ARRIVED = "arrived"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    EVICTED = "evicted"
    DELETED = "deleted"
    UNDECLARED = "undeclared"
    MOVED = "moved"


class SlaKey(NamedTuple):
    """A missed deadline. An instance that misses the same deadline again, since its SLA has changed, has a new
    `episode`.
    """

    kind: str
    name: str
    cluster: str
    nominal_time: datetime
    level: SlaLevel
    episode: int


class LateInstance(NamedTuple):
    """An instance of a feed or process on a cluster, with deadlines."""

    kind: str
    name: str
    cluster: str
    nominal_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaMiss:
    """A deadline that an instance has missed.

    It was due at `due_at`, and found missed at `missed_at`. `told_at` is when the message of it was written; None if
    the instance had come by then, so that it is only recorded. `shown_at` is when Dagster was told. While
    `recovered_at` is None, the instance is late.
    """

    kind: str
    name: str
    cluster: str
    nominal_time: NominalTime
    level: SlaLevel
    episode: int = 1
    due_at: datetime
    missed_at: datetime
    told_at: datetime | None = None
    recovered_at: datetime | None = None
    recovered_by: Recovery | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    shown_at: datetime | None = None

    @property
    def key(self) -> SlaKey:
        """The missed deadline."""
        return SlaKey(self.kind, self.name, self.cluster, self.nominal_time, self.level, self.episode)

    @property
    def instance(self) -> LateInstance:
        """The instance that has missed it."""
        return LateInstance(self.kind, self.name, self.cluster, self.nominal_time)

    @property
    def is_open(self) -> bool:
        """Whether the instance is late now."""
        return self.recovered_at is None


class Recovered(NamedTuple):
    """A missed deadline whose instance is not late any more: by what, and since when."""

    miss: SlaMiss
    by: Recovery
    at: datetime


class OpenCount(NamedTuple):
    """How many instances of an entity on a cluster are late by a level, and the oldest and newest of them.

    `acknowledged` are counted, too. `nominal_seconds` sums up the seconds from their nominal times to now.
    """

    kind: str
    name: str
    cluster: str
    level: SlaLevel
    instances: int
    acknowledged: int
    oldest: datetime
    newest: datetime
    nominal_seconds: int


class SlaPause(NamedTuple):
    """A time in which a process was not scheduled. It moves the deadlines of the instances that it has met."""

    process: str
    cluster: str
    begun_at: datetime
    ended_at: datetime


class Starts(NamedTuple):
    """When the first attempt at an instance began, and when the first successful one ended."""

    started_at: datetime
    succeeded_at: datetime | None
