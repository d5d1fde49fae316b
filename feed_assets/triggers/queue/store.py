"""Store when each consumer is looked at next, so that a tick finds those that something happened to; and end the queues
of processes that were deleted: what they have not taken counts for nobody, and they begin anew.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import cache

from sqlalchemy import ColumnElement, Connection, Table, Update, and_, case, delete, or_, update

from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.schedules import is_process_scheduled, state_without_row
from feed_assets.log.records import EntityKey
from feed_assets.plan.edges import TriggerRecord
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, key_rows, render_rows
from feed_assets.triggers.queue.records import TriggerState
from feed_assets.triggers.queue.tables import HAS_WAKE_TIME, batches, queue_changes, trigger_inputs, triggers

_T = triggers.c
_ROWS = RowMapper(triggers, TriggerState)
_KEY = ("process", "cluster")
_TIMES = ("next_at", "by_at", "wake_at")


class Triggers(TableStore):
    """The consumers as one transaction sees them."""

    def of_cluster(self, cluster: str) -> dict[str, TriggerState]:
        """Return the consumers of a cluster by process; for changed definitions and commands, not for each tick."""
        return {
            state.process: state for state in _ROWS.find(self._connection, _ROWS.select.where(_T.cluster == cluster))
        }

    def of(self, keys: Collection[EntityKey]) -> dict[EntityKey, TriggerState]:
        """Return some consumers."""
        return {state.key: state for state in _ROWS.of_keys(self._connection, _KEY, keys)}

    def due(self, cluster: str, as_of: datetime, limit: int, after: str = "") -> list[TriggerState]:
        """Return scheduled consumers of a cluster that are to be looked at, ordered by process, behind `after`."""
        is_due = (_T.cluster == cluster, _T.wake_at <= as_of, HAS_WAKE_TIME, _T.process > after)
        is_active = is_process_scheduled(_T.process, _T.cluster, state_without_row(self._connection))
        statement = _ROWS.select.where(*is_due, is_active).order_by(_T.process).limit(limit)
        return _ROWS.find(self._connection, statement)

    def put(self, states: Iterable[TriggerState]) -> None:
        """Insert or replace consumers."""
        _ROWS.put(self._connection, states)

    def set_times(self, states: Collection[TriggerState]) -> None:
        """Write the times of consumers, in one statement."""
        if states:
            rows = [(*state.key, *(getattr(state, name) for name in _TIMES)) for state in states]
            self._connection.execute(_set_times(self._dialect), {KEY_ROWS: render_rows(rows)})

    def wake(self, keys: Collection[EntityKey], at: datetime) -> None:
        """Let consumers be looked at from `at` on, in one statement."""
        if keys:
            rows = render_rows((*key, at) for key in keys)
            self._connection.execute(_wake(self._dialect), {KEY_ROWS: rows})


@cache  # measured: building it takes longer than executing it
def _set_times(dialect: str) -> Update:
    new = key_rows(dialect, (*_KEY, *_TIMES))
    is_it = and_(*(_T[name] == new.c[name] for name in _KEY))
    return update(triggers).where(is_it).values({name: new.c[name] for name in _TIMES})


@cache
def _wake(dialect: str) -> Update:
    new = key_rows(dialect, (*_KEY, "wake_at"))
    is_it = and_(*(_T[name] == new.c[name] for name in _KEY))
    is_earlier = or_(_T.wake_at.is_(None), new.c.wake_at < _T.wake_at)
    return update(triggers).where(is_it).values(wake_at=case((is_earlier, new.c.wake_at), else_=_T.wake_at))


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


def rename_inputs(connection: Connection, consumer: EntityKey, old: TriggerRecord, new: TriggerRecord) -> None:
    """Let the queue of a consumer go on that is the same but for names, with the inputs and the sign of now."""
    before, after = ({each.name for each in trigger.inputs} for trigger in (old, new))
    for gone, come in zip(sorted(before - after), sorted(after - before), strict=False):
        for table in (trigger_inputs, batches, queue_changes):
            is_it = (*_is_its(table, consumer), table.c.input == gone)
            connection.execute(update(table).where(*is_it).values(input=come))
    is_followed = (*_is_its(triggers, consumer), _T.sign == old.sign)
    connection.execute(update(triggers).where(*is_followed).values(sign=new.sign))


def _is_its(table: Table, consumer: EntityKey) -> tuple[ColumnElement[bool], ...]:
    return (table.c.process == consumer.entity, table.c.cluster == consumer.cluster)


def _name(consumer: EntityKey) -> str:
    return f"queue-ended/{consumer.cluster}/{consumer.entity}"
