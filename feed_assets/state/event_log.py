"""The append-only log of what happened to feed instances, and the places up to which its readers have read."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Integer, Select, and_, bindparam, func, insert, select

from feed_assets.state.database import lock_log
from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.records import FeedEvent, FeedEventKind, FeedKey, NewFeedEvent
from feed_assets.state.schema import HAS_KEY, cursors, feed_events
from feed_assets.state.upserts import build_upsert

_KIND = {kind.value: kind for kind in FeedEventKind}
_COLUMNS = (
    feed_events.c.seq,
    feed_events.c.feed,
    feed_events.c.cluster,
    feed_events.c.nominal_time,
    feed_events.c.kind,
    feed_events.c.origin,
    feed_events.c.recorded_at,
    feed_events.c.manifest_digest,
    feed_events.c.bytes,
    feed_events.c.files,
    feed_events.c.payload,
    feed_events.c.idempotency_key,
)
_SELECT_LAST = select(func.max(feed_events.c.seq))
_SELECT_CURSOR = select(cursors.c.value).where(cursors.c.name == bindparam("of_name"))
_SELECT_CURSORS = select(cursors.c.name, cursors.c.value).where(
    cursors.c.name.in_(bindparam("of_names", expanding=True))
)


class EventLog:
    """The log as one transaction sees it. Nothing is ever changed or deleted in it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, events: Sequence[NewFeedEvent]) -> list[int]:
        """Append events and return their sequence numbers, in the order given.

        An event whose idempotency key is in the log already, or twice in `events`, is not written again; the number
        of the first one is returned. Numbers have no gaps, and a reader that has seen n will never find a new row
        below n. On PostgreSQL the turn to append is held until the transaction ends (`lock_log`).
        """
        if not events:
            return []
        lock_log(self._connection)
        known = self._find_keys({event.idempotency_key for event in events if event.idempotency_key is not None})
        last = self.last_seq()
        seqs: list[int] = []
        rows: list[dict[str, object]] = []
        for event in events:
            key = event.idempotency_key
            seq = None if key is None else known.get(key)
            if seq is None:
                last += 1
                seq = last
                rows.append(_to_row(event, seq))
                if key is not None:
                    known[key] = seq
            seqs.append(seq)
        if rows:
            self._connection.execute(insert(feed_events), rows)
        return seqs

    def read(
        self, after: int, limit: int, feeds: Collection[str] | None = None, *, clusters: Collection[str] | None = None
    ) -> list[FeedEvent]:
        """At most `limit` events with a number above `after`, in order; only of `feeds` and of `clusters` if given.

        A reader of a few feeds that got less than `limit` goes on after `last_seq()` of the same transaction, not after
        the last event it got: else it reads what the others have logged again and again.
        """
        statement = _select_after(feeds is not None, clusters is not None)
        parameters = {
            "after": after,
            "at_most": limit,
            "of_feeds": sorted(feeds or ()),
            "on_clusters": sorted(clusters or ()),
        }
        return [_from_row(row) for row in self._connection.execute(statement, parameters)]

    def last_seq(self) -> int:
        """The sequence number of the newest event; 0 for an empty log."""
        return self._connection.scalar(_SELECT_LAST) or 0

    def for_instance(self, feed: str, cluster: str, nominal_time: datetime) -> list[FeedEvent]:
        """All events of one instance, oldest first."""
        statement = (
            select(*_COLUMNS)
            .where(
                feed_events.c.feed == feed,
                feed_events.c.cluster == cluster,
                feed_events.c.nominal_time == nominal_time,
            )
            .order_by(feed_events.c.seq)
        )
        return [_from_row(row) for row in self._connection.execute(statement)]

    def for_instances(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, list[FeedEvent]]:
        """All events of several instances in one statement, oldest first; one that has none is left out."""
        if not keys:
            return {}
        found: dict[FeedKey, list[FeedEvent]] = {}
        statement = _select_many(self._connection.dialect.name)
        for event in map(_from_row, self._connection.execute(statement, {KEY_ROWS: render_rows(keys)})):
            found.setdefault(FeedKey(event.feed, event.cluster, event.nominal_time), []).append(event)
        return {key: sorted(events, key=lambda event: event.seq) for key, events in found.items()}

    def find_key(self, idempotency_key: str) -> FeedEvent | None:
        """The event that was logged with a key."""
        statement = select(*_COLUMNS).where(feed_events.c.idempotency_key == idempotency_key, HAS_KEY)
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else _from_row(row)

    def for_feed(self, feed: str, cluster: str, kind: FeedEventKind) -> list[FeedEvent]:
        """All events of one kind of a feed on a cluster, oldest first; for reports, not for ticks."""
        statement = select(*_COLUMNS).where(
            feed_events.c.feed == feed, feed_events.c.cluster == cluster, feed_events.c.kind == kind.value
        )
        # Sorted here: asked for the order, SQLite would walk through all events of the cluster.
        found = [_from_row(row) for row in self._connection.execute(statement)]
        return sorted(found, key=lambda event: event.seq)

    def _find_keys(self, keys: Collection[str]) -> dict[str, int]:
        if not keys:
            return {}
        wanted = key_rows(self._connection.dialect.name, ("idempotency_key",))
        statement = select(feed_events.c.idempotency_key, feed_events.c.seq).join(
            wanted, feed_events.c.idempotency_key == wanted.c.idempotency_key
        )
        found = self._connection.execute(statement, {KEY_ROWS: render_rows([key] for key in keys)})
        return {row.idempotency_key: row.seq for row in found}


