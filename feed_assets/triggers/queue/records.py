"""Values of the queues of triggers: what a consumer has taken of the event log, its batches, and what people changed.

A consumer is a process whose instances are batches. Each of its inputs takes the events of one feed in the order of
their numbers: all up to `taken_seq` are decided, and those after it are pending. No row is deleted to take an event.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from feed_assets.log.records import EntityKey, ProcessKey


class RangeUse(StrEnum):
    """What became of the events in a range: a batch took them, or they were passed over."""

    TAKEN = "TAKEN"
    PASSED = "PASSED"


class QueueAction(StrEnum):
    """The last thing that was decided about a single event: free to be taken, dropped, held back, or passed over."""

    ADD = "ADD"
    DROP = "DROP"
    HOLD = "HOLD"
    PASS = "PASS"

    @property
    def done(self) -> str:
        """What an event is about which this was decided."""
        return {"ADD": "added", "DROP": "dropped", "HOLD": "held", "PASS": "passed over"}[self.value]


class InputKey(NamedTuple):
    """An input of a consumer, and the feed whose events it takes."""

    process: str
    cluster: str
    input: str
    feed: str
    feed_cluster: str

    @property
    def consumer(self) -> EntityKey:
        """The process that takes the events."""
        return EntityKey(self.process, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfInput:
    """What is recorded of an input of a consumer. With `counts_unchanged`, an event counts that finds the content that
    its instance had.
    """

    process: str
    cluster: str
    input: str
    feed: str
    feed_cluster: str
    counts_unchanged: bool

    @property
    def key(self) -> InputKey:
        """The input."""
        return InputKey(self.process, self.cluster, self.input, self.feed, self.feed_cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(OfInput):
    """What is pending at an input: events after `taken_seq`, and older ones that are free again.

    Events up to `start_seq` were there before it began. `marker_seq` is the first pending event that ends a batch.
    """

    start_seq: int
    taken_seq: int
    pending: int = 0
    first_seq: int | None = None
    first_at: datetime | None = None
    last_at: datetime | None = None
    marker_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerState:
    """When a consumer is looked at next.

    `sign` is of the trigger by which its marks were counted. `next_at` is the next time of its grid, `by_at` the next
    time at which what is pending runs. It is looked at from `wake_at` on; None if only an event can make it run.
    """

    process: str
    cluster: str
    sign: str
    next_at: datetime | None = None
    by_at: datetime | None = None
    wake_at: datetime | None = None

    @property
    def key(self) -> EntityKey:
        """The consumer."""
        return EntityKey(self.process, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRange(OfInput):
    """The events of a feed after `after_seq` up to `to_seq` that an input has taken, or passed over: `count` of them.

    Events about which something was decided singly are not among them. `nominal_time` is the batch that took them, or
    that passed them over; None if they came while the process was suspended.
    """

    after_seq: int
    to_seq: int
    count: int
    use: RangeUse
    nominal_time: datetime | None

    @property
    def batch(self) -> ProcessKey | None:
        """The batch that took the events or passed them over."""
        return None if self.nominal_time is None else ProcessKey(self.process, self.cluster, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """What was decided about one event of an input; `nominal_time` is the batch that has taken it since."""

    process: str
    cluster: str
    input: str
    event: int
    action: QueueAction
    author: str
    reason: str
    at: datetime
    nominal_time: datetime | None = None

    def render(self) -> str:
        """Return what was decided, by whom and why: `held by ann: ask`."""
        return f"{self.action.done} by {self.author}: {self.reason}"
