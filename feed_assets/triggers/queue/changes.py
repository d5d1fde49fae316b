"""Store what was decided about single events of a consumer's queue: dropped, held, passed over, or free to be taken."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime

from sqlalchemy import insert, literal, select, update

from feed_assets.log.records import EntityKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, render_rows, select_keyed
from feed_assets.triggers.queue.inputs import in_range, is_of
from feed_assets.triggers.queue.records import InputKey, Mark, QueueAction, QueueChange
from feed_assets.triggers.queue.tables import queue_changes

_T = queue_changes.c
_ROWS = RowMapper(queue_changes, QueueChange)


class QueueChanges(TableStore):
    """The changes as one transaction sees them; one for each event of an input, the last."""

    def of(self, consumer: EntityKey) -> list[QueueChange]:
        """Return the changes of a consumer, by event."""
        is_its = (_T.process == consumer.entity, _T.cluster == consumer.cluster)
        return _ROWS.find(self._connection, _ROWS.select.where(*is_its).order_by(_T.event, _T.input))

    def set_aside(self, consumers: Collection[EntityKey]) -> dict[EntityKey, list[QueueChange]]:
        """Return the changes of consumers that hold or drop an event, by event."""
        found: dict[EntityKey, list[QueueChange]] = defaultdict(list)
        if consumers:
            statement = select_keyed(self._dialect, queue_changes, ("process", "cluster"), _ROWS.columns)
            is_aside = _T.action.in_([QueueAction.DROP, QueueAction.HOLD])
            rows = {KEY_ROWS: render_rows(consumers)}
            for change in _ROWS.find(self._connection, statement.where(is_aside).order_by(_T.event, _T.input), rows):
                found[EntityKey(change.process, change.cluster)].append(change)
        return found

    def find(self, key: InputKey, event: int) -> QueueChange | None:
        """Return what was decided about an event of an input; None if nothing was."""
        return _ROWS.find_one(self._connection, _ROWS.select.where(is_of(key), _T.event == event))

    def has_any(self, keys: Collection[InputKey], after: int, to: int) -> set[InputKey]:
        """Return the inputs about whose events in a range of the log something was decided already."""
        if not keys:
            return set()
        names = ("process", "cluster", "input")
        columns = (_T.process, _T.cluster, _T.input)
        statement = select_keyed(self._dialect, queue_changes, names, columns)
        between = statement.where(_T.event > after, _T.event <= to)
        rows = self._connection.execute(between, {KEY_ROWS: render_rows(key[:3] for key in keys)})
        found = {tuple(row) for row in rows}
        return {key for key in keys if key[:3] in found}

    def put(self, changes: Iterable[QueueChange]) -> None:
        """Insert or replace changes."""
        _ROWS.put(self._connection, changes)

    def put_range(
        self, mark: Mark, after: int, to: int, action: QueueAction, reason: str, author: str, at: datetime
    ) -> None:
        """Decide about all events that count in a range of an input, but for those that were decided about."""
        values = {
            "process": literal(mark.process),
            "cluster": literal(mark.cluster),
            "input": literal(mark.input),
            "event": feed_events.c.seq,
            "action": literal(action, _T.action.type),
            "author": literal(author),
            "reason": literal(reason, _T.reason.type),
            "at": literal(at, _T.at.type),
        }
        statement = insert(queue_changes).from_select(
            list(values), select(*values.values()).where(in_range(mark, after, to))
        )
        self._connection.execute(statement)

    def settle(self, mark: Mark, events: Collection[int], action: QueueAction, nominal_time: datetime | None) -> None:
        """Record the batch that takes events that were free again, or passes them over."""
        if events:
            statement = update(queue_changes).where(is_of(mark), _T.event.in_(sorted(events)))
            self._connection.execute(statement.values(action=action, nominal_time=nominal_time))
