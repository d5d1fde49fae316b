"""How far the instances of each feed and process have come into being, so that what is due is found at once."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Select, bindparam, delete, select

from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.records import EntityKey, Frontier, FrontierKind
from feed_assets.state.schedules import is_process_scheduled, is_scheduled
from feed_assets.state.schema import HAS_NEXT_TIME, frontiers
from feed_assets.state.upserts import build_upsert

_KIND = {kind.value: kind for kind in FrontierKind}
_T = frontiers.c
_COLUMNS = (_T.kind, _T.entity, _T.cluster, _T.next_index, _T.next_time, _T.due_at)
_REMOVE = delete(frontiers).where(
    _T.kind == bindparam("of_kind"), _T.entity == bindparam("of_entity"), _T.cluster == bindparam("on_cluster")
)


class Frontiers:
    """The frontiers as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def due(
        self,
        kind: FrontierKind,
        as_of: datetime,
        limit: int,
        cluster: str | None = None,
        *,
        without_row: ScheduleState | None = None,
    ) -> list[Frontier]:
        """Frontiers whose next instance comes into being at `as_of` or before, oldest first; of one cluster if given.

        With `without_row`, the state of entities that have no schedule, only those of scheduled entities.
        """
        statement = _select_due(kind, cluster is not None, without_row)
        parameters = {"not_after": as_of, "on_cluster": cluster, "at_most": limit}
        return [_from_row(row) for row in self._connection.execute(statement, parameters)]

    def get(self, kind: FrontierKind, entity: str, cluster: str) -> Frontier | None:
        """The frontier of an entity on a cluster; None if it has none yet."""
        statement = select(*_COLUMNS).where(_T.kind == kind.value, _T.entity == entity, _T.cluster == cluster)
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else _from_row(row)

    def all(self, kind: FrontierKind) -> dict[EntityKey, Frontier]:
        """Every frontier of a kind; for commands, not for ticks."""
        found = map(_from_row, self._connection.execute(select(*_COLUMNS).where(_T.kind == kind.value)))
        return {frontier.key: frontier for frontier in found}

    def starting_with(self, kind: FrontierKind, prefix: str, cluster: str) -> list[str]:
        """The entities on a cluster whose names start so; for commands, not for ticks."""
        is_one = (_T.kind == kind.value, _T.cluster == cluster, _T.entity.startswith(prefix, autoescape=True))
        return list(self._connection.scalars(select(_T.entity).where(*is_one).order_by(_T.entity)))

    def put(self, rows: Iterable[Frontier]) -> None:
        """Insert rows, or replace those there are. Of two rows of one entity the last counts."""
        by_key = {
            (row.kind, *row.key): {
                "kind": row.kind.value,
                "entity": row.entity,
                "cluster": row.cluster,
                "next_index": row.next_index,
                "next_time": row.next_time,
                "due_at": None if row.next_time is None else row.next_time + row.delay,
            }
            for row in rows
        }
        if by_key:
            upsert = build_upsert(self._connection.dialect.name, frontiers)
            self._connection.execute(upsert, [by_key[key] for key in sorted(by_key)])

    def missing(self, kind: FrontierKind, keys: Sequence[tuple[str, str]]) -> list[EntityKey]:
        """Those of the (entity, cluster) keys that have no frontier, in the order given."""
        rows = self._connection.execute(select(_T.entity, _T.cluster).where(_T.kind == kind.value))
        present = {(entity, cluster) for entity, cluster in rows}
        return [EntityKey(*key) for key in keys if key not in present]

    def remove(self, kind: FrontierKind, keys: Iterable[tuple[str, str]]) -> None:
        """Forget the frontiers of (entity, cluster) keys; those that have none are left out."""
        parameters = [
            {"of_kind": kind.value, "of_entity": entity, "on_cluster": cluster} for entity, cluster in sorted(keys)
        ]
        if parameters:
            self._connection.execute(_REMOVE, parameters)


@lru_cache
def _select_due(kind: FrontierKind, on_cluster: bool, without_row: ScheduleState | None) -> Select[Any]:
    statement = select(*_COLUMNS).where(_T.kind == kind.value, _T.due_at <= bindparam("not_after"), HAS_NEXT_TIME)
    if on_cluster:
        statement = statement.where(_T.cluster == bindparam("on_cluster"))
    if without_row is not None:
        statement = statement.where(_is_active(kind, without_row))
    return statement.order_by(_T.due_at, _T.entity, _T.cluster).limit(bindparam("at_most", type_=Integer))


def _is_active(kind: FrontierKind, without_row: ScheduleState) -> ColumnElement[bool]:
    if kind is FrontierKind.PROCESS:
        return is_process_scheduled(_T.entity, _T.cluster, without_row)
    return is_scheduled(kind.value, _T.entity, _T.cluster, without_row)


def _from_row(row: Sequence[Any]) -> Frontier:
    kind, entity, cluster, next_index, next_time, due_at = row
    return Frontier(
        kind=_KIND[kind],
        entity=entity,
        cluster=cluster,
        next_index=next_index,
        next_time=next_time,
        delay=timedelta(0) if next_time is None else due_at - next_time,
    )
