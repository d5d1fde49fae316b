"""Store planned sweeps, and change their state by compare-and-set."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Unpack

from sqlalchemy import ColumnElement, select, update

from feed_assets.entities.common import Kind
from feed_assets.log.messages.lineage import tell
from feed_assets.log.messages.payloads import Happening, LineagePayload
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import (
    OPEN_STATES,
    VERSION,
    WHILE_A_VERSION,
    Sweep,
    SweepChanges,
    SweepChunk,
    SweepState,
)
from feed_assets.log.removals.tables import IS_TO_PURGE, sweep_chunks, sweeps
from feed_assets.sql.database import tells_lineage
from feed_assets.sql.rows import RowMapper, TableStore, count_rows
from feed_assets.sql.totals import Total, TotalKind, Totals

_T = sweeps.c
_ROWS = RowMapper(sweeps, Sweep)
_PURGEABLE = frozenset({SweepState.DONE, SweepState.UNDONE})


class Sweeps(TableStore):
    """The sweeps as one transaction sees them."""

    def add(self, sweep: Sweep, chunks: Iterable[SweepChunk]) -> None:
        """Store a planned sweep with its chunks."""
        _ROWS.insert(self._connection, [sweep])
        if not sweep.is_open:
            Totals(self._connection).add([Total(TotalKind.SWEEPS, "", sweep.cluster, sweep.state)])
        SweepChunks(self._connection, sweep.sweep_id).add(chunks)

    def find(self, sweep_id: str) -> Sweep | None:
        """Return one sweep; None if there is none with this id."""
        return _ROWS.find_one(self._connection, _ROWS.select.where(_T.sweep_id == sweep_id))

    def find_many(self, sweep_ids: Collection[str]) -> dict[str, Sweep]:
        """Return the existing sweeps, by id."""
        found = _ROWS.find(self._connection, _ROWS.select.where(_T.sweep_id.in_(sorted(set(sweep_ids)))))
        return {sweep.sweep_id: sweep for sweep in found}

    def find_prefix(self, prefix: str) -> list[Sweep]:
        """Return the first two sweeps whose id has a prefix; for people who abbreviate ids."""
        statement = _ROWS.select.where(_T.sweep_id >= prefix, _T.sweep_id < f"{prefix}\U0010ffff")
        return _ROWS.find(self._connection, statement.order_by(_T.sweep_id).limit(2))

    def newest(self, limit: int, clusters: Collection[str] = (), states: Collection[SweepState] = ()) -> list[Sweep]:
        """Return at most `limit` sweeps, the last planned first; of some clusters and in some states if given."""
        statement = _ROWS.select.where(*_is_one_of(clusters, states)).order_by(_T.created_at.desc(), _T.sweep_id)
        return _ROWS.find(self._connection, statement.limit(limit))

    def count(self, end: int, clusters: Collection[str] = (), states: Collection[SweepState] = ()) -> int:
        """Return how many sweeps there are (see `count_rows`); of some clusters and in some states if given."""
        return count_rows(self._connection, select(_T.sweep_id).where(*_is_one_of(clusters, states)), end)

    def with_state(self, cluster: str, states: AbstractSet[SweepState] = OPEN_STATES) -> list[Sweep]:
        """Return the sweeps of a cluster in some states, by default open ones, in the order of planning."""
        # Sorted here: with ORDER BY, SQLite would scan all sweeps of the cluster.
        found = _ROWS.find(self._connection, _ROWS.select.where(_T.state.in_(sorted(states)), _T.cluster == cluster))
        return sorted(found, key=lambda sweep: (sweep.created_at, sweep.sweep_id))

    def clusters(self) -> set[str]:
        """Return the clusters of all sweeps, also those that are not declared any more."""
        return set(self._connection.scalars(select(_T.cluster).distinct()))

    def to_purge(self, cluster: str, as_of: datetime, limit: int) -> list[Sweep]:
        """Return ended sweeps whose trash is due for purging at `as_of`, the longest overdue first."""
        is_due = (_T.cluster == cluster, _T.purge_at <= as_of, IS_TO_PURGE, _T.state.in_(sorted(_PURGEABLE)))
        statement = _ROWS.select.where(*is_due).order_by(_T.purge_at, _T.sweep_id).limit(limit)
        return _ROWS.find(self._connection, statement)

    def end_versions(self, feed: str, cluster: str, keep: int, as_of: datetime) -> None:
        """Make the trash of former versions of a feed due for purging, except that of the `keep` newest."""
        is_kept = (_T.cluster == cluster, _T.purge_at == WHILE_A_VERSION, IS_TO_PURGE, _T.state == SweepState.DONE)
        is_one = sweep_chunks.c.sweep_id == _T.sweep_id, sweep_chunks.c.feed == feed, sweep_chunks.c.kind == VERSION
        statement = select(_T.sweep_id).where(*is_kept, *is_one).order_by(_T.created_at.desc(), _T.sweep_id.desc())
        for sweep_id in self._connection.scalars(statement).all()[keep:]:
            self.transition(sweep_id, {SweepState.DONE}, state=SweepState.DONE, purge_at=as_of)

    def transition(self, sweep_id: str, expected: AbstractSet[SweepState], **changes: Unpack[SweepChanges]) -> bool:
        """Change a sweep if its state is one of `expected`; return whether it was. Of two concurrent calls, one
        wins.
        """
        is_expected = (_T.sweep_id == sweep_id, _T.state.in_(sorted(expected)))
        statement = update(sweeps).where(*is_expected).values(**changes).returning(_T.cluster)
        clusters = self._connection.scalars(statement).all()
        if clusters and tells_lineage(self._connection):
            self._tell(sweep_id, was_running=SweepState.RUNNING in expected)
        if changes["state"] not in OPEN_STATES | expected:
            Totals(self._connection).add(Total(TotalKind.SWEEPS, "", cluster, changes["state"]) for cluster in clusters)
        return bool(clusters)

    def _tell(self, sweep_id: str, *, was_running: bool) -> None:
        """Tell that a sweep begins, or ends; one that is undone while it runs does so before its end."""
        sweep, ends = self.find(sweep_id), {SweepState.RUNNING: Happening.START}
        if was_running:
            ends = {SweepState.DONE: Happening.COMPLETE, SweepState.UNDOING: Happening.ABORT}
        if sweep is not None and sweep.state in ends and sweep.started_at is not None:
            whole: dict[str, Any] = {"cluster": sweep.cluster, "sweep": sweep_id, "begun_at": sweep.started_at}
            whole |= {"happening": ends[sweep.state], "kind": Kind.FEED}
            told = {f"sweep/{sweep_id}/{each.feed}": LineagePayload(entity=each.feed, **whole) for each in sweep.counts}
            tell(self._connection, sweep.ended_at or sweep.started_at, told)


def _is_one_of(clusters: Collection[str], states: Collection[SweepState]) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if clusters:
        conditions.append(_T.cluster.in_(sorted(clusters)))
    if states:
        conditions.append(_T.state.in_(sorted(states)))
    return conditions
