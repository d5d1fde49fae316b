"""The sweeps that were planned, and the compare-and-set by which each moves on from state to state."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from datetime import datetime
from typing import Any, Unpack

from sqlalchemy import Connection, bindparam, insert, select, update

from feed_assets.state.retention_schema import IS_TO_PURGE, sweep_chunks, sweeps
from feed_assets.state.sweep_content import NewChunk
from feed_assets.state.sweep_records import (
    OPEN_STATES,
    ChunkState,
    FeedCount,
    Sweep,
    SweepChanges,
    SweepObstacle,
    SweepState,
)

_T = sweeps.c
_NAMES = tuple(column.name for column in sweeps.columns)
_COUNT_FIELDS = tuple(each.name for each in fields(FeedCount))
_OBSTACLES = "obstacles"
_COUNTS = "counts"
_PURGEABLE = frozenset({SweepState.DONE, SweepState.UNDONE})
_IS_OF_IT = _T.sweep_id == bindparam("of_sweep")
_IS_IN_STATE = _T.state.in_(bindparam("in_states", expanding=True))
_SELECT_ONE = select(*sweeps.columns).where(_IS_OF_IT)
_SELECT_IN_STATES = select(*sweeps.columns).where(_IS_IN_STATE, _T.cluster == bindparam("on_cluster"))
_UPDATE_IN_STATES = update(sweeps).where(_IS_OF_IT, _IS_IN_STATE)


class Sweeps:
    """The sweeps as one transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, sweep: Sweep, chunks: Iterable[NewChunk]) -> None:
        """Store a planned sweep with all that it takes."""
        self._connection.execute(insert(sweeps), _to_row(sweep))
        rows = [_to_chunk_row(chunk) for chunk in chunks]
        if rows:
            self._connection.execute(insert(sweep_chunks), rows)

    def find(self, sweep_id: str) -> Sweep | None:
        """One sweep; None if there is none of that id."""
        row = self._connection.execute(_SELECT_ONE, {"of_sweep": sweep_id}).one_or_none()
        return None if row is None else _from_row(row)

    def find_many(self, sweep_ids: Collection[str]) -> dict[str, Sweep]:
        """Those of the sweeps that there are, by id."""
        found = self._connection.execute(select(*sweeps.columns).where(_T.sweep_id.in_(sorted(set(sweep_ids)))))
        return {sweep.sweep_id: sweep for sweep in map(_from_row, found)}

    def find_prefix(self, prefix: str, limit: int = 2) -> list[Sweep]:
        """The first sweeps whose id begins so; for people who write the beginning of an id."""
        statement = select(*sweeps.columns).where(_T.sweep_id >= prefix, _T.sweep_id < f"{prefix}\U0010ffff")
        return [_from_row(row) for row in self._connection.execute(statement.order_by(_T.sweep_id).limit(limit))]

    def newest(
        self, limit: int, *, cluster: str | None = None, states: AbstractSet[SweepState] | None = None
    ) -> list[Sweep]:
        """At most `limit` sweeps, the one planned last first; of one cluster and in some states if given."""
        statement = select(*sweeps.columns).order_by(_T.created_at.desc(), _T.sweep_id)
        if cluster is not None:
            statement = statement.where(_T.cluster == cluster)
        if states is not None:
            statement = statement.where(_T.state.in_(_values(states)))
        return [_from_row(row) for row in self._connection.execute(statement.limit(limit))]

    def with_state(self, cluster: str, states: AbstractSet[SweepState] = OPEN_STATES) -> list[Sweep]:
        """The sweeps of a cluster in some states, the one planned first first; those that are open if not said."""
        parameters = {"in_states": _values(states), "on_cluster": cluster}
        # Sorted here: asked for the order, SQLite would walk through all sweeps of the cluster.
        found = [_from_row(row) for row in self._connection.execute(_SELECT_IN_STATES, parameters)]
        return sorted(found, key=lambda sweep: (sweep.created_at, sweep.sweep_id))

    def to_purge(self, cluster: str, as_of: datetime, limit: int) -> list[Sweep]:
        """Ended sweeps whose trash has been kept for its time at `as_of`, the longest overdue first."""
        is_due = (_T.cluster == cluster, _T.purge_at <= as_of, IS_TO_PURGE, _T.state.in_(_values(_PURGEABLE)))
        statement = select(*sweeps.columns).where(*is_due).order_by(_T.purge_at, _T.sweep_id).limit(limit)
        return [_from_row(row) for row in self._connection.execute(statement)]

    def transition(self, sweep_id: str, expected: AbstractSet[SweepState], **changes: Unpack[SweepChanges]) -> bool:
        """Change a sweep if its state is one of `expected`; whether it was. Of two racing, one wins."""
        parameters = {"of_sweep": sweep_id, "in_states": _values(expected)} | _to_values(changes)
        return self._connection.execute(_UPDATE_IN_STATES, parameters).rowcount == 1


def _values(states: Iterable[SweepState]) -> list[str]:
    return sorted(state.value for state in states)


def _to_row(sweep: Sweep) -> dict[str, object]:
    return _to_values({name: getattr(sweep, name) for name in _NAMES})


def _to_values(changes: Mapping[str, Any]) -> dict[str, object]:
    values = dict(changes)
    if "state" in values:
        values["state"] = SweepState(values["state"]).value
    if _OBSTACLES in values:
        values[_OBSTACLES] = _pack(_OBSTACLES, [[each.code, each.sentence] for each in values[_OBSTACLES]])
    if _COUNTS in values:
        counts = [{name: getattr(count, name) for name in _COUNT_FIELDS} for count in values[_COUNTS]]
        values[_COUNTS] = _pack(_COUNTS, counts)
    return values


def _pack(name: str, entries: Sequence[object]) -> dict[str, object]:
    return {name: entries} if entries else {}


def _to_chunk_row(chunk: NewChunk) -> dict[str, object]:
    head = chunk.head
    return {
        "sweep_id": head.sweep_id,
        "number": head.number,
        "feed": head.feed,
        "kind": head.kind,
        "first_time": head.first,
        "last_time": head.last,
        "count": head.count,
        "digest": head.digest,
        "state": ChunkState.OPEN.value,
        "content": chunk.content,
    }


def _from_row(row: Sequence[Any]) -> Sweep:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    values["state"] = SweepState(values["state"])
    obstacles = values[_OBSTACLES].get(_OBSTACLES, ())
    values[_OBSTACLES] = tuple(SweepObstacle(code=code, sentence=sentence) for code, sentence in obstacles)
    values[_COUNTS] = tuple(FeedCount(**count) for count in values[_COUNTS].get(_COUNTS, ()))
    return Sweep(**values)
