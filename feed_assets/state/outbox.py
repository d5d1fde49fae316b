"""Messages for the world outside, written in the transaction that they tell of and sent afterwards."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from feed_assets.state.database import lock_log
from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.retention_schema import IS_UNSENT, outbox
from feed_assets.state.sweep_records import OutboxMessage

_T = outbox.c
_COLUMNS = (_T.seq, _T.topic, _T.recorded_at, _T.payload, _T.idempotency_key, _T.sent_at)
_MARK = update(outbox).where(_T.seq == bindparam("number"), IS_UNSENT).values(sent_at=bindparam("moment"))


class Outbox:
    """The messages as one transaction sees them. None is lost or changed; one may be sent twice after a crash."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append_many(self, messages: Sequence[OutboxMessage]) -> int:
        """Add messages, in the order given; how many were new.

        One whose idempotency key is there already, or twice in `messages`, is not added again. Numbers have no gaps,
        and a reader that has seen n will never find a new message below n. Takes the turn of the log (`lock_log`).
        """
        if not messages:
            return 0
        lock_log(self._connection)
        first_of_key = {message.idempotency_key: message for message in reversed(messages)}
        known = self._find_keys(first_of_key)
        last = self.last_seq()
        new = [message for message in messages if first_of_key[message.idempotency_key] is message]
        new = [message for message in new if message.idempotency_key not in known]
        if new:
            rows = [_to_row(message, seq) for seq, message in enumerate(new, last + 1)]
            self._connection.execute(insert(outbox), rows)
        return len(new)

    def unsent(self, limit: int, topic: str | None = None) -> list[OutboxMessage]:
        """At most `limit` messages that were not sent yet, oldest first; of one topic if given."""
        statement = select(*_COLUMNS).where(IS_UNSENT).order_by(_T.seq).limit(limit)
        if topic is not None:
            statement = statement.where(_T.topic == topic)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def mark_sent(self, seqs: Iterable[int], moment: datetime) -> None:
        """Note that messages were sent; those that were already keep their time."""
        parameters = [{"number": seq, "moment": moment} for seq in sorted(seqs)]
        if parameters:
            self._connection.execute(_MARK, parameters)

    def read(self, after: int, limit: int) -> list[OutboxMessage]:
        """At most `limit` messages with a number above `after`, in order, sent or not; for readers with a cursor."""
        statement = select(*_COLUMNS).where(_T.seq > after).order_by(_T.seq).limit(limit)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def last_seq(self) -> int:
        """The number of the newest message; 0 where there is none."""
        return self._connection.scalar(select(func.max(_T.seq))) or 0

    def _find_keys(self, keys: Collection[str]) -> set[str]:
        wanted = key_rows(self._connection.dialect.name, ("idempotency_key",))
        statement = select(_T.idempotency_key).join_from(wanted, outbox, _T.idempotency_key == wanted.c.idempotency_key)
        return set(self._connection.scalars(statement, {KEY_ROWS: render_rows([key] for key in keys)}))


def _to_row(message: OutboxMessage, seq: int) -> dict[str, object]:
    return {
        "seq": seq,
        "topic": message.topic,
        "recorded_at": message.recorded_at,
        "payload": message.payload,
        "idempotency_key": message.idempotency_key,
        "sent_at": message.sent_at,
    }


def _from_row(row: Sequence[Any]) -> OutboxMessage:
    seq, topic, recorded_at, payload, key, sent_at = row
    return OutboxMessage(
        seq=seq, topic=topic, recorded_at=recorded_at, payload=payload, idempotency_key=key, sent_at=sent_at
    )