class Cursors:
    """How far each reader has come, by name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, name: str) -> str | None:
        """The value put last; None if there is none."""
        return self._connection.scalar(_SELECT_CURSOR, {"of_name": name})

    def get_many(self, names: Collection[str]) -> dict[str, str]:
        """The values put last, in one statement; a name without a value is left out."""
        found = self._connection.execute(_SELECT_CURSORS, {"of_names": sorted(names)})
        return {row.name: row.value for row in found}

    def put(self, name: str, value: str) -> None:
        """Remember a value, in the place of the one before."""
        upsert = build_upsert(self._connection.dialect.name, cursors)
        self._connection.execute(upsert, {"name": name, "value": value})


@lru_cache
def _select_after(of_feeds: bool, on_clusters: bool) -> Select[Any]:
    statement = select(*_COLUMNS).where(feed_events.c.seq > bindparam("after"))
    if of_feeds:
        # Concatenated, so that SQLite goes on from `after` instead of through all that the feeds ever had.
        statement = statement.where(feed_events.c.feed.concat("").in_(bindparam("of_feeds", expanding=True)))
    if on_clusters:
        statement = statement.where(feed_events.c.cluster.in_(bindparam("on_clusters", expanding=True)))
    return statement.order_by(feed_events.c.seq).limit(bindparam("at_most", type_=Integer))


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, FeedKey._fields)
    is_wanted = and_(
        feed_events.c.feed == wanted.c.feed,
        feed_events.c.cluster == wanted.c.cluster,
        feed_events.c.nominal_time == wanted.c.nominal_time,
    )
    return select(*_COLUMNS).join_from(wanted, feed_events, is_wanted)


def _to_row(event: NewFeedEvent, seq: int) -> dict[str, object]:
    return {
        "seq": seq,
        "feed": event.feed,
        "cluster": event.cluster,
        "nominal_time": event.nominal_time,
        "kind": event.kind.value,
        "origin": event.origin,
        "recorded_at": event.recorded_at,
        "manifest_digest": event.manifest_digest,
        "bytes": event.bytes,
        "files": event.files,
        "payload": event.payload,
        "idempotency_key": event.idempotency_key,
    }


def _from_row(row: Sequence[Any]) -> FeedEvent:
    seq, feed, cluster, nominal_time, kind, origin, recorded_at, digest, size, files, payload, key = row
    return FeedEvent(
        seq=seq,
        feed=feed,
        cluster=cluster,
        nominal_time=nominal_time,
        kind=_KIND[kind],
        origin=origin,
        recorded_at=recorded_at,
        manifest_digest=digest,
        bytes=size,
        files=files,
        payload=payload,
        idempotency_key=key,
    )
