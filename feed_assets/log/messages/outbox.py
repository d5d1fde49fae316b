"""Store messages for other programs: written in the transaction that they describe, and read by number."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    tuple_,
)

from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey
from feed_assets.log.messages.payloads import ArrivalPayload
from feed_assets.log.messages.records import OutboxMessage, parse_payload, rename_members, render_payload
from feed_assets.plan.edges import Key
from feed_assets.receivers import MessageLevel, Topic
from feed_assets.sql.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.sql.database import lock_log
from feed_assets.sql.names import NAMES_BY_KIND, content_in, names, paths_in
from feed_assets.sql.rows import KEY_ROWS, TableStore, count_rows, key_rows, render_rows, select_keys
from feed_assets.sql.tables import metadata

_KEYS = [paths_in(each, f"entity/{each}/") for each in (Kind.FEED, Kind.PROCESS)]

outbox = Table(
    "fa_outbox",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("topic", Choice(Topic), nullable=False),
    Column("payload", Payload, info=names(content_in(rename_members))),
    Column("idempotency_key", Text, nullable=False, info=names(*_KEYS)),
    Column("user_topic", Text),
    Column("level", Choice(MessageLevel)),
    Column("kind", Text),
    Column("entity", Text, info=NAMES_BY_KIND),
    Index("fa_outbox_by_key", "idempotency_key", unique=True),
    Index("fa_outbox_by_topic", "topic", "seq"),
)


_T = outbox.c
_COLUMNS = (_T.seq, _T.topic, _T.recorded_at, _T.payload, _T.idempotency_key, _T.user_topic)


class MessageHead(NamedTuple):
    """What a receiver chooses a message by."""

    seq: int
    topic: Topic
    level: MessageLevel | None
    subject: EntityKey
    recorded_at: datetime


class Outbox(TableStore):
    """The messages as one transaction sees them. None is lost or changed."""

    def append_many(self, messages: Sequence[OutboxMessage]) -> int:
        """Add messages, in the given order; return how many were new.

        A message whose idempotency key exists already, or twice in `messages`, is not added again. Numbers have no
        gaps, and a reader that has seen n will never find a new message below n. Takes the lock of the log
        (`lock_log`).
        """
        if not messages:
            return 0
        lock_log(self._connection)
        first_of_key = {message.idempotency_key: message for message in reversed(messages)}
        known = self.find_keys(first_of_key)
        last = self.last_seq()
        new = [message for message in messages if first_of_key[message.idempotency_key] is message]
        new = [message for message in new if message.idempotency_key not in known]
        if new:
            self._connection.execute(insert(outbox), [_row(message, seq) for seq, message in enumerate(new, last + 1)])
        return len(new)

    def read(
        self, after: int, limit: int, topic: Topic | None = None, without: Collection[EntityKey] = ()
    ) -> list[OutboxMessage]:
        """Return at most `limit` messages with a number above `after`, in order; for readers with a cursor. Of one
        topic if given, and none about some entities.
        """
        conditions, given = self._later(after, topic, without)
        statement = select(*_COLUMNS).where(*conditions).order_by(_T.seq).limit(limit)
        return [_load(row) for row in self._connection.execute(statement, given)]

    def heads(self, after: int, limit: int) -> list[MessageHead]:
        """Return what ways choose messages by, for at most `limit` messages above `after`, in order."""
        columns = (_T.seq, _T.topic, _T.level, _T.kind, _T.entity, _T.recorded_at)
        statement = select(*columns).where(_T.seq > after).order_by(_T.seq).limit(limit)
        return [
            MessageHead(seq, topic, level, (kind or "", entity or ""), recorded_at)
            for seq, topic, level, kind, entity, recorded_at in self._connection.execute(statement)
        ]

    def get_many(self, seqs: Collection[int]) -> dict[int, OutboxMessage]:
        """Return messages by number; those that are not there any more are left out."""
        rows = select_keys(self._connection, outbox, ("seq",), _COLUMNS, [(seq,) for seq in sorted(seqs)])
        return {row.seq: _load(row) for row in rows}

    def count(self, after: int, end: int, topic: Topic | None = None, without: Collection[EntityKey] = ()) -> int:
        """Return how many messages have a number above `after` (see `count_rows`), as `read` returns them."""
        conditions, given = self._later(after, topic, without)
        return count_rows(self._connection, select(_T.seq).where(*conditions), end, given)

    def _later(
        self, after: int, topic: Topic | None, without: Collection[EntityKey]
    ) -> tuple[list[ColumnElement[bool]], dict[str, str]]:
        found = [_T.seq > after, *([] if topic is None else [_T.topic == topic])]
        if not without:
            return found, {}
        made = key_rows(self._dialect, ("kind", "entity"))
        begins = func.substr(_T.entity, 1, func.length(made.c.entity) + 1)
        of_work = begins.in_([made.c.entity + "@", made.c.entity + "."])
        work = select(made.c.kind).where(made.c.kind == Kind.FEED, of_work)
        is_about = tuple_(_T.kind, _T.entity).in_(select(made.c.kind, made.c.entity))
        is_work = and_(or_(_T.entity.contains("@"), _T.entity.contains(".")), exists(work))
        return [*found, or_(_T.entity.is_(None), ~or_(is_about, is_work))], {KEY_ROWS: render_rows(without)}

    def count_old(self, before: datetime, up_to: int | None) -> int:
        """Return how many messages `remove_old` would remove without a limit."""
        young = select(_T.seq).where(_T.recorded_at >= before).order_by(_T.seq).limit(1)
        end = min(self._last_old(up_to), (self._connection.scalar(young) or self.last_seq()) - 1)
        return self._connection.scalar(select(func.count()).select_from(outbox).where(_T.seq <= end)) or 0

    def remove_old(self, before: datetime, up_to: int | None, limit: int) -> int:
        """Remove at most `limit` messages from the beginning of the log that are older than `before`, up to the number
        `up_to` if given; return how many. The newest message stays, so that numbers are never used again.
        """
        statement = select(_T.seq, _T.recorded_at).where(_T.seq <= self._last_old(up_to)).order_by(_T.seq).limit(limit)
        found = list(takewhile(lambda row: row.recorded_at < before, self._connection.execute(statement)))
        if found:
            self._connection.execute(delete(outbox).where(_T.seq <= found[-1].seq))
        return len(found)

    def _last_old(self, up_to: int | None) -> int:
        last = self.last_seq() - 1
        return last if up_to is None else min(last, up_to)

    def last_seq(self) -> int:
        """Return the number of the newest message; 0 if there is none."""
        return self._connection.scalar(select(func.max(_T.seq))) or 0

    def find_keys(self, keys: Collection[str]) -> dict[str, int]:
        """Return the numbers of the messages that have one of the idempotency keys, by key."""
        names, columns = ("idempotency_key",), (_T.idempotency_key, _T.seq)
        rows = select_keys(self._connection, outbox, names, columns, [(key,) for key in keys])
        return {row.idempotency_key: row.seq for row in rows}


def _row(message: OutboxMessage, seq: int) -> dict[str, Any]:
    kind, entity = message.payload.subject
    return {
        "seq": seq,
        "topic": message.topic,
        "recorded_at": message.recorded_at,
        "payload": render_payload(message.payload),
        "idempotency_key": message.idempotency_key,
        "user_topic": message.user_topic,
        "level": message.payload.level,
        "kind": kind,
        "entity": entity,
    }


def _load(row: Any) -> OutboxMessage:
    return OutboxMessage(
        seq=row.seq,
        recorded_at=row.recorded_at,
        payload=parse_payload(row.topic, row.payload),
        idempotency_key=row.idempotency_key,
        user_topic=row.user_topic,
    )


def tell_arrived(
    connection: Connection, kind: Kind, arrived: Iterable[tuple[str, str, datetime, object]], now: datetime
) -> None:
    """Write a message for each entity of what has come: name, cluster, nominal time, and what no other arrival has.

    The first of an entity names its message, so that a repeat adds none. Takes the lock of the log.
    """
    by_entity: dict[Key, list[tuple[datetime, object]]] = defaultdict(list)
    for name, cluster, nominal_time, mark in arrived:
        by_entity[name, cluster].append((nominal_time, mark))
    messages = []
    for (name, cluster), found in by_entity.items():
        at = [nominal_time for nominal_time, _ in found]
        payload = ArrivalPayload(kind=kind, entity=name, cluster=cluster, count=len(at), oldest=min(at), newest=max(at))
        key = f"arrival/{kind.value}/{name}/{cluster}/{found[0][1]}"
        messages.append(OutboxMessage(recorded_at=now, payload=payload, idempotency_key=key))
    Outbox(connection).append_many(messages)
