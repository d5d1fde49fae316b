"""What people ask of the ways out: which there are and how far they have come, to try one, to deliver, to try again."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from uuid import uuid4

from feed_assets.alerts.delivery.errors import UnknownWayError
from feed_assets.alerts.delivery.port import Letter, Outcome
from feed_assets.alerts.delivery.rounds import MESSAGES_A_STEP, RoundResult, deliver
from feed_assets.alerts.delivery.senders import open_sender
from feed_assets.alerts.delivery.store import Deliveries, DeliveryCounts, WaysOut, WayState
from feed_assets.alerts.delivery.ways import Way, Ways, apply_ways, read_ways
from feed_assets.alerts.delivery.words import TEST
from feed_assets.clock import Clock, TimeBudget
from feed_assets.entities.common import Kind
from feed_assets.errors import describe_error
from feed_assets.json_form import Hidden, shows
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import InstanceEnd, InstanceOperation, InstancePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.patience import Patience
from feed_assets.plan.records import Plan
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime

RETRY = "notify retry"
"""The action in the audit."""
_NONE = DeliveryCounts()


@shows("counts", "again=open, dead")
@shows("out", "away_since=down_since, error")
@shows("way", "channel, receiver")
@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWay:
    """A way out: its receiver without secrets, what it chooses, and how far it has come.

    `pending` counts messages after its cursor that it wants. A way that cannot be used has a `fault`.
    """

    name: str
    way: Hidden[Way | None] = None
    out: Hidden[WayState | None] = None
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
        return ", ".join((*self.topics, *self.levels, *(self.entities or ()))) or "everything but arrival"

    @property
    def state(self) -> str:
        """Whether it can be used, for people."""
        if self.fault is not None or self.out is None or self.out.down_since is None:
            return self.fault or "ready"
        again = f", tried again at {render_datetime(self.next_at)}" if self.next_at else ""
        return f"away since {render_datetime(self.out.down_since)}{again}: {self.out.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedWay:
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
    """How many dead letters of a way are tried again, and how many are not, since their messages are cleaned up."""

    way: str
    letters: int
    gone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WayDesk:
    """The ways out of a project, for commands. With `dry_run` nothing is sent or changed."""

    settings: Settings
    database: Database
    plan: Plan
    clock: Clock
    author: str = ""
    dry_run: bool = False

    def ways(self) -> tuple[ListedWay, ...]:
        """Return all ways, those with a fault last."""
        ways = self._ways()
        with self.database.read() as connection:
            states, counts = WaysOut(connection).all(), Deliveries(connection).counts()
        found = [
            self._listed(way, states.get(name), counts.get(name, _NONE)) for name, way in sorted(ways.usable.items())
        ]
        return (*found, *(ListedWay(name=name, fault=str(fault)) for name, fault in sorted(ways.faults.items())))

    def test(self, name: str) -> tuple[TriedWay, ...]:
        """Send a letter that only tries a way, or each way of a receiver. It is in no outbox, and moves no cursor.

        Raises:
            DeliveryError: there is no such way, or it cannot be used.
        """
        found = [(way, None if self.dry_run else self._try(way)) for way in self._choose([name])]
        return tuple(
            TriedWay(
                name=way.name,
                receiver=way.receiver,
                verdict=outcome.verdict.value if outcome else "not sent",
                error=outcome.error if outcome else None,
            )
            for way, outcome in found
        )

    def send(self, names: Collection[str]) -> tuple[RoundResult, ...]:
        """Deliver now what is pending on some ways (all without names), and what waits to be tried again, each once.

        A way that cannot be used, or that fails, has its error in its result, and holds up no other.

        Raises:
            DeliveryError: there is no way of a name, or it cannot be used.
        """
        ways = self._choose(names)
        usable, faults = self._ways()
        results: dict[str, RoundResult | Exception] = {} if names else dict(sorted(faults.items()))
        if self.dry_run:
            listed = {each.name: each for each in self.ways()}
            results |= {
                way.name: RoundResult(way=way.name, delivered=listed[way.name].pending + listed[way.name].counts.open)
                for way in ways
            }
        else:
            apply_ways(self.database, usable, self.clock.now())
            holder, budget = f"command/{uuid4().hex[:12]}", TimeBudget.ample()
            call = partial(deliver, self.database, clock=self.clock, budget=budget, holder=holder, now_or_never=True)
            answers = Patience(None).ask({way.name: partial(call, way) for way in ways})
            results |= {name: answer.value for name, answer in answers.items()}
        return tuple(
            RoundResult(way=name, error=describe_error(result)) if isinstance(result, Exception) else result
            for name, result in results.items()
        )

    def retry(self, names: Collection[str]) -> tuple[Retried, ...]:
        """Let the dead letters of some ways (all without names) be tried again.

        Raises:
            UnknownWayError: there is no such way.
        """
        found = []
        for way in self._choose(names):
            with self.database.read() as connection:
                seqs = [each.seq for each in Deliveries(connection).dead([way.name])]
                there = Outbox(connection).get_many(seqs) if seqs else {}
            gone = [seq for seq in seqs if seq not in there]
            found.append(Retried(way=way.name, letters=len(there), gone=len(gone)))
            if seqs and not self.dry_run:
                self._revive(way.name, list(there), gone)
        return tuple(found)

    def _revive(self, way: str, seqs: Collection[int], gone: Collection[int]) -> None:
        now = self.clock.now()
        details = {"letters": len(seqs), "gone": len(gone)}
        with self.database.begin() as connection:
            Audit(connection).append(
                AuditEntry(recorded_at=now, author=self.author, action=RETRY, target=way, details=details)
            )
            Deliveries(connection).revive(way, seqs, now)
            Deliveries(connection).remove(way, gone)

    def _ways(self) -> Ways:
        return read_ways(self.settings, self.plan)

    def _choose(self, names: Collection[str]) -> list[Way]:
        """Return the ways of some names, of ways or of receivers of the settings; all without names."""
        usable, faults = self._ways()
        known = {name for way in usable.values() for name in (way.name, way.listener) if name is not None}
        for name in names:
            if name in faults:
                raise faults[name]
            if name not in known:
                raise UnknownWayError(name=name, similar=get_close_matches(name, known), known=sorted(usable))
        return [way for _, way in sorted(usable.items()) if not names or {way.name, way.listener} & {*names}]

    def _try(self, way: Way) -> Outcome:
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
        key = f"test/{way.name}/{now.isoformat()}"
        sender = open_sender(way)
        try:
            return sender.send(Letter(message=OutboxMessage(recorded_at=now, payload=payload, idempotency_key=key)))
        finally:
            sender.close()

    def _listed(self, way: Way, state: WayState | None, counts: DeliveryCounts) -> ListedWay:
        subjects = None if way.subjects is None and not way.is_chosen_only else {*(way.subjects or ()), *way.chosen}
        return ListedWay(
            name=way.name,
            way=way,
            out=state,
            counts=counts,
            topics=tuple(sorted(way.topics)),
            levels=tuple(sorted(way.levels)),
            entities=None if subjects is None else tuple(sorted("/".join(key) for key in subjects)),
            pending=self._count_pending(way, state.cursor) if state is not None else 0,
            next_at=max(filter(None, (counts.next_at, state.next_at if state else None)), default=None),
        )

    def _count_pending(self, way: Way, cursor: int) -> int:
        """Return how many messages after a cursor a way wants; this reads what is new, and nothing before."""
        count = 0
        with self.database.read() as connection:
            while heads := Outbox(connection).heads(cursor, MESSAGES_A_STEP):
                wanted = Outbox(connection).get_many([head.seq for head in heads if way.wants(head)])
                count += sum(map(way.accepts, wanted.values()))
                cursor = heads[-1].seq
        return count
