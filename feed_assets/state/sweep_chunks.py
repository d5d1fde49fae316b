"""The chunks of sweeps: who works on which, what became of their items, and which instances a sweep is about.

A chunk is claimed by one worker at a time, until a time; who has the lease of the whole sweep may take claims back.
"""

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, func, or_, select, update

from feed_assets.state.errors import ChunkTakenError, SweepDamagedError
from feed_assets.state.retention_schema import sweep_chunks, sweeps
from feed_assets.state.sweep_content import decode_chunk, digest_chunks, encode_results
from feed_assets.state.sweep_records import (
    OPEN_STATES,
    ChunkHead,
    ChunkState,
    ItemResult,
    Sweep,
    SweepChunk,
    SweepState,
)

_T = sweep_chunks.c
_HEAD = (
    _T.sweep_id,
    _T.number,
    _T.feed,
    _T.kind,
    _T.first_time,
    _T.last_time,
    _T.count,
    _T.digest,
    _T.state,
    _T.holder,
    _T.held_until,
)
_FULL = (*_HEAD, _T.content, _T.results)
_PAGE = 20
_FREE: dict[str, object] = {"holder": None, "held_until": None}


class PlannedItem(NamedTuple):
    """Where an item of a sweep stands: its chunk and its place in it."""

    sweep_id: str
    state: SweepState
    chunk: SweepChunk
    place: int


class SweepChunks:
    """The chunks of one sweep as one transaction sees them."""

    def __init__(self, connection: Connection, sweep_id: str) -> None:
        self._connection = connection
        self._sweep_id = sweep_id
        self._is_mine = _T.sweep_id == sweep_id

    def heads(self, *, state: ChunkState | None = None, feed: str | None = None) -> list[ChunkHead]:
        """The chunks without their items, by number; in one state and of one feed if given."""
        return [_to_head(row) for row in self._connection.execute(self._select(_HEAD, state, feed))]

    def get(self, number: int) -> SweepChunk:
        """One chunk.

        Raises:
            SweepDamagedError: there is none of that number, or it is not what was planned.
        """
        row = self._connection.execute(self._select(_FULL).where(_T.number == number)).one_or_none()
        if row is None:
            raise SweepDamagedError(sweep=self._sweep_id, chunk=number)
        return _to_chunk(row)

    def iter_all(self, *, state: ChunkState | None = None, feed: str | None = None) -> Iterator[SweepChunk]:
        """The chunks with their items, by number, a few at a time; in one state and of one feed if given.

        Raises:
            SweepDamagedError: one is not what was planned.
        """
        last = -1
        while True:
            statement = self._select(_FULL, state, feed).where(_T.number > last).limit(_PAGE)
            page = self._connection.execute(statement).all()
            yield from map(_to_chunk, page)
            if len(page) < _PAGE:
                return
            last = page[-1].number

    def progress(self) -> dict[ChunkState, tuple[int, int]]:
        """How many chunks, and how many items in them, are in each state; a state that none has is left out."""
        statement = select(_T.state, func.count(), func.sum(_T.count)).where(self._is_mine).group_by(_T.state)
        return {ChunkState(state): (count, int(items)) for state, count, items in self._connection.execute(statement)}

    def require_intact(self, sweep: Sweep) -> None:
        """Make sure that the chunks are those that were planned, all of them; their items are looked at when read.

        Raises:
            SweepDamagedError: some are missing, were added or differ.
        """
        if digest_chunks(sweep.cluster, self.heads()) != sweep.digest:
            raise SweepDamagedError(sweep=sweep.sweep_id)

    def claim(
        self,
        holder: str,
        now: datetime,
        ttl: timedelta,
        limit: int = 1,
        *,
        state: ChunkState = ChunkState.OPEN,
        feed: str | None = None,
        after: int = -1,
    ) -> list[SweepChunk]:
        """Take at most `limit` chunks in a state until `now + ttl`, the first that can be had above number `after`.

        One that another holder has is passed over until his time has come; one of the same holder is had again. So
        `holder` must name one run of one worker. In a write transaction only.
        """
        free = self._select((_T.number,), state, feed).where(_T.number > after, _is_free(holder, now)).limit(limit)
        numbers = list(self._connection.scalars(free.with_for_update(skip_locked=True)))
        if not numbers:
            return []
        taken = update(sweep_chunks).where(
            self._is_mine, _T.number.in_(numbers), _T.state == state.value, _is_free(holder, now)
        )
        self._connection.execute(taken.values(holder=holder, held_until=now + ttl))
        wanted = self._select(_FULL).where(_T.number.in_(numbers), _T.holder == holder)
        return [_to_chunk(row) for row in self._connection.execute(wanted)]

    def require_claim(self, chunk: ChunkHead, holder: str) -> None:
        """Make sure inside a write transaction that a chunk is the holder's until the transaction ends.

        Raises:
            ChunkTakenError: somebody else has it, or has ended it.
        """
        statement = self._select((_T.state, _T.holder)).where(_T.number == chunk.number).with_for_update()
        row = self._connection.execute(statement).one_or_none()
        if row is None or (row.state, row.holder) != (chunk.state.value, holder):
            raise ChunkTakenError(
                sweep=self._sweep_id, chunk=chunk.number, holder=holder, other=None if row is None else row.holder
            )

    def finish(self, chunk: ChunkHead, holder: str, state: ChunkState, results: Sequence[ItemResult]) -> None:
        """End the work on a claimed chunk: its new state (the same, if there is more to do), a result for each item.

        In the transaction with everything else that the work has changed in the database.

        Raises:
            ChunkTakenError: somebody else has it, or has ended it; the transaction must not be committed.
            ValueError: there is not one result for each item.
        """
        if len(results) != chunk.count:
            raise ValueError(f"{len(results)} results for {chunk.count} items of chunk {chunk.number}")
        self.require_claim(chunk, holder)
        ended = update(sweep_chunks).where(self._is_mine, _T.number == chunk.number)
        self._connection.execute(ended.values(state=state.value, results=encode_results(results), **_FREE))

    def release(self, holder: str) -> int:
        """Give back all that a holder has claimed; how many chunks. For one that stops, or has died."""
        held = update(sweep_chunks).where(self._is_mine, _T.holder == holder)
        return self._connection.execute(held.values(_FREE)).rowcount

    def release_others(self, holder: str) -> int:
        """Take back what anybody but a holder has claimed; how many chunks. For who has the lease of the sweep."""
        held = update(sweep_chunks).where(self._is_mine, _T.holder.is_not(None), _T.holder != holder)
        return self._connection.execute(held.values(_FREE)).rowcount

    def _select(self, columns: Sequence[Any], state: ChunkState | None = None, feed: str | None = None) -> Select[Any]:
        statement = select(*columns).where(self._is_mine).order_by(_T.number)
        if state is not None:
            statement = statement.where(_T.state == state.value)
        return statement if feed is None else statement.where(_T.feed == feed)


