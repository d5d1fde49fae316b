"""What a forecast says of an instance: the probability of a miss, and in one sentence why. Pure."""

from dataclasses import dataclass
from datetime import datetime

from feed_assets.alerts.forecasting.chains import Chain, OpenDeadline
from feed_assets.alerts.forecasting.outlooks import FEWEST
from feed_assets.json_form import Hidden, shows

_LEAST = 0.001
"""Probabilities are given in thousandths; nothing is certain before the deadline."""


@shows("deadline", "kind, name, cluster, nominal_time, level, due_at")
@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How probable it is that an instance misses a deadline, by `earlier` ones; `probability` is None if there are not
    enough of them.
    """

    deadline: Hidden[OpenDeadline]
    probability: float | None
    earlier: int
    reason: str

    @property
    def share(self) -> str:
        """The probability for people."""
        return "unknown" if self.probability is None else f"{self.probability:.1%}"

    @property
    def sentence(self) -> str:
        """The forecast for people."""
        if self.probability is None:
            return self.reason
        return f"it will miss this deadline with a probability of {self.probability:.0%}: {self.reason}"

    def is_at_risk(self, warn_at: float) -> bool:
        """Return whether people are warned of it."""
        return self.probability is not None and self.probability >= warn_at


def decide_forecast(deadline: OpenDeadline, chain: Chain, as_of: datetime) -> Forecast:
    """Return what a chain says of a deadline."""
    probability = chain.share_after((deadline.due_at - as_of).total_seconds())
    few = f"not enough history: {chain.earlier} earlier instances, and {FEWEST} are needed"
    return Forecast(
        deadline=deadline,
        probability=None if probability is None else min(max(round(probability, 3), _LEAST), 1 - _LEAST),
        earlier=chain.earlier,
        reason=few if probability is None else chain.reason,
    )
