"""Store how far each receiver has come, and the deliveries that are not done: to be tried again, or dead letters."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import and_, func, or_, select, update

from feed_assets.alerts.delivery.tables import IS_DEAD, IS_OPEN, deliveries, receiver_states
from feed_assets.issues import EntityKey
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys

FORGOTTEN_AFTER = timedelta(hours=24)
"""A receiver that nobody has declared for so long begins anew, and no message is kept for it."""

_S = receiver_states.c
_D = deliveries.c


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverState:
    """How far a receiver has come: every message up to `cursor` is delivered, not wanted, or has a `Delivery`.

    `seen_at` is when it was last declared, to the hour. While its receiver is away, `tries` counts the failures since
    `down_since`, and it is tried again at `next_at`. `holder` delivers until `held_until`.
    """

    name: str
    cursor: int
    seen_at: datetime
    tries: int = 0
    down_since: datetime | None = None
    next_at: datetime | None = None
    error: str | None = None
    holder: str | None = None
    held_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message that a receiver has not delivered: it is tried again at `next_at`, or is a dead letter since `dead_at`.

    `since` is when it was first tried, or began to wait behind an earlier message of its entity.
    """

    way: str
    seq: int
    kind: str
    entity: str
    since: datetime
    tries: int = 0
    next_at: datetime | None = None
    dead_at: datetime | None = None
    error: str | None = None

    @property
    def subject(self) -> EntityKey:
        """The entity that the message is about."""
        return (self.kind, self.entity)


class DeliveryCounts(NamedTuple):
    """How many messages of a receiver are tried again, when the first of them is, and how many are dead letters."""

    open: int = 0
    next_at: datetime | None = None
    dead: int = 0


_STATES = RowMapper(receiver_states, ReceiverState)
_DELIVERIES = RowMapper(deliveries, Delivery)


class ReceiverStates(TableStore):
    """The states of receivers as one transaction sees them."""

    def all(self) -> dict[str, ReceiverState]:
        """Return the state of every receiver by name."""
        return {each.name: each for each in _STATES.find(self._connection, _STATES.select.order_by(_S.name))}

    def add(self, states: Iterable[ReceiverState]) -> None:
        """Add receivers; those that are there stay as they are."""
        _STATES.put_absent(self._connection, states)

    def note_seen(self, names: Iterable[str], now: datetime) -> None:
        """Record that receivers are declared."""
        for name in sorted(names):
            self._connection.execute(update(receiver_states).where(_S.name == name).values(seen_at=now))

    def claim(self, name: str, holder: str, now: datetime, until: datetime) -> ReceiverState | None:
        """Let a worker deliver to a receiver until a time; return the state, or None while another one delivers."""
        is_free = or_(_S.holder.is_(None), _S.holder == holder, _S.held_until < now)
        claimed = update(receiver_states).where(_S.name == name, is_free).values(holder=holder, held_until=until)
        if self._connection.execute(claimed).rowcount != 1:
            return None
        return _STATES.find_one(self._connection, _STATES.select.where(_S.name == name))

    def put(self, state: ReceiverState, holder: str) -> bool:
        """Write the state of a receiver that a worker holds; return whether it still held it."""
        values = {name: value for name, value in _STATES.values(state).items() if name not in ("name", "seen_at")}
        written = update(receiver_states).where(_S.name == state.name, _S.holder == holder).values(**values)
        return self._connection.execute(written).rowcount == 1

    def release(self, name: str, holder: str) -> None:
        """End a claim."""
        released = (
            update(receiver_states).where(_S.name == name, _S.holder == holder).values(holder=None, held_until=None)
        )
        self._connection.execute(released)

    def advance(self, names: Collection[str], cursor: int) -> None:
        """Move receivers on that nobody holds and that answer, over messages that they do not want."""
        for name in sorted(names):
            is_idle = and_(_S.name == name, _S.holder.is_(None), _S.cursor < cursor)
            self._connection.execute(update(receiver_states).where(is_idle).values(cursor=cursor))

    def remove(self, names: Iterable[str]) -> None:
        """Forget receivers, and what they have not delivered."""
        names = sorted(names)
        delete_keys(self._connection, receiver_states, ("name",), [(name,) for name in names])
        delete_keys(self._connection, deliveries, ("way",), [(name,) for name in names])

    def told_up_to(self) -> int | None:
        """Return the number up to which every receiver has been told: no receiver needs these messages any more.

        None if there is no receiver, so that nobody waits. Dead letters do not count.
        """
        cursor: int | None = self._connection.scalar(select(func.min(_S.cursor)))
        first: int | None = self._connection.scalar(select(func.min(_D.seq)).where(IS_OPEN))
        return cursor if first is None or cursor is None else min(cursor, first - 1)


class Deliveries(TableStore):
    """The deliveries that are not done, as one transaction sees them."""

    def open_of(self, receiver: str, limit: int) -> list[Delivery]:
        """Return at most `limit` deliveries of a receiver that are tried again, oldest message first."""
        statement = _DELIVERIES.select.where(IS_OPEN, _D.way == receiver).order_by(_D.seq).limit(limit)
        return _DELIVERIES.find(self._connection, statement)

    def dead(self, receivers: Collection[str] | None = None) -> list[Delivery]:
        """Return dead letters, oldest message first; of some receivers if given."""
        statement = _DELIVERIES.select.where(IS_DEAD).order_by(_D.way, _D.seq)
        if receivers is not None:
            statement = statement.where(_D.way.in_(sorted(receivers)))
        return _DELIVERIES.find(self._connection, statement)

    def of_messages(self, seqs: Collection[int]) -> list[Delivery]:
        """Return the deliveries of a few messages that are not done."""
        return _DELIVERIES.find(self._connection, _DELIVERIES.select.where(_D.seq.in_(sorted(seqs))))

    def counts(self) -> dict[str, DeliveryCounts]:
        """Return how many deliveries of each receiver are not done."""
        opened = self._connection.execute(
            select(_D.way, func.count(), func.min(_D.next_at)).where(IS_OPEN).group_by(_D.way)
        )
        found = defaultdict(DeliveryCounts, {each: DeliveryCounts(count, next_at) for each, count, next_at in opened})
        for receiver, count in self._connection.execute(select(_D.way, func.count()).where(IS_DEAD).group_by(_D.way)):
            found[receiver] = found[receiver]._replace(dead=count)
        return found

    def put(self, found: Iterable[Delivery]) -> None:
        """Record deliveries that are not done; replace what was recorded of the same message and receiver."""
        _DELIVERIES.put(self._connection, found)

    def remove(self, receiver: str, seqs: Iterable[int]) -> None:
        """Forget deliveries of a receiver: they are done."""
        delete_keys(self._connection, deliveries, ("way", "seq"), [(receiver, seq) for seq in seqs])

    def revive(self, receiver: str, seqs: Collection[int], now: datetime) -> int:
        """Let dead letters of a receiver be tried again from now; return how many."""
        revived = update(deliveries).where(IS_DEAD, _D.way == receiver, _D.seq.in_(sorted(seqs)))
        return self._connection.execute(revived.values(dead_at=None, next_at=now, since=now, tries=0)).rowcount
