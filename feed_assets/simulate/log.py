"""The lines of a simulation's log: what came, what ran, which batches were cut, and what is left."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from feed_assets.json_form import NominalTime
from feed_assets.timing.dates import render_datetime


class SimulatedEvent(StrEnum):
    """The kinds of events in a simulation."""

    ARRIVED = "arrived"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    CUT = "batch cut"
    PASSED = "passed over"
    ASKED_FOR = "asked for"
    RUN = "run"
    LATE_RUN = "run again"
    FAILED = "failed"
    DIED = "worker died"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"
    RESTARTED = "daemon restarted"
    CLOCK_SET = "clock set"
    MISSED = "never ran"
    LEFT = "left pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShare:
    """What became of the events of one input: which the batch has taken, which were passed over, and which are pending
    after that, by their numbers in the log. Of many pending ones the oldest are listed.
    """

    input: str
    feed: str
    taken: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """An event of a simulation, with its instance if it has one; `note` has details for people. `at` is the true
    time. `event` is the number in the log of what somebody gave notice of, and `queue` what a batch does to it.
    """

    at: datetime
    what: SimulatedEvent
    entity: str = ""
    cluster: str = ""
    nominal_time: NominalTime | None = None
    note: str = ""
    event: int | None = None
    queue: tuple[QueueShare, ...] = ()

    def render(self) -> str:
        """Return the line for people."""
        who = f" {self.entity}" if self.entity else ""
        when = f" {render_datetime(self.nominal_time)}" if self.nominal_time else ""
        where = f" on {self.cluster}" if self.cluster else ""
        note = f": {self.note}" if self.note else ""
        return f"{render_datetime(self.at)} {self.what.value}{who}{when}{where}{note}"
