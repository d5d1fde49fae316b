"""End the queues of processes that were deleted: what they have not taken counts for nobody, and they begin anew."""

from datetime import datetime

from sqlalchemy import ColumnElement, Table, delete, update

from feed_assets.log.cursors import Cursors
from feed_assets.log.records import EntityKey
from feed_assets.sql.rows import TableStore
from feed_assets.triggers.queue.tables import batches, queue_changes, trigger_inputs, triggers


class QueueEnds(TableStore):
    """The ends of queues as one transaction sees them."""

    def end(self, consumer: EntityKey, at: datetime) -> bool:
        """Remove the queue of a consumer: its marks, what its batches have taken, and what people decided. The event
        log keeps the events. If the consumer is declared again, the next tick follows its trigger as a new one.

        Returns whether there was a queue.
        """
        found = 0
        for table in (trigger_inputs, batches, queue_changes):
            found += self._connection.execute(delete(table).where(*_is_its(table, consumer))).rowcount
        anew = {"sign": "", "next_at": None, "by_at": None, "wake_at": at}
        found += self._connection.execute(update(triggers).where(*_is_its(triggers, consumer)).values(anew)).rowcount
        if found:
            Cursors(self._connection).put(_name(consumer), at.isoformat())
        return found > 0

    def find(self, consumer: EntityKey) -> datetime | None:
        """Return when the last queue of a consumer ended; batches that were cut until then have no events any more.
        None if none has ended.
        """
        text = Cursors(self._connection).get(_name(consumer))
        return None if text is None else datetime.fromisoformat(text)


def _is_its(table: Table, consumer: EntityKey) -> tuple[ColumnElement[bool], ...]:
    return (table.c.process == consumer.entity, table.c.cluster == consumer.cluster)


def _name(consumer: EntityKey) -> str:
    return f"queue-ended/{consumer.cluster}/{consumer.entity}"
