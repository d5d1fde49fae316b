"""Where each instance of each process stands on each cluster, and the compare-and-set by which it moves on."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Unpack

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    type_coerce,
    union,
    update,
)

from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.keyed import KEY_ROWS, POSITION, key_rows, render_rows
from feed_assets.state.records import EntityKey, ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.state.schedules import is_scheduled
from feed_assets.state.schema import (
    HAS_FAILED,
    IS_REQUESTED,
    IS_UNREQUESTED,
    IS_WAITING_WITH_DEADLINE,
    process_instances,
)
from feed_assets.state.upserts import build_insert_if_absent

_STATUS = {status.value: status for status in ProcessInstanceStatus}
_UNENDED = sorted(
    status.value
    for status in (
        ProcessInstanceStatus.WAITING,
        ProcessInstanceStatus.READY,
        ProcessInstanceStatus.RUNNING,
        ProcessInstanceStatus.SUSPENDED,
    )
)
_FOREVER = datetime.max.replace(tzinfo=UTC)
_T = process_instances.c
COLUMNS = (
    _T.process,
    _T.cluster,
    _T.nominal_time,
    _T.status,
    _T.updated_at,
    _T.attempt,
    _T.run_id,
    _T.request_key,
    _T.requested_at,
    _T.inputs,
    _T.materialized_at,
    _T.ready_at,
    _T.deadline_at,
    _T.started_at,
    _T.ended_at,
    _T.reason,
    _T.definition_digest,
    _T.release,
    _T.retries,
    _T.retry_at,
    _T.overrides,
    _T.tell_at,
    _T.told,
)
_NAMES = tuple(column.name for column in COLUMNS)
# Else SQLite would walk through all instances that have the status, instead of to those with the keys.
_STATUS_WITHOUT_INDEX = _T.status.concat("")
_OLDEST_FIRST = (_T.nominal_time, _T.process, _T.cluster)


_RUNS = select(_T.process, _T.cluster, func.coalesce(_T.request_key, _T.run_id).label("run")).where(
    _T.cluster.in_(bindparam("clusters", expanding=True))
)
_SELECT_IN_FLIGHT = union(_RUNS.where(_T.status == ProcessInstanceStatus.RUNNING.value), _RUNS.where(IS_REQUESTED))


class ProcessInstances:
    """The process instances as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = connection.dialect.name

    def add_waiting(self, rows: Iterable[ProcessInstance]) -> int:
        """Insert instances that have come into being; those that have a row stay as they are.

        Returns how many were new.
        """
        by_key = {row.key: _to_row(row) for row in rows}
        if not by_key:
            return 0
        known = self.get_many(by_key)
        new = [by_key[key] for key in sorted(by_key) if key not in known]
        if not new:
            return 0
        statement = build_insert_if_absent(self._dialect, process_instances)
        if self._dialect == "sqlite":
            self._connection.execute(statement, new)
            return len(new)
        return len(self._connection.execute(statement.returning(_T.attempt), new).all())

    def get(self, process: str, cluster: str, nominal_time: datetime) -> ProcessInstance | None:
        """One instance; None if it has not come into being."""
        return self.get_many([ProcessKey(process, cluster, nominal_time)]).get(
            ProcessKey(process, cluster, nominal_time)
        )

    def get_many(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, ProcessInstance]:
        """Those of the instances that have a row, in one statement."""
        if not keys:
            return {}
        found = self._connection.execute(_select_many(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {instance.key: instance for instance in map(from_row, found)}

    def find_between(self, process: str, cluster: str, first: datetime, last: datetime) -> list[ProcessInstance]:
        """The instances with a row from `first` to `last`, both inclusive, oldest first."""
        return self._find(
            select(*COLUMNS)
            .where(_T.process == process, _T.cluster == cluster, _T.nominal_time.between(first, last))
            .order_by(_T.nominal_time)
        )

    def with_status(
        self,
        status: ProcessInstanceStatus,
        process: str | None = None,
        cluster: str | None = None,
        *,
        limit: int,
        newest_first: bool = False,
    ) -> list[ProcessInstance]:
        """At most `limit` instances with a status, by nominal time; of one process and one cluster if given."""
        is_wanted = [_T.status == status.value]
        if process is not None:
            is_wanted.append(_T.process == process)
        if cluster is not None:
            is_wanted.append(_T.cluster == cluster)
        order = (_T.nominal_time.desc(), _T.process, _T.cluster) if newest_first else _OLDEST_FIRST
        statement = select(*COLUMNS).where(*is_wanted).order_by(*order).limit(limit)
        if process is not None and cluster is not None:
            # The times first: SQLite finds them in an index alone, and else would walk through what has ended.
            times = select(_T.nominal_time).where(*is_wanted).order_by(order[0]).limit(limit).correlate(None)
            statement = statement.where(_T.nominal_time.in_(times))
        return self._find(statement)

    def waiting_times(
        self, spans: Mapping[tuple[str, str], Sequence[tuple[datetime, datetime | None]]]
    ) -> dict[EntityKey, list[datetime]]:
        """Nominal times of the WAITING instances in spans of several processes, in one statement, oldest first.

        `spans` has for each (process, cluster) first and last nominal time, both inclusive; None means without end.
        A process that has none is left out.
        """
        rows = [
            (process, cluster, first, _FOREVER if last is None else last)
            for (process, cluster), pairs in spans.items()
            for first, last in pairs
        ]
        if not rows:
            return {}
        times: dict[EntityKey, set[datetime]] = {}
        found = self._connection.execute(_select_waiting(self._dialect), {KEY_ROWS: render_rows(rows)})
        for position, nominal_time in found:
            if nominal_time is not None:
                process, cluster, *_ = rows[position]
                times.setdefault(EntityKey(process, cluster), set()).add(nominal_time)
        return {key: sorted(moments) for key, moments in times.items()}

    def transition(
        self,
        key: tuple[str, str, datetime],
        expected: AbstractSet[ProcessInstanceStatus],
        **changes: Unpack[ProcessChanges],
    ) -> bool:
        """Change an instance if its status is one of `expected`; whether it was. Of two racing, one wins."""
        return self.transition_many([key], expected, **changes) == 1

    def transition_many(
        self,
        keys: Collection[tuple[str, str, datetime]],
        expected: AbstractSet[ProcessInstanceStatus],
        **changes: Unpack[ProcessChanges],
    ) -> int:
        """Make the same change to those of the instances whose status is one of `expected`; how many there were."""
        if not keys:
            return 0
        wanted = key_rows(self._dialect, ProcessKey._fields)
        values: dict[str, Any] = dict(changes)
        if "status" in values:
            values["status"] = values["status"].value
        statement = (
            update(process_instances)
            .where(
                _T.process == wanted.c.process,
                _T.cluster == wanted.c.cluster,
                _T.nominal_time == wanted.c.nominal_time,
                _STATUS_WITHOUT_INDEX.in_(sorted(status.value for status in expected)),
            )
            .values(values)
        )
        return self._connection.execute(statement, {KEY_ROWS: render_rows(keys)}).rowcount

    def deadlines_passed(
        self,
        as_of: datetime,
        limit: int,
        *,
        cluster: str | None = None,
        without_row: ScheduleState = ScheduleState.SCHEDULED,
    ) -> list[ProcessInstance]:
        """WAITING instances of scheduled processes whose deadline is `as_of` or before, the longest overdue first.

        Of one cluster if given; `without_row` is the state of a process that has no schedule.
        """
        statement = select(*COLUMNS).where(_T.deadline_at <= as_of, IS_WAITING_WITH_DEADLINE, _active(without_row))
        statement = statement.order_by(_T.deadline_at, _T.nominal_time, _T.process).limit(limit)
        return self._find(_of_cluster(statement, cluster))

    def put_off_deadlines(self, process: str, cluster: str, delay: timedelta, updated_at: datetime) -> int:
        """Give the WAITING instances of a process that have a deadline so much more time; how many there were."""
        later = type_coerce(_T.deadline_at, BigInteger) + delay // timedelta(microseconds=1)
        statement = update(process_instances).where(
            _T.process == process, _T.cluster == cluster, IS_WAITING_WITH_DEADLINE
        )
        values = {_T.deadline_at: type_coerce(later, _T.deadline_at.type), _T.updated_at: updated_at}
        return self._connection.execute(statement.values(values)).rowcount

    def unended(self, process: str, cluster: str) -> list[ProcessInstance]:
        """The instances of a process that have come into being and not ended, oldest first."""
        statement = select(*COLUMNS).where(_T.process == process, _T.cluster == cluster, _T.status.in_(_UNENDED))
        return self._find(statement.order_by(*_OLDEST_FIRST))

    def undecided(self, cluster: str, limit: int) -> list[ProcessInstance]:
        """FAILED and TIMEDOUT instances of which it is not decided whether they are tried again."""
        statement = select(*COLUMNS).where(_T.cluster == cluster, HAS_FAILED, _T.retry_at.is_(None))
        return self._find(statement.order_by(*_OLDEST_FIRST).limit(limit))

    def due_retries(self, cluster: str, as_of: datetime, limit: int) -> list[ProcessInstance]:
        """FAILED and TIMEDOUT instances that are to be tried again at `as_of` or before, the longest overdue first."""
        statement = select(*COLUMNS).where(_T.cluster == cluster, HAS_FAILED, _T.retry_at <= as_of)
        return self._find(statement.order_by(_T.retry_at, *_OLDEST_FIRST).limit(limit))

    def has_unrequested(
        self, cluster: str | None = None, *, without_row: ScheduleState = ScheduleState.SCHEDULED
    ) -> bool:
        """Whether an instance of a scheduled process is READY and no run has been asked for it."""
        statement = select(_T.nominal_time).where(IS_UNREQUESTED, _active(without_row)).limit(1)
        return self._connection.execute(_of_cluster(statement, cluster)).first() is not None

    def unrequested(
        self, cluster: str, limit: int, *, without_row: ScheduleState = ScheduleState.SCHEDULED
    ) -> list[ProcessKey]:
        """Keys of READY instances of scheduled processes for which no run has been asked, oldest first.

        In a write transaction only: the rows are ours until it ends, so no two ask for the same.
        """
        keys = select(_T.process, _T.cluster, _T.nominal_time)
        keys = keys.where(_T.cluster == cluster, IS_UNREQUESTED, _active(without_row))
        found = self._connection.execute(keys.order_by(_T.nominal_time).limit(limit).with_for_update())
        return [ProcessKey(*row) for row in found]

    def requested_before(self, cluster: str, moment: datetime) -> list[ProcessInstance]:
        """READY instances for which a run was asked at `moment` or before, and that it has not begun with."""
        return self._find(
            select(*COLUMNS)
            .where(_T.cluster == cluster, IS_REQUESTED, _T.requested_at <= moment)
            .order_by(_T.requested_at, *_OLDEST_FIRST)
        )

    def of_request(self, cluster: str, request_key: str) -> list[ProcessInstance]:
        """The instances that were asked for with a key and have not ended, oldest first."""
        is_open = or_(IS_REQUESTED, _T.status == ProcessInstanceStatus.RUNNING.value)
        statement = select(*COLUMNS).where(_T.cluster == cluster, _T.request_key == request_key, is_open)
        return self._find(statement.order_by(*_OLDEST_FIRST))

    def in_flight(self, keys: Collection[tuple[str, str]]) -> dict[EntityKey, int]:
        """How many runs each (process, cluster) has that were asked for or are running; one without is left out.

        Instances launched together share their request key; a run that somebody else started has its run id only.
        """
        if not keys:
            return {}
        wanted = {EntityKey(*key) for key in keys}
        in_flight = self._connection.execute(_SELECT_IN_FLIGHT, {"clusters": sorted({key.cluster for key in wanted})})
        found = (EntityKey(process, cluster) for process, cluster, _ in in_flight)
        return dict(Counter(key for key in found if key in wanted))

    def active_with_run(self, cluster: str | None = None) -> list[ProcessInstance]:
        """RUNNING instances that know their run, oldest first; of one cluster if given."""
        is_active = and_(_T.status == ProcessInstanceStatus.RUNNING.value, _T.run_id.is_not(None))
        return self._find(_of_cluster(select(*COLUMNS).where(is_active).order_by(*_OLDEST_FIRST), cluster))

    def counts(self, process: str, cluster: str) -> dict[ProcessInstanceStatus, int]:
        """How many instances of a process have each status; a status that none has is left out."""
        statement = (
            select(_T.status, func.count()).where(_T.process == process, _T.cluster == cluster).group_by(_T.status)
        )
        return {_STATUS[status]: count for status, count in self._connection.execute(statement)}

    def unended_counts(self) -> dict[EntityKey, int]:
        """How many instances of each process have come into being and not ended; one without is left out."""
        statement = select(_T.process, _T.cluster, func.count()).where(_T.status.in_(_UNENDED))
        found = self._connection.execute(statement.group_by(_T.process, _T.cluster))
        return {EntityKey(process, cluster): count for process, cluster, count in found}

    def newest(self, process: str, cluster: str, first: datetime, last: datetime, limit: int) -> list[ProcessInstance]:
        """The newest instances with a row from `first` to `last`, both inclusive, newest first."""
        return self._find(
            select(*COLUMNS)
            .where(_T.process == process, _T.cluster == cluster, _T.nominal_time.between(first, last))
            .order_by(_T.nominal_time.desc())
            .limit(limit)
        )

    def _find(self, statement: Select[Any]) -> list[ProcessInstance]:
        return [from_row(row) for row in self._connection.execute(statement)]


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, ProcessKey._fields)
    is_wanted = and_(
        _T.process == wanted.c.process, _T.cluster == wanted.c.cluster, _T.nominal_time == wanted.c.nominal_time
    )
    return select(*COLUMNS).join_from(wanted, process_instances, is_wanted)


@lru_cache
def _select_waiting(dialect: str) -> Select[Any]:
    """A span without an instance has a null: SQLite keeps the order of an outer join, from span to instances."""
    wanted = key_rows(dialect, ("process", "cluster", "first", "last"))
    is_wanted = and_(
        _T.process == wanted.c.process,
        _T.cluster == wanted.c.cluster,
        _T.status == ProcessInstanceStatus.WAITING.value,
        _T.nominal_time.between(wanted.c.first, wanted.c.last),
    )
    return select(wanted.c[POSITION], _T.nominal_time).join_from(wanted, process_instances, is_wanted, isouter=True)


@lru_cache
def _active(without_row: ScheduleState) -> ColumnElement[bool]:
    return is_scheduled("process", _T.process, _T.cluster, without_row)


def _of_cluster(statement: Select[Any], cluster: str | None) -> Select[Any]:
    return statement if cluster is None else statement.where(_T.cluster == cluster)


def _to_row(instance: ProcessInstance) -> dict[str, object]:
    return {
        "process": instance.process,
        "cluster": instance.cluster,
        "nominal_time": instance.nominal_time,
        "status": instance.status.value,
        "updated_at": instance.updated_at,
        "attempt": instance.attempt,
        "run_id": instance.run_id,
        "request_key": instance.request_key,
        "requested_at": instance.requested_at,
        "inputs": instance.inputs,
        "materialized_at": instance.materialized_at,
        "ready_at": instance.ready_at,
        "deadline_at": instance.deadline_at,
        "started_at": instance.started_at,
        "ended_at": instance.ended_at,
        "reason": instance.reason,
        "definition_digest": instance.definition_digest,
        "release": instance.release,
        "retries": instance.retries,
        "retry_at": instance.retry_at,
        "overrides": instance.overrides,
        "tell_at": instance.tell_at,
        "told": instance.told,
    }


def from_row(row: Sequence[Any]) -> ProcessInstance:
    """The instance in a row of `COLUMNS`."""
    fields = dict(zip(_NAMES, row, strict=True))
    fields["status"] = _STATUS[fields["status"]]
    return ProcessInstance(**fields)
