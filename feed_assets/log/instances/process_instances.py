"""Store the status of each process instance on each cluster, and change it by compare-and-set."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Unpack

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    TextClause,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
    type_coerce,
    union,
    update,
)

from feed_assets.log.definitions.schedules import is_process_scheduled, state_without_row
from feed_assets.log.instances.tables import (
    HAS_FAILED,
    HAS_NOT_SUCCEEDED,
    IS_REQUESTED,
    IS_UNREQUESTED,
    IS_WAITING_WITH_DEADLINE,
    attempts,
    process_instances,
)
from feed_assets.log.records import Cause, EntityKey, ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.sql.rows import (
    KEY_ROWS,
    POSITION,
    RowMapper,
    TableStore,
    key_rows,
    render_rows,
    select_keys,
)
from feed_assets.sql.totals import Total, TotalKind, Totals
from feed_assets.timing.dates import NEVER

UNENDED = frozenset(
    {
        ProcessInstanceStatus.WAITING,
        ProcessInstanceStatus.READY,
        ProcessInstanceStatus.RUNNING,
        ProcessInstanceStatus.SUSPENDED,
    }
)
ENDED = frozenset(ProcessInstanceStatus) - UNENDED
_ENDED_WITHOUT_RUN = frozenset(
    {ProcessInstanceStatus.KILLED, ProcessInstanceStatus.SKIPPED, ProcessInstanceStatus.TIMEDOUT}
)
_FOREVER = datetime.max.replace(tzinfo=UTC)
_T = process_instances.c
_IS_AGAIN = and_(_T.attempt > 0, func.coalesce(_T.cause, "") != Cause.RUN_LOST)
"""As `ProcessInstance.is_again`."""
_OLDEST_FIRST = (_T.nominal_time, _T.process, _T.cluster)

_OF_ATTEMPT = and_(*(attempts.c[name] == _T[name] for name in ProcessKey._fields), attempts.c.inputs.is_not(None))
_INPUTS = select(attempts.c.inputs).where(_OF_ATTEMPT).order_by(attempts.c.attempt.desc()).limit(1)
ROWS = RowMapper(process_instances, ProcessInstance, inputs=_INPUTS.scalar_subquery())


class Progress(NamedTuple):
    """The progress of an instance; it differs if an attempt has begun or ended since."""

    status: ProcessInstanceStatus
    attempt: int


class ProcessInstances(TableStore):
    """The process instances as one transaction sees them."""

    def add_waiting(self, rows: Iterable[ProcessInstance]) -> int:
        """Insert created instances; instances with a row stay as they are.

        Returns how many were new.
        """
        added = ROWS.add_new(self._connection, ProcessKey._fields, rows)
        self._count_ends((row.process, row.cluster, row.status) for row in added)
        return len(added)

    def get(self, process: str, cluster: str, nominal_time: datetime) -> ProcessInstance | None:
        """Return one instance; None if it was not created yet."""
        return self.get_many([ProcessKey(process, cluster, nominal_time)]).get(
            ProcessKey(process, cluster, nominal_time)
        )

    def get_many(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, ProcessInstance]:
        """Return the instances that have a row, in one statement."""
        return {each.key: each for each in ROWS.of_keys(self._connection, ProcessKey._fields, keys)}

    def get_progress(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, Progress]:
        """Return the progress of the instances that have a row, in one statement; cheaper than whole rows."""
        columns = (_T.process, _T.cluster, _T.nominal_time, _T.status, _T.attempt)
        found = select_keys(self._connection, process_instances, ProcessKey._fields, columns, keys)
        return {ProcessKey(*key): Progress(status, attempt) for *key, status, attempt in found}

    def find_between(self, process: str, cluster: str, first: datetime, last: datetime) -> list[ProcessInstance]:
        """Return the instances with a row from `first` to `last`, both inclusive, oldest first."""
        return self._find(
            ROWS.select.where(
                _T.process == process, _T.cluster == cluster, _T.nominal_time.between(first, last)
            ).order_by(_T.nominal_time)
        )

    def run_page(
        self, process: str, cluster: str, start: datetime, limit: int, *, backwards: bool = False
    ) -> list[ProcessInstance]:
        """Return the next `limit` instances after a time that have run, or `backwards` before it, the nearest first."""
        is_its = (_T.process == process, _T.cluster == cluster, _T.attempt > 0)
        is_after = _T.nominal_time < start if backwards else _T.nominal_time > start
        order = _T.nominal_time.desc() if backwards else _T.nominal_time
        return self._find(ROWS.select.where(*is_its, is_after).order_by(order).limit(limit))

    def with_status(
        self,
        status: ProcessInstanceStatus,
        process: str | None = None,
        cluster: str | None = None,
        *,
        limit: int | None,
        newest_first: bool = False,
        ended_from: datetime | None = None,
    ) -> list[ProcessInstance]:
        """Return the first `limit` instances with a status (None: all), by nominal time; of one process and one cluster
        if given, and that have ended at a time or later.
        """
        is_wanted = has_status({status})
        if ended_from is not None:
            is_wanted.append(_T.ended_at >= ended_from)
        if process is not None:
            is_wanted.append(_T.process == process)
        if cluster is not None:
            is_wanted.append(_T.cluster == cluster)
        order = (_T.nominal_time.desc(), _T.process, _T.cluster) if newest_first else _OLDEST_FIRST
        statement = ROWS.select.where(*is_wanted).order_by(*order).limit(limit)
        if process is not None and cluster is not None:
            # The times first: SQLite finds them in an index alone, instead of scanning the ended instances.
            times = select(_T.nominal_time).where(*is_wanted).order_by(order[0]).limit(limit).correlate(None)
            statement = statement.where(_T.nominal_time.in_(times))
        return self._find(statement)

    def times_in(
        self,
        spans: Mapping[tuple[str, str], Sequence[tuple[datetime, datetime | None]]],
        statuses: AbstractSet[ProcessInstanceStatus],
    ) -> dict[EntityKey, list[datetime]]:
        """Return the nominal times of instances with some statuses in spans of several processes, in one statement,
        oldest first.

        `spans` has for each (process, cluster) first and last nominal times, both inclusive; None means no end.
        Processes without such instances are left out.
        """
        rows = [
            (process, cluster, first, _FOREVER if last is None else last)
            for (process, cluster), pairs in spans.items()
            for first, last in pairs
        ]
        if not rows:
            return {}
        times: dict[EntityKey, set[datetime]] = {}
        wanted = key_rows(self._dialect, ("process", "cluster", "first", "last"))
        is_wanted = and_(
            _T.process == wanted.c.process,
            _T.cluster == wanted.c.cluster,
            *has_status(statuses),
            _T.nominal_time.between(wanted.c.first, wanted.c.last),
        )
        # An outer join, in which a span without instances gives a null: SQLite keeps its order, spans before instances.
        statement = select(wanted.c[POSITION], _T.nominal_time)
        statement = statement.join_from(wanted, process_instances, is_wanted, isouter=True)
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(rows)})
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
        """Change an instance if its status is one of `expected`; return whether it was. Of two concurrent calls, one
        wins.
        """
        return self.transition_many([key], expected, **changes) == 1

    def transition_many(
        self,
        keys: Collection[tuple[str, str, datetime]],
        expected: AbstractSet[ProcessInstanceStatus],
        **changes: Unpack[ProcessChanges],
    ) -> int:
        """Make the same change to the instances whose status is one of `expected`; return how many were changed.

        People are told at once of one that ends without a run that could show it.
        """
        if not keys:
            return 0
        status = changes.get("status")
        if status in _ENDED_WITHOUT_RUN:
            changes = {"notice_at": changes["updated_at"], **changes}
        parameters = {**changes, KEY_ROWS: render_rows(keys)}
        if status not in ENDED:
            statement = _update_expected(self._dialect, frozenset(expected))
            return self._connection.execute(statement, parameters).rowcount
        returning = _update_expected(self._dialect, frozenset(expected), returns_entities=True)
        changed = self._connection.execute(returning, parameters).all()
        self._count_ends((process, cluster, status) for process, cluster in changed)
        return len(changed)

    def deadlines_passed(self, cluster: str, as_of: datetime, limit: int) -> list[ProcessInstance]:
        """Return WAITING instances of scheduled processes whose deadline is `as_of` or before, the longest overdue
        first.
        """
        is_passed = (_T.cluster == cluster, _T.deadline_at <= as_of, IS_WAITING_WITH_DEADLINE, self._is_active())
        statement = ROWS.select.where(*is_passed)
        return self._find(statement.order_by(_T.deadline_at, _T.nominal_time, _T.process).limit(limit))

    def postpone_deadlines(self, process: str, cluster: str, delay: timedelta, updated_at: datetime) -> int:
        """Put off the deadlines of a process's WAITING instances by a delay; return how many there were."""
        later = type_coerce(_T.deadline_at, BigInteger) + delay // timedelta(microseconds=1)
        statement = update(process_instances).where(
            _T.process == process, _T.cluster == cluster, IS_WAITING_WITH_DEADLINE
        )
        values = {_T.deadline_at: type_coerce(later, _T.deadline_at.type), _T.updated_at: updated_at}
        return self._connection.execute(statement.values(values)).rowcount

    def unended(self, process: str, cluster: str) -> list[ProcessInstance]:
        """Return the instances of a process that were created and have not ended, oldest first."""
        statement = ROWS.select.where(_T.process == process, _T.cluster == cluster, *has_status(UNENDED))
        return self._find(statement.order_by(*_OLDEST_FIRST))

    def undecided(self, cluster: str, limit: int) -> list[ProcessInstance]:
        """Return FAILED and TIMEDOUT instances without a decision about a retry."""
        is_undecided = (_T.cluster == cluster, HAS_FAILED, _T.retry_at.is_(None))
        return self._find(ROWS.select.where(*is_undecided).order_by(*_OLDEST_FIRST).limit(limit))

    def due_retries(self, cluster: str, as_of: datetime, limit: int) -> list[ProcessInstance]:
        """Return FAILED and TIMEDOUT instances whose retry is due at `as_of`, the longest overdue first."""
        is_due = (_T.cluster == cluster, HAS_FAILED, _T.retry_at <= as_of)
        return self._find(ROWS.select.where(*is_due).order_by(_T.retry_at, *_OLDEST_FIRST).limit(limit))

    def retry_outages(self, cluster: str) -> None:
        """Let the instances that wait for an address be due for their retry."""
        waits = (_T.cluster == cluster, HAS_FAILED, _T.cause == Cause.OUTAGE, _T.retry_at < NEVER)
        self._connection.execute(update(process_instances).where(*waits).values(retry_at=_T.ended_at))

    def has_unrequested(self, cluster: str) -> bool:
        """Return whether an instance of a scheduled process is READY without a requested run."""
        is_unrequested = (_T.cluster == cluster, IS_UNREQUESTED, self._is_active())
        statement = select(_T.nominal_time).where(*is_unrequested).limit(1)
        return self._connection.execute(statement).first() is not None

    def unrequested(self, cluster: str, limit: int) -> list[ProcessKey]:
        """Return the keys of READY instances of scheduled processes without a requested run, oldest first.

        In a write transaction only: it locks the rows, so that no two transactions request the same run.
        """
        is_unrequested = (_T.cluster == cluster, IS_UNREQUESTED, self._is_active())
        statement = select(_T.process, _T.cluster, _T.nominal_time).where(*is_unrequested)
        statement = statement.order_by(_T.nominal_time).limit(limit).with_for_update()
        return [ProcessKey(*row) for row in self._connection.execute(statement)]

    def ran_before(self, cluster: str) -> dict[ProcessKey, Cause | None]:
        """Return those unrequested instances that have run before, with their causes."""
        is_it = (_T.cluster == cluster, IS_UNREQUESTED, _T.attempt > 0, self._is_active())
        statement = select(_T.process, _T.cluster, _T.nominal_time, _T.cause).where(*is_it)
        return {ProcessKey(*key): cause for *key, cause in self._connection.execute(statement)}

    def first_unrequested(
        self,
        process: str,
        cluster: str,
        *,
        newest_first: bool,
        begun: datetime = NEVER,
    ) -> ProcessInstance | None:
        """Return the READY instance of a scheduled process without a requested run that goes before the others: the
        newest one, or else the oldest one of those that have run before or have `begun`, if there are any.
        """
        is_it = (_T.process == process, _T.cluster == cluster, IS_UNREQUESTED, self._is_active())
        goes_first = or_(_IS_AGAIN, _T.nominal_time >= begun)
        order = (_T.nominal_time.desc(),) if newest_first else (goes_first.desc(), _T.nominal_time)
        return ROWS.find_one(self._connection, ROWS.select.where(*is_it).order_by(*order).limit(1))

    def free(self, cluster: str, request_key: str, updated_at: datetime) -> list[ProcessKey]:
        """Take the instances of a request that have not begun out of it, and return them, oldest first: they are READY
        as before it.
        """
        ready = {ProcessInstanceStatus.READY}
        keys = [row.key for row in self.of_request(cluster, request_key) if row.status in ready]
        self.transition_many(keys, ready, request_key=None, requested_at=None, updated_at=updated_at)
        return keys

    def requested_before(self, cluster: str, moment: datetime) -> list[ProcessInstance]:
        """Return READY instances whose run was requested at `moment` or before and has not begun with them."""
        is_open = (_T.cluster == cluster, IS_REQUESTED, _T.requested_at <= moment)
        return self._find(ROWS.select.where(*is_open).order_by(_T.requested_at, *_OLDEST_FIRST))

    def of_request(self, cluster: str, request_key: str) -> list[ProcessInstance]:
        """Return the instances of a request that have not ended, oldest first."""
        is_open = or_(IS_REQUESTED, _T.status == ProcessInstanceStatus.RUNNING)
        statement = ROWS.select.where(_T.cluster == cluster, _T.request_key == request_key, is_open)
        return self._find(statement.order_by(*_OLDEST_FIRST))

    def in_flight(self, keys: Collection[tuple[str, str]]) -> dict[EntityKey, int]:
        """Return how many requested or running runs each (process, cluster) has; keys without runs are left out.

        Instances launched together share their request key; a run that somebody started by hand has only its run id.
        """
        if not keys:
            return {}
        wanted = {EntityKey(*key) for key in keys}
        runs = select(_T.process, _T.cluster, func.coalesce(_T.request_key, _T.run_id).label("run")).where(
            _T.cluster.in_(sorted({key.cluster for key in wanted}))
        )
        statement = union(runs.where(_T.status == ProcessInstanceStatus.RUNNING), runs.where(IS_REQUESTED))
        found = (EntityKey(process, cluster) for process, cluster, _ in self._connection.execute(statement))
        return dict(Counter(key for key in found if key in wanted))

    def active_with_run(self, cluster: str) -> list[ProcessInstance]:
        """Return RUNNING instances with a run id, oldest first."""
        is_active = (_T.cluster == cluster, _T.status == ProcessInstanceStatus.RUNNING, _T.run_id.is_not(None))
        return self._find(ROWS.select.where(*is_active).order_by(*_OLDEST_FIRST))

    def counts(self, process: str, cluster: str) -> dict[ProcessInstanceStatus, int]:
        """Return how many instances of a process have each status; a status without instances is left out."""
        statement = (
            select(_T.status, func.count()).where(_T.process == process, _T.cluster == cluster).group_by(_T.status)
        )
        return dict(self._connection.execute(statement).all())

    def unended_counts(self) -> dict[EntityKey, int]:
        """Return how many unended instances each process has; processes without any are left out."""
        statement = select(_T.process, _T.cluster, func.count()).where(_T.status.in_(sorted(UNENDED)))
        found = self._connection.execute(statement.group_by(_T.process, _T.cluster))
        return {EntityKey(process, cluster): count for process, cluster, count in found}

    def newest(self, process: str, cluster: str, first: datetime, last: datetime, limit: int) -> list[ProcessInstance]:
        """Return the newest instances with a row from `first` to `last`, both inclusive, newest first."""
        return self._find(
            ROWS.select.where(_T.process == process, _T.cluster == cluster, _T.nominal_time.between(first, last))
            .order_by(_T.nominal_time.desc())
            .limit(limit)
        )

    def _count_ends(self, rows: Iterable[tuple[str, str, ProcessInstanceStatus]]) -> None:
        ended = (
            Total(TotalKind.ENDS, process, cluster, status) for process, cluster, status in rows if status in ENDED
        )
        Totals(self._connection).add(ended)

    def _is_active(self) -> ColumnElement[bool]:
        return is_process_scheduled(_T.process, _T.cluster, state_without_row(self._connection))

    def _find(self, statement: Select[Any]) -> list[ProcessInstance]:
        return ROWS.find(self._connection, statement)


