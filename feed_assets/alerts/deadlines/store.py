"""Store which instances have missed their deadlines, and how each of them came in the end.

Queries about late instances read only those; a query about a span of time reads what was late in it.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, and_, func, or_, select, type_coerce, update

from feed_assets.alerts.deadlines.records import (
    LateInstance,
    OpenCount,
    Recovered,
    Recovery,
    SlaKey,
    SlaMiss,
    SlaPause,
    Starts,
)
from feed_assets.alerts.deadlines.tables import sla_misses, sla_pauses
from feed_assets.entities.common import Kind
from feed_assets.log.instances.tables import attempts, feed_instances, process_instances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import Key
from feed_assets.sql.column_types import to_micros
from feed_assets.sql.rows import (
    KEY_ROWS,
    RowMapper,
    TableStore,
    has_key,
    key_parameters,
    key_rows,
    render_rows,
)
from feed_assets.sql.totals import Total, TotalKind, Totals

_T = sla_misses.c
_F = feed_instances.c
_P = process_instances.c
_A = attempts.c
_ROWS = RowMapper(sla_misses, SlaMiss)
_PAUSES = RowMapper(sla_pauses, SlaPause)
_IS_OPEN = _T.recovered_at.is_(None)
_ORDER = (_T.nominal_time, _T.kind, _T.name, _T.cluster, _T.level, _T.episode)
_HAS_KEY = has_key(sla_misses, SlaKey._fields)
_MICROS = 1_000_000

_OF_FEED = {
    FeedInstanceStatus.AVAILABLE: Recovery.ARRIVED,
    FeedInstanceStatus.EMPTY: Recovery.ARRIVED,
    FeedInstanceStatus.EVICTED: Recovery.EVICTED,
}
_OF_PROCESS = {
    ProcessInstanceStatus.SUCCEEDED: Recovery.SUCCEEDED,
    ProcessInstanceStatus.SKIPPED: Recovery.SKIPPED,
}

_TOTAL_OF = {Kind.FEED.value: TotalKind.FEED_MISSES, Kind.PROCESS.value: TotalKind.PROCESS_MISSES}


class SlaMisses(TableStore):
    """The missed deadlines as one transaction sees them."""

    def add(self, misses: Iterable[SlaMiss]) -> None:
        """Record missed deadlines; one that is recorded already stays as it is."""
        added = _ROWS.add_new(self._connection, SlaKey._fields, misses)
        totals = (Total(_TOTAL_OF[miss.kind], miss.name, miss.cluster, miss.level) for miss in added)
        Totals(self._connection).add(totals)

    def open(
        self, cluster: str, kind: str | None = None, name: str | None = None, *, limit: int | None = None
    ) -> list[SlaMiss]:
        """Return the deadlines whose instances are late now on a cluster, oldest instance first; of one kind and one
        entity if given.
        """
        is_wanted = [_T.cluster == cluster, _IS_OPEN]
        is_wanted += [_is_of(kind)] if kind is not None else []
        is_wanted += [_T.name == name] if name is not None else []
        return self._find(_ROWS.select.where(*is_wanted).order_by(*_ORDER).limit(limit))

    def between(
        self,
        first: datetime,
        last: datetime,
        *,
        clusters: Collection[str] = (),
        kind: str | None = None,
        name: str | None = None,
        open_only: bool = False,
    ) -> list[SlaMiss]:
        """Return the missed deadlines of the instances from `first` to `last`, both inclusive, oldest instance first.

        Without clusters, kind and name those of all; with `open_only`, of instances that are late now.
        """
        is_wanted: list[ColumnElement[bool]] = [_T.nominal_time.between(first, last)]
        is_wanted += [_T.cluster.in_(sorted(clusters))] if clusters else []
        is_wanted += [_T.kind == kind] if kind is not None else []
        is_wanted += [_T.name == name] if name is not None else []
        is_wanted += [_IS_OPEN] if open_only else []
        return self._find(_ROWS.select.where(*is_wanted).order_by(*_ORDER))

    def late_times(self, kind: str, name: str, cluster: str, first: datetime, last: datetime) -> list[datetime]:
        """Return the nominal times from `first` to `last`, both inclusive, of the instances that are late now."""
        is_one = (_T.cluster == cluster, _T.name == name, _T.nominal_time.between(first, last), _is_of(kind), _IS_OPEN)
        return list(self._connection.scalars(select(_T.nominal_time).distinct().where(*is_one)))

    def of(self, instances: Collection[LateInstance]) -> dict[LateInstance, list[SlaMiss]]:
        """Return the missed deadlines of instances, low before high; instances without any are left out."""
        found: dict[LateInstance, list[SlaMiss]] = {}
        for miss in _ROWS.of_keys(self._connection, LateInstance._fields, instances):
            found.setdefault(miss.instance, []).append(miss)
        for misses in found.values():
            misses.sort(key=lambda miss: (miss.due_at, miss.episode))
        return found

    def first_told_with(self, miss: SlaMiss, limit: int) -> SlaMiss:
        """Return the oldest miss that one message tells of together with this one; it is among the `limit` misses of
        the deadline up to this one.
        """
        is_before = (_T.kind == miss.kind, _T.name == miss.name, _T.cluster == miss.cluster, _T.level == miss.level)
        statement = _ROWS.select.where(*is_before, _T.nominal_time <= miss.nominal_time)
        found = self._find(statement.order_by(_T.nominal_time.desc()).limit(limit))
        return min((each for each in found if each.told_at == miss.told_at), key=lambda each: each.nominal_time)

    def recovered(self, cluster: str, limit: int) -> list[Recovered]:
        """Return the open misses on a cluster whose instances are not late any more; each is looked up by its key.

        A feed's instance is there, empty or evicted; a process's instance has begun (low), or has succeeded or was
        skipped.
        """
        return [*self._recovered_feeds(cluster, limit), *self._recovered_processes(cluster, limit)]

    def close(self, recovered: Iterable[Recovered]) -> None:
        """Record that instances are not late any more; what ended earlier stays as it is."""
        parameters = [
            key_parameters(SlaKey._fields, each.miss.key) | {"recovered_at": each.at, "recovered_by": each.by}
            for each in sorted(recovered, key=lambda each: each.miss.key)
        ]
        if parameters:
            self._connection.execute(update(sla_misses).where(_HAS_KEY, _IS_OPEN), parameters)

    def acknowledge(self, misses: Iterable[SlaMiss], author: str, moment: datetime) -> None:
        """Record who knows of missed deadlines, and since when."""
        self._mark(misses, acknowledged_at=moment, acknowledged_by=author)

    def unshown(self, cluster: str, limit: int) -> list[SlaMiss]:
        """Return the missed deadlines on a cluster that Dagster has not been told of, oldest instance first."""
        is_unshown = (_T.cluster == cluster, _T.shown_at.is_(None))
        return self._find(_ROWS.select.where(*is_unshown).order_by(*_ORDER).limit(limit))

    def mark_shown(self, misses: Iterable[SlaMiss], moment: datetime) -> None:
        """Record that Dagster was told of missed deadlines."""
        self._mark(misses, shown_at=moment)

    def open_counts(self, as_of: datetime, clusters: Collection[str] = ()) -> list[OpenCount]:
        """Return how many instances of each entity are late by each level, and since when; of some clusters if given.

        It reads the late instances only. For metrics, checks and the backlog.
        """
        age = (to_micros(as_of) - type_coerce(_T.nominal_time, BigInteger)) / _MICROS
        columns = (
            func.count(),
            func.count(_T.acknowledged_at),
            func.min(_T.nominal_time),
            func.max(_T.nominal_time),
            func.sum(age),
        )
        key = (_T.kind, _T.name, _T.cluster, _T.level)
        statement = select(*key, *columns).where(_IS_OPEN).group_by(*key).order_by(*key)
        if clusters:
            statement = statement.where(_T.cluster.in_(sorted(clusters)))
        return [OpenCount._make([*values, int(age)]) for *values, age in self._connection.execute(statement)]

    def last_episodes(self, instances: Collection[LateInstance]) -> dict[tuple[LateInstance, SlaLevel], int]:
        """Return the number of the last episode in which each instance missed a deadline; left out if it never did."""
        found: dict[tuple[LateInstance, SlaLevel], int] = {}
        for instance, misses in self.of(instances).items():
            for miss in misses:
                found[instance, miss.level] = max(miss.episode, found.get((instance, miss.level), 0))
        return found

    def starts(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, Starts]:
        """Return when the attempts at instances of processes began and succeeded; left out without an attempt."""
        if not keys:
            return {}
        names = ProcessKey._fields
        wanted = key_rows(self._dialect, names)
        is_it = and_(*(_A[name] == wanted.c[name] for name in names))
        success = func.min(_A.ended_at).filter(_A.status == ProcessInstanceStatus.SUCCEEDED)
        key = [_A[name] for name in names]
        statement = select(*key, func.min(_A.started_at), success).join_from(wanted, attempts, is_it).group_by(*key)
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(keys)})
        return {ProcessKey(*each): Starts(started_at, ended_at) for *each, started_at, ended_at in found}

    def add_pause(self, pause: SlaPause) -> None:
        """Record a time in which a process was not scheduled."""
        _PAUSES.put(self._connection, [pause])

    def pauses(self, processes: Collection[Key]) -> dict[Key, list[SlaPause]]:
        """Return the pauses of some processes, oldest first, by process and cluster; those without any are left out."""
        found: dict[Key, list[SlaPause]] = {}
        for pause in sorted(_PAUSES.of_keys(self._connection, SlaPause._fields[:2], processes)):
            found.setdefault(pause[:2], []).append(pause)
        return found

    def _recovered_feeds(self, cluster: str, limit: int) -> list[Recovered]:
        # Concatenated, so that SQLite begins with the late instances.
        is_over = _F.status.concat("").in_(sorted(_OF_FEED))
        is_it = and_(_F.feed == _T.name, _F.cluster == _T.cluster, _F.nominal_time == _T.nominal_time)
        statement = select(*_ROWS.columns, _F.status, func.coalesce(_F.available_at, _F.updated_at))
        statement = statement.join_from(sla_misses, feed_instances, is_it)
        is_open = (_IS_OPEN, _T.cluster == cluster, _is_of(Kind.FEED))
        found = self._connection.execute(statement.where(*is_open, is_over).limit(limit))
        return [Recovered(_ROWS.load(row), _OF_FEED[status], at) for *row, status, at in found]

    def _recovered_processes(self, cluster: str, limit: int) -> list[Recovered]:
        is_over = _P.status.concat("").in_(sorted(_OF_PROCESS))
        has_started = and_(_T.level == SlaLevel.LOW, _P.attempt > 0)
        is_it = and_(_P.process == _T.name, _P.cluster == _T.cluster, _P.nominal_time == _T.nominal_time)
        statement = select(*_ROWS.columns, _P.status, _P.attempt, func.coalesce(_P.ended_at, _P.updated_at))
        statement = statement.join_from(sla_misses, process_instances, is_it)
        is_open = (_IS_OPEN, _T.cluster == cluster, _is_of(Kind.PROCESS))
        rows = self._connection.execute(statement.where(*is_open, or_(is_over, has_started)).limit(limit))
        found = [(_ROWS.load(row), status, attempt, ended_at) for *row, status, attempt, ended_at in rows]
        begun = [miss.instance[1:] for miss, _, attempt, _ in found if miss.level is SlaLevel.LOW and attempt > 0]
        starts = self.starts(begun)
        return [
            Recovered(miss, Recovery.STARTED, start.started_at)
            if miss.level is SlaLevel.LOW and (start := starts.get(ProcessKey(*miss.instance[1:]))) is not None
            else Recovered(miss, _OF_PROCESS.get(status, Recovery.STARTED), ended_at)
            for miss, status, _, ended_at in found
        ]

    def _mark(self, misses: Iterable[SlaMiss], **changes: Any) -> None:
        keys = sorted(miss.key for miss in misses)
        if keys:
            parameters = [key_parameters(SlaKey._fields, key) | changes for key in keys]
            self._connection.execute(update(sla_misses).where(_HAS_KEY), parameters)

    def _find(self, statement: Select[Any]) -> list[SlaMiss]:
        return _ROWS.find(self._connection, statement)


def _is_of(kind: str) -> ColumnElement[bool]:
    """Return the condition of a kind; concatenated, so that SQLite begins with what is late, and not with all rows."""
    return _T.kind.concat("") == kind
