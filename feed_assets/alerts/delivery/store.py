"""Store how far each way out has come, and the deliveries that are not done: to be tried again, or dead letters."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import and_, func, or_, select, update

from feed_assets.alerts.delivery.tables import IS_DEAD, IS_OPEN, deliveries, ways_out
from feed_assets.issues import EntityKey
from feed_assets.sql.rows import RowMapper, TableStore, delete_keys

FORGOTTEN_AFTER = timedelta(hours=24)
"""A way out that nobody has declared for so long begins anew, and no message is kept for it."""

_W = ways_out.c
_D = deliveries.c


@dataclass(frozen=True, slots=True, kw_only=True)
class WayState:
    """How far a way out has come: every message up to `cursor` is delivered, not wanted, or has a `Delivery`.

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
    """A message that a way out has not delivered: it is tried again at `next_at`, or is a dead letter since `dead_at`.

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
    """How many messages of a way are tried again, when the first of them is, and how many are dead letters."""

    open: int = 0
    next_at: datetime | None = None
    dead: int = 0


_WAYS = RowMapper(ways_out, WayState)
_DELIVERIES = RowMapper(deliveries, Delivery)


class WaysOut(TableStore):
    """The states of ways out as one transaction sees them."""

    def all(self) -> dict[str, WayState]:
        """Return the state of every way by name."""
        return {each.name: each for each in _WAYS.find(self._connection, _WAYS.select.order_by(_W.name))}

    def add(self, states: Iterable[WayState]) -> None:
        """Add ways; those that are there stay as they are."""
        _WAYS.put_absent(self._connection, states)

    def note_seen(self, names: Iterable[str], now: datetime) -> None:
        """Record that ways are declared."""
        for name in sorted(names):
            self._connection.execute(update(ways_out).where(_W.name == name).values(seen_at=now))

    def claim(self, name: str, holder: str, now: datetime, until: datetime) -> WayState | None:
        """Let a worker deliver on a way until a time; return the state, or None while another one delivers."""
        is_free = or_(_W.holder.is_(None), _W.holder == holder, _W.held_until < now)
        claimed = update(ways_out).where(_W.name == name, is_free).values(holder=holder, held_until=until)
        if self._connection.execute(claimed).rowcount != 1:
            return None
        return _WAYS.find_one(self._connection, _WAYS.select.where(_W.name == name))

    def put(self, state: WayState, holder: str) -> bool:
        """Write the state of a way that a worker holds; return whether it still held it."""
        values = {name: value for name, value in _WAYS.values(state).items() if name not in ("name", "seen_at")}
        written = update(ways_out).where(_W.name == state.name, _W.holder == holder).values(**values)
        return self._connection.execute(written).rowcount == 1

    def release(self, name: str, holder: str) -> None:
        """End a claim."""
        released = update(ways_out).where(_W.name == name, _W.holder == holder).values(holder=None, held_until=None)
        self._connection.execute(released)

    def advance(self, names: Collection[str], cursor: int) -> None:
        """Move ways on that nobody holds and whose receivers answer, over messages that they do not want."""
        for name in sorted(names):
            is_idle = and_(_W.name == name, _W.holder.is_(None), _W.cursor < cursor)
            self._connection.execute(update(ways_out).where(is_idle).values(cursor=cursor))

    def remove(self, names: Iterable[str]) -> None:
        """Forget ways, and what they have not delivered."""
        names = sorted(names)
        delete_keys(self._connection, ways_out, ("name",), [(name,) for name in names])
        delete_keys(self._connection, deliveries, ("way",), [(name,) for name in names])

    def told_up_to(self) -> int | None:
        """Return the number up to which every way has been told: no way needs these messages any more.

        None if there is no way, so that nobody waits. Dead letters do not count.
        """
        cursor: int | None = self._connection.scalar(select(func.min(_W.cursor)))
        first: int | None = self._connection.scalar(select(func.min(_D.seq)).where(IS_OPEN))
        return cursor if first is None or cursor is None else min(cursor, first - 1)


class Deliveries(TableStore):
    """The deliveries that are not done, as one transaction sees them."""

    def open_of(self, way: str, limit: int) -> list[Delivery]:
        """Return at most `limit` deliveries of a way that are tried again, oldest message first."""
        statement = _DELIVERIES.select.where(IS_OPEN, _D.way == way).order_by(_D.seq).limit(limit)
        return _DELIVERIES.find(self._connection, statement)

    def dead(self, ways: Collection[str] | None = None, limit: int | None = None) -> list[Delivery]:
        """Return dead letters, oldest message first; of some ways if given."""
        statement = _DELIVERIES.select.where(IS_DEAD).order_by(_D.way, _D.seq).limit(limit)
        if ways is not None:
            statement = statement.where(_D.way.in_(sorted(ways)))
        return _DELIVERIES.find(self._connection, statement)

    def of_messages(self, seqs: Collection[int]) -> list[Delivery]:
        """Return the deliveries of a few messages that are not done."""
        return _DELIVERIES.find(self._connection, _DELIVERIES.select.where(_D.seq.in_(sorted(seqs))))

    def counts(self) -> dict[str, DeliveryCounts]:
        """Return how many deliveries of each way are not done; ways without any are left out."""
        opened = self._connection.execute(
            select(_D.way, func.count(), func.min(_D.next_at)).where(IS_OPEN).group_by(_D.way)
        )
        found = {way: DeliveryCounts(count, next_at) for way, count, next_at in opened}
        for way, count in self._connection.execute(select(_D.way, func.count()).where(IS_DEAD).group_by(_D.way)):
            found[way] = found.get(way, DeliveryCounts())._replace(dead=count)
        return found

    def put(self, found: Iterable[Delivery]) -> None:
        """Record deliveries that are not done; replace what was recorded of the same message and way."""
        _DELIVERIES.put(self._connection, found)

    def remove(self, way: str, seqs: Iterable[int]) -> None:
        """Forget deliveries of a way: they are done."""
        delete_keys(self._connection, deliveries, ("way", "seq"), [(way, seq) for seq in seqs])

    def revive(self, way: str, seqs: Collection[int], now: datetime) -> int:
        """Let dead letters of a way be tried again from now; return how many."""
        revived = update(deliveries).where(IS_DEAD, _D.way == way, _D.seq.in_(sorted(seqs)))
        return self._connection.execute(revived.values(dead_at=None, next_at=now, since=now, tries=0)).rowcount
