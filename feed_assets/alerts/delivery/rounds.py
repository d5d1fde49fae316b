"""Deliver messages: choose what is due, send it outside any transaction, and record what came of it.

At least once: a letter is sent before it is recorded as delivered, so after a crash it is sent again, with the same
key. In order for each entity: a letter that was not taken lets the later ones of its entity wait, and no others.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event, local

from feed_assets.alerts.delivery.port import Letter, Outcome, Sender, Verdict
from feed_assets.alerts.delivery.receivers import Receiver
from feed_assets.alerts.delivery.senders import open_sender, threads_of
from feed_assets.alerts.delivery.store import Deliveries, Delivery, ReceiverState, ReceiverStates
from feed_assets.clock import Clock, TimeBudget
from feed_assets.context.bulkheads import NOT_CONFINED
from feed_assets.errors import describe_error
from feed_assets.issues import EntityKey
from feed_assets.log.messages.outbox import MessageHead, Outbox
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.masking import get_logger
from feed_assets.sql.database import Database
from feed_assets.timing.dates import NEVER

MESSAGES_A_STEP = 400
"""How many messages are chosen, sent and recorded at once."""
MOST_OPEN = 1_000
"""How many deliveries of a receiver may wait to be tried again before it takes no further messages."""
FIRST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
GIVE_UP_AFTER = timedelta(hours=24)
HELD_FOR = timedelta(minutes=2)
"""How long a worker has a receiver for itself without saying that it still works."""
SECONDS_A_STEP = 60.0
"""After this time no further message of a step is begun, so that a worker says in time that it still works."""

_logger = get_logger(__name__)


def pause_after(tries: int) -> timedelta:
    """Return how long a receiver is left alone after a number of failures: a minute, doubled to an hour.

    >>> [str(pause_after(tries)) for tries in (1, 2, 3, 7, 99)]
    ['0:01:00', '0:02:00', '0:04:00', '1:00:00', '1:00:00']
    """
    return min(FIRST_PAUSE * (1 << min(tries - 1, 10)), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is tried next for a receiver: numbers of messages by entity, in order.

    `known` are the deliveries among them that were not done before. `waiting` are new ones behind an earlier message of
    their entity. With all of it recorded, the receiver has come to `cursor`.
    """

    groups: Mapping[EntityKey, Sequence[int]]
    known: Mapping[int, Delivery]
    waiting: Sequence[Delivery]
    cursor: int

    @property
    def seqs(self) -> list[int]:
        """The numbers of all messages that are tried."""
        return sorted(seq for seqs in self.groups.values() for seq in seqs)


