"""Which feeds and processes are scheduled or suspended on which clusters, as commands have set it."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Text, and_, bindparam, delete, exists, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import SEPARATOR
from feed_assets.state.definition_records import Schedule, ScheduleState
from feed_assets.state.schema import schedules
from feed_assets.state.upserts import build_upsert

_T = schedules.c
_COLUMNS = (_T.kind, _T.name, _T.cluster, _T.state, _T.changed_at, _T.author, _T.scheduled_at)
_REMOVE = delete(schedules).where(
    _T.kind == bindparam("of_kind"), _T.name == bindparam("of_name"), _T.cluster == bindparam("on_cluster")
)


class _FeedOf(FunctionElement[str]):
    """The feed of a flow, by the name of the flow."""

    inherit_cache = True
    type = Text()


@compiles(_FeedOf, "sqlite")
def _feed_on_sqlite(element: _FeedOf, compiler: SQLCompiler, **options: Any) -> str:
    name = compiler.process(element.clauses, **options)
    return f"substr({name}, 1, instr({name}, '{SEPARATOR}') - 1)"


@compiles(_FeedOf, "postgresql")
def _feed_on_postgresql(element: _FeedOf, compiler: SQLCompiler, **options: Any) -> str:
    name = compiler.process(element.clauses, **options)
    return f"split_part({name}, '{SEPARATOR}', 1)"


@lru_cache
def is_process_scheduled(name: Column[str], cluster: Column[str], without_row: ScheduleState) -> ColumnElement[bool]:
    """The condition that the process or flow of a row is scheduled: a flow is as its feed is."""
    return or_(
        and_(~name.contains(SEPARATOR), is_scheduled(Kind.PROCESS, name, cluster, without_row)),
        and_(name.contains(SEPARATOR), is_scheduled(Kind.FEED, _FeedOf(name), cluster, without_row)),
    )


@lru_cache
def is_scheduled(
    kind: str, name: ColumnElement[str], cluster: Column[str], without_row: ScheduleState
) -> ColumnElement[bool]:
    """The condition that the entity of a row is scheduled; `without_row` is the state of one that has no schedule."""
    of_it = (_T.kind == kind, _T.name == name, _T.cluster == cluster)
    scheduled = _T.state == ScheduleState.SCHEDULED.value
    if without_row is ScheduleState.SCHEDULED:
        return ~exists().where(*of_it, ~scheduled).correlate_except(schedules)
    return exists().where(*of_it, scheduled).correlate_except(schedules)


class Schedules:
    """The schedules as one transaction sees them; an entity that no command has scheduled has none."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> dict[tuple[str, str, str], Schedule]:
        """Every schedule, by (kind, name, cluster)."""
        found = map(_from_row, self._connection.execute(select(*_COLUMNS)))
        return {schedule.key: schedule for schedule in found}

    def of(self, kind: str, name: str) -> dict[str, Schedule]:
        """The schedules of an entity, by cluster."""
        found = self._connection.execute(select(*_COLUMNS).where(_T.kind == kind, _T.name == name))
        return {schedule.cluster: schedule for schedule in map(_from_row, found)}

    def of_many(self, kind: str, names: Collection[str]) -> dict[tuple[str, str, str], Schedule]:
        """The schedules of several entities of a kind, by (kind, name, cluster)."""
        found = self._connection.execute(select(*_COLUMNS).where(_T.kind == kind, _T.name.in_(sorted(names))))
        return {schedule.key: schedule for schedule in map(_from_row, found)}

    def put(self, rows: Iterable[Schedule]) -> None:
        """Insert rows, or replace those there are."""
        parameters = [
            {column.name: getattr(row, column.name) for column in _COLUMNS} | {"state": row.state.value}
            for row in sorted(rows, key=lambda row: row.key)
        ]
        if parameters:
            self._connection.execute(build_upsert(self._connection.dialect.name, schedules), parameters)

    def remove(self, keys: Iterable[tuple[str, str, str]]) -> None:
        """Forget the schedules of (kind, name, cluster) keys; those that have none are left out."""
        parameters = [{"of_kind": kind, "of_name": name, "on_cluster": on} for kind, name, on in sorted(keys)]
        if parameters:
            self._connection.execute(_REMOVE, parameters)


def _from_row(row: Sequence[Any]) -> Schedule:
    kind, name, cluster, state, changed_at, author, scheduled_at = row
    return Schedule(
        kind=kind,
        name=name,
        cluster=cluster,
        state=ScheduleState(state),
        changed_at=changed_at,
        author=author,
        scheduled_at=scheduled_at,
    )
