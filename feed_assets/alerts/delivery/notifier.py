"""Deliver: what a tick does for all receivers, a little at a time, and what people ask of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from uuid import uuid4

from feed_assets.alerts.delivery.errors import UnknownReceiverError
from feed_assets.alerts.delivery.port import Letter
from feed_assets.alerts.delivery.receivers import Receiver, Receivers, apply_receivers, read_receivers
from feed_assets.alerts.delivery.rounds import MESSAGES_A_STEP, RoundResult, deliver, find_due
from feed_assets.alerts.delivery.senders import open_sender
from feed_assets.alerts.delivery.store import Deliveries, DeliveryCounts, ReceiverState, ReceiverStates
from feed_assets.alerts.delivery.words import TEST
from feed_assets.clock import Clock, TimeBudget
from feed_assets.command_lines import command_line
from feed_assets.entities.common import Kind
from feed_assets.errors import NoAnswerError, describe_error, find_similar
from feed_assets.json_form import Hidden, shows
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import InstanceEnd, InstanceOperation, InstancePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.masking import get_logger
from feed_assets.patience import Patience
from feed_assets.plan.records import Plan
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime

SECONDS_A_TICK = 20.0
"""How long a round may begin further messages."""
WAIT_SECONDS = 1.0
"""How long a tick waits for its rounds. They go on without it, and their receivers are left alone meanwhile."""

_NONE = DeliveryCounts()
_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a tick has done: rounds that have ended, receivers that are still at work, and those that cannot be used."""

    rounds: tuple[RoundResult, ...] = ()
    at_work: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    receivers: int = 0

    def render(self) -> str:
        """Return a phrase for people."""
        parts = [describe_round(each) for each in self.rounds]
        parts += [f"{name} is still at work" for name in self.at_work]
        parts += [f"{name} cannot be used: {reason}" for name, reason in sorted(self.faults.items())]
        if not parts:
            return "nothing to deliver" if self.receivers else "no receiver is declared"
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
    """Delivers for one process. Receivers are read anew when the plan is another one."""

    settings: Settings
    _patience: Patience = field(default_factory=lambda: Patience(WAIT_SECONDS))
    _holder: str = field(default_factory=lambda: f"notify/{uuid4().hex[:12]}")
    _known: tuple[Plan, Receivers] | None = None

    def receivers(self, plan: Plan) -> Receivers:
        """Return the receivers of a plan."""
        known = self._known
        if known is None or known[0] is not plan:
            known = self._known = (plan, read_receivers(self.settings, plan))
        return known[1]

    def run(self, database: Database, plan: Plan, clock: Clock) -> Told:
        """Deliver what is due. Without news this takes two short transactions that only read.

        A receiver that cannot be used, or does not answer, holds up no other.
        """
        usable, faults = self.receivers(plan)
        now = clock.now()
        apply_receivers(database, usable, now)
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
                    _logger.debug("receiver %s", name, exc_info=error)
        _warn(rounds, reasons, now)
        return Told(rounds=tuple(rounds), at_work=tuple(at_work), faults=reasons, receivers=len(usable))


def _warn(rounds: list[RoundResult], faults: Mapping[str, str], now: datetime) -> None:
    for done in rounds:
        if done.dead or done.is_away:
            _logger.warning("%s", describe_round(done))
    for name, reason in faults.items():
        _logger.warning("%s at %s: %s", name, now.isoformat(), reason)