@cache  # measured: building it takes eight times as long as executing it
def _update_expected(
    dialect: str, expected: frozenset[ProcessInstanceStatus], *, returns_entities: bool = False
) -> Any:
    """Return the update of the instances in the parameter `KEY_ROWS` whose status is one of `expected`. The other
    parameters name the columns that change. It may return process and cluster of each changed instance.
    """
    wanted = key_rows(dialect, ProcessKey._fields)
    # Concatenated, so that SQLite looks up the keys instead of scanning all instances with the status.
    is_expected = _T.status.concat("").in_(sorted(expected))
    is_wanted = (_T[name] == wanted.c[name] for name in ProcessKey._fields)
    statement = update(process_instances).where(*is_wanted, is_expected)
    return statement.returning(_T.process, _T.cluster) if returns_entities else statement


def has_status(statuses: Collection[ProcessInstanceStatus]) -> list[ColumnElement[bool] | TextClause]:
    """Return the conditions that an instance has one of some statuses, by which databases find the index of those."""
    is_one = _T.status.in_(sorted(statuses))
    return [is_one] if ProcessInstanceStatus.SUCCEEDED in statuses else [is_one, HAS_NOT_SUCCEEDED]


_IS_UNSTARTED = and_(
    # OR instead of IN: IN does not work in an executemany statement.
    or_(_T.status == ProcessInstanceStatus.WAITING, _T.status == ProcessInstanceStatus.READY),
    _T.request_key.is_(None),
    _T.attempt == 0,
)


