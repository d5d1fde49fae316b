"""Store what is pending at each input of consumers."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Update,
    and_,
    bindparam,
    case,
    or_,
    select,
    update,
)

from feed_assets.log.records import CONTENT, EntityKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, key_rows, render_rows
from feed_assets.triggers.queue.pending_events import is_unchanged
from feed_assets.triggers.queue.records import InputKey, Mark
from feed_assets.triggers.queue.tables import HAS_PENDING, trigger_inputs

_E = feed_events.c
_T = trigger_inputs.c
_ROWS = RowMapper(trigger_inputs, Mark)
_AFTER = "after"
_CONSUMER = ("process", "cluster")
_MEASURED = ("taken_seq", "pending", "first_seq", "first_at", "last_at", "marker_seq")


class LoggedEvent(NamedTuple):
    """What routing must know of an event of the log."""

    seq: int
    feed: str
    cluster: str
    recorded_at: datetime
    marking: str | None
    is_unchanged: bool


class Growth(NamedTuple):
    """How the mark of an input grows by new events."""

    process: str
    cluster: str
    input: str
    feed: str
    feed_cluster: str
    pending: int
    first_seq: int
    first_at: datetime
    last_at: datetime
    marker_seq: int | None


class TriggerInputs(TableStore):
    """The marks as one transaction sees them."""

    def feeds(self) -> set[tuple[str, str]]:
        """Return the feeds that queues read, by name and cluster."""
        return {(feed, cluster) for feed, cluster in self._connection.execute(select(_T.feed, _T.feed_cluster))}

    def read_log(self, after: int, to: int, feeds: Collection[str]) -> list[LoggedEvent]:
        """Return the events of some feeds in a range of the log that may count, in order."""
        # Concatenated, so that SQLite searches the range, and not all events of the feeds.
        is_one = (_E.seq > after, _E.seq <= to, _E.feed.concat("").in_(sorted(feeds)), _E.kind.in_(sorted(CONTENT)))
        columns = (_E.seq, _E.feed, _E.cluster, _E.recorded_at, _E.marking, is_unchanged().label("is_unchanged"))
        found = self._connection.execute(select(*columns).where(*is_one).order_by(_E.seq))
        return [LoggedEvent(*row) for row in found]

    def grow(self, growths: Collection[Growth], after: int) -> None:
        """Add events after `after` to the marks of inputs, in one statement; not where some of them are taken."""
        if growths:
            self._connection.execute(_grow(self._dialect), {KEY_ROWS: render_rows(growths), _AFTER: after})

    def begun_after(self, cluster: str, after: int) -> list[InputKey]:
        """Return the inputs of a cluster's consumers whose place in the log is after a number."""
        columns = [_T[name] for name in InputKey._fields]
        found = self._connection.execute(select(*columns).where(_T.cluster == cluster, _T.taken_seq > after))
        return [InputKey(*row) for row in found]

    def of(self, consumers: Collection[EntityKey]) -> dict[EntityKey, dict[InputKey, Mark]]:
        """Return the marks of consumers by input, also of inputs that their triggers do not name any more."""
        found: dict[EntityKey, dict[InputKey, Mark]] = defaultdict(dict)
        for mark in _ROWS.of_keys(self._connection, _CONSUMER, consumers):
            found[mark.key.consumer][mark.key] = mark
        return found

    def of_process(self, process: str) -> list[Mark]:
        """Return the marks of a process on all clusters."""
        return _ROWS.find(self._connection, _ROWS.select.where(_T.process == process).order_by(_T.cluster, _T.input))

    def oldest_pending(self, cluster: str) -> EntityKey | None:
        """Return the consumer of a cluster with the oldest pending event; None if nothing is pending."""
        is_pending = (_T.cluster == cluster, HAS_PENDING)
        statement = select(_T.process, _T.cluster).where(*is_pending).order_by(_T.first_at).limit(1)
        row = self._connection.execute(statement).first()
        return None if row is None else EntityKey(*row)

    def of_feed(self, feed: str, feed_cluster: str) -> list[Mark]:
        """Return the marks of all inputs that take a feed's events, by process."""
        is_its = (_T.feed == feed, _T.feed_cluster == feed_cluster)
        return _ROWS.find(self._connection, _ROWS.select.where(*is_its).order_by(_T.process, _T.cluster, _T.input))

    def add(self, marks: Iterable[Mark]) -> None:
        """Insert marks, or begin them anew."""
        _ROWS.put(self._connection, marks)

    def put(self, marks: Collection[Mark]) -> None:
        """Write what is taken and pending at inputs that have a mark, in one statement."""
        if marks:
            rows = [(*mark.key, *(getattr(mark, name) for name in _MEASURED)) for mark in marks]
            self._connection.execute(_put(self._dialect), {KEY_ROWS: render_rows(rows)})

    def set_counting(self, mark: Mark) -> None:
        """Write which events count at an input."""
        is_it = [_T[name] == value for name, value in zip(InputKey._fields, mark.key, strict=True)]
        self._connection.execute(update(trigger_inputs).where(*is_it).values(counts_unchanged=mark.counts_unchanged))


@cache  # measured: building it takes longer than executing it
def _grow(dialect: str) -> Update:
    new = key_rows(dialect, Growth._fields)
    no_marker = new.c.marker_seq.is_(None)
    changes: dict[str, Any] = {
        "pending": _T.pending + new.c.pending,
        "first_seq": _extreme(_T.first_seq, new.c.first_seq, is_least=True),
        "first_at": _extreme(_T.first_at, new.c.first_at, is_least=True),
        "last_at": _extreme(_T.last_at, new.c.last_at, is_least=False),
        "marker_seq": case((no_marker, _T.marker_seq), else_=_extreme(_T.marker_seq, new.c.marker_seq, is_least=True)),
    }
    is_behind = _T.taken_seq <= bindparam(_AFTER, type_=BigInteger)
    return update(trigger_inputs).where(_is_input(new.c), is_behind).values(changes)


def _extreme(old: Column[Any], new: ColumnElement[Any], *, is_least: bool) -> ColumnElement[Any]:
    is_new = new < old if is_least else new > old
    return case((or_(old.is_(None), is_new), new), else_=old)


@cache
def _put(dialect: str) -> Update:
    new = key_rows(dialect, (*InputKey._fields, *_MEASURED))
    return update(trigger_inputs).where(_is_input(new.c)).values({name: new.c[name] for name in _MEASURED})


def _is_input(columns: Any) -> ColumnElement[bool]:
    return and_(*(_T[name] == columns[name] for name in InputKey._fields))
