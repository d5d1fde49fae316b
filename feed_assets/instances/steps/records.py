"""Values of the steps of attempts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from feed_assets.log.records import OfProcessInstance


class StepStatus(StrEnum):
    """The status of a step in an attempt. A KEPT one is not run: an earlier attempt has done it."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    KEPT = "KEPT"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun(OfProcessInstance):
    """One step of one attempt; `position` is its place in the order of running.

    `made_in` is the attempt whose frames count: an earlier one if it is KEPT. `basis` identifies what the steps of the
    attempt work on; "" after somebody has asked for a new beginning. `frames` describes what it has yielded.
    """

    attempt: int
    step: str
    position: int
    status: StepStatus
    basis: str
    made_in: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    frames: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether what it yields is there, by the record."""
        return self.status in (StepStatus.SUCCEEDED, StepStatus.KEPT)