def find_planned(
    connection: Connection,
    feed: str,
    cluster: str,
    nominal_time: datetime,
    states: AbstractSet[SweepState] = OPEN_STATES,
) -> list[PlannedItem]:
    """What sweeps in some states take of an instance, with its paths of every kind; for people who ask why."""
    heads = _select_spans(cluster, [feed], states).where(_T.first_time <= nominal_time, _T.last_time >= nominal_time)
    found = []
    for _, sweep_id, state, number in _oldest_first(connection, heads):
        chunk = SweepChunks(connection, sweep_id).get(number)
        places = [place for place, item in enumerate(chunk.items) if item.nominal_time == nominal_time]
        found += [PlannedItem(sweep_id, SweepState(state), chunk, place) for place in places]
    return found


def find_spans(
    connection: Connection,
    cluster: str,
    feeds: Collection[str],
    states: AbstractSet[SweepState] = OPEN_STATES,
    chunk_states: AbstractSet[ChunkState] = frozenset(ChunkState),
) -> list[ChunkHead]:
    """The chunks of feeds in sweeps in some states, without their items: what open sweeps are about."""
    if not feeds:
        return []
    wanted = _select_spans(cluster, feeds, states).where(_T.state.in_(sorted(each.value for each in chunk_states)))
    return [_to_head(row[4:]) for row in _oldest_first(connection, wanted.add_columns(*_HEAD))]


def _select_spans(cluster: str, feeds: Collection[str], states: AbstractSet[SweepState]) -> Select[Any]:
    is_in_state = and_(sweeps.c.state.in_(sorted(state.value for state in states)), sweeps.c.cluster == cluster)
    is_of_sweep = and_(_T.sweep_id == sweeps.c.sweep_id, _T.feed.in_(sorted(set(feeds))))
    columns = (sweeps.c.created_at, sweeps.c.sweep_id, sweeps.c.state, _T.number)
    return select(*columns).join_from(sweeps, sweep_chunks, is_of_sweep).where(is_in_state)


def _oldest_first(connection: Connection, spans: Select[Any]) -> list[Sequence[Any]]:
    """Sorted here: asked for the order, SQLite would walk through all sweeps of the cluster."""
    return sorted(map(tuple, connection.execute(spans)), key=lambda row: (row[0], row[1], row[3]))


def _is_free(holder: str, now: datetime) -> Any:
    return or_(_T.holder.is_(None), _T.holder == holder, _T.held_until <= now)


def _to_head(row: Sequence[Any]) -> ChunkHead:
    sweep_id, number, feed, kind, first, last, count, digest, state, holder, held_until = row
    return ChunkHead(
        sweep_id=sweep_id,
        number=number,
        feed=feed,
        kind=kind,
        first=first,
        last=last,
        count=count,
        digest=digest,
        state=ChunkState(state),
        holder=holder,
        held_until=held_until,
    )


def _to_chunk(row: Sequence[Any]) -> SweepChunk:
    *head, content, results = row
    return decode_chunk(_to_head(head), content, results)
