"""Where each instance of each process stands on each cluster, and the compare-and-set by which it moves on."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Unpack

from sqlalchemy import BigInteger, Connection, Select, func, or_, select, type_coerce, update

from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.keyed import KEY_ROWS, render_rows
from feed_assets.state.process_statements import (
    COLUMNS,
    OLDEST_FIRST,
    SELECT_DUE_RETRIES,
    SELECT_IN_FLIGHT,
    SELECT_REQUESTED,
    SELECT_UNDECIDED,
    select_active,
    select_any_unrequested,
    select_deadlines,
    select_many,
    select_standing,
    select_unrequested,
    select_waiting,
    select_with_status,
    update_many,
)
from feed_assets.state.records import EntityKey, ProcessChanges, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.state.schema import IS_REQUESTED, IS_WAITING_WITH_DEADLINE, process_instances
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
_NAMES = tuple(column.name for column in COLUMNS)


class Standing(NamedTuple):
    """How far an instance has come; an attempt that has begun or ended since is told by it."""

    status: ProcessInstanceStatus
    attempt: int


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
        found = self._connection.execute(select_many(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {instance.key: instance for instance in map(from_row, found)}

    def get_standing(self, keys: Collection[tuple[str, str, datetime]]) -> dict[ProcessKey, Standing]:
        """Where those of the instances stand that have a row, in one statement; cheaper than whole rows."""
        if not keys:
            return {}
        found = self._connection.execute(select_standing(self._dialect), {KEY_ROWS: render_rows(keys)})
        return {ProcessKey(*key): Standing(_STATUS[status], attempt) for *key, status, attempt in found}

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
        statement = select_with_status(process is not None, cluster is not None, newest_first)
        return self._find(statement, of_status=status.value, of_process=process, on_cluster=cluster, at_most=limit)

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
        found = self._connection.execute(select_waiting(self._dialect), {KEY_ROWS: render_rows(rows)})
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
        values: dict[str, Any] = dict(changes)
        if "status" in values:
            values["status"] = values["status"].value
        statement = update_many(self._dialect, frozenset(expected))
        return self._connection.execute(statement, values | {KEY_ROWS: render_rows(keys)}).rowcount

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
        statement = select_deadlines(cluster is not None, without_row)
        return self._find(statement, not_after=as_of, on_cluster=cluster, at_most=limit)

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
        return self._find(statement.order_by(*OLDEST_FIRST))

    def undecided(self, cluster: str, limit: int) -> list[ProcessInstance]:
        """FAILED and TIMEDOUT instances of which it is not decided whether they are tried again."""
        return self._find(SELECT_UNDECIDED, on_cluster=cluster, at_most=limit)

    def due_retries(self, cluster: str, as_of: datetime, limit: int) -> list[ProcessInstance]:
        """FAILED and TIMEDOUT instances that are to be tried again at `as_of` or before, the longest overdue first."""
        return self._find(SELECT_DUE_RETRIES, on_cluster=cluster, not_after=as_of, at_most=limit)

    def has_unrequested(
        self, cluster: str | None = None, *, without_row: ScheduleState = ScheduleState.SCHEDULED
    ) -> bool:
        """Whether an instance of a scheduled process is READY and no run has been asked for it."""
        statement = select_any_unrequested(cluster is not None, without_row)
        return self._connection.execute(statement, {"on_cluster": cluster}).first() is not None

    def unrequested(
        self, cluster: str, limit: int, *, without_row: ScheduleState = ScheduleState.SCHEDULED
    ) -> list[ProcessKey]:
        """Keys of READY instances of scheduled processes for which no run has been asked, oldest first.

        In a write transaction only: the rows are ours until it ends, so no two ask for the same.
        """
        found = self._connection.execute(select_unrequested(without_row), {"on_cluster": cluster, "at_most": limit})
        return [ProcessKey(*row) for row in found]

    def requested_before(self, cluster: str, moment: datetime) -> list[ProcessInstance]:
        """READY instances for which a run was asked at `moment` or before, and that it has not begun with."""
        return self._find(SELECT_REQUESTED, on_cluster=cluster, not_after=moment)

    def of_request(self, cluster: str, request_key: str) -> list[ProcessInstance]:
        """The instances that were asked for with a key and have not ended, oldest first."""
        is_open = or_(IS_REQUESTED, _T.status == ProcessInstanceStatus.RUNNING.value)
        statement = select(*COLUMNS).where(_T.cluster == cluster, _T.request_key == request_key, is_open)
        return self._find(statement.order_by(*OLDEST_FIRST))

    def in_flight(self, keys: Collection[tuple[str, str]]) -> dict[EntityKey, int]:
        """How many runs each (process, cluster) has that were asked for or are running; one without is left out.

        Instances launched together share their request key; a run that somebody else started has its run id only.
        """
        if not keys:
            return {}
        wanted = {EntityKey(*key) for key in keys}
        in_flight = self._connection.execute(SELECT_IN_FLIGHT, {"clusters": sorted({key.cluster for key in wanted})})
        found = (EntityKey(process, cluster) for process, cluster, _ in in_flight)
        return dict(Counter(key for key in found if key in wanted))

    def active_with_run(self, cluster: str | None = None) -> list[ProcessInstance]:
        """RUNNING instances that know their run, oldest first; of one cluster if given."""
        return self._find(select_active(cluster is not None), on_cluster=cluster)

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

    def _find(self, statement: Select[Any], **parameters: object) -> list[ProcessInstance]:
        return [from_row(row) for row in self._connection.execute(statement, parameters)]


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
