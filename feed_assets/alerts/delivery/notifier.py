"""Deliver what is due on all ways out, a little at a time: what a tick does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from uuid import uuid4

from feed_assets.alerts.delivery.rounds import RoundResult, deliver, find_due
from feed_assets.alerts.delivery.ways import Ways, apply_ways, read_ways
from feed_assets.clock import Clock, TimeBudget
from feed_assets.errors import NoAnswerError, describe_error
from feed_assets.masking import get_logger
from feed_assets.patience import Patience
from feed_assets.plan.records import Plan
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

SECONDS_A_TICK = 20.0
"""How long a round may begin further messages."""
WAIT_SECONDS = 1.0
"""How long a tick waits for its rounds. They go on without it, and their ways are left alone meanwhile."""

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a tick has done: rounds that have ended, ways that are still at work, and those that cannot be used."""

    rounds: tuple[RoundResult, ...] = ()
    at_work: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    ways: int = 0

    def render(self) -> str:
        """Return a phrase for people."""
        parts = [describe_round(each) for each in self.rounds]
        parts += [f"{name} is still at work" for name in self.at_work]
        parts += [f"{name} cannot be used: {reason}" for name, reason in sorted(self.faults.items())]
        if not parts:
            return "nothing to deliver" if self.ways else "no receiver is declared"
        return "; ".join(parts)


def describe_round(done: RoundResult) -> str:
    """Return what a round has done, in a phrase.

    >>> describe_round(RoundResult(way="ops", delivered=2, failed=1, error="it answers 500"))
    'ops: 2 delivered, 1 tried again later (it answers 500)'
    """
    if done.is_busy:
        return f"{done.way}: another worker delivers"
    parts = [f"{done.delivered} delivered"] if done.delivered or not (done.failed or done.dead or done.is_away) else []
    parts += [f"{done.failed} tried again later"] if done.failed else []
    parts += [f"{done.dead} dead letters"] if done.dead else []
    parts += ["the receiver is away"] if done.is_away else []
    return f"{done.way}: {', '.join(parts)}" + (f" ({done.error})" if done.error else "")


@dataclass
class Notifier:
    """Delivers for one process. Ways are read anew when the plan is another one."""

    settings: Settings
    _patience: Patience = field(default_factory=lambda: Patience(WAIT_SECONDS))
    _holder: str = field(default_factory=lambda: f"notify/{uuid4().hex[:12]}")
    _known: tuple[Plan, Ways] | None = None

    def ways(self, plan: Plan) -> Ways:
        """Return the ways of a plan."""
        known = self._known
        if known is None or known[0] is not plan:
            known = self._known = (plan, read_ways(self.settings, plan))
        return known[1]

    def run(self, database: Database, plan: Plan, clock: Clock) -> Told:
        """Deliver what is due. Without news this takes two short transactions that only read.

        A way that cannot be used, or whose receiver does not answer, holds up no other.
        """
        usable, faults = self.ways(plan)
        now = clock.now()
        apply_ways(database, usable, now)
        due = find_due(database, usable, now)
        calls = {
            name: partial(deliver, database, usable[name], clock, TimeBudget(SECONDS_A_TICK), self._holder)
            for name in due
        }
        reasons = {name: str(fault) for name, fault in faults.items()}
        rounds, at_work = [], []
        for name, answer in self._patience.ask(calls).items() if calls else ():
            match answer.value:
                case RoundResult() as done:
                    rounds.append(done)
                case NoAnswerError():
                    at_work.append(name)
                case Exception() as error:
                    reasons[name] = describe_error(error)
                    _logger.debug("way out %s", name, exc_info=error)
        _warn(rounds, reasons, now)
        return Told(rounds=tuple(rounds), at_work=tuple(at_work), faults=reasons, ways=len(usable))


def _warn(rounds: list[RoundResult], faults: Mapping[str, str], now: datetime) -> None:
    for done in rounds:
        if done.dead or done.is_away:
            _logger.warning("%s", describe_round(done))
    for name, reason in faults.items():
        _logger.warning("%s at %s: %s", name, now.isoformat(), reason)