class UnstartedInstances:
    """The instances of a process on a cluster as one transaction sees them, split into started and unstarted.

    An instance is started if a run was requested, an attempt was made, or it has ended.
    """

    def __init__(self, connection: Connection, process: str, cluster: str) -> None:
        self._connection = connection
        self._is_of_process = and_(_T.process == process, _T.cluster == cluster)

    def has_begun(self) -> bool:
        """Return whether any instance is started."""
        statement = select(_T.nominal_time).where(self._is_of_process, ~_IS_UNSTARTED).limit(1)
        return self._connection.execute(statement).first() is not None

    def times(self) -> list[datetime]:
        """Return the nominal times of unstarted instances, oldest first."""
        statement = select(_T.nominal_time).where(self._is_of_process, _IS_UNSTARTED)
        return list(self._connection.scalars(statement.order_by(_T.nominal_time)))

    def has_waiting(self, start: datetime, stop: datetime) -> bool:
        """Return whether an instance with `start <= time < stop` is WAITING."""
        is_waiting = _T.status == ProcessInstanceStatus.WAITING
        statement = select(_T.nominal_time).where(self._is_of_process, is_waiting, _T.nominal_time >= start)
        return self._connection.execute(statement.where(_T.nominal_time < stop).limit(1)).first() is not None

    def newest_time(self) -> datetime | None:
        """Return the newest nominal time of the created instances."""
        newest: datetime | None = self._connection.scalar(select(func.max(_T.nominal_time)).where(self._is_of_process))
        return newest

    def forget(self, times: Iterable[datetime]) -> None:
        """Remove unstarted instances, as if they had never been created; started ones stay."""
        rows = [{"at": time} for time in times]
        if rows:
            is_it = (self._is_of_process, _T.nominal_time == bindparam("at"), _IS_UNSTARTED)
            self._connection.execute(delete(process_instances).where(*is_it), rows)
