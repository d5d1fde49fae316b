"""Store what is pending at each input of consumers; count and find the events of the log that an input has not taken
yet.

Many inputs wait for the same events from the same place of the log: what was counted for one is counted for all.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Select,
    Update,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    union_all,
    update,
)

from feed_assets.entities.content.event_messages import NO_ROWS
from feed_assets.log.records import CONTENT, EntityKey, FeedEventKind
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, key_rows, render_rows
from feed_assets.triggers.queue.records import InputKey, Mark, OfInput, QueueAction
from feed_assets.triggers.queue.tables import HAS_PENDING, queue_changes, trigger_inputs

_E = feed_events.c
_FORMER = feed_events.alias("former")
_C = queue_changes.c
_Columns: TypeAlias = Any  # of the subquery of pending events


class Taking(NamedTuple):
    """What a batch takes of an input: so many `events` up to `to_seq`, and single ones that were free again."""

    to_seq: int
    events: int
    freed: tuple[int, ...]


def is_counted(*, counts_unchanged: bool) -> ColumnElement[bool]:
    """Return the condition that an event of the log counts: it brings an instance, and other content than before."""
    return _is_arriving() if counts_unchanged else and_(_is_arriving(), ~is_unchanged())


def _is_arriving() -> ColumnElement[bool]:
    return and_(_E.kind.in_(sorted(CONTENT)), _E.marking.is_distinct_from(NO_ROWS))


def is_unchanged() -> ColumnElement[bool]:
    """Return the condition that an event finds the content that its instance had before. Signals have no content."""
    of_it = (_FORMER.c.feed == _E.feed, _FORMER.c.cluster == _E.cluster, _FORMER.c.nominal_time == _E.nominal_time)
    is_former = (*of_it, _FORMER.c.seq < _E.seq, _FORMER.c.kind.in_(sorted(CONTENT)))
    digest = select(_FORMER.c.manifest_digest).where(*is_former).order_by(_FORMER.c.seq.desc()).limit(1)
    is_same = func.coalesce(_E.manifest_digest == digest.correlate(feed_events).scalar_subquery(), literal(value=False))
    has_none = or_(_E.kind == FeedEventKind.SIGNALLED, _E.manifest_digest.is_(None))
    return case((has_none, literal(value=False)), else_=is_same)


def is_free() -> ColumnElement[bool]:
    """Return the condition that an event is free again, and no batch has taken it yet."""
    return and_(_C.action == QueueAction.ADD, _C.nominal_time.is_(None))


def is_of(of: InputKey | OfInput) -> ColumnElement[bool]:
    """Return the condition that a row of changes is of this input."""
    return and_(_C.process == of.process, _C.cluster == of.cluster, _C.input == of.input)


def in_range(of: OfInput, after: int, to: int, *, may_be_changed: bool = True) -> ColumnElement[bool]:
    """Return the condition that an event counts at an input and is in a range of its feed. Where something
    `may_be_changed`, an event about which something was decided singly is left out.
    """
    counts = is_counted(counts_unchanged=of.counts_unchanged)
    condition = and_(*_of_feed(of), _E.seq > after, _E.seq <= to, counts)
    if not may_be_changed:
        return condition
    is_changed = exists().where(is_of(of), _C.event == _E.seq).correlate_except(queue_changes)
    return and_(condition, ~is_changed)


class PendingEvents:
    """The pending events of inputs as one transaction sees them, up to the event `upto`."""

    def __init__(self, connection: Connection, upto: int, consumers: Collection[EntityKey]) -> None:
        self._connection = connection
        self.upto = upto
        self._changed = _find_changed(connection, consumers)
        self._known: dict[Hashable, Any] = {}

    def measure(self, mark: Mark, until: str | None, but: tuple[int, ...] = ()) -> Mark:
        """Return the mark with what is pending after its `taken_seq`, counted anew; without the free events `but`."""

        def measures(events: _Columns) -> Select[Any]:
            times = (func.min(events.recorded_at), func.max(events.recorded_at))
            return select(func.count(), func.min(events.seq), *times).where(events.seq.not_in(but))

        count, first, first_at, last_at = self._first("count", mark, but, measures)
        marker = self._find_marker(mark, until, but) if until is not None and count else None
        return replace(mark, pending=count, first_seq=first, first_at=first_at, last_at=last_at, marker_seq=marker)

    def count_since(self, mark: Mark, since: datetime) -> int:
        """Return how many pending events were recorded after a time."""
        count: int = self._first("since", mark, since, lambda of: select(func.count()).where(of.recorded_at > since))[0]
        return count

    def find_newest(self, mark: Mark) -> int | None:
        """Return the newest event of the newest pending instance; None if nothing is pending."""

        def newest(events: _Columns) -> Select[Any]:
            return select(events.seq).order_by(events.nominal_time.desc(), events.seq.desc()).limit(1)

        found = self._first("newest", mark, None, newest)
        return None if found is None else found[0]

    def take(self, mark: Mark, most: int | None, *, to_marker: bool) -> Taking:
        """Return what a batch takes: up to the first marked one if there is one, else the oldest `most` events."""
        last = mark.marker_seq if to_marker else None
        if last is None and most is not None and mark.pending > most:
            place = most - 1
            nth = self._first("nth", mark, most, lambda of: select(of.seq).order_by(of.seq).offset(place).limit(1))
            last = nth[0]
        freed = tuple(seq for seq in self.free(mark) if last is None or seq <= last)
        if last is None:
            return Taking(self.upto, mark.pending - len(freed), freed)
        count = self._first("upto", mark, last, lambda of: select(func.count()).where(of.seq <= last))[0]
        return Taking(max(last, mark.taken_seq), count - len(freed), freed)

    def count_between(self, mark: Mark, after: int, to: int) -> int:
        """Return how many pending events are in a range of the log; those that are free again are not counted."""
        statement = select(func.count()).select_from(feed_events)
        count: int = self._once(
            ("between", self._place(mark), after, to),
            lambda: self._connection.scalar(statement.where(self._in_range(mark, after, to))),
        )
        return count

    def count_ahead(self, mark: Mark, last: int) -> int:
        """Return how many events up to `last` count and are not routed yet."""
        return self.count_between(mark, max(self.upto, mark.taken_seq), last) if self.upto < last else 0

    def last_before(self, feed: str, feed_cluster: str, moment: datetime) -> int:
        """Return the last event of a feed that was recorded before a time; 0 if there is none."""
        is_before = (_E.feed == feed, _E.cluster == feed_cluster, _E.recorded_at < moment)
        statement, key = select(func.max(_E.seq)).where(*is_before), ("before", feed, feed_cluster, moment)
        last: int | None = self._once(key, lambda: self._connection.scalar(statement))
        return last or 0

    def free(self, mark: Mark) -> tuple[int, ...]:
        """Return the events of an input that are free again, in order."""
        if mark.key[:3] not in self._changed:
            return ()
        found = select(_C.event).join_from(queue_changes, feed_events, _C.event == _E.seq)
        statement = found.where(*_of_feed(mark), is_of(mark), is_free()).order_by(_C.event)
        return tuple(self._connection.scalars(statement))

    def _find_marker(self, mark: Mark, until: str, but: tuple[int, ...]) -> int | None:
        def find() -> int | None:
            events = self._events(mark).subquery().c
            statement = select(events.seq, events.marking).where(events.marking.is_not(None), events.seq.not_in(but))
            found = self._connection.execute(statement.order_by(events.seq))
            return next((row.seq for row in found if fnmatchcase(row.marking, until)), None)

        marker: int | None = self._once(("marker", self._place(mark), until, but), find)
        return marker

    def _first(self, question: str, mark: Mark, more: Hashable, ask: Callable[[_Columns], Select[Any]]) -> Any:
        """Return the first row of what `ask` selects of the pending events; it is built if it was not asked before."""
        return self._once(
            (question, self._place(mark), more),
            lambda: self._connection.execute(ask(self._events(mark).subquery().c)).first(),
        )

    def _once(self, key: Hashable, ask: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = ask()
        return self._known[key]

    def _place(self, mark: Mark) -> Hashable:
        """Return what the pending events of an input depend on."""
        own = mark.key if mark.key[:3] in self._changed else None
        return (mark.feed, mark.feed_cluster, mark.taken_seq, mark.counts_unchanged, own)

    def _in_range(self, mark: Mark, after: int, to: int) -> ColumnElement[bool]:
        return in_range(mark, after, to, may_be_changed=mark.key[:3] in self._changed)

    def _events(self, mark: Mark) -> Select[Any]:
        columns = (_E.seq, _E.nominal_time, _E.recorded_at, _E.marking)
        following = select(*columns).where(self._in_range(mark, mark.taken_seq, self.upto))
        if mark.key[:3] not in self._changed:
            return following
        freed = select(*columns).join(queue_changes, _C.event == _E.seq).where(*_of_feed(mark), is_of(mark), is_free())
        both = union_all(following, freed).subquery()
        return select(*both.c)


def _of_feed(of: OfInput) -> tuple[ColumnElement[bool], ...]:
    return (_E.feed == of.feed, _E.cluster == of.feed_cluster)


def _find_changed(connection: Connection, consumers: Collection[EntityKey]) -> set[tuple[str, str, str]]:
    """Return the inputs (process, cluster, input) with pending events about which something was decided singly."""
    if not consumers:
        return set()
    wanted = key_rows(connection.dialect.name, ("process", "cluster"))
    mark = trigger_inputs.c
    changes = queue_changes.join(wanted, and_(_C.process == wanted.c.process, _C.cluster == wanted.c.cluster)).join(
        trigger_inputs, and_(mark.process == _C.process, mark.cluster == _C.cluster, mark.input == _C.input)
    )
    statement = select(_C.process, _C.cluster, _C.input).distinct().select_from(changes)
    is_open = or_(_C.event > mark.taken_seq, is_free())
    found = connection.execute(statement.where(is_open), {KEY_ROWS: render_rows(consumers)})
    return {(row.process, row.cluster, row.input) for row in found}


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
        is_one = (_E.seq > after, _E.seq <= to, _E.feed.concat("").in_(sorted(feeds)), _is_arriving())
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
