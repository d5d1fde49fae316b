"""What is asked about process instances, as statements that are built once: it takes longer than to execute them.

Their parameters are `of_process`, `of_status`, `on_cluster`, `not_after`, `at_most` and `KEY_ROWS`.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Integer,
    Select,
    Update,
    and_,
    bindparam,
    func,
    select,
    union,
    update,
)

from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.keyed import POSITION, key_rows
from feed_assets.state.records import ProcessInstanceStatus, ProcessKey
from feed_assets.state.schedules import is_process_scheduled
from feed_assets.state.schema import (
    HAS_FAILED,
    IS_REQUESTED,
    IS_UNREQUESTED,
    IS_WAITING_WITH_DEADLINE,
    process_instances,
)

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
# Else SQLite would walk through all instances that have the status, instead of to those with the keys.
_STATUS_WITHOUT_INDEX = _T.status.concat("")
OLDEST_FIRST = (_T.nominal_time, _T.process, _T.cluster)

_AT_MOST = bindparam("at_most", type_=Integer)
_NOT_AFTER: BindParameter[datetime] = bindparam("not_after", type_=_T.updated_at.type)
_IS_ON_CLUSTER = _T.cluster == bindparam("on_cluster")
_RUNS = select(_T.process, _T.cluster, func.coalesce(_T.request_key, _T.run_id).label("run")).where(
    _T.cluster.in_(bindparam("clusters", expanding=True))
)
SELECT_IN_FLIGHT = union(_RUNS.where(_T.status == ProcessInstanceStatus.RUNNING.value), _RUNS.where(IS_REQUESTED))
SELECT_UNDECIDED = (
    select(*COLUMNS).where(_IS_ON_CLUSTER, HAS_FAILED, _T.retry_at.is_(None)).order_by(*OLDEST_FIRST).limit(_AT_MOST)
)
SELECT_DUE_RETRIES = (
    select(*COLUMNS)
    .where(_IS_ON_CLUSTER, HAS_FAILED, _T.retry_at <= _NOT_AFTER)
    .order_by(_T.retry_at, *OLDEST_FIRST)
    .limit(_AT_MOST)
)
SELECT_REQUESTED = (
    select(*COLUMNS)
    .where(_IS_ON_CLUSTER, IS_REQUESTED, _T.requested_at <= _NOT_AFTER)
    .order_by(_T.requested_at, *OLDEST_FIRST)
)


@lru_cache
def select_many(dialect: str) -> Select[Any]:
    """The rows of the keys."""
    return _select_wanted(dialect, *COLUMNS)


@lru_cache
def select_standing(dialect: str) -> Select[Any]:
    """Key, status and attempt of the keys."""
    return _select_wanted(dialect, _T.process, _T.cluster, _T.nominal_time, _T.status, _T.attempt)


def _select_wanted(dialect: str, *columns: ColumnElement[Any]) -> Select[Any]:
    wanted = key_rows(dialect, ProcessKey._fields)
    is_wanted = and_(
        _T.process == wanted.c.process, _T.cluster == wanted.c.cluster, _T.nominal_time == wanted.c.nominal_time
    )
    return select(*columns).join_from(wanted, process_instances, is_wanted)


@lru_cache
def select_waiting(dialect: str) -> Select[Any]:
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
def select_with_status(of_process: bool, on_cluster: bool, newest_first: bool) -> Select[Any]:
    is_wanted = [_T.status == bindparam("of_status")]
    if of_process:
        is_wanted.append(_T.process == bindparam("of_process"))
    if on_cluster:
        is_wanted.append(_IS_ON_CLUSTER)
    order = (_T.nominal_time.desc(), _T.process, _T.cluster) if newest_first else OLDEST_FIRST
    statement = select(*COLUMNS).where(*is_wanted).order_by(*order).limit(_AT_MOST)
    if not (of_process and on_cluster):
        return statement
    # The times first: SQLite finds them in an index alone, and else would walk through what has ended.
    times = select(_T.nominal_time).where(*is_wanted).order_by(order[0]).limit(_AT_MOST).correlate(None)
    return statement.where(_T.nominal_time.in_(times))


@lru_cache
def update_many(dialect: str, expected: frozenset[ProcessInstanceStatus]) -> Update:
    """Sets the columns that are among the parameters."""
    wanted = key_rows(dialect, ProcessKey._fields)
    return update(process_instances).where(
        _T.process == wanted.c.process,
        _T.cluster == wanted.c.cluster,
        _T.nominal_time == wanted.c.nominal_time,
        _STATUS_WITHOUT_INDEX.in_(sorted(status.value for status in expected)),
    )


@lru_cache
def select_deadlines(on_cluster: bool, without_row: ScheduleState) -> Select[Any]:
    statement = select(*COLUMNS).where(_T.deadline_at <= _NOT_AFTER, IS_WAITING_WITH_DEADLINE, _active(without_row))
    statement = statement.order_by(_T.deadline_at, _T.nominal_time, _T.process).limit(_AT_MOST)
    return statement.where(_IS_ON_CLUSTER) if on_cluster else statement


@lru_cache
def select_any_unrequested(on_cluster: bool, without_row: ScheduleState) -> Select[Any]:
    statement = select(_T.nominal_time).where(IS_UNREQUESTED, _active(without_row)).limit(1)
    return statement.where(_IS_ON_CLUSTER) if on_cluster else statement


@lru_cache
def select_unrequested(without_row: ScheduleState) -> Select[Any]:
    keys = select(_T.process, _T.cluster, _T.nominal_time).where(_IS_ON_CLUSTER, IS_UNREQUESTED, _active(without_row))
    return keys.order_by(_T.nominal_time).limit(_AT_MOST).with_for_update()


@lru_cache
def select_active(on_cluster: bool) -> Select[Any]:
    is_active = and_(_T.status == ProcessInstanceStatus.RUNNING.value, _T.run_id.is_not(None))
    statement = select(*COLUMNS).where(is_active).order_by(*OLDEST_FIRST)
    return statement.where(_IS_ON_CLUSTER) if on_cluster else statement


def _active(without_row: ScheduleState) -> ColumnElement[bool]:
    return is_process_scheduled(_T.process, _T.cluster, without_row)
