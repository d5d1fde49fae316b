"""Store the chunks of sweeps: their claims, the results of their items, and the instances of each sweep.

One worker at a time claims a chunk, until an expiry. The holder of a sweep's lease may revoke claims.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select, update

from feed_assets.state.errors import ChunkTakenError, SweepDamagedError
from feed_assets.state.retention_schema import sweep_chunks
from feed_assets.state.rows import RowMapper
from feed_assets.state.sweep_content import decode_chunk, digest_chunks, encode_results
from feed_assets.state.sweep_records import (
    ChunkHead,
    ChunkState,
    ItemResult,
    Sweep,
    SweepChunk,
)

_T = sweep_chunks.c
_ROWS = RowMapper(sweep_chunks, ChunkHead)
_FULL = (*_ROWS.columns, _T.content, _T.results)
_PAGE = 20
_FREE: dict[str, object] = {"holder": None, "held_until": None}


class SweepChunks:
    """The chunks of one sweep as one transaction sees them."""

    def __init__(self, connection: Connection, sweep_id: str) -> None:
        self._connection = connection
        self._sweep_id = sweep_id
        self._is_of_sweep = _T.sweep_id == sweep_id

    def heads(self, *, state: ChunkState | None = None, feed: str | None = None) -> list[ChunkHead]:
        """Return the chunks without their items, by number; in one state and of one feed if given."""
        return _ROWS.find(self._connection, self._select(_ROWS.columns, state, feed))

    def get(self, number: int) -> SweepChunk:
        """Return one chunk.

        Raises:
            SweepDamagedError: there is none with this number, or it differs from the plan.
        """
        row = self._connection.execute(self._select(_FULL).where(_T.number == number)).one_or_none()
        if row is None:
            raise SweepDamagedError(sweep=self._sweep_id, chunk=number)
        return _to_chunk(row)

    def iter_all(self, *, state: ChunkState | None = None, feed: str | None = None) -> Iterator[SweepChunk]:
        """Yield the chunks with their items, by number, a few at a time; in one state and of one feed if given.

        Raises:
            SweepDamagedError: a chunk differs from the plan.
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
        """Return how many chunks, and how many items, are in each state; a state without chunks is left out."""
        statement = select(_T.state, func.count(), func.sum(_T.count)).where(self._is_of_sweep).group_by(_T.state)
        return {state: (count, int(items)) for state, count, items in self._connection.execute(statement)}

    def require_intact(self, sweep: Sweep) -> None:
        """Make sure that the chunks are those that were planned, all of them; items are checked when they are read.

        Raises:
            SweepDamagedError: chunks are missing, were added or differ.
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
        """Claim at most `limit` free chunks in a state until `now + ttl`, in numeric order above `after`.

        Skips chunks of other holders until their claims expire; a holder may claim its own chunks again. So `holder`
        must name one run of one worker. In a write transaction only.
        """
        free = self._select((_T.number,), state, feed).where(_T.number > after, _is_free(holder, now)).limit(limit)
        numbers = list(self._connection.scalars(free.with_for_update(skip_locked=True)))
        if not numbers:
            return []
        taken = update(sweep_chunks).where(
            self._is_of_sweep, _T.number.in_(numbers), _T.state == state, _is_free(holder, now)
        )
        self._connection.execute(taken.values(holder=holder, held_until=now + ttl))
        wanted = self._select(_FULL).where(_T.number.in_(numbers), _T.holder == holder)
        return [_to_chunk(row) for row in self._connection.execute(wanted)]

    def require_claim(self, chunk: ChunkHead, holder: str) -> None:
        """Make sure, inside a write transaction, that the holder keeps its claim on a chunk until the transaction ends.

        Raises:
            ChunkTakenError: another holder has it or has ended it.
        """
        statement = self._select((_T.state, _T.holder)).where(_T.number == chunk.number).with_for_update()
        row = self._connection.execute(statement).one_or_none()
        if row is None or (row.state, row.holder) != (chunk.state, holder):
            raise ChunkTakenError(
                sweep=self._sweep_id, chunk=chunk.number, holder=holder, other=None if row is None else row.holder
            )

    def finish(self, chunk: ChunkHead, holder: str, state: ChunkState, results: Sequence[ItemResult]) -> None:
        """End the work on a claimed chunk: write its new state (the same, if there is more to do) and a result for each
        item.

        Call it in the transaction with all other database changes of the work.

        Raises:
            ChunkTakenError: another holder has it or has ended it; the transaction must not be committed.
            ValueError: the number of results differs from the number of items.
        """
        if len(results) != chunk.count:
            raise ValueError(f"{len(results)} results for {chunk.count} items of chunk {chunk.number}")
        self.require_claim(chunk, holder)
        ended = update(sweep_chunks).where(self._is_of_sweep, _T.number == chunk.number)
        self._connection.execute(ended.values(state=state, results=encode_results(results), **_FREE))

    def release(self, holder: str) -> int:
        """Release all claims of a holder that stops or has died; return how many chunks."""
        held = update(sweep_chunks).where(self._is_of_sweep, _T.holder == holder)
        return self._connection.execute(held.values(_FREE)).rowcount

    def _select(self, columns: Sequence[Any], state: ChunkState | None = None, feed: str | None = None) -> Select[Any]:
        statement = select(*columns).where(self._is_of_sweep).order_by(_T.number)
        if state is not None:
            statement = statement.where(_T.state == state)
        return statement if feed is None else statement.where(_T.feed == feed)


def _is_free(holder: str, now: datetime) -> Any:
    return or_(_T.holder.is_(None), _T.holder == holder, _T.held_until <= now)


def _to_chunk(row: Sequence[Any]) -> SweepChunk:
    *head, content, results = row
    return decode_chunk(_ROWS.load(head), content, results)
