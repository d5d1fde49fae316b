"""Store every attempt at a process instance: its run, what triggered it, and how it ended."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, literal, select, tuple_, update

from feed_assets.log.instances.tables import IS_LONG, LONG, attempts, process_instances
from feed_assets.log.messages.lineage import tell_attempt
from feed_assets.log.records import Attempt, FeedEvent, FrozenInput, ProcessInstanceStatus, ProcessKey
from feed_assets.log.tables import feed_events
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, delete_keys, key_rows, render_rows, select_keys
from feed_assets.sql.totals import Total, TotalKind, Totals, microseconds
from feed_assets.timing.dates import NEVER

OVERTAKEN = "another attempt took its place"

_T = attempts.c
_P = process_instances.c
_ROWS = RowMapper(attempts, Attempt)


class EndedAttempt(NamedTuple):
    """An attempt that has ended, in the order of ends; `run_id` is what made it, None if that is unknown."""

    ended_at: datetime
    process: str
    nominal_time: datetime
    attempt: int
    run_id: str | None


class RunAttempt(NamedTuple):
    """An attempt in a run; `ended_at` is None while it runs."""

    process: str
    cluster: str
    ended_at: datetime | None


class ActiveAttempt(NamedTuple):
    """An attempt of a window of time: the feeds of its inputs (None: without data), and the numbers of its events."""

    process: str
    cluster: str
    nominal_time: datetime
    attempt: int
    run_id: str | None
    started_at: datetime
    feeds: tuple[str | None, ...]
    outputs: tuple[int, ...]


_ACTIVE = select(*(_T[name] for name in ActiveAttempt._fields[:6]), _T.inputs, _T.outputs)
_END = (_T.ended_at, _T.process, _T.nominal_time, _T.attempt)


class Attempts(TableStore):
    """The attempts as one transaction sees them."""

    def begin(self, attempt: Attempt) -> None:
        """Record a new attempt; an earlier attempt at the same instance that never ended becomes FAILED."""
        self.end(attempt.key, ProcessInstanceStatus.FAILED, attempt.started_at, OVERTAKEN)
        _ROWS.put(self._connection, [attempt])
        tell_attempt(self._connection, attempt)
        Totals(self._connection).add([Total(TotalKind.STARTS, attempt.process, attempt.cluster, attempt.cause or "")])

    def end(self, key: ProcessKey, status: ProcessInstanceStatus, ended_at: datetime, reason: str | None) -> None:
        """Record how the running attempt ended; do nothing if none is running."""
        statement = update(attempts).where(_is_running(key)).values(status=status, ended_at=ended_at, reason=reason)
        begun = self._connection.execute(statement.returning(_T.started_at, _T.attempt, _T.run_id)).all()
        spent = sum(microseconds(ended_at - each.started_at) for each in begun)
        if begun:
            end: dict[str, Any] = {**key._asdict(), "status": status, "ended_at": ended_at, "reason": reason}
            tell_attempt(self._connection, Attempt(**end, **begun[0]._mapping))
            total = Total(TotalKind.ATTEMPTS, key.process, key.cluster, status, len(begun), amount=spent)
            Totals(self._connection).add([total])

    def freeze(self, key: ProcessKey, inputs: tuple[FrozenInput, ...]) -> None:
        """Record what the running attempt reads."""
        self._connection.execute(update(attempts).where(_is_running(key)).values(inputs=inputs))

    def add_output(self, key: ProcessKey, attempt: int, event: int) -> None:
        """Record the number of an event that an attempt has published."""
        is_it = and_(_is_of(key), _T.attempt == attempt)
        outputs = self._connection.scalar(select(_T.outputs).where(is_it)) or ()
        self._connection.execute(update(attempts).where(is_it).values(outputs=(*outputs, event)))

    def of(self, key: ProcessKey) -> list[Attempt]:
        """Return the attempts at an instance, in order."""
        return self.of_many([key]).get(key, [])

    def newest_spans(self, process: str, cluster: str, limit: int) -> list[timedelta]:
        """Return how long the successful ones of the newest attempts took; `limit` attempts are looked at."""
        statement = select(_T.status, _T.started_at, _T.ended_at).where(_T.process == process, _T.cluster == cluster)
        newest = statement.order_by(_T.nominal_time.desc(), _T.attempt.desc()).limit(limit)
        return [
            ended_at - started_at
            for status, started_at, ended_at in self._connection.execute(newest)
            if status is ProcessInstanceStatus.SUCCEEDED and ended_at is not None
        ]

    def has_run(self, run_id: str) -> bool:
        """Return whether a run has made an attempt."""
        return self._connection.scalar(select(_T.run_id).where(_T.run_id == run_id).limit(1)) is not None

    def ended(self, cluster: str, after: EndedAttempt | None, until: datetime, limit: int) -> list[EndedAttempt]:
        """Return at most `limit` attempts on a cluster that have ended at `until` or before, the longest ago first; of
        those behind the attempt `after`, if given.
        """
        statement = select(*_END, _T.run_id).where(_T.cluster == cluster, _T.ended_at <= until)
        if after is not None:
            position = [literal(value, column.type) for value, column in zip(after[:4], _END, strict=True)]
            statement = statement.where(_T.ended_at >= after.ended_at, tuple_(*_END) > tuple_(*position))
        return [EndedAttempt(*row) for row in self._connection.execute(statement.order_by(*_END).limit(limit))]

    def active(self, clusters: Collection[str], start: datetime, end: datetime) -> list[ActiveAttempt]:
        """Return the attempts on some clusters that began before `end` and had not ended before `start`. One whose
        instance is suspended has not ended.

        No more is read than the attempts of the window and of the day after it, and the few that took longer.
        """
        late = min(end, NEVER - LONG) + LONG
        is_there = (_T.cluster.in_(sorted(clusters)), _T.started_at < end)
        ends = (
            _T.ended_at.is_(None),
            and_(_T.ended_at >= start, _T.ended_at < late),
            and_(IS_LONG, _T.ended_at >= late),
        )
        is_its = and_(*(_T[name] == _P[name] for name in (*ProcessKey._fields, "attempt")))
        is_broken_off = (_P.status == ProcessInstanceStatus.SUSPENDED, _T.ended_at == _P.updated_at)
        suspended = _ACTIVE.join_from(process_instances, attempts, is_its).where(*is_broken_off, *is_there)
        rows = [row for each in ends for row in self._connection.execute(_ACTIVE.where(*is_there, each))]
        rows += self._connection.execute(suspended)
        found = [
            ActiveAttempt._make((*key, tuple(each.feed if each.nominal_times else None for each in inputs), outputs))
            for *key, inputs, outputs in rows
        ]
        return sorted({each[:4]: each for each in found}.values())

    def of_run(self, run_id: str) -> list[Attempt]:
        """Return the attempts in a run, on all clusters, in the order in which they began."""
        found = _ROWS.find(self._connection, _ROWS.select.where(_T.run_id == run_id))
        return sorted(found, key=lambda attempt: (attempt.started_at, attempt.key))

    def of_runs(self, run_ids: Collection[str]) -> dict[str, list[RunAttempt]]:
        """Return the attempts in some runs, on all clusters; runs without one are left out."""
        found: dict[str, list[RunAttempt]] = defaultdict(list)
        statement = select(_T.run_id, _T.process, _T.cluster, _T.ended_at).where(_T.run_id.in_(sorted(run_ids)))
        for row in self._connection.execute(statement):
            found[row.run_id].append(RunAttempt(row.process, row.cluster, row.ended_at))
        return dict(found)

    def of_many(self, keys: Collection[ProcessKey]) -> dict[ProcessKey, list[Attempt]]:
        """Return the attempts at several instances in one statement, in order; instances without one are left out."""
        found: dict[ProcessKey, list[Attempt]] = defaultdict(list)
        for attempt in _ROWS.of_keys(self._connection, ProcessKey._fields, keys):
            found[attempt.key].append(attempt)
        return {key: sorted(listed, key=lambda attempt: attempt.attempt) for key, listed in found.items()}

    def in_spans(self, spans: Iterable[tuple[str, str, datetime, datetime]]) -> dict[ProcessKey, list[Attempt]]:
        """Return the attempts at the instances in spans, from a first to a last nominal time of a process on a cluster,
        in one statement and in order. Of an instance that has run and whose attempts were cleaned up, there are none.
        """
        found: dict[ProcessKey, list[Attempt]] = {}
        if rows := {*spans}:
            parameters = {KEY_ROWS: render_rows(rows)}
            for process, cluster, time, *row in self._connection.execute(_select_in_spans(self._dialect), parameters):
                if process is not None:
                    listed = found.setdefault(ProcessKey(process, cluster, time), [])
                    listed += [_ROWS.load(row)] if row[0] is not None else []
        return found

    def remove_past(self, published: Collection[FeedEvent]) -> None:
        """Remove the attempts at the instances that have published some events, which the log does not have any more.

        Stay: the last attempt at each, the last that published, and all of whose outputs an event is in the log.
        """
        known = self.of_many({event.maker for event in published if event.maker is not None}).values()
        outputs = [(seq,) for listed in known for each in listed for seq in each.outputs]
        there = {row.seq for row in select_keys(self._connection, feed_events, ("seq",), (feed_events.c.seq,), outputs)}
        old = [
            (*each.key, each.attempt)
            for listed in known
            for each in listed
            if each not in (listed[-1], *[one for one in listed if one.outputs][-1:]) and there.isdisjoint(each.outputs)
        ]
        delete_keys(self._connection, attempts, (*ProcessKey._fields, "attempt"), old)


def _is_of(key: ProcessKey) -> ColumnElement[bool]:
    return and_(_T.process == key.process, _T.cluster == key.cluster, _T.nominal_time == key.nominal_time)


def _is_running(key: ProcessKey) -> ColumnElement[bool]:
    return and_(_is_of(key), _T.status == ProcessInstanceStatus.RUNNING)


@cache
def _select_in_spans(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, ("process", "cluster", "first", "last"))
    is_its = (_P.process == wanted.c.process, _P.cluster == wanted.c.cluster)
    has_run = and_(*is_its, _P.nominal_time.between(wanted.c.first, wanted.c.last), _P.attempt > 0)
    # An outer join as in `ProcessInstances.times_in`: a span without instances gives nulls.
    columns = [_P[name] for name in ProcessKey._fields]
    keys = select(*columns).distinct().join_from(wanted, process_instances, has_run, isouter=True).subquery("keys")
    is_at = and_(*(_T[name] == keys.c[name] for name in ProcessKey._fields))
    statement = select(*keys.c, *_ROWS.columns).join_from(keys, attempts, is_at, isouter=True)
    return statement.order_by(*keys.c, _T.attempt)