def decide_step(state: ReceiverState, opened: Sequence[Delivery], heads: Sequence[MessageHead], now: datetime) -> Step:
    """Decide what to try. `opened` are the open deliveries of the receiver, `heads` wanted messages after its cursor;
    both in order.
    """
    groups: dict[EntityKey, list[int]] = {}
    waits_until: dict[EntityKey, datetime] = {}
    for each in opened:
        next_at = each.next_at or now
        if each.subject in groups or (each.subject not in waits_until and next_at <= now):
            groups.setdefault(each.subject, []).append(each.seq)
        else:
            waits_until.setdefault(each.subject, next_at)
    waiting = []
    for head in heads:
        if head.subject in waits_until:
            kind, entity = head.subject
            next_at = waits_until[head.subject]
            waiting.append(Delivery(way=state.name, seq=head.seq, kind=kind, entity=entity, since=now, next_at=next_at))
        else:
            groups.setdefault(head.subject, []).append(head.seq)
    tried = {seq for seqs in groups.values() for seq in seqs}
    return Step(
        groups=groups,
        known={each.seq: each for each in opened if each.seq in tried},
        waiting=waiting,
        cursor=max([state.cursor, *(head.seq for head in heads)]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is recorded of a step: the state of the receiver, deliveries that are done, and those that are not."""

    state: ReceiverState
    done: Sequence[int]
    undone: Sequence[Delivery]
    dead: int


def decide_record(
    state: ReceiverState, step: Step, outcomes: Mapping[int, Outcome], upto: int, now: datetime
) -> Record:
    """Decide what to record of a step. Messages without an outcome were not tried; `upto` is the last number that was
    looked at, wanted or not.
    """
    subjects = {seq: subject for subject, seqs in step.groups.items() for seq in seqs}
    away = next((each for each in outcomes.values() if each.verdict is Verdict.AWAY), None)
    answers = {seq: each for seq, each in outcomes.items() if each.verdict is not Verdict.AWAY}
    failed_at: dict[EntityKey, datetime] = {}
    done, undone = [], []
    untried = [seq for seq in step.seqs if seq not in answers]
    for seq, answer in sorted(answers.items()):
        known = step.known.get(seq) or _new(state.name, seq, subjects[seq], now)
        match answer.verdict:
            case Verdict.DELIVERED:
                done.append(seq)
            case verdict if verdict is Verdict.REFUSED or known.since + GIVE_UP_AFTER <= now:
                undone.append(replace(known, tries=known.tries + 1, next_at=None, dead_at=now, error=answer.error))
            case _:
                tries = known.tries + 1
                next_at = failed_at[subjects[seq]] = now + pause_after(tries)
                undone.append(replace(known, tries=tries, next_at=next_at, error=answer.error))
    last = max([seq for seq in answers if seq not in step.known], default=state.cursor)
    left = [seq for seq in untried if seq not in step.known and seq > last]
    cursor = min(left) - 1 if left else max(upto, step.cursor)
    for seq in untried:
        if seq in step.known or seq <= cursor:
            known = step.known.get(seq) or _new(state.name, seq, subjects[seq], now)
            undone.append(replace(known, next_at=failed_at.get(subjects[seq], now)))
    undone += [each for each in step.waiting if each.seq <= cursor]
    state = _with_health(replace(state, cursor=max(state.cursor, cursor)), away, bool(answers), now)
    return Record(state=state, done=done, undone=undone, dead=sum(each.dead_at is not None for each in undone))


def _new(receiver: str, seq: int, subject: EntityKey, now: datetime) -> Delivery:
    return Delivery(way=receiver, seq=seq, kind=subject[0], entity=subject[1], since=now)


def _with_health(state: ReceiverState, away: Outcome | None, has_answered: bool, now: datetime) -> ReceiverState:
    if away is not None:
        tries = 1 if has_answered else state.tries + 1
        since = now if has_answered or state.down_since is None else state.down_since
        return replace(state, tries=tries, down_since=since, next_at=now + pause_after(tries), error=away.error)
    return replace(state, tries=0, down_since=None, next_at=None, error=None) if has_answered else state


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What a round has done for a receiver. `is_busy` if another worker delivers to it, so that nothing was done."""

    way: str
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    error: str | None = None
    is_away: bool = False
    is_busy: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What people are told beside the numbers."""
        return (f"{self.way}: another worker delivers now",) if self.is_busy else ()

    @property
    def has_failed(self) -> bool:
        """Whether something was not taken."""
        return bool(self.failed or self.dead or self.error or self.is_busy)


@dataclass
class Round:
    """Delivers to one receiver, until nothing is due, it is away, or the time is spent: each message once."""

    database: Database
    receiver: Receiver
    clock: Clock
    budget: TimeBudget
    holder: str
    _tried: set[int] = field(default_factory=set)
    _senders: list[Sender] = field(default_factory=list)
    _own: local = field(default_factory=local)
    _pool: ThreadPoolExecutor | None = None
    _stop: Event = field(default_factory=Event)
    _step_budget: TimeBudget = field(default_factory=TimeBudget.ample)

    def run(self, *, now_or_never: bool = False) -> RoundResult:
        """Deliver what is due; with `now_or_never` also what waits to be tried again.

        Raises:
            DeliveryError: the receiver cannot be used at all.
        """
        now = self.clock.now()
        with self.database.begin() as connection:
            state = ReceiverStates(connection).claim(self.receiver.name, self.holder, now, now + HELD_FOR)
        if state is None:
            return RoundResult(way=self.receiver.name, is_busy=True)
        try:
            return self._deliver(state, now_or_never=now_or_never)
        finally:
            if self._pool is not None:
                self._pool.shutdown()
            for sender in self._senders:
                sender.close()
            with self.database.begin() as connection:
                ReceiverStates(connection).release(self.receiver.name, self.holder)

    def _deliver(self, state: ReceiverState, *, now_or_never: bool) -> RoundResult:
        result = RoundResult(way=self.receiver.name)
        if state.next_at is not None and state.next_at > self.clock.now() and not now_or_never:
            return replace(result, is_away=True, error=state.error)
        while not self.budget.is_spent:
            now = self.clock.now()
            step, messages, gone, upto = self._next(state, now, now_or_never=now_or_never)
            outcomes = self._send(step, messages, is_probe=state.tries > 0)
            self._tried.update(outcomes)
            record = decide_record(state, step, outcomes, upto, self.clock.now())
            if not self._write(record, gone):
                return replace(result, is_busy=True)
            has_more, state = upto > state.cursor, record.state
            verdicts = [each.verdict for each in outcomes.values()]
            result = replace(
                result,
                delivered=result.delivered + verdicts.count(Verdict.DELIVERED),
                failed=result.failed + verdicts.count(Verdict.FAILED),
                dead=result.dead + record.dead,
                error=next((each.error for each in outcomes.values() if each.error), result.error),
                is_away=Verdict.AWAY in verdicts,
            )
            if result.is_away:
                return replace(result, dead=result.dead + self._give_up(state))
            if not has_more:
                break
        return result

    def _next(
        self, state: ReceiverState, now: datetime, *, now_or_never: bool
    ) -> tuple[Step, Mapping[int, OutboxMessage], list[int], int]:
        """Return the next step, the messages, the deliveries whose messages are gone, and the last number that was
        looked at.
        """
        with self.database.read() as connection:
            opened = Deliveries(connection).open_of(self.receiver.name, MOST_OPEN)
            heads = [] if len(opened) >= MOST_OPEN else Outbox(connection).heads(state.cursor, MESSAGES_A_STEP)
            if now_or_never:
                opened = [each if each.seq in self._tried else replace(each, next_at=now) for each in opened]
            wanted = [head for head in heads if self.receiver.wants(head)]
            messages = Outbox(connection).get_many([*(each.seq for each in opened), *(head.seq for head in wanted)])
        gone = [each.seq for each in opened if each.seq not in messages]
        opened = [each for each in opened if each.seq in messages]
        wanted = [head for head in wanted if head.seq in messages and self.receiver.accepts(messages[head.seq])]
        step = decide_step(state, opened, wanted, now)
        return step, messages, gone, heads[-1].seq if heads else state.cursor

    def _send(self, step: Step, messages: Mapping[int, OutboxMessage], *, is_probe: bool) -> dict[int, Outcome]:
        """Send the messages of a step: those of an entity one after the other, those of several side by side.

        To a receiver that was away, one message is sent before all others.
        """
        outcomes: dict[int, Outcome] = {}
        self._step_budget = TimeBudget(SECONDS_A_STEP)
        groups = [[messages[seq] for seq in seqs] for seqs in step.groups.values()]
        if is_probe and groups:
            first, *others = groups[0]
            outcomes |= self._send_group([first])
            answer = outcomes.get(first.seq)
            if answer is None or answer.verdict is Verdict.AWAY:
                return outcomes
            groups = groups[1:] if answer.verdict is Verdict.FAILED else [others, *groups[1:]]
        threads = min(threads_of(self.receiver), len(groups))
        if threads <= 1:
            for group in groups:
                outcomes.update(self._send_group(group))
            return outcomes
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads_of(self.receiver), thread_name_prefix=self.receiver.name)
        for sent in self._pool.map(self._send_group, groups):
            outcomes |= sent
        return outcomes

    def _send_group(self, messages: Iterable[OutboxMessage]) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        for message in messages:
            if self._stop.is_set() or self.budget.is_spent or self._step_budget.is_spent:
                break
            letter = Letter(message=message, webserver=self.receiver.webserver)
            sender = self._sender()
            try:
                outcome = sender.send(letter)
            except NOT_CONFINED as exc:
                outcome = Outcome(verdict=Verdict.FAILED, error=describe_error(exc))
            except Exception as exc:
                outcome = Outcome(verdict=Verdict.REFUSED, error=f"it cannot be composed: {describe_error(exc)}")
                _logger.warning("message %d to %s", message.seq, self.receiver.name, exc_info=exc)
            outcomes[message.seq] = outcome
            if outcome.verdict is Verdict.AWAY:
                self._stop.set()
            if outcome.verdict in (Verdict.AWAY, Verdict.FAILED):
                break
        return outcomes

    def _sender(self) -> Sender:
        """Return the sender of this thread."""
        sender: Sender | None = getattr(self._own, "sender", None)
        if sender is None:
            sender = self._own.sender = open_sender(self.receiver, self.database)
            self._senders.append(sender)
        return sender

    def _write(self, record: Record, gone: Sequence[int]) -> bool:
        """Record a step; return whether nobody has taken over. Messages that are gone are not delivered."""
        held = replace(record.state, holder=self.holder, held_until=self.clock.now() + HELD_FOR)
        with self.database.begin() as connection:
            if not ReceiverStates(connection).put(held, self.holder):
                return False
            store = Deliveries(connection)
            store.remove(self.receiver.name, [*record.done, *gone])
            store.put(record.undone)
        return True

    def _give_up(self, state: ReceiverState) -> int:
        """Make dead letters of what was to be delivered a day ago, if the receiver has been away for so long."""
        now, dead = self.clock.now(), 0
        if state.down_since is None or state.down_since + GIVE_UP_AFTER > now:
            return 0
        with self.database.begin() as connection:
            opened = Deliveries(connection).open_of(self.receiver.name, MOST_OPEN)
            old = [each for each in opened if each.since + GIVE_UP_AFTER <= now]
            Deliveries(connection).put(replace(each, next_at=None, dead_at=now, error=state.error) for each in old)
            dead += len(old)
        while not self.budget.is_spent:
            with self.database.begin() as connection:
                heads = Outbox(connection).heads(state.cursor, MESSAGES_A_STEP)
                old_heads = [head for head in heads if head.recorded_at + GIVE_UP_AFTER <= now]
                if not old_heads:
                    break
                wanted = [head for head in old_heads if self.receiver.wants(head)]
                Deliveries(connection).put(
                    replace(_new(self.receiver.name, head.seq, head.subject, now), dead_at=now, error=state.error)
                    for head in wanted
                )
                state = replace(state, cursor=old_heads[-1].seq, holder=self.holder, held_until=now + HELD_FOR)
                ReceiverStates(connection).put(state, self.holder)
                dead += len(wanted)
        return dead


def deliver(
    database: Database, receiver: Receiver, clock: Clock, budget: TimeBudget, holder: str, *, now_or_never: bool = False
) -> RoundResult:
    """Deliver to a receiver what is due; see `Round.run`."""
    return Round(database=database, receiver=receiver, clock=clock, budget=budget, holder=holder).run(
        now_or_never=now_or_never
    )


def find_due(database: Database, receivers: Mapping[str, Receiver], now: datetime) -> list[str]:
    """Return the names of the receivers for which something is due.

    Those that want none of the new messages are moved on over them. Without news this is one query for each table, by
    indexes.
    """
    with database.read() as connection:
        states, last = ReceiverStates(connection).all(), Outbox(connection).last_seq()
        counts = Deliveries(connection).counts()
        found = {name: state for name, state in states.items() if name in receivers}
        due = {
            name
            for name, state in found.items()
            if (state.next_at is None or state.next_at <= now)
            and ((state.tries > 0 and state.cursor < last) or (counts[name].next_at or NEVER) <= now)
        }
        idle = {name: s for name, s in found.items() if s.cursor < last and s.tries == 0 and name not in due}
        first = min((state.cursor for state in idle.values()), default=last)
        heads = Outbox(connection).heads(first, MESSAGES_A_STEP) if idle else []
    unwanting = []
    for name, state in idle.items():
        if any(head.seq > state.cursor and receivers[name].wants(head) for head in heads) or (
            heads and state.cursor >= heads[-1].seq
        ):
            due.add(name)
        else:
            unwanting.append(name)
    if unwanting and heads:
        with database.begin() as connection:
            ReceiverStates(connection).advance(unwanting, heads[-1].seq)
        if heads[-1].seq < last:
            due.update(unwanting)
    return sorted(due)
