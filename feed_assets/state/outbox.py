"""Store messages for other systems: written in the transaction that they describe, and sent afterwards."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import takewhile

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, update

from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.locks import lock_log
from feed_assets.state.retention_schema import IS_UNSENT, outbox
from feed_assets.state.rows import RowMapper
from feed_assets.state.sweep_records import OutboxMessage

_T = outbox.c
_ROWS = RowMapper(outbox, OutboxMessage)


class Outbox:
    """The messages as one transaction sees them. None is lost or changed; after a crash one may be sent twice."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

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
        known = self._find_keys(first_of_key)
        last = self.last_seq()
        new = [message for message in messages if first_of_key[message.idempotency_key] is message]
        new = [message for message in new if message.idempotency_key not in known]
        if new:
            rows = [_ROWS.values(message) | {"seq": seq} for seq, message in enumerate(new, last + 1)]
            self._connection.execute(insert(outbox), rows)
        return len(new)

    def unsent(self, limit: int, topic: str | None = None) -> list[OutboxMessage]:
        """Return at most `limit` unsent messages, oldest first; of one topic if given."""
        statement = _ROWS.select.where(IS_UNSENT).order_by(_T.seq).limit(limit)
        if topic is not None:
            statement = statement.where(_T.topic == topic)
        return _ROWS.find(self._connection, statement)

    def mark_sent(self, seqs: Iterable[int], moment: datetime) -> None:
        """Record that messages were sent; messages sent earlier keep their time."""
        parameters = [{"number": seq} for seq in sorted(seqs)]
        if parameters:
            marked = update(outbox).where(_T.seq == bindparam("number"), IS_UNSENT).values(sent_at=moment)
            self._connection.execute(marked, parameters)

    def read(self, after: int, limit: int, topic: str | None = None) -> list[OutboxMessage]:
        """Return at most `limit` messages with a number above `after`, in order, sent or not; for readers with a
        cursor. Of one topic if given.
        """
        statement = _ROWS.select.where(*_later(after, topic)).order_by(_T.seq).limit(limit)
        return _ROWS.find(self._connection, statement)

    def count(self, after: int, topic: str | None = None) -> int:
        """Return how many messages have a number above `after`; of one topic if given."""
        return self._connection.scalar(select(func.count()).select_from(outbox).where(*_later(after, topic))) or 0

    def told_up_to(self) -> int | None:
        """Return the number up to which every message was sent; None if all were."""
        first = self._connection.scalar(select(func.min(_T.seq)).where(IS_UNSENT))
        return None if first is None else first - 1

    def count_old(self, before: datetime, up_to: int | None, limit: int) -> int:
        """Return how many messages `remove_old` would remove."""
        return len(self._find_old(before, up_to, limit))

    def remove_old(self, before: datetime, up_to: int | None, limit: int) -> int:
        """Remove at most `limit` messages from the beginning of the log that are older than `before`, up to the number
        `up_to` if given; return how many. The newest message stays, so that numbers are never used again.
        """
        found = self._find_old(before, up_to, limit)
        if found:
            self._connection.execute(delete(outbox).where(_T.seq <= found[-1]))
        return len(found)

    def _find_old(self, before: datetime, up_to: int | None, limit: int) -> list[int]:
        last = self.last_seq() - 1
        last = last if up_to is None else min(last, up_to)
        statement = select(_T.seq, _T.recorded_at).where(_T.seq <= last).order_by(_T.seq).limit(limit)
        rows = self._connection.execute(statement)
        return [row.seq for row in takewhile(lambda row: row.recorded_at < before, rows)]

    def last_seq(self) -> int:
        """Return the number of the newest message; 0 if there is none."""
        return self._connection.scalar(select(func.max(_T.seq))) or 0

    def _find_keys(self, keys: Collection[str]) -> set[str]:
        wanted = key_rows(self._connection.dialect.name, ("idempotency_key",))
        statement = select(_T.idempotency_key).join_from(wanted, outbox, _T.idempotency_key == wanted.c.idempotency_key)
        return set(self._connection.scalars(statement, {KEY_ROWS: render_rows([key] for key in keys)}))


def _later(after: int, topic: str | None) -> list[ColumnElement[bool]]:
    is_later = [_T.seq > after]
    return is_later if topic is None else [*is_later, _T.topic == topic]
