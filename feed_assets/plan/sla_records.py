"""The compiled SLA of a feed or process on a cluster: how long after its nominal time an instance is late."""

from dataclasses import dataclass
from datetime import datetime

from feed_assets.entities.common import Sla
from feed_assets.entities.process import ProcessSla
from feed_assets.timing.frequency import Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaRecord:
    """The deadlines of the instances, from their nominal times: after `low` a warning, after `high` an error.

    Of a feed, both are until the instance is there. Of a process, `low` is until it starts, if that is declared, and
    `high` until it succeeds. `since` is the first nominal time with deadlines; None means those that fall due from the
    declaration on. `warn_at` is the probability of a miss that is told before it happens.
    """

    low: Frequency | None
    high: Frequency
    since: datetime | None = None
    warn_at: float | None = None

    def render(self) -> str:
        """Return the text form, `low hours(1), high hours(3)`."""
        low = f"low {self.low.render()}, " if self.low is not None else ""
        return f"{low}high {self.high.render()}"


def compile_sla(sla: Sla | ProcessSla | None) -> SlaRecord | None:
    """Compile a validated SLA; None if there is none, or it has no end."""
    match sla:
        case Sla(low=low, high=high):
            return SlaRecord(low=low, high=high, since=sla.since, warn_at=sla.warn_at)
        case ProcessSla(should_start_in=low, should_end_in=high) if high is not None:
            return SlaRecord(low=low, high=high, since=sla.since, warn_at=sla.warn_at)
        case _:
            return None
