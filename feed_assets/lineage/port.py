"""What a walk asks the record: what happened to this, what made it, what did that read, who read this, and who gave or
removed it. A copy is made by an attempt at its flow. Each question is about many, so a level costs a few statements.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from feed_assets.lineage.records import EdgeKind, NodeKind
from feed_assets.log.records import Attempt, FeedEvent, FeedKey, ProcessKey
from feed_assets.log.removals.records import Sweep


class Reading(NamedTuple):
    """That an attempt has read an instance by an input. `digest` is what it has frozen of the content, None if that was
    not known; `event` the number of the event that its batch has taken.
    """

    attempt: Attempt
    input: str
    instance: FeedKey
    digest: str | None
    event: int | None = None


class Giver(NamedTuple):
    """Who or what data came from: an author, an asset, a file."""

    kind: NodeKind
    name: str


class LineagePort(ABC):
    """The record up to a time. Keys without an answer are left out of what is returned."""

    @abstractmethod
    def find_events(self, keys: Collection[FeedKey]) -> Mapping[FeedKey, Sequence[FeedEvent]]:
        """Return what happened to the data of instances, oldest first."""

    @abstractmethod
    def find_attempts(self, keys: Collection[ProcessKey]) -> Mapping[ProcessKey, Sequence[Attempt]]:
        """Return the attempts at instances, oldest first; if they were cleaned up, the last, as the instance has it."""

    @abstractmethod
    def find_writers(self, keys: Collection[FeedKey]) -> Mapping[FeedKey, Sequence[Attempt]]:
        """Return the attempts at the process instances that write instances, whose events were cleaned up, in order."""

    @abstractmethod
    def find_read(self, attempts: Collection[Attempt]) -> Sequence[Reading]:
        """Return what attempts have frozen, and the events that their batches have taken."""

    @abstractmethod
    def find_readers(self, keys: Collection[FeedKey]) -> Sequence[Reading]:
        """Return who has frozen instances, or taken events of them."""

    @abstractmethod
    def find_published(self, attempts: Collection[Attempt]) -> Mapping[FeedKey, Sequence[FeedEvent]]:
        """Return as `find_events` what happened to the instances that attempts have made."""

    @abstractmethod
    def find_sweeps(self, sweep_ids: Collection[str]) -> Mapping[str, Sweep]:
        """Return the sweeps that have removed data, by their ids."""

    @abstractmethod
    def find_givers(self, events: Collection[FeedEvent]) -> Mapping[int, Sequence[Giver]]:
        """Return whom events came from, by their numbers."""

    @abstractmethod
    def find_places(self, attempts: Collection[Attempt]) -> Sequence[tuple[Attempt, EdgeKind, str]]:
        """Return what attempts have READ or MADE beside instances: directories, and tables of datasources."""