@shows("counts", "again=open, dead")
@shows("out", "away_since=down_since, error")
@shows("of", "channel, receiver=shown_address")
@dataclass(frozen=True, slots=True, kw_only=True)
class ListedReceiver:
    """A receiver: its address without secrets, what it chooses, and how far it has come.

    `pending` counts messages after its cursor that it wants. A receiver that cannot be used has a `fault`.
    """

    name: str
    of: Hidden[Receiver | None] = None
    out: Hidden[ReceiverState | None] = None
    counts: Hidden[DeliveryCounts] = _NONE
    topics: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    entities: tuple[str, ...] | None = None
    pending: int = 0
    next_at: datetime | None = None
    fault: str | None = None

    @property
    def choice(self) -> str:
        """Which messages it gets, for people."""
        return ", ".join((*self.topics, *self.levels, *(self.entities or ()))) or "everything but arrival, lineage"

    @property
    def state(self) -> str:
        """Whether it can be used, for people."""
        if self.fault is None and self.out is None:
            begin = command_line("notify", "send")
            return f"not begun: it gets what happens after the next tick of the sensor notify, or after {begin}"
        if self.fault is not None or self.out is None or self.out.down_since is None:
            return self.fault or "ready"
        again = f", tried again at {render_datetime(self.next_at)}" if self.next_at else ""
        return f"away since {render_datetime(self.out.down_since)}{again}: {self.out.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedReceiver:
    """The answer of a receiver to a letter that only tries it."""

    name: str
    receiver: str
    verdict: str
    error: str | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a letter was sent, and not taken."""
        return self.verdict not in ("delivered", "not sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """How many dead letters of a receiver are tried again; others are `gone`: their messages are cleaned up."""

    way: str
    letters: int
    gone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverDesk:
    """The receivers of a project, for commands. With `dry_run` nothing is sent or changed."""

    settings: Settings
    database: Database
    plan: Plan
    clock: Clock
    author: str = ""
    dry_run: bool = False

    def receivers(self) -> tuple[ListedReceiver, ...]:
        """Return all receivers, those with a fault last."""
        usable, faults = read_receivers(self.settings, self.plan)
        with self.database.read() as connection:
            states, counts = ReceiverStates(connection).all(), Deliveries(connection).counts()
        found = [self._listed(each, states.get(name), counts[name]) for name, each in sorted(usable.items())]
        found += [ListedReceiver(name=name, fault=str(fault)) for name, fault in sorted(faults.items())]
        return tuple(found)

    def test(self, name: str) -> tuple[TriedReceiver, ...]:
        """Send a letter that only tries a receiver, or each of a setting. It is in no outbox, and moves no cursor.

        Raises:
            DeliveryError: there is no such receiver, or it cannot be used.
        """
        return tuple(map(self._try, self._choose([name])))

    def send(self, names: Collection[str]) -> tuple[RoundResult, ...]:
        """Deliver now what is pending for some receivers (all without names), and what waits, each once.

        A receiver that cannot be used, or that fails, has its error in its result, and holds up no other.

        Raises:
            DeliveryError: there is no receiver of a name, or it cannot be used.
        """
        chosen = self._choose(names)
        usable, faults = read_receivers(self.settings, self.plan)
        results: dict[str, RoundResult | Exception] = {} if names else dict(sorted(faults.items()))
        if self.dry_run:
            results |= {
                each.name: RoundResult(way=each.name, delivered=each.pending + each.counts.open)
                for each in self.receivers()
                if each.of in chosen
            }
        else:
            apply_receivers(self.database, usable, self.clock.now())
            holder, budget = f"command/{uuid4().hex[:12]}", TimeBudget.ample()
            call = partial(deliver, self.database, clock=self.clock, budget=budget, holder=holder, now_or_never=True)
            answers = Patience(None).ask({each.name: partial(call, each) for each in chosen})
            results |= {name: answer.value for name, answer in answers.items()}
        return tuple(
            RoundResult(way=name, error=describe_error(result)) if isinstance(result, Exception) else result
            for name, result in results.items()
        )

    def retry(self, names: Collection[str]) -> tuple[Retried, ...]:
        """Let the dead letters of some receivers (all without names) be tried again.

        Raises:
            UnknownReceiverError: there is no such receiver.
        """
        now, found = self.clock.now(), []
        for name in (each.name for each in self._choose(names)):
            with self.database.read() as connection:
                seqs = [each.seq for each in Deliveries(connection).dead([name])]
                there = Outbox(connection).get_many(seqs) if seqs else {}
            gone = [seq for seq in seqs if seq not in there]
            found.append(Retried(way=name, letters=len(there), gone=len(gone)))
            if seqs and not self.dry_run:
                details = {"letters": len(there), "gone": len(gone)}
                entry = AuditEntry(
                    recorded_at=now, author=self.author, action="notify retry", target=name, details=details
                )
                with self.database.begin() as connection:
                    Audit(connection).append(entry)
                    Deliveries(connection).revive(name, list(there), now)
                    Deliveries(connection).remove(name, gone)
        return tuple(found)

    def _choose(self, names: Collection[str]) -> list[Receiver]:
        """Return the receivers of some names, their own or of settings; all without names."""
        usable, faults = read_receivers(self.settings, self.plan)
        known = {name for each in usable.values() for name in (each.name, each.setting) if name is not None}
        for name in names:
            if name in faults:
                raise faults[name]
            if name not in known:
                raise UnknownReceiverError(name=name, similar=find_similar(name, known), known=sorted(usable))
        return [each for _, each in sorted(usable.items()) if not names or {each.name, each.setting} & {*names}]

    def _try(self, receiver: Receiver) -> TriedReceiver:
        tried = TriedReceiver(name=receiver.name, receiver=receiver.shown_address, verdict="not sent")
        if self.dry_run:
            return tried
        now = self.clock.now()
        payload = InstancePayload(
            cluster="test",
            entity_name="test",
            entity_type=Kind.PROCESS,
            nominal_time=now.replace(second=0, microsecond=0),
            operation=InstanceOperation.GENERATE,
            status=InstanceEnd.SUCCEEDED,
            time_stamp=now,
            others={TEST: True},
        )
        key = f"test/{receiver.name}/{now.isoformat()}"
        sender = open_sender(receiver, self.database)
        try:
            message = OutboxMessage(recorded_at=now, payload=payload, idempotency_key=key)
            outcome = sender.send(Letter(message=message))
            return replace(tried, verdict=outcome.verdict.value, error=outcome.error)
        finally:
            sender.close()

    def _listed(self, receiver: Receiver, state: ReceiverState | None, counts: DeliveryCounts) -> ListedReceiver:
        is_any = receiver.subjects is None and not receiver.is_chosen_only
        subjects = None if is_any else {*(receiver.subjects or ()), *receiver.chosen}
        return ListedReceiver(
            name=receiver.name,
            of=receiver,
            out=state,
            counts=counts,
            topics=tuple(sorted(receiver.topics)),
            levels=tuple(sorted(receiver.levels)),
            entities=None if subjects is None else tuple(sorted("/".join(key) for key in subjects)),
            pending=self._count_pending(receiver, state.cursor) if state is not None else 0,
            next_at=max(filter(None, (counts.next_at, state.next_at if state else None)), default=None),
        )

    def _count_pending(self, receiver: Receiver, cursor: int) -> int:
        """Return how many messages after a cursor a receiver wants; this reads what is new, and nothing before."""
        count = 0
        with self.database.read() as connection:
            while heads := Outbox(connection).heads(cursor, MESSAGES_A_STEP):
                wanted = Outbox(connection).get_many([head.seq for head in heads if receiver.wants(head)])
                count += sum(map(receiver.accepts, wanted.values()))
                cursor = heads[-1].seq
        return count
